//! Memory that two processes share, and the GPU's number by which they agree on it; with the fake driver.

use std::env;
use std::fs::File;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::process::Command;

use lynx_cuda::{
    Cache, Choice, Coder as _, GpuCoder, Imported, IpcHandle, Mapped, Memory, Options, Place, Uuid,
    Which, Why, choose,
};
use lynx_gpu::Pages;
use lynx_kernels::Kind;

use crate::common::{Case, Random};
use crate::on_gpu::{BUDGET, case, device, processor};

#[test]
#[ignore = "needs the fake driver, with which another test runs it"]
fn a_descriptor_is_of_its_memory_alone() {
    let (device, _) = device();
    let owner = Mapped::new(&device, 3 << 20).unwrap();
    assert_eq!(owner.bytes(), 4 << 20, "the granularity is 2 MiB");
    let descriptor = owner.descriptor().unwrap();
    assert!(Mapped::import(&device, descriptor.as_fd(), 2 << 20).is_err());
    let other = File::open("/dev/null").unwrap();
    assert!(Mapped::import(&device, other.as_fd(), 4 << 20).is_err());
}

/// A unit of V, and where its values are in memory of more than ten of its pages.
fn case_in_pages(seed: u64) -> (Case, Place) {
    let case = case(&mut Random::new(seed), 0, Kind::V, true);
    let place = Place {
        pages: Pages::nhd(case.plan.shape(), 16).unwrap(),
        table: vec![7, 3, 0, 5, 1, 2, 9, 4],
        half: false,
    };
    (case, place)
}

#[test]
#[ignore = "needs the fake driver, with which another test runs it"]
fn a_descriptor_maps_the_same_memory_again() {
    let (device, images) = device();
    let owner = Mapped::new(&device, 3 << 20).unwrap();
    let descriptor = owner.descriptor().unwrap();
    let twice = Mapped::import(&device, descriptor.as_fd(), owner.bytes()).unwrap();
    assert_ne!(owner.address(), twice.address());
    drop(descriptor);

    let (case, place) = case_in_pages(21);
    let (plan, order) = (&case.plan, &case.order);
    // SAFETY: the memory has more than ten such pages, and is this test's alone.
    let cache = |memory: &Mapped| unsafe { Cache::new(memory.address(), place.clone()) };
    let mut gpu = GpuCoder::new(&device, images, BUDGET).unwrap();
    gpu.write(plan, &mut cache(&owner), &case.blocks).unwrap();
    let found = gpu.split(plan, order, &cache(&twice), true).unwrap();
    let expected = processor().split(plan, order, &case.blocks, true).unwrap();
    assert_eq!(found, expected);
    // What one holds stays, whoever lets go first.
    drop(owner);
    assert!(gpu.read(plan, &cache(&twice)).unwrap().data() == case.blocks.data());
    // The library checks when the context goes that nothing is left of it.
    drop((twice, gpu));
}

/// What the engine's process tells the agent's.
const HANDLE: &str = "LYNX_TEST_IPC_HANDLE";

#[test]
#[ignore = "needs the fake driver, with which another test runs it"]
fn an_engines_memory_is_coded_by_another_process() {
    let (device, images) = device();
    let memory = Memory::new(&device, 1 << 20).unwrap();
    let (case, place) = case_in_pages(22);
    // SAFETY: the memory has more than ten such pages, and nobody else uses it while this process does.
    let cache = || unsafe { Cache::new(memory.address(), place.clone()) };
    let mut gpu = GpuCoder::new(&device, images, BUDGET).unwrap();
    gpu.write(&case.plan, &mut cache(), &case.blocks).unwrap();
    let handle = memory.ipc_handle().unwrap().0;
    let handle: Vec<_> = handle.iter().map(u8::to_string).collect();
    let agent = Command::new(env::current_exe().unwrap())
        .args(["--exact", "sharing::memory_of_another_process_is_coded"])
        .args(["--ignored", "--nocapture", "--test-threads=1"])
        .env(HANDLE, handle.join(" "))
        .status();
    assert!(agent.unwrap().success(), "its output is above");
    // It has split these values, and written others in their place.
    let (other, _) = case_in_pages(23);
    assert!(gpu.read(&other.plan, &cache()).unwrap().data() == other.blocks.data());
}

#[test]
#[ignore = "needs memory of another process, which runs it"]
fn memory_of_another_process_is_coded() {
    let told = env::var_os(HANDLE).expect("the engine's process tells of its memory");
    let numbers = told.to_str().unwrap().split(' ');
    let handle: Vec<u8> = numbers.map(|number| number.parse().unwrap()).collect();
    let (device, images) = device();
    let handle = IpcHandle(handle.try_into().unwrap());
    let memory = Imported::open(&device, handle).unwrap();
    assert!(memory.bytes() >= 1 << 20);
    let (case, place) = case_in_pages(22);
    // SAFETY: the memory has more than ten such pages, and its owner waits for this process's end.
    let mut cache = unsafe { Cache::new(memory.address(), place) };
    let mut gpu = GpuCoder::new(&device, images, BUDGET).unwrap();
    let (plan, order) = (&case.plan, &case.order);
    let expected = processor().split(plan, order, &case.blocks, true).unwrap();
    assert_eq!(gpu.split(plan, order, &cache, true).unwrap(), expected);
    let (other, _) = case_in_pages(23);
    let (plan, order) = (&other.plan, &other.order);
    let received = processor().split(plan, order, &other.blocks, true).unwrap();
    gpu.restore(plan, order, &received, &mut cache).unwrap();
    // The library checks when the context goes that nothing is left of it.
    drop((memory, gpu));
}

#[test]
#[ignore = "needs the fake driver, with which another test runs it"]
fn an_adapter_is_given_memory_as_a_dma_buf() {
    let (device, _) = device();
    let memory = Memory::new(&device, 2 << 20).unwrap();
    let descriptor = memory.dma_buf().unwrap();
    let name = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
    let name = std::fs::read_link(name).unwrap();
    assert!(name.to_string_lossy().contains("dma"), "{name:?}");
}

#[test]
#[ignore = "needs the fake driver, with which another test runs it"]
fn a_gpu_has_one_number_everywhere() {
    let (device, _) = device();
    let uuid = device.uuid();
    assert_eq!(uuid.to_string(), "GPU-4c796e78-2773-2066-616b-65204750552e");
    let options = |uuid| Options {
        device: Which::Uuid(uuid),
        kernels: crate::fake::kernels(),
    };
    match choose(&options(uuid)) {
        Choice::Gpu(found, _) => assert_eq!(found.uuid(), uuid),
        Choice::Processor(why) => panic!("{why:?}"),
    }
    let other = Uuid([1; 16]);
    let choice = choose(&options(other));
    assert!(
        choice
            .to_string()
            .ends_with("no GPU-01010101-0101-0101-0101-010101010101")
    );
    assert!(matches!(choice, Choice::Processor(Why::NoDevice(Which::Uuid(it))) if it == other));
}
