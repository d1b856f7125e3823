//! From and to a GPU's memory, by two whole agents.

use lynx_proto::engine::v1::Role;

use crate::testing::agents::{Memory, comes_whole};
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
