//! Memory as a GPU would have it: aligned, with the engine's pages in any order, and guards around what kernels may write.

use lynx_cuda_shim::{Kernel, run, sum};
use lynx_gpu::{Cut, Extent, Extents, Launch, Pages, Places, Status, Unit};
use lynx_kernels::{Blocks, LayerOrder, UnitBuffer, UnitPlan, checksum};

use std::ops::Range;

use crate::common::Random;

/// What memory holds that nobody wrote: a NaN in BF16 and in FP16.
const JUNK: u8 = 0x7f;
const GUARD: usize = 64;

/// Bytes at a multiple of 16, with guards behind them.
pub(crate) struct Memory {
    words: Vec<u128>,
    len: usize,
}

impl Memory {
    pub(crate) fn new(bytes: &[u8], capacity: usize) -> Self {
        let words = (capacity + GUARD).div_ceil(16);
        let mut memory = Self {
            words: vec![u128::from_ne_bytes([JUNK; 16]); words],
            len: capacity,
        };
        memory.all_mut()[..bytes.len()].copy_from_slice(bytes);
        memory
    }

    pub(crate) fn address(&mut self) -> u64 {
        self.words.as_mut_ptr() as u64
    }

    /// What was written; checks that nothing was behind it.
    pub(crate) fn bytes(&self) -> &[u8] {
        let pointer = self.words.as_ptr().cast::<u8>();
        // SAFETY: the words are that many bytes, any of which are valid.
        let all = unsafe { std::slice::from_raw_parts(pointer, self.words.len() * 16) };
        let (bytes, guard) = all.split_at(self.len);
        assert!(
            guard.iter().all(|byte| *byte == JUNK),
            "written past the end"
        );
        bytes
    }

    fn all_mut(&mut self) -> &mut [u8] {
        let pointer = self.words.as_mut_ptr().cast::<u8>();
        // SAFETY: as above, and they are borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(pointer, self.words.len() * 16) }
    }
}

/// An engine's cache with one unit in it.
pub(crate) struct Cache {
    pages: Pages,
    start: u32,
    table: Vec<u32>,
    memory: Memory,
}

/// Between what a cache holds and BF16.
#[derive(Clone, Copy)]
pub(crate) struct Format {
    pub(crate) to_cache: fn(u16) -> u16,
}

impl Cache {
    /// Junk, in pages of a random order with unused ones between them.
    pub(crate) fn empty(plan: &UnitPlan, pages: Pages, random: &mut Random) -> Self {
        let start = pages.start(plan.tokens().start);
        let used = (plan.tokens().end - start).div_ceil(pages.tokens);
        let mut table: Vec<u32> = (0..used * 2).collect();
        for i in (1..table.len()).rev() {
            table.swap(i, random.below(i + 1));
        }
        let elements = pages.page_stride as usize * table.len();
        table.truncate(used as usize);
        Self {
            pages,
            start,
            table,
            memory: Memory::new(&[], elements * 2),
        }
    }

    pub(crate) fn fill(&mut self, plan: &UnitPlan, blocks: &Blocks, format: Format) {
        for (position, head, channel) in elements(plan) {
            let bits = blocks.data()[blocks.index(position, head, channel)];
            let at = self.index(position, head, channel) * 2;
            self.memory.all_mut()[at..at + 2]
                .copy_from_slice(&(format.to_cache)(bits).to_ne_bytes());
        }
    }

    /// Whether the unit's values are these and everything else is as it was.
    pub(crate) fn check(&self, plan: &UnitPlan, blocks: &Blocks, format: Format, what: &str) {
        let mut expected = vec![JUNK; self.memory.len];
        for (position, head, channel) in elements(plan) {
            let bits = (format.to_cache)(blocks.data()[blocks.index(position, head, channel)]);
            let at = self.index(position, head, channel) * 2;
            let found = u16::from_ne_bytes([self.memory.bytes()[at], self.memory.bytes()[at + 1]]);
            assert_eq!(
                format!("{found:04x}"),
                format!("{bits:04x}"),
                "{what}: position {position} head {head} channel {channel}"
            );
            expected[at..at + 2].copy_from_slice(&bits.to_ne_bytes());
        }
        assert!(
            self.memory.bytes() == expected,
            "{what}: values of others were written"
        );
    }

    /// The unit's values.
    pub(crate) fn read(&self, plan: &UnitPlan) -> Blocks {
        let mut blocks = Blocks::new(plan.shape(), plan.kind(), plan.tokens());
        for (position, head, channel) in elements(plan) {
            let at = self.index(position, head, channel) * 2;
            let index = blocks.index(position, head, channel);
            blocks.data_mut()[index] =
                u16::from_ne_bytes([self.memory.bytes()[at], self.memory.bytes()[at + 1]]);
        }
        blocks
    }

    fn index(&self, position: u32, head: usize, channel: usize) -> usize {
        let (page, slot) = (
            (position - self.start) / self.pages.tokens,
            (position - self.start) % self.pages.tokens,
        );
        let page = u64::from(self.table[page as usize]) * self.pages.page_stride;
        page as usize
            + slot as usize * self.pages.token_stride as usize
            + head * self.pages.head_stride as usize
            + channel
    }
}

fn elements(plan: &UnitPlan) -> impl Iterator<Item = (u32, usize, usize)> {
    let shape = plan.shape();
    plan.tokens().flat_map(move |position| {
        (0..shape.kv_heads)
            .flat_map(move |head| (0..shape.head_dim).map(move |channel| (position, head, channel)))
    })
}

/// A build, and in which order its lanes run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Build<'a> {
    pub(crate) name: &'a str,
    pub(crate) seed: u64,
}

/// The tables of a layer, and the segments of a unit of it.
struct Device {
    places: Vec<u128>,
    cuts: Vec<u128>,
    owners: Vec<u128>,
    status: Vec<Status>,
    head: Memory,
    steps: Vec<Memory>,
    tail: Memory,
    tail_bytes: usize,
    published: Vec<u32>,
}

impl Device {
    fn new(
        plan: &UnitPlan,
        order: &LayerOrder,
        launch: &Launch,
        unit: Option<&UnitBuffer>,
    ) -> Self {
        let steps = launch.plan().steps as usize;
        let step = |index: usize| {
            let bytes = unit.map_or(&[][..], |unit| &unit.steps[index]);
            Memory::new(bytes, plan.step_bytes(index))
        };
        let head = unit.map_or(&[][..], |unit| &unit.head);
        let tail = unit.map_or(&[][..], |unit| &unit.tail);
        let halves = |table: Vec<u16>| {
            pack(
                &table
                    .iter()
                    .flat_map(|n| n.to_ne_bytes())
                    .collect::<Vec<_>>(),
            )
        };
        Self {
            places: halves(Places::new(plan.shape(), order).0),
            cuts: halves(Cut::new(plan, order, steps).0),
            owners: pack(&launch.owners()),
            status: vec![Status::NEW],
            head: Memory::new(head, plan.head_bound()),
            steps: (0..steps).map(step).collect(),
            tail: Memory::new(tail, plan.segment_bound(plan.segments() - 1)),
            tail_bytes: tail.len(),
            published: vec![0; plan.tiles().count() + 1],
        }
    }

    fn unit(&mut self, cache: &mut Cache) -> Unit {
        let mut unit = Unit {
            kv: cache.memory.address(),
            pages: cache.table.as_ptr() as u64,
            places: self.places.as_ptr() as u64,
            cuts: self.cuts.as_ptr() as u64,
            owners: self.owners.as_ptr() as u64,
            head: self.head.address(),
            tail: self.tail.address(),
            tail_bytes: self.tail_bytes as u64,
            published: self.published.as_mut_ptr() as u64,
            status: self.status.as_mut_ptr() as u64,
            ..Unit::default()
        };
        for (address, step) in unit.step.iter_mut().zip(&mut self.steps) {
            *address = step.address();
        }
        unit
    }
}

fn pack(bytes: &[u8]) -> Vec<u128> {
    let chunks = bytes.chunks(16).map(|chunk| {
        let mut word = [0; 16];
        word[..chunk.len()].copy_from_slice(chunk);
        u128::from_ne_bytes(word)
    });
    chunks.collect()
}

/// Splits the caches' units with their tails, which share everything but memory, in one launch.
pub(crate) fn split(
    build: Build<'_>,
    plan: &UnitPlan,
    order: &LayerOrder,
    caches: &mut [Cache],
) -> Result<Vec<UnitBuffer>, String> {
    let launch = Launch::new(plan, &caches[0].pages, plan.steps()).unwrap();
    let mut devices: Vec<Device> = caches
        .iter()
        .map(|_| Device::new(plan, order, &launch, None))
        .collect();
    let units: Vec<Unit> = devices
        .iter_mut()
        .zip(caches)
        .map(|(device, cache)| device.unit(cache))
        .collect();
    launch_all(build, Kernel::Split, &launch, &units)?;
    let escaped = devices.iter().any(|device| device.status[0].escaped > 0);
    if escaped {
        launch_all(build, Kernel::Escape, &launch, &units)?;
    }
    launch_all(build, Kernel::Tail, &launch, &units)?;
    sum_all(build, launch.left_out(None, true).unwrap(), &units)?;
    if escaped {
        // Its length is known only now.
        for (device, unit) in devices.iter_mut().zip(&units) {
            device.status[0].sums[0] = 0;
            let bytes = head_len(plan, device.head.bytes());
            sum_all(build, Extents::new(&[whole(0, bytes)]), &[*unit])?;
        }
    }
    let buffer = |device: &Device| {
        let head = device.head.bytes();
        let unit = UnitBuffer {
            head: head[..head_len(plan, head)].to_vec(),
            steps: device
                .steps
                .iter()
                .map(|step| step.bytes().to_vec())
                .collect(),
            tail: device.tail.bytes()[..device.status[0].tail_bytes as usize].to_vec(),
        };
        check_sums(build, plan, device.status[0], &unit, 0..plan.segments());
        unit
    };
    Ok(devices.iter().map(buffer).collect())
}

/// Whether the device found the checksums that the processor finds. Segments are the unit's, of which the last is the tail.
fn check_sums(
    build: Build<'_>,
    plan: &UnitPlan,
    status: Status,
    unit: &UnitBuffer,
    segments: Range<usize>,
) {
    for segment in segments {
        let bytes = unit.segment(segment).unwrap();
        let number = if segment == plan.segments() - 1 {
            Extent::TAIL as usize
        } else {
            segment
        };
        assert_eq!(
            status.checksum(number, bytes.len()),
            Some(checksum(bytes)),
            "{build:?} {plan:?}: the checksum of segment {segment}"
        );
    }
}

fn whole(segment: usize, bytes: usize) -> Extent {
    Extent {
        segment: segment as u32,
        from: 0,
        bytes: bytes as u32,
    }
}

fn sum_all(build: Build<'_>, extents: Option<Extents>, units: &[Unit]) -> Result<(), String> {
    let Some(extents) = extents else {
        return Ok(());
    };
    let blocks = extents.grid(units.len() as u32);
    // SAFETY: every address is that of memory that the caller holds, as large as the plan says.
    unsafe { sum(build.name, &extents, units, blocks, build.seed) }
}

/// Merges the first `steps` steps of units into caches; returns what was refused.
pub(crate) fn merge(
    build: Build<'_>,
    plan: &UnitPlan,
    order: &LayerOrder,
    steps: usize,
    memory: (&[UnitBuffer], &mut [Cache]),
) -> Result<Vec<Status>, String> {
    let launch = Launch::new(plan, &memory.1[0].pages, steps).unwrap();
    decode(build, Kernel::Merge, (plan, order, &launch), memory)
}

/// Restores units into caches from all their segments; returns what was refused.
pub(crate) fn restore(
    build: Build<'_>,
    plan: &UnitPlan,
    order: &LayerOrder,
    memory: (&[UnitBuffer], &mut [Cache]),
) -> Result<Vec<Status>, String> {
    let launch = Launch::new(plan, &memory.1[0].pages, plan.steps()).unwrap();
    decode(build, Kernel::Restore, (plan, order, &launch), memory)
}

fn decode(
    build: Build<'_>,
    kernel: Kernel,
    (plan, order, launch): (&UnitPlan, &LayerOrder, &Launch),
    (units, caches): (&[UnitBuffer], &mut [Cache]),
) -> Result<Vec<Status>, String> {
    let mut devices: Vec<Device> = units
        .iter()
        .map(|unit| Device::new(plan, order, launch, Some(unit)))
        .collect();
    let told: Vec<Unit> = devices
        .iter_mut()
        .zip(caches)
        .map(|(device, cache)| device.unit(cache))
        .collect();
    launch_all(build, kernel, launch, &told)?;
    if units.iter().any(|unit| unit.head.len() > plan.head_bytes()) {
        launch_all(build, Kernel::Unescape, launch, &told)?;
    }
    if kernel == Kernel::Merge {
        for (unit, told) in units.iter().zip(&told) {
            let rest = launch.left_out(Some(unit.head.len()), false).unwrap();
            sum_all(build, rest, &[*told])?;
        }
        for (unit, device) in units.iter().zip(&devices) {
            let merged = 0..launch.plan().steps as usize + 1;
            check_sums(build, plan, device.status[0], unit, merged);
        }
    }
    Ok(devices.iter().map(|device| device.status[0]).collect())
}

fn launch_all(
    build: Build<'_>,
    kernel: Kernel,
    launch: &Launch,
    units: &[Unit],
) -> Result<(), String> {
    let count = units.len() as u32;
    let blocks = match kernel {
        Kernel::Split | Kernel::Merge | Kernel::Restore => launch.grid(count),
        Kernel::Escape | Kernel::Unescape | Kernel::Tail => launch.escape_grid(count),
    };
    // SAFETY: every address is that of memory that the caller holds, as large as the plan says.
    unsafe { run(build.name, kernel, launch.plan(), units, blocks, build.seed) }
}

/// The length of a head: each escaped group adds its values.
fn head_len(plan: &UnitPlan, head: &[u8]) -> usize {
    let channels = plan.shape().head_dim;
    let mut at = 0;
    let mut len = plan.head_bytes();
    for tile in plan.tiles() {
        let (groups, lanes) = match plan.kind() {
            lynx_kernels::Kind::K => (channels, tile.tokens),
            lynx_kernels::Kind::V => (tile.tokens, channels),
        };
        let params = head[at..][..groups * 4].chunks(4);
        len += params.filter(|params| *params == [0; 4]).count() * lanes * 2;
        at += groups * 4;
    }
    len
}
