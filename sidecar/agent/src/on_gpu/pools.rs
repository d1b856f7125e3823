//! Pools that are refused, and how a session with one ends.

use lynx_proto::engine::v1::gpu_memory::Handle;
use lynx_proto::engine::v1::{Attach, GpuMemory, GpuPool, LayerPlace, Role};
use tokio::task::JoinSet;
use tonic::Code;

use crate::config;
use crate::pool::{GpuOptions, Readable};
use crate::session::{Options, Socket};
use crate::testing::gpu::{By, OnGpu, hand_over, options};
use crate::testing::{FakeEngine, attach, soon};

/// A change, and what is said about it.
type Case = (fn(&mut Attach), &'static str);

fn socket_options(directory: &std::path::Path, gpu: GpuOptions) -> Options {
    Options {
        socket: directory.join("engine.sock"),
        shared_directory: directory.to_owned(),
        role: config::Role::Prefill,
        has_http: false,
        gpu,
    }
}

fn gpu_of(attach: &mut Attach) -> &mut GpuPool {
    attach.pool.as_mut().unwrap().gpu.as_mut().unwrap()
}

fn layout_of(attach: &mut Attach) -> &mut lynx_proto::engine::v1::Layout {
    attach.layout.as_mut().unwrap()
}

const CASES: [Case; 18] = [
    (|a| gpu_of(a).device_uuid = vec![9; 16], "no GPU-09090909"),
    (|a| gpu_of(a).device_uuid.clear(), "has 16 bytes"),
    (|a| gpu_of(a).memories.clear(), "of 0 memories"),
    (
        |a| gpu_of(a).memories = vec![GpuMemory::default(); 1025],
        "of 1025 memories",
    ),
    (
        |a| gpu_of(a).memories[1].handle = None,
        "memory 1 of the pool has no handle",
    ),
    (
        |a| gpu_of(a).memories[0].handle = Some(Handle::Ipc(vec![0; 63])),
        "memory 0 of the pool has no handle",
    ),
    (
        |a| gpu_of(a).memories[0].handle = Some(Handle::Ipc(vec![1; 64])),
        "memory 0 of the pool can't be opened",
    ),
    (
        |a| gpu_of(a).memories[0].handle = Some(Handle::Descriptor(vec![7; 16])),
        "the descriptor of memory 0 has not come",
    ),
    (|a| gpu_of(a).layers.truncate(1), "each of 2 layers"),
    (
        |a| {
            gpu_of(a).layers[0] = LayerPlace {
                memory: 2,
                offset: 0,
            }
        },
        "each of 2 layers",
    ),
    (
        |a| gpu_of(a).layers[1].offset += 1 << 30,
        "a layer that begins at",
    ),
    (
        |a| gpu_of(a).layers[1].offset = u64::MAX,
        "a layer that begins at",
    ),
    (
        |a| gpu_of(a).layers[1].offset -= 8,
        "no multiple of 16 bytes",
    ),
    (|a| gpu_of(a).token_stride = 130, "the token stride of 130"),
    (|a| layout_of(a).block_tokens = 48, "blocks of 48 tokens"),
    (
        |a| layout_of(a).k_order = lynx_proto::engine::v1::Order::ChannelToken.into(),
        "[token][channel]",
    ),
    (|a| layout_of(a).v_offset += 8, "is not a multiple of 16"),
    (
        |a| a.pool.as_mut().unwrap().file = "pool".to_owned(),
        "both a file and",
    ),
];

/// A pool on a GPU that nobody has here.
fn elsewhere() -> Attach {
    let mut attach = attach(Role::Prefill, 8);
    let layout = layout_of(&mut attach);
    (layout.block_tokens, layout.layer_stride) = (16, 0);
    (layout.head_stride, layout.block_stride, layout.v_offset) = (128, 4096, 8 * 4096);
    layout.k_order = lynx_proto::engine::v1::Order::TokenChannel.into();
    let memory = GpuMemory {
        bytes: 1 << 20,
        handle: Some(Handle::Ipc(vec![1; 64])),
    };
    let pool = attach.pool.as_mut().unwrap();
    pool.file.clear();
    pool.gpu = Some(GpuPool {
        device_uuid: vec![9; 16],
        memories: vec![memory],
        layers: vec![LayerPlace::default(); 2],
        token_stride: 256,
    });
    attach
}

#[tokio::test]
async fn an_agent_without_that_gpu_refuses_the_pool_in_one_sentence() {
    let directory = tempfile::tempdir().unwrap();
    let options = socket_options(directory.path(), GpuOptions::default());
    let (socket, _engines) = Socket::open(options).unwrap();
    let mut server = JoinSet::new();
    server.spawn(socket.run());
    let path = directory.path().join("engine.sock");
    let status = FakeEngine::attach(&path, elsewhere()).await.err().unwrap();
    assert_eq!(status.code(), Code::FailedPrecondition);
    let said = status.message();
    // Which it is depends on the machine: no driver, no such GPU, or no kernels.
    let begins =
        "the engine's pool is in a GPU's memory, and this agent codes KV on the processor: ";
    assert!(said.starts_with(begins), "{said}");
    assert!(
        said.contains("give the agent's container the engine's GPU"),
        "{said}"
    );
}

#[tokio::test]
#[ignore = "needs the fake driver, with which another test runs it"]
async fn what_is_no_pool_is_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let (socket, _engines) = Socket::open(socket_options(directory.path(), options())).unwrap();
    let mut server = JoinSet::new();
    server.spawn(socket.run());
    let engine = OnGpu::new(By::Ipc, 8);
    let path = directory.path().join("engine.sock");
    for (change, expected) in CASES {
        let mut attach = engine.attach(Role::Prefill);
        change(&mut attach);
        let status = FakeEngine::attach(&path, attach).await.err().unwrap();
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert!(status.message().contains(expected), "{expected}: {status}");
    }
    // Kernels that aren't there are a reason, too.
    let other = tempfile::tempdir().unwrap();
    let (socket, _engines) =
        Socket::open(socket_options(other.path(), GpuOptions::default())).unwrap();
    server.spawn(socket.run());
    let path = other.path().join("engine.sock");
    let status = FakeEngine::attach(&path, engine.attach(Role::Prefill))
        .await
        .err()
        .unwrap();
    assert!(
        status.message().contains("there are no kernels"),
        "{status}"
    );
}

#[tokio::test]
#[ignore = "needs the fake driver, with which another test runs it"]
async fn the_stream_ends_after_the_pool() {
    let directory = tempfile::tempdir().unwrap();
    let (socket, mut engines) = Socket::open(socket_options(directory.path(), options())).unwrap();
    let mut attachment = socket.attachment();
    let mut server = JoinSet::new();
    server.spawn(socket.run());
    let owner = OnGpu::new(By::Descriptor, 8);
    let path = directory.path().join("engine.sock");
    let connection = hand_over(&path, &owner.descriptors()).await;
    let mut engine = FakeEngine::attach(&path, owner.attach(Role::Prefill))
        .await
        .unwrap();
    drop(connection);
    let attached = soon(engines.recv()).await.unwrap();
    let told = soon(attachment.wait_for(|state| state.engine.is_some())).await;
    assert!(
        told.unwrap()
            .gpu
            .as_ref()
            .unwrap()
            .contains("Fake GPU (sm_90)")
    );
    let table = Readable::new(attached.engine.pool(), vec![1, 2, 3, 4], 64, 64).unwrap();
    attached.engine.refuse("not wanted");
    drop(attached);
    // The role has let go of the engine, and a thread still has blocks of its pool.
    let told = tokio::time::timeout(std::time::Duration::from_millis(300), engine.hear()).await;
    assert!(told.is_err(), "{told:?}");
    drop(table);
    let status = engine.hear().await.unwrap_err();
    assert_eq!(status.message(), "not wanted");
    let told = soon(attachment.wait_for(|state| state.engine.is_none())).await;
    assert_eq!(told.unwrap().gpu, None);
}
