//! From and to engines whose blocks no agent sees, by two whole agents.

use std::path::Path;

use lynx_proto::engine::v1::Role;
use lynx_transport::emulate::{Fabric, FabricCounts};

use crate::carriage::Carriage;
use crate::testing::agents::{Memory, comes_whole, comes_whole_by};
use crate::testing::by_engine::ByItself;

/// Where agents find no kernels: they need none.
const NOWHERE: &str = "/nowhere";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_agents_bring_kv_between_engines_that_code_by_themselves_bit_for_bit() {
    let directory = tempfile::tempdir().unwrap();
    let [from, to] = ["p.units", "d.units"].map(|file| {
        let engine = ByItself::on_host(directory.path(), file, 8 << 20);
        Memory::by_itself(engine)
    });
    comes_whole(Path::new(NOWHERE), from, to, directory.path()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_agents_bring_fp16_between_engines_that_code_by_themselves_as_its_bf16() {
    let directory = tempfile::tempdir().unwrap();
    let [from, to] = ["p.units", "d.units"].map(|file| {
        let engine = ByItself::on_host(directory.path(), file, 8 << 20);
        Memory::by_itself(engine).of_fp16()
    });
    comes_whole(Path::new(NOWHERE), from, to, directory.path()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_engine_has_coded_goes_to_a_card_from_where_it_lies() {
    let directory = tempfile::tempdir().unwrap();
    let fabric = Fabric::new(21);
    let [from, to] = ["p.units", "d.units"].map(|file| {
        let engine = ByItself::on_host(directory.path(), file, 8 << 20);
        Memory::by_itself(engine)
    });
    let carriage = || Carriage::by(fabric.adapter(), true);
    let folder = directory.path();
    comes_whole_by(&carriage, Path::new(NOWHERE), [from, to], folder).await;
    let FabricCounts { bytes, lent, .. } = fabric.counts();
    // The rest are frames, short segments, and packets that show that cards reach each other.
    assert!(lent > bytes / 2, "{lent} of {bytes}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_agents_bring_kv_between_such_an_engine_and_one_with_shared_memory_bit_for_bit() {
    let directory = tempfile::tempdir().unwrap();
    let engine = ByItself::on_host(directory.path(), "p.units", 8 << 20);
    let to = Memory::on_host(directory.path(), Role::Decode, 2);
    comes_whole(
        Path::new(NOWHERE),
        Memory::by_itself(engine),
        to,
        directory.path(),
    )
    .await;

    let directory = tempfile::tempdir().unwrap();
    let from = Memory::on_host(directory.path(), Role::Prefill, 1);
    let engine = ByItself::on_host(directory.path(), "d.units", 8 << 20);
    comes_whole(
        Path::new(NOWHERE),
        from,
        Memory::by_itself(engine),
        directory.path(),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the fake driver, with which another test runs it"]
async fn kv_comes_from_gpu_to_gpu_by_the_engines_alone() {
    let directory = tempfile::tempdir().unwrap();
    let [from, to] = ["p.units", "d.units"].map(|file| {
        let engine = ByItself::on_gpu(directory.path(), file, 8 << 20);
        Memory::by_itself(engine)
    });
    comes_whole(Path::new(NOWHERE), from, to, directory.path()).await;
}
