//! Units, coded on a GPU: what the kernels are told goes up in one copy, they run in one recorded launch, and what they made
//! comes down into pinned memory.
//!
//! All of a unit's memory on the GPU is one arena, laid out by its plan, so that the next layer's unit, which has the same plan,
//! finds the same addresses and the recorded launch is repeated as it is.

mod layout;
mod recorded;
mod rows;
mod segments;

use std::collections::BTreeMap;

use lynx_gpu::{Cut, Extent, Extents, Launch, LaunchError, Pages, Places, Status, Unit};
use lynx_kernels::{Kind, LayerOrder, UnitBuffer, UnitPlan};

use self::layout::{Layout, check_lengths, halves, number, words};
use self::recorded::{Recipe, Recordings};
pub use self::segments::Placed;
use super::{Captured, Device, DriverError, Memory, Module, Pinned, Registered, Stream};
use crate::coder::{Coder, Segments};
use crate::images::{ImageError, Images, build_name};
use crate::staging::{Slot, Staging, StagingError};

/// Why a unit can't be coded on the GPU, or what is wrong with it.
#[derive(Debug, thiserror::Error)]
pub enum CodeError {
    /// The kernels can't take it.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// There is no machine code for it.
    #[error("there are no kernels for this unit")]
    Image(#[from] ImageError),
    /// A call has failed.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// The pinned memory is too small.
    #[error(transparent)]
    Staging(#[from] StagingError),
    /// A page table, or a segment, is shorter or longer than the plan says.
    #[error("{0} hasn't the length that its plan says")]
    Length(&'static str),
    /// Not what was sent.
    #[error("segment {0} has another checksum than its sender computed")]
    Checksum(usize),
    /// Not what a split makes.
    #[error("tile {0}, group {1} has parameters or codes that no split makes")]
    Refused(u32, u32),
    /// Memory of the caller's, for segments.
    #[error("the segments take {wanted} bytes, and there is memory for {capacity}")]
    TooSmall {
        /// How many they take.
        wanted: usize,
        /// How many there are.
        capacity: usize,
    },
    /// A tail that belongs to other codes.
    #[error("the tail doesn't fit the codes of tile {0}")]
    Unfit(u32),
}

/// Where a unit's values are in the GPU's memory.
#[derive(Clone, Debug)]
pub struct Cache {
    base: u64,
    place: Place,
}

/// How they lie there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The pages.
    pub pages: Pages,
    /// Their numbers, from the one that holds the unit's first token.
    pub table: Vec<u32>,
    /// FP16 instead of BF16: it is rounded to BF16 when read, and written as the nearest FP16 of that.
    pub half: bool,
}

impl Cache {
    /// Values behind `base`, the address of page 0's first element: of memory of this process, or imported.
    ///
    /// # Safety
    /// All pages of the table lie in memory that is there as long as this value, and that nothing else uses while it is coded: the
    /// engine has published what is read, and granted what is written.
    pub const unsafe fn new(base: u64, place: Place) -> Self {
        Self { base, place }
    }
}

/// Codes units on a GPU.
#[derive(Debug)]
pub struct GpuCoder {
    stream: Stream,
    images: Images,
    modules: BTreeMap<String, Module>,
    staging: Staging,
    arena: Option<Memory>,
    pinned: Option<Pinned>,
    /// What the pinned memory has of the budget.
    slot: Option<Slot>,
    /// Memory of the caller's, and what it has.
    registered: Option<(Registered, Slot)>,
    recordings: Recordings,
}

/// What is done with a unit.
struct Work<'a> {
    plan: &'a UnitPlan,
    order: &'a LayerOrder,
    launch: Launch,
    layout: Layout,
    build: String,
}

impl GpuCoder {
    /// With at most `budget` bytes of pinned memory.
    ///
    /// # Errors
    /// What the driver says.
    pub fn new(device: &Device, images: Images, budget: usize) -> Result<Self, DriverError> {
        Ok(Self {
            stream: Stream::new(device)?,
            images,
            modules: BTreeMap::new(),
            staging: Staging::new(budget),
            arena: None,
            pinned: None,
            slot: None,
            registered: None,
            recordings: Recordings::default(),
        })
    }

    /// How often launches were recorded: once for each plan and each thing that is done with it, and again after larger ones.
    pub fn recorded(&self) -> usize {
        self.recordings.made()
    }

    /// Where it works: an event recorded on another stream, of the engine's say, can be waited for there.
    pub const fn stream(&self) -> &Stream {
        &self.stream
    }

    fn begin<'a>(
        &mut self,
        plan: &'a UnitPlan,
        order: &'a LayerOrder,
        steps: usize,
        place: &Place,
    ) -> Result<Work<'a>, CodeError> {
        let launch = Launch::new(plan, &place.pages, steps)?;
        let pages = plan.tokens().end - place.pages.start(plan.tokens().start);
        if place.table.len() != pages.div_ceil(place.pages.tokens) as usize {
            return Err(CodeError::Length("the table of pages"));
        }
        let layout = Layout::new(plan, &launch, place.table.len());
        let build = build_name(&launch, place.half);
        let device = self.stream.device().clone();
        if !self.modules.contains_key(&build) {
            let code = self.images.load(&build, device.capability())?;
            let module = Module::load(&device, &code)?;
            self.modules.insert(build.clone(), module);
        }
        if self.arena.as_ref().is_none_or(|it| it.bytes() < layout.end) {
            // Recorded launches have the old one's address.
            self.recordings.clear();
            self.arena = None;
            self.arena = Some(Memory::new(&device, layout.end)?);
        }
        self.pinned = Some(self.pinned(layout.end)?);
        Ok(Work {
            plan,
            order,
            launch,
            layout,
            build,
        })
    }

    /// Brings to the GPU what a launch is told, and the segments that a merge reads.
    fn upload(
        &mut self,
        work: &Work<'_>,
        cache: &Cache,
        segments: Option<&UnitBuffer>,
    ) -> Result<(), CodeError> {
        let (Some(mut pinned), Some(arena)) = (self.pinned.take(), self.arena.as_mut()) else {
            return Err(CodeError::Length("the arena"));
        };
        let layout = &work.layout;
        let address = |offset: usize| arena.address() + offset as u64;
        let mut unit = Unit {
            kv: cache.base,
            pages: address(layout.table),
            places: address(layout.places),
            cuts: address(layout.cuts),
            owners: address(layout.owners),
            head: address(layout.head),
            tail: address(layout.tail),
            tail_bytes: segments.map_or(0, |unit| unit.tail.len() as u64),
            published: address(layout.published),
            status: address(layout.status),
            ..Unit::default()
        };
        for (to, at) in unit.step.iter_mut().zip(&layout.steps) {
            *to = address(*at);
        }
        let steps = work.launch.plan().steps as usize;
        let bytes = pinned.as_mut_slice();
        let mut put = |at: usize, from: &[u8]| bytes[at..][..from.len()].copy_from_slice(from);
        put(layout.unit, &unit.to_bytes());
        put(layout.table, &words(&cache.place.table));
        if work.plan.kind() == Kind::K {
            put(
                layout.places,
                &halves(&Places::new(work.plan.shape(), work.order).0),
            );
            put(
                layout.cuts,
                &halves(&Cut::new(work.plan, work.order, steps).0),
            );
            put(layout.owners, &work.launch.owners());
        }
        put(layout.status, &Status::NEW.to_bytes());
        put(
            layout.published,
            &vec![0; (work.plan.tiles().count() + 1) * 4],
        );
        let mut end = layout.head;
        if let Some(unit) = segments {
            put(layout.head, &unit.head);
            for (at, step) in layout.steps.iter().zip(&unit.steps) {
                put(*at, step);
            }
            put(layout.tail, &unit.tail);
            end = layout.end;
        }
        self.pinned = Some(self.stream.upload(pinned, arena, 0, end)?.wait()?);
        Ok(())
    }

    fn launch<T>(
        &self,
        work: &Work<'_>,
        kernel: &str,
        grid: [u32; 3],
        first: &T,
    ) -> Result<(), CodeError> {
        let (Some(module), Some(arena)) = (self.modules.get(&work.build), &self.arena) else {
            return Err(CodeError::Length("the arena"));
        };
        let threads = u32::try_from(work.launch.threads()).unwrap_or(0);
        let units = arena.address() + work.layout.unit as u64;
        let function = module.function(kernel)?;
        // SAFETY: the arena has what the plan says, the cache's maker vouches for the rest, and both are there until the stream is
        // waited for, at the end of each coding and before the arena is freed.
        unsafe { function.launch(&self.stream, (grid, threads), first, units) }?;
        Ok(())
    }

    fn plan(&self, work: &Work<'_>, kernel: &str, rows_of_raw: bool) -> Result<(), CodeError> {
        let grid = if rows_of_raw {
            work.launch.grid(1)
        } else {
            work.launch.escape_grid(1)
        };
        self.launch(work, kernel, grid, work.launch.plan())
    }

    fn sum(&self, work: &Work<'_>, extents: Option<&Extents>) -> Result<(), CodeError> {
        extents.map_or(Ok(()), |extents| {
            self.launch(work, "lynx_sum", extents.grid(1), extents)
        })
    }

    /// Split, tail and what they leave out of the checksums.
    fn run_split(&mut self, work: &Work<'_>, with_tail: bool) -> Result<(), CodeError> {
        let kernels = [Some("lynx_split"), with_tail.then_some("lynx_tail")];
        let sums = work.launch.left_out(None, with_tail)?;
        self.repeat(work, kernels, sums)
    }

    /// Kernels and sums, recorded once for all units of a plan.
    fn repeat(
        &mut self,
        work: &Work<'_>,
        kernels: [Option<&'static str>; 2],
        sums: Option<Extents>,
    ) -> Result<(), CodeError> {
        let recipe = Recipe {
            build: work.build.clone(),
            launch: work.launch.clone(),
            kernels,
            sums,
        };
        let mut captured = match self.recordings.take(&recipe) {
            Some(captured) => captured,
            None => {
                self.recordings.note();
                Captured::record(&self.stream, || self.run(work, &recipe))?
            }
        };
        // SAFETY: the same arena, laid out for the same plan; the cache is this unit's, which its maker vouches for.
        unsafe { captured.launch(&self.stream) }?;
        self.recordings.keep(recipe, captured);
        Ok(())
    }

    fn run(&self, work: &Work<'_>, recipe: &Recipe) -> Result<(), CodeError> {
        for (kernel, rows_of_raw) in recipe.kernels.into_iter().zip([true, false]) {
            if let Some(kernel) = kernel {
                self.plan(work, kernel, rows_of_raw)?;
            }
        }
        self.sum(work, recipe.sums.as_ref())
    }

    /// Brings pieces of the arena down, as (start, length).
    fn download(&mut self, pieces: &[(usize, usize)]) -> Result<&[u8], CodeError> {
        let (Some(pinned), Some(arena)) = (self.pinned.take(), &self.arena) else {
            return Err(CodeError::Length("the arena"));
        };
        let pieces: Vec<_> = pieces.iter().map(|&(at, bytes)| (at, at, bytes)).collect();
        let pinned = self.stream.download(arena, pinned, &pieces)?.wait()?;
        Ok(self.pinned.insert(pinned).as_slice())
    }

    fn status(&mut self, work: &Work<'_>) -> Result<Status, CodeError> {
        let at = work.layout.status;
        let bytes = self.download(&[(at, size_of::<Status>())])?;
        Ok(Status::from_bytes(&bytes[at..]))
    }

    /// Runs the kernels that write values, and checks what they tell.
    fn decode(
        &mut self,
        work: &Work<'_>,
        kernel: &'static str,
        segments: (&Segments, &[usize]),
        extents: Option<Extents>,
    ) -> Result<(), CodeError> {
        let unit = &segments.0.unit;
        let is_escaped = unit.head.len() > work.plan.head_bytes();
        let kernels = [Some(kernel), is_escaped.then_some("lynx_unescape")];
        self.repeat(work, kernels, extents)?;
        let status = self.status(work)?;
        for &index in segments.1 {
            let number = number(work.plan, index);
            let bytes = unit.segment(index).map_or(0, <[u8]>::len);
            if status.checksum(number, bytes) != segments.0.sums.get(index).copied() {
                return Err(CodeError::Checksum(index));
            }
        }
        if let Some((tile, group)) = status.refusal() {
            return Err(CodeError::Refused(tile, group));
        }
        if status.unfit != u32::MAX {
            return Err(CodeError::Unfit(status.unfit));
        }
        Ok(())
    }
}

impl Coder for GpuCoder {
    type Cache = Cache;
    type SplitError = CodeError;
    type MergeError = CodeError;

    fn split(
        &mut self,
        plan: &UnitPlan,
        order: &LayerOrder,
        cache: &Cache,
        with_tail: bool,
    ) -> Result<Segments, CodeError> {
        let (work, status) = self.make(plan, order, cache, with_tail)?;
        self.collect(&work, status)
    }

    fn merge(
        &mut self,
        plan: &UnitPlan,
        order: &LayerOrder,
        (segments, steps): (&Segments, usize),
        cache: &mut Cache,
    ) -> Result<(), CodeError> {
        check_lengths(plan, &segments.unit, steps)?;
        let work = self.begin(plan, order, steps, &cache.place)?;
        self.upload(&work, cache, Some(&segments.unit))?;
        let extents = work
            .launch
            .left_out(Some(segments.unit.head.len()), false)?;
        let read: Vec<usize> = (0..=steps).collect();
        self.decode(&work, "lynx_merge", (segments, &read), extents)
    }

    fn restore(
        &mut self,
        plan: &UnitPlan,
        order: &LayerOrder,
        segments: &Segments,
        cache: &mut Cache,
    ) -> Result<(), CodeError> {
        check_lengths(plan, &segments.unit, plan.steps())?;
        let tail = segments.unit.tail.len();
        if tail < plan.tiles().count() * 4 || tail > plan.segment_bound(plan.segments() - 1) {
            return Err(CodeError::Length("the tail"));
        }
        let work = self.begin(plan, order, plan.steps(), &cache.place)?;
        self.upload(&work, cache, Some(&segments.unit))?;
        let read: Vec<usize> = (0..plan.segments()).collect();
        // The tail's length is told with the unit, so that one recording does for all.
        let whole = |&index: &usize| match number(plan, index) {
            number if number == Extent::TAIL as usize => Extent::WHOLE_TAIL,
            number => Extent {
                segment: u32::try_from(number).unwrap_or(0),
                from: 0,
                bytes: u32::try_from(segments.unit.segment(index).map_or(0, <[u8]>::len))
                    .unwrap_or(0),
            },
        };
        let extents = Extents::new(&read.iter().map(whole).collect::<Vec<_>>());
        self.decode(&work, "lynx_restore", (segments, &read), extents)
    }
}
