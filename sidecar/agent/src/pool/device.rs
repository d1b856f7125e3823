//! Blocks in a GPU's memory, opened here and coded by its kernels.
#![expect(
    unsafe_code,
    reason = "whether blocks may be read or written is known to the tables"
)]

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use lynx_cuda::{
    Cache, Choice, CodeError, Coder as _, Device, DriverError, GpuCoder, Imported, InCache,
    IpcHandle, Mapped, Options, Place, Placed, Segments, Uuid, Which, choose,
};
use lynx_gpu::{Launch, LaunchError, Pages};
use lynx_kernels::{Blocks, Cuts, Kind, KvShape, LayerOrder, RawTokens, UnitPlan};
use lynx_proto::engine::v1::gpu_memory::Handle;
use lynx_proto::engine::v1::{GpuMemory, GpuPool};
use lynx_transport::rdma::Lendable;
use lynx_units::{Bytes, Width};

use super::by_engine::{bound, largest_unit};
use super::layout::Layout;
use super::staging::{Piece, Staging};

/// The most allocations that a pool may be of.
const MOST_MEMORIES: usize = 1024;

/// What coding on a GPU takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuOptions {
    /// Where machine code lies that was built beforehand.
    pub kernels: PathBuf,
    /// The most pinned memory: a unit's segments, and what a launch is told, must fit.
    pub pinned_bytes: usize,
}

impl Default for GpuOptions {
    fn default() -> Self {
        Self {
            kernels: lynx_cuda::DEFAULT_FOLDER.into(),
            pinned_bytes: 64 << 20,
        }
    }
}

/// Why a pool in a GPU's memory can't be used.
#[derive(Debug, thiserror::Error)]
pub enum GpuError {
    /// No GPU here, or none that takes the kernels.
    #[error(
        "the engine's pool is in a GPU's memory, and this agent codes KV {0}: give the agent's container the engine's GPU, and the kernels, or publish KV in host memory"
    )]
    Processor(Choice),
    /// A number that is none.
    #[error("a GPU's UUID has 16 bytes, and pool.gpu.device_uuid {0}")]
    Uuid(usize),
    /// A file too.
    #[error(
        "the pool is both a file and in a GPU's memory: leave one of pool.file and pool.gpu out"
    )]
    AndFile,
    /// None, or too many.
    #[error("the pool is of {0} memories: name 1 to {MOST_MEMORIES} in pool.gpu.memories")]
    Memories(usize),
    /// Places for some layers only, or places that are none.
    #[error("pool.gpu.layers must name a memory and an offset for each of {0} layers, or nothing")]
    Layers(usize),
    /// No handle, or one of another length.
    #[error(
        "memory {0} of the pool has no handle of the right length: 64 bytes of CUDA IPC, or the 16 of a descriptor"
    )]
    Handle(usize),
    /// Nothing of that name was handed over.
    #[error(
        "the descriptor of memory {0} has not come: send it to the socket whose name ends in .fds, and keep that open until Attached"
    )]
    Descriptor(usize),
    /// The driver refuses.
    #[error("memory {memory} of the pool can't be opened: {source}")]
    Driver {
        /// Which.
        memory: usize,
        /// What the driver says.
        source: DriverError,
    },
    /// The driver refuses a stream.
    #[error(transparent)]
    Coder(#[from] DriverError),
    /// It isn't where it is said to be.
    #[error(
        "memory {memory} of the pool has {bytes} bytes, and a layer that begins at {offset} takes {wanted}"
    )]
    Short {
        /// Which.
        memory: usize,
        /// Its length.
        bytes: usize,
        /// Where the layer begins.
        offset: u64,
        /// How long it is.
        wanted: usize,
    },
    /// A start between what threads read.
    #[error("a layer begins at {0}, which is no multiple of 16 bytes")]
    Uneven(u64),
    /// The kernels can't take heads of that size.
    #[error(transparent)]
    Launch(#[from] LaunchError),
}

/// Why there is no memory to bring segments into.
#[derive(Debug, thiserror::Error)]
enum PinError {
    #[error("engine.pinnedMemory is below {0}, of which half would be for them")]
    Little(Bytes),
    #[error("the system has none: {0}")]
    System(#[from] std::io::Error),
    #[error(transparent)]
    Driver(#[from] CodeError),
}

/// A pool's memory, and what codes there. One unit at a time: the thread that splits, or the one that merges.
#[derive(Debug)]
pub(super) struct OnGpu {
    coder: Mutex<GpuCoder>,
    /// Where segments are brought that are to be sent, once somebody wants to lend it. Pinned, half of what may be, by the coder, which goes first.
    segments: OnceLock<Option<Arc<Staging>>>,
    segment_bytes: usize,
    /// What a launch may need of the other half: K and V of as many tokens as a unit can have, and what it is told.
    launch_bytes: usize,
    /// Addresses of the layers' K.
    layers: Vec<u64>,
    v_offset: u64,
    pages: Pages,
    /// FP16 instead of BF16.
    is_half: bool,
    name: String,
    /// Closed after the coder's last word.
    #[expect(dead_code, reason = "held for the addresses of the layers")]
    memories: Vec<Opened>,
}

/// Memory of the engine's.
#[derive(Debug)]
enum Opened {
    Ipc(Imported),
    Descriptor(Mapped),
}

impl Opened {
    fn place(&self) -> (u64, usize) {
        match self {
            Self::Ipc(memory) => (memory.address(), memory.bytes()),
            Self::Descriptor(memory) => (memory.address(), memory.bytes()),
        }
    }
}

impl OnGpu {
    /// `wanted` is what the layout takes from a layer's beginning on, or from the first one's.
    pub(super) fn open(
        gpu: &GpuPool,
        layout: &Layout,
        wanted: usize,
        options: &GpuOptions,
        descriptor: impl Fn(&[u8]) -> Option<OwnedFd>,
    ) -> Result<Self, GpuError> {
        let uuid = <[u8; 16]>::try_from(&gpu.device_uuid[..]);
        let uuid = uuid.map_err(|_| GpuError::Uuid(gpu.device_uuid.len()))?;
        if gpu.memories.is_empty() || gpu.memories.len() > MOST_MEMORIES {
            return Err(GpuError::Memories(gpu.memories.len()));
        }
        let shape = layout.shape();
        let pages = layout.pages().ok_or(GpuError::Layers(shape.layers))?;
        for kind in Kind::ALL {
            try_launch(shape, kind, &pages)?;
        }
        let choice = choose(&Options {
            device: Which::Uuid(Uuid(uuid)),
            kernels: options.kernels.clone(),
        });
        let name = choice.to_string();
        let (device, images) = match choice {
            Choice::Gpu(device, images) => (device, images),
            choice @ Choice::Processor(_) => return Err(GpuError::Processor(choice)),
        };
        let opened = gpu.memories.iter().enumerate();
        let opened = opened.map(|(index, memory)| open(&device, index, memory, &descriptor));
        let memories: Vec<Opened> = opened.collect::<Result<_, _>>()?;
        Ok(Self {
            coder: Mutex::new(GpuCoder::new(&device, images, options.pinned_bytes)?),
            segments: OnceLock::new(),
            segment_bytes: options.pinned_bytes / 2,
            launch_bytes: 4 * largest_unit(shape),
            layers: places(gpu, layout, wanted, &memories)?,
            v_offset: layout.v_offset() as u64,
            pages,
            is_half: layout.is_half(),
            name: name.trim_start_matches("on ").to_owned() + as_bf16(layout),
            memories,
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Memory into which the GPU brings segments, from now on as far as there is room; none where it can't be had, and each segment has its own.
    pub(super) fn lendable(&self) -> Option<Arc<dyn Lendable>> {
        let staging = self.segments.get_or_init(|| {
            let pinned = self.pin();
            let told = pinned.inspect_err(|why| {
                tracing::warn!(
                    "segments are copied that could be sent from where a GPU leaves them: {why}"
                );
            });
            told.ok()
        });
        staging.clone().map(|staging| staging as _)
    }

    fn pin(&self) -> Result<Arc<Staging>, PinError> {
        if self.segment_bytes < self.launch_bytes {
            return Err(PinError::Little(Bytes::new(2 * self.launch_bytes as u64)));
        }
        let staging = Staging::own(self.segment_bytes)?;
        let mut coder = self.coder.lock().unwrap_or_else(PoisonError::into_inner);
        let start = staging.start().cast_mut();
        // SAFETY: mapped as long as `self`, which has the coder and holds it longer.
        unsafe { coder.register(start, self.segment_bytes) }?;
        Ok(Arc::new(staging))
    }

    /// A layer's K or V in these blocks, which its caller may read, or write.
    pub(super) fn values(&self, layer: usize, kind: Kind, blocks: &[u32]) -> GpuValues<'_> {
        let within = match kind {
            Kind::K => 0,
            Kind::V => self.v_offset,
        };
        let place = Place {
            pages: self.pages,
            table: blocks.to_vec(),
            half: self.is_half,
        };
        let base = self.layers.get(layer).map_or(0, |base| base + within);
        // SAFETY: all blocks of all layers are in memory that is open as long as `self`. A readable table has them published and not
        // released, a writable one granted, and no other table has them for another purpose: see `tiles`. The borrow of the table
        // lives as long as these values, and each coding is over when its call returns.
        let cache = unsafe { Cache::new(base, place) };
        GpuValues {
            coder: &self.coder,
            segments: self.segments.get().and_then(Option::as_ref),
            cache,
        }
    }
}

/// What people are told besides of a pool of FP16.
fn as_bf16(layout: &Layout) -> &'static str {
    if layout.is_half() {
        "; its FP16 rounded to BF16"
    } else {
        ""
    }
}

/// Whether the kernels take such heads in such pages.
fn try_launch(shape: KvShape, kind: Kind, pages: &Pages) -> Result<(), LaunchError> {
    let one = KvShape {
        layers: 1,
        kv_heads: 1,
        ..shape
    };
    let cuts = Width::from_eighths(32).and_then(|width| Cuts::new(width, 4).ok());
    let plan = cuts.and_then(|cuts| UnitPlan::new(one, kind, 0..64, RawTokens::none(), cuts).ok());
    plan.map_or(Ok(()), |plan| Launch::new(&plan, pages, 1).map(drop))
}

fn open(
    device: &Device,
    index: usize,
    memory: &GpuMemory,
    descriptor: impl Fn(&[u8]) -> Option<OwnedFd>,
) -> Result<Opened, GpuError> {
    let refused = |source| GpuError::Driver {
        memory: index,
        source,
    };
    match &memory.handle {
        Some(Handle::Ipc(bytes)) => {
            let handle = <[u8; 64]>::try_from(&bytes[..]);
            let handle = IpcHandle(handle.map_err(|_| GpuError::Handle(index))?);
            let opened = Imported::open(device, handle).map_err(refused)?;
            Ok(Opened::Ipc(opened))
        }
        Some(Handle::Descriptor(name)) if name.len() == 16 => {
            let found = descriptor(name).ok_or(GpuError::Descriptor(index))?;
            let bytes = usize::try_from(memory.bytes).unwrap_or(usize::MAX);
            let opened = Mapped::import(device, found.as_fd(), bytes).map_err(refused)?;
            Ok(Opened::Descriptor(opened))
        }
        _ => Err(GpuError::Handle(index)),
    }
}

/// The layers' addresses, each with `wanted` bytes behind it; only the first one's, where the strides lead to the others.
fn places(
    gpu: &GpuPool,
    layout: &Layout,
    wanted: usize,
    memories: &[Opened],
) -> Result<Vec<u64>, GpuError> {
    let layers = layout.shape().layers;
    let address = |memory: usize, offset: u64| {
        let (start, bytes) = memories
            .get(memory)
            .ok_or(GpuError::Layers(layers))?
            .place();
        let end = offset.checked_add(wanted as u64);
        if end.is_none_or(|end| end > bytes as u64) {
            return Err(GpuError::Short {
                memory,
                bytes,
                offset,
                wanted,
            });
        }
        let found = start + offset;
        found
            .is_multiple_of(16)
            .then_some(found)
            .ok_or(GpuError::Uneven(offset))
    };
    if gpu.layers.is_empty() {
        let first = address(0, 0)?;
        return Ok((0..layers)
            .map(|layer| first + layout.layer(layer) as u64)
            .collect());
    }
    if gpu.layers.len() != layers {
        return Err(GpuError::Layers(layers));
    }
    let each = gpu.layers.iter();
    each.map(|place| address(place.memory as usize, place.offset))
        .collect()
}

/// One layer's K or V in a GPU's memory, and what codes it.
#[derive(Debug)]
pub struct GpuValues<'a> {
    coder: &'a Mutex<GpuCoder>,
    segments: Option<&'a Arc<Staging>>,
    cache: Cache,
}

/// A unit's segments where they are lent, and their checksums.
pub type Lent = Vec<(Piece, u64)>;

/// A unit of such values.
#[derive(Debug)]
pub struct GpuUnit<'a> {
    /// The unit.
    pub plan: &'a UnitPlan,
    /// Its layer's order of words.
    pub order: &'a LayerOrder,
    /// Where it is.
    pub values: GpuValues<'a>,
}

impl GpuUnit<'_> {
    /// Splits units of one pool in one launch, with their tails where that is asked for.
    ///
    /// # Errors
    /// Where the GPU can't.
    pub fn split_all(units: &[Self], with_tail: bool) -> Result<Vec<Segments>, CodeError> {
        let coder = units.first().map(|unit| unit.values.coder());
        let all: Vec<_> = units.iter().map(Self::in_cache).collect();
        coder.map_or(Ok(Vec::new()), |mut coder| coder.split_all(&all, with_tail))
    }

    /// The same into memory that is [lent](super::Pool::lendable): of each unit the segments and their checksums. `None` where that has no room.
    ///
    /// # Errors
    /// Where the GPU can't.
    pub fn split_all_lent(units: &[Self], with_tail: bool) -> Result<Option<Vec<Lent>>, CodeError> {
        let values = units.first().map(|unit| &unit.values);
        let bytes = units.iter().map(|unit| bound(unit.plan, with_tail)).sum();
        let slot = values.and_then(|values| values.segments?.slot(bytes));
        let (Some(values), Some(mut slot)) = (values, slot) else {
            return Ok(None);
        };
        let all: Vec<_> = units.iter().map(Self::in_cache).collect();
        let mut coder = values.coder();
        let placed = coder.split_all_into(&all, with_tail, slot.bytes_mut())?;
        let start = slot.range().start;
        let place = |placed: &Placed| {
            let first = start + placed.offset;
            first..first + placed.bytes
        };
        let end = placed.iter().flatten().map(|placed| place(placed).end);
        slot.end_at(end.max().unwrap_or(start));
        let slot = Arc::new(slot);
        let piece = |placed: &Placed| (Piece::lent(&slot, place(placed)), placed.sum);
        let of_unit = |placed: &Vec<Placed>| placed.iter().map(piece).collect();
        Ok(Some(placed.iter().map(of_unit).collect()))
    }

    fn in_cache(&self) -> InCache<'_> {
        InCache {
            plan: self.plan,
            order: self.order,
            cache: &self.values.cache,
        }
    }
}

impl<'a> GpuValues<'a> {
    fn coder(&self) -> MutexGuard<'a, GpuCoder> {
        self.coder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the approximation that the head and so many steps give.
    ///
    /// # Errors
    /// Where the segments aren't what a split makes, or the GPU can't.
    pub fn merge(
        &mut self,
        plan: &UnitPlan,
        order: &LayerOrder,
        segments: &Segments,
        steps: usize,
    ) -> Result<(), CodeError> {
        let read = (segments, steps);
        let mut coder = self.coder();
        coder.merge(plan, order, read, &mut self.cache)
    }

    /// Writes the exact values.
    ///
    /// # Errors
    /// As [`Self::merge`].
    pub fn restore(
        &mut self,
        plan: &UnitPlan,
        order: &LayerOrder,
        segments: &Segments,
    ) -> Result<(), CodeError> {
        let mut coder = self.coder();
        coder.restore(plan, order, segments, &mut self.cache)
    }

    /// The values as they are.
    ///
    /// # Errors
    /// Where the GPU can't.
    pub fn read(&mut self, plan: &UnitPlan) -> Result<Blocks, CodeError> {
        self.coder().read(plan, &self.cache)
    }

    /// Replaces them.
    ///
    /// # Errors
    /// Where the GPU can't.
    pub fn write(&mut self, plan: &UnitPlan, blocks: &Blocks) -> Result<(), CodeError> {
        let mut coder = self.coder();
        coder.write(plan, &mut self.cache, blocks)
    }
}
