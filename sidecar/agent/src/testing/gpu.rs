//! Engines whose pool is in a GPU's memory, with the fake driver.
#![expect(
    unsafe_code,
    reason = "values of kernels are vouched for by whoever has the memory"
)]

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use lynx_cuda::{
    Cache, Choice, Device, GpuCoder, Images, Mapped, Memory, Options, Place, bf16_of_fp16, choose,
    fp16_of_bf16,
};
use lynx_gpu::Pages;
use lynx_kernels::{Blocks, Cuts, Kind, KvShape, RawTokens, UnitPlan};
use lynx_proto::engine::v1::gpu_memory::Handle;
use lynx_proto::engine::v1::{Attach, ElementType, GpuMemory, GpuPool, LayerPlace, Order, Role};
use lynx_units::Width;

use super::{Random, attach, driver};
use crate::pool::{GpuOptions, Layout, Pool};

pub(crate) const SHAPE: KvShape = KvShape {
    layers: 2,
    kv_heads: 2,
    head_dim: 64,
};
/// Tokens of a page.
pub(crate) const PAGE: u32 = 16;
/// What lies before a layer in its memory: an allocator has cut it from more.
const LEAD: u64 = 4096;
/// From a head to the next, and so on: `[K, V][page][token][head][channel]`.
const HEAD: u64 = 64 * 2;
const TOKEN: u64 = 2 * HEAD;
const BLOCK: u64 = PAGE as u64 * TOKEN;

/// How a process is given the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    Ipc,
    Descriptor,
}

/// The engine's memory: one allocation a layer.
enum Owned {
    Ipc(Memory),
    Descriptor(Mapped),
}

impl Owned {
    fn address(&self) -> u64 {
        match self {
            Self::Ipc(memory) => memory.address(),
            Self::Descriptor(memory) => memory.address(),
        }
    }
}

/// A pool in a GPU's memory, as its engine has it.
pub(crate) struct OnGpu {
    coder: GpuCoder,
    layers: Vec<Owned>,
    pages: u32,
    is_half: bool,
    device: Device,
}

pub(crate) fn options() -> GpuOptions {
    GpuOptions {
        kernels: driver::kernels(),
        ..GpuOptions::default()
    }
}

fn gpu() -> (Device, Images) {
    let options = Options {
        kernels: driver::kernels(),
        ..Options::default()
    };
    match choose(&options) {
        Choice::Gpu(device, images) => (device, images),
        Choice::Processor(why) => panic!("{why:?}"),
    }
}

impl OnGpu {
    pub(crate) fn new(by: By, pages: u32) -> Self {
        let (device, images) = gpu();
        let bytes = usize::try_from(LEAD + 2 * u64::from(pages) * BLOCK).unwrap();
        let layers = (0..SHAPE.layers).map(|_| match by {
            By::Ipc => Owned::Ipc(Memory::new(&device, bytes).unwrap()),
            By::Descriptor => Owned::Descriptor(Mapped::new(&device, bytes).unwrap()),
        });
        Self {
            layers: layers.collect(),
            coder: GpuCoder::new(&device, images, 16 << 20).unwrap(),
            pages,
            is_half: false,
            device,
        }
    }

    /// With FP16.
    pub(crate) fn of_fp16(self) -> Self {
        let is_half = true;
        Self { is_half, ..self }
    }

    pub(crate) fn is_half(&self) -> bool {
        self.is_half
    }

    /// What the engine says of itself; its descriptors are named by their layers.
    pub(crate) fn attach(&self, role: Role) -> Attach {
        let mut attach = attach(role, self.pages);
        let layout = attach.layout.as_mut().unwrap();
        layout.block_tokens = PAGE;
        layout.block_stride = BLOCK;
        layout.head_stride = HEAD;
        layout.layer_stride = 0;
        layout.v_offset = u64::from(self.pages) * BLOCK;
        layout.k_order = Order::TokenChannel.into();
        layout.element = element(self.is_half);
        let memories = self
            .layers
            .iter()
            .zip(0..)
            .map(|(memory, layer)| match memory {
                Owned::Ipc(memory) => GpuMemory {
                    bytes: memory.bytes() as u64,
                    handle: Some(Handle::Ipc(memory.ipc_handle().unwrap().0.to_vec())),
                },
                Owned::Descriptor(memory) => GpuMemory {
                    bytes: memory.bytes() as u64,
                    handle: Some(Handle::Descriptor(vec![layer; 16])),
                },
            });
        let pool = attach.pool.as_mut().unwrap();
        pool.file.clear();
        pool.gpu = Some(GpuPool {
            device_uuid: self.device.uuid().0.to_vec(),
            memories: memories.collect(),
            layers: (0..2)
                .map(|memory| LayerPlace {
                    memory,
                    offset: LEAD,
                })
                .collect(),
            token_stride: TOKEN,
        });
        attach
    }

    /// The descriptors, by name.
    pub(crate) fn descriptors(&self) -> Vec<([u8; 16], OwnedFd)> {
        let layers = self.layers.iter().zip(0..);
        let each = layers.filter_map(|(memory, layer)| match memory {
            Owned::Ipc(_) => None,
            Owned::Descriptor(memory) => Some(([layer; 16], memory.descriptor().unwrap())),
        });
        each.collect()
    }

    /// The pool as an agent opens it.
    pub(crate) fn open(&self, role: Role) -> Arc<Pool> {
        let attach = self.attach(role);
        let (layout, pool) = (attach.layout.unwrap(), attach.pool.unwrap());
        let gpu = pool.gpu.clone().unwrap();
        let layout = Layout::on_gpu(&layout, &gpu).unwrap();
        let descriptors = self.descriptors();
        let find = |name: &[u8]| {
            let found = descriptors.iter().find(|(other, _)| other == name);
            found.map(|(_, descriptor)| descriptor.try_clone().unwrap())
        };
        Arc::new(Pool::import(&pool, &gpu, layout, &options(), find).unwrap())
    }

    /// Where page 0 of a layer's K or V begins.
    pub(crate) fn base(&self, layer: usize, kind: Kind) -> u64 {
        let within = match kind {
            Kind::K => 0,
            Kind::V => u64::from(self.pages) * BLOCK,
        };
        self.layers[layer].address() + LEAD + within
    }

    fn cache(&self, layer: usize, kind: Kind, table: &[u32]) -> Cache {
        let place = Place {
            pages: Pages::nhd(SHAPE, PAGE).unwrap(),
            table: table.to_vec(),
            half: self.is_half,
        };
        let base = self.base(layer, kind);
        // SAFETY: the pages are in the layer's memory, and the test lets nobody use them meanwhile.
        unsafe { Cache::new(base, place) }
    }

    /// Computes a prompt.
    pub(crate) fn fill(&mut self, table: &[u32], kv: &Kv) {
        for (layer, kind) in parts() {
            let mut cache = self.cache(layer, kind, table);
            let blocks = kv.blocks(layer, kind);
            self.coder
                .write(&kv.plan(kind), &mut cache, blocks)
                .unwrap();
        }
    }

    /// What is in these pages.
    pub(crate) fn read(&mut self, table: &[u32], tokens: u32) -> Kv {
        let mut kv = Kv::new(tokens);
        for (layer, kind) in parts() {
            let cache = self.cache(layer, kind, table);
            let plan = kv.plan(kind);
            kv.set(layer, kind, self.coder.read(&plan, &cache).unwrap());
        }
        kv
    }
}

pub(crate) fn element(is_half: bool) -> i32 {
    let element = if is_half {
        ElementType::Fp16
    } else {
        ElementType::Bf16
    };
    element.into()
}

pub(crate) fn parts() -> impl Iterator<Item = (usize, Kind)> {
    (0..SHAPE.layers).flat_map(|layer| Kind::ALL.map(|kind| (layer, kind)))
}

/// A prompt's KV, wherever it was.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Kv {
    tokens: u32,
    parts: Vec<Blocks>,
}

impl Kv {
    pub(crate) fn new(tokens: u32) -> Self {
        let empty = |(_, kind)| Blocks::new(SHAPE, kind, 0..tokens);
        Self {
            tokens,
            parts: parts().map(empty).collect(),
        }
    }

    /// What FP16 has room for of it.
    pub(crate) fn into_fp16(mut self) -> Self {
        for bits in self.parts.iter_mut().flat_map(Blocks::data_mut) {
            *bits = bf16_of_fp16(fp16_of_bf16(*bits));
        }
        self
    }

    pub(crate) fn tokens(&self) -> u32 {
        self.tokens
    }

    /// What KV looks like.
    pub(crate) fn random(tokens: u32, seed: u64) -> Self {
        let mut kv = Self::new(tokens);
        let mut random = Random(seed);
        for (layer, kind) in parts() {
            for (position, head, channel) in elements(tokens) {
                let blocks = &mut kv.parts[place(layer, kind)];
                let index = blocks.index(position, head, channel);
                blocks.data_mut()[index] = random.bf16();
            }
        }
        kv
    }

    fn plan(&self, kind: Kind) -> UnitPlan {
        let cuts = Cuts::new(Width::from_eighths(32).unwrap(), 4).unwrap();
        UnitPlan::new(SHAPE, kind, 0..self.tokens, RawTokens::none(), cuts).unwrap()
    }

    pub(crate) fn blocks(&self, layer: usize, kind: Kind) -> &Blocks {
        &self.parts[place(layer, kind)]
    }

    pub(crate) fn set(&mut self, layer: usize, kind: Kind, blocks: Blocks) {
        self.parts[place(layer, kind)] = blocks;
    }

    /// Puts it into a pool's file that has this layout, in these blocks of 64 tokens; and takes it from there.
    pub(crate) fn exchange(&mut self, file: &Path, attach: &Attach, table: &[u32], store: bool) {
        let layout = attach.layout.as_ref().unwrap();
        let mut bytes = std::fs::read(file).unwrap();
        for (layer, kind) in parts() {
            for (position, head, channel) in elements(self.tokens) {
                let blocks = &mut self.parts[place(layer, kind)];
                let index = blocks.index(position, head, channel);
                let (block, slot) = (position as usize / 64, position as usize % 64);
                let (within, offset) = match kind {
                    Kind::K => (channel * 64 + slot, 0),
                    Kind::V => (slot * 64 + channel, layout.v_offset),
                };
                let start = u64::from(table[block]) * layout.block_stride
                    + layer as u64 * layout.layer_stride
                    + head as u64 * layout.head_stride
                    + offset;
                let at = usize::try_from(start).unwrap() + within * 2;
                let value: &mut [u8; 2] = (&mut bytes[at..at + 2]).try_into().unwrap();
                if store {
                    *value = blocks.data()[index].to_ne_bytes();
                } else {
                    blocks.data_mut()[index] = u16::from_ne_bytes(*value);
                }
            }
        }
        if store {
            std::fs::write(file, bytes).unwrap();
        }
    }

    /// What is in these blocks of a pool's file.
    pub(crate) fn of_file(file: &Path, attach: &Attach, table: &[u32], tokens: u32) -> Self {
        let mut kv = Self::new(tokens);
        kv.exchange(file, attach, table, false);
        kv
    }
}

fn place(layer: usize, kind: Kind) -> usize {
    layer * 2 + usize::from(kind == Kind::V)
}

pub(crate) fn elements(tokens: u32) -> impl Iterator<Item = (u32, usize, usize)> {
    (0..tokens).flat_map(|position| {
        (0..SHAPE.kv_heads)
            .flat_map(move |head| (0..SHAPE.head_dim).map(move |channel| (position, head, channel)))
    })
}

/// Hands descriptors over, as an engine does, and keeps the connection.
pub(crate) async fn hand_over(
    socket: &Path,
    descriptors: &[([u8; 16], OwnedFd)],
) -> tokio::net::UnixStream {
    use rustix::cmsg_space;
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    use tokio::io::AsyncReadExt as _;

    let mut name = socket.as_os_str().to_owned();
    name.push(".fds");
    let mut stream = tokio::net::UnixStream::connect(name).await.unwrap();
    for (name, descriptor) in descriptors {
        let mut space = [std::mem::MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = [descriptor.as_fd()];
        assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
        let parts = [std::io::IoSlice::new(name)];
        sendmsg(&stream, &parts, &mut control, SendFlags::empty()).unwrap();
        assert_eq!(super::soon(stream.read_u8()).await.unwrap(), 1);
    }
    stream
}
