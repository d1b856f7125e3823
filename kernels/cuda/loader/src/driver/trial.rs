//! The kernels over as much memory as an engine's cache has, beside a copy of it: for `lynx bench gpu`.
//!
//! All units have the same plan and the same values, and are coded by one launch.

use lynx_gpu::{Cut, Launch, Pages, Places, Status, Unit};
use lynx_kernels::{Blocks, Kind, LayerOrder, UnitBuffer, UnitPlan};

use super::units::CodeError;
use super::{Device, DriverError, Memory, Module, Pinned, Stream};
use crate::images::{Images, build_name};

/// Tokens of a page.
const PAGE: u32 = 64;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// A copy of the values within the GPU.
    Copy,
    /// `lynx_split`.
    Split,
    /// `lynx_tail`.
    Tail,
    /// `lynx_merge` of so many steps.
    Merge(usize),
    /// `lynx_restore`.
    Restore,
}

/// Units in the GPU's memory, twice: values that are split, and values that are merged.
#[derive(Debug)]
pub struct Trial {
    stream: Stream,
    module: Module,
    plan: UnitPlan,
    pages: Pages,
    count: u32,
    source: Memory,
    sink: Memory,
    segments: Memory,
    tables: Memory,
    /// What each unit is told: for each number of steps, and of the source.
    units: Vec<Memory>,
    unit_bytes: usize,
    tail_bytes: usize,
}

/// Offsets in a unit's part of the segments.
struct Parts {
    head: usize,
    steps: Vec<usize>,
    tail: usize,
    published: usize,
    status: usize,
    end: usize,
}

/// Offsets of the tables that all units share, before their page tables.
struct Tables {
    places: usize,
    owners: usize,
    cuts: Vec<usize>,
    pages: usize,
    end: usize,
}

fn take(end: &mut usize, bytes: usize) -> usize {
    let at = *end;
    *end = (*end + bytes).next_multiple_of(256);
    at
}

impl Trial {
    /// `count` units of whole blocks with these values.
    ///
    /// # Errors
    /// Where the GPU has not enough memory, or a call fails.
    pub fn new(
        device: &Device,
        images: &Images,
        (plan, order): (&UnitPlan, &LayerOrder),
        values: &Blocks,
        count: u32,
    ) -> Result<Self, CodeError> {
        let wrong = CodeError::Length("the pages of a trial");
        let pages = Pages::hnd(plan.shape(), PAGE).ok_or(wrong)?;
        let launch = Launch::new(plan, &pages, plan.steps())?;
        let code = images.load(&build_name(&launch, false), device.capability())?;
        let stream = Stream::new(device)?;
        let parts = parts(plan);
        let all = |bytes: usize| Memory::new(device, bytes * count as usize);
        let bf16 = plan.bf16_bytes();
        let mut trial = Self {
            module: Module::load(device, &code)?,
            plan: plan.clone(),
            pages,
            count,
            source: all(bf16)?,
            sink: all(bf16)?,
            segments: all(parts.end)?,
            tables: Memory::new(device, tables(plan, &launch, count).end)?,
            units: Vec::new(),
            unit_bytes: parts.end,
            tail_bytes: 0,
            stream,
        };
        trial.fill(values)?;
        trial.tell(order, &launch)?;
        Ok(trial)
    }

    /// The values into all units.
    fn fill(&mut self, values: &Blocks) -> Result<(), CodeError> {
        let bf16 = self.plan.bf16_bytes();
        let mut pinned = Pinned::new(self.stream.device(), bf16)?;
        let first = self.plan.tokens().start;
        let shape = self.plan.shape();
        let bytes = pinned.as_mut_slice().as_chunks_mut::<2>().0;
        for position in self.plan.tokens() {
            let (page, slot) = ((position - first) / PAGE, (position - first) % PAGE);
            for head in 0..shape.kv_heads {
                let row = (page as usize * shape.kv_heads + head) * PAGE as usize + slot as usize;
                for channel in 0..shape.head_dim {
                    let bits = values.data()[values.index(position, head, channel)];
                    bytes[row * shape.head_dim + channel] = bits.to_ne_bytes();
                }
            }
        }
        for unit in 0..self.count as usize {
            let copy = self
                .stream
                .upload(pinned, &mut self.source, unit * bf16, bf16)?;
            pinned = copy.wait()?;
        }
        Ok(())
    }

    /// The tables, and what each unit is told.
    fn tell(&mut self, order: &LayerOrder, launch: &Launch) -> Result<(), CodeError> {
        let at = tables(&self.plan, launch, self.count);
        let mut pinned = Pinned::new(self.stream.device(), at.end)?;
        let bytes = pinned.as_mut_slice();
        if self.plan.kind() == Kind::K {
            put_halves(
                &mut bytes[at.places..],
                &Places::new(self.plan.shape(), order).0,
            );
            bytes[at.owners..][..launch.owners().len()].copy_from_slice(&launch.owners());
            for (steps, cuts) in (1..).zip(&at.cuts) {
                put_halves(&mut bytes[*cuts..], &Cut::new(&self.plan, order, steps).0);
            }
        }
        let numbers = bytes[at.pages..].as_chunks_mut::<4>().0;
        let pages = launch.plan().blocks * self.count;
        for (to, page) in numbers.iter_mut().zip(0..pages) {
            *to = page.to_ne_bytes();
        }
        self.stream
            .upload(pinned, &mut self.tables, 0, at.end)?
            .wait()?;
        self.units.clear();
        for steps in 0..=self.plan.steps() {
            let memory = self.tell_units(&at, launch, steps)?;
            self.units.push(memory);
        }
        self.renew_status()
    }

    /// Units to merge `steps` steps into the sink; none for the source.
    fn tell_units(&self, at: &Tables, launch: &Launch, steps: usize) -> Result<Memory, CodeError> {
        let parts = parts(&self.plan);
        let size = size_of::<Unit>();
        let mut memory = Memory::new(self.stream.device(), size * self.count as usize)?;
        let mut pinned = Pinned::new(self.stream.device(), memory.bytes())?;
        let values = if steps == 0 { &self.source } else { &self.sink };
        for (i, to) in pinned.as_mut_slice().chunks_mut(size).enumerate() {
            let here = |offset: usize| self.segments.address() + (i * parts.end + offset) as u64;
            let table = |offset: usize| self.tables.address() + offset as u64;
            let mut unit = Unit {
                kv: values.address(),
                pages: table(at.pages + i * launch.plan().blocks as usize * 4),
                places: table(at.places),
                cuts: table(at.cuts.get(steps.max(1) - 1).copied().unwrap_or(0)),
                owners: table(at.owners),
                head: here(parts.head),
                tail: here(parts.tail),
                tail_bytes: if steps == 0 {
                    0
                } else {
                    self.tail_bytes as u64
                },
                published: here(parts.published),
                status: here(parts.status),
                ..Unit::default()
            };
            for (to, at) in unit.step.iter_mut().zip(&parts.steps) {
                *to = here(*at);
            }
            to.copy_from_slice(&unit.to_bytes());
        }
        let bytes = memory.bytes();
        self.stream.upload(pinned, &mut memory, 0, bytes)?.wait()?;
        Ok(memory)
    }

    fn renew_status(&mut self) -> Result<(), CodeError> {
        let at = parts(&self.plan).status;
        let mut pinned = Pinned::new(self.stream.device(), size_of::<Status>())?;
        pinned
            .as_mut_slice()
            .copy_from_slice(&Status::NEW.to_bytes());
        for unit in 0..self.count as usize {
            let place = unit * self.unit_bytes + at;
            let copy =
                self.stream
                    .upload(pinned, &mut self.segments, place, size_of::<Status>())?;
            pinned = copy.wait()?;
        }
        Ok(())
    }

    /// Does a pass `times` times, and waits for the last.
    ///
    /// # Errors
    /// Where a call fails. Merges need a split before, a restoration the tail too.
    pub fn run(&mut self, pass: Pass, times: u32) -> Result<(), CodeError> {
        for _ in 0..times {
            match pass {
                Pass::Copy => {
                    let bytes = self.source.bytes();
                    self.stream.copy(&self.source, &mut self.sink, bytes)?;
                }
                Pass::Split => self.launch("lynx_split", self.plan.steps(), 0)?,
                Pass::Tail => {
                    let parts = parts(&self.plan);
                    for unit in 0..self.count as usize {
                        let at = unit * self.unit_bytes + parts.published;
                        self.stream.clear(
                            &mut self.segments,
                            at,
                            parts.status - parts.published,
                        )?;
                    }
                    self.launch("lynx_tail", self.plan.steps(), 0)?;
                }
                Pass::Merge(steps) => self.launch("lynx_merge", steps, steps)?,
                Pass::Restore => {
                    self.launch("lynx_restore", self.plan.steps(), self.plan.steps())?
                }
            }
        }
        self.stream.wait()?;
        Ok(())
    }

    fn launch(&self, kernel: &str, steps: usize, told: usize) -> Result<(), CodeError> {
        let launch = Launch::new(&self.plan, &self.pages, steps)?;
        let threads = u32::try_from(launch.threads()).unwrap_or(0);
        let units = self.units.get(told).map_or(0, Memory::address);
        let function = self.module.function(kernel)?;
        let grid = launch.grid(self.count);
        // SAFETY: the units' memory is this value's, laid out for the plan; it is freed after the stream's work.
        unsafe { function.launch(&self.stream, (grid, threads), launch.plan(), units) }?;
        Ok(())
    }

    /// The segments of unit `unit`, after a split and its tail; restorations then know the tail's length.
    ///
    /// # Errors
    /// Where a call fails.
    pub fn segments(&mut self, order: &LayerOrder, unit: u32) -> Result<UnitBuffer, CodeError> {
        let parts = parts(&self.plan);
        let pinned = Pinned::new(self.stream.device(), parts.end)?;
        let whole = [(unit as usize * parts.end, 0, parts.end)];
        let pinned = self
            .stream
            .download(&self.segments, pinned, &whole)?
            .wait()?;
        let bytes = pinned.as_slice();
        self.tail_bytes = Status::from_bytes(&bytes[parts.status..]).tail_bytes as usize;
        let launch = Launch::new(&self.plan, &self.pages, self.plan.steps())?;
        self.tell(order, &launch)?;
        let steps = parts.steps.iter().enumerate();
        Ok(UnitBuffer {
            head: bytes[parts.head..][..self.plan.head_bytes()].to_vec(),
            steps: steps
                .map(|(step, &at)| bytes[at..][..self.plan.step_bytes(step)].to_vec())
                .collect(),
            tail: bytes[parts.tail..][..self.tail_bytes].to_vec(),
        })
    }

    /// Whether the sink has what the source has: after a restoration of all.
    ///
    /// # Errors
    /// Where a call fails.
    pub fn is_restored(&self) -> Result<bool, CodeError> {
        let read = |memory: &Memory| -> Result<Pinned, DriverError> {
            let bytes = self.plan.bf16_bytes();
            let pinned = Pinned::new(self.stream.device(), bytes)?;
            // The last unit.
            let at = memory.bytes() - bytes;
            self.stream
                .download(memory, pinned, &[(at, 0, bytes)])?
                .wait()
        };
        Ok(read(&self.source)?.as_slice() == read(&self.sink)?.as_slice())
    }

    /// What merges and restorations write.
    pub const fn sink(&self) -> &Memory {
        &self.sink
    }

    /// Copies `bytes` of values to pinned host memory, which is what coding on the processor would begin with.
    ///
    /// # Errors
    /// Where a call fails.
    pub fn to_host(&self, pinned: Pinned, bytes: usize) -> Result<Pinned, CodeError> {
        Ok(self
            .stream
            .download(&self.source, pinned, &[(0, 0, bytes)])?
            .wait()?)
    }

    /// The bytes of BF16 that a pass codes.
    pub fn values(&self) -> usize {
        self.source.bytes()
    }

    /// The bytes that a pass must move, read and written.
    pub fn moved(&self, pass: Pass) -> usize {
        let steps = |count: usize| {
            (0..count)
                .map(|step| self.plan.step_bytes(step))
                .sum::<usize>()
        };
        let (bf16, head) = (self.plan.bf16_bytes(), self.plan.head_bytes());
        let each = match pass {
            Pass::Copy => bf16 * 2,
            Pass::Split => bf16 + head + steps(self.plan.steps()),
            Pass::Merge(count) => bf16 + head + steps(count),
            Pass::Tail => bf16 + head + self.tail_bytes,
            Pass::Restore => bf16 + head + steps(self.plan.steps()) + self.tail_bytes,
        };
        each * self.count as usize
    }
}

fn parts(plan: &UnitPlan) -> Parts {
    let mut end = 0;
    Parts {
        head: take(&mut end, plan.head_bytes()),
        steps: (0..plan.steps())
            .map(|step| take(&mut end, plan.step_bytes(step)))
            .collect(),
        tail: take(&mut end, plan.segment_bound(plan.segments() - 1)),
        published: take(&mut end, (plan.tiles().count() + 1) * 4),
        status: take(&mut end, size_of::<Status>()),
        end,
    }
}

fn tables(plan: &UnitPlan, launch: &Launch, count: u32) -> Tables {
    let entries = plan.shape().kv_heads * plan.shape().head_dim * 2;
    let mut end = 0;
    Tables {
        places: take(&mut end, entries * 8),
        owners: take(&mut end, launch.owners().len()),
        cuts: (0..plan.steps()).map(|_| take(&mut end, entries)).collect(),
        pages: take(&mut end, launch.plan().blocks as usize * count as usize * 4),
        end,
    }
}

fn put_halves(to: &mut [u8], numbers: &[u16]) {
    for (to, number) in to.as_chunks_mut::<2>().0.iter_mut().zip(numbers) {
        *to = number.to_ne_bytes();
    }
}
