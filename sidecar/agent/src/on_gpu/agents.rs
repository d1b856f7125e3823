//! From and to a GPU's memory, by two whole agents.

use lynx_proto::engine::v1::Role;
use lynx_transport::emulate::{Fabric, FabricCounts};

use crate::carriage::Carriage;
use crate::testing::agents::{Memory, comes_whole, comes_whole_by};
use crate::testing::driver;
use crate::testing::gpu::By;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the fake driver, with which another test runs it"]
async fn kv_comes_from_gpu_to_gpu() {
    let directory = tempfile::tempdir().unwrap();
    let [from, to] = [By::Ipc, By::Descriptor].map(Memory::on_gpu);
    comes_whole(&driver::kernels(), from, to, directory.path()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the fake driver, with which another test runs it"]
async fn a_card_reads_kv_where_a_gpu_has_left_it() {
    let directory = tempfile::tempdir().unwrap();
    let fabric = Fabric::new(22);
    let ends = [By::Ipc, By::Descriptor].map(Memory::on_gpu);
    let carriage = || Carriage::by(fabric.adapter(), true);
    comes_whole_by(&carriage, &driver::kernels(), ends, directory.path()).await;
    let FabricCounts { bytes, lent, .. } = fabric.counts();
    // The rest are frames, short segments, and packets that show that cards reach each other.
    assert!(lent > bytes / 2, "{lent} of {bytes}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the fake driver, with which another test runs it"]
async fn kv_comes_from_a_gpu_to_host_memory() {
    let directory = tempfile::tempdir().unwrap();
    let to = Memory::on_host(directory.path(), Role::Decode, 2);
    comes_whole(
        &driver::kernels(),
        Memory::on_gpu(By::Descriptor),
        to,
        directory.path(),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the fake driver, with which another test runs it"]
async fn kv_comes_from_host_memory_to_a_gpu() {
    let directory = tempfile::tempdir().unwrap();
    let from = Memory::on_host(directory.path(), Role::Prefill, 1);
    comes_whole(
        &driver::kernels(),
        from,
        Memory::on_gpu(By::Ipc),
        directory.path(),
    )
    .await;
}
