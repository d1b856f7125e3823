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

use self::layout::{Arena, Layout, check_lengths, halves, number, words};
use self::recorded::{Part, Recipe, Recordings};
pub use self::segments::Placed;
use super::{Captured, Device, DriverError, InFlight, Memory, Module, Pinned, Registered, Stream};
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
    /// The same while what a launch is told goes up.
    going_up: Option<InFlight>,
    /// What the pinned memory has of the budget.
    slot: Option<Slot>,
    /// Memory of the caller's, and what it has.
    registered: Option<(Registered, Slot)>,
    recordings: Recordings,
}

/// A unit, and where its values are.
#[derive(Clone, Copy, Debug)]
pub struct InCache<'a> {
    /// The unit.
    pub plan: &'a UnitPlan,
    /// Its layer's order of words.
    pub order: &'a LayerOrder,
    /// The values.
    pub cache: &'a Cache,
}

/// What is done with a unit.
struct Work<'a> {
    it: InCache<'a>,
    plan: &'a UnitPlan,
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
            going_up: None,
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

    /// Makes room for units of which so many steps are read, or all.
    fn begin<'a>(
        &mut self,
        units: &[InCache<'a>],
        steps: Option<usize>,
    ) -> Result<(Vec<Work<'a>>, Arena), CodeError> {
        let device = self.stream.device().clone();
        let mut arena = Arena::of_units(units.len());
        let mut works = Vec::with_capacity(units.len());
        for (index, &it) in units.iter().enumerate() {
            let (plan, place) = (it.plan, &it.cache.place);
            let launch = Launch::new(plan, &place.pages, steps.unwrap_or(plan.steps()))?;
            let pages = plan.tokens().end - place.pages.start(plan.tokens().start);
            if place.table.len() != pages.div_ceil(place.pages.tokens) as usize {
                return Err(CodeError::Length("the table of pages"));
            }
            let build = build_name(&launch, place.half);
            if !self.modules.contains_key(&build) {
                let code = self.images.load(&build, device.capability())?;
                let module = Module::load(&device, &code)?;
                self.modules.insert(build.clone(), module);
            }
            works.push(Work {
                it,
                plan,
                layout: Layout::new(&mut arena, index, (plan, &launch), place.table.len()),
                launch,
                build,
            });
        }
        let told = Arena { end: arena.end };
        for work in &mut works {
            let layout = std::mem::take(&mut work.layout);
            work.layout = layout.with_segments(&mut arena, work.plan);
        }
        if self.arena.as_ref().is_none_or(|it| it.bytes() < arena.end) {
            // Recorded launches have the old one's address.
            self.recordings.clear();
            self.arena = None;
            self.arena = Some(Memory::new(&device, arena.end)?);
        }
        self.pinned = Some(self.pinned(arena.end)?);
        Ok((works, if steps.is_none() { told } else { arena }))
    }

    /// Brings to the GPU what a launch is told, up to this end, and the segments that a merge reads.
    fn upload(
        &mut self,
        works: &[Work<'_>],
        end: &Arena,
        segments: Option<&UnitBuffer>,
    ) -> Result<(), CodeError> {
        let (Some(mut pinned), Some(arena)) = (self.pinned.take(), self.arena.as_mut()) else {
            return Err(CodeError::Length("the arena"));
        };
        for work in works {
            work.tell(pinned.as_mut_slice(), arena.address(), segments);
        }
        // The processor writes there no more before the stream has brought something down.
        self.going_up = Some(self.stream.upload(pinned, arena, 0, end.end)?);
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
    fn run_split(&mut self, works: &[Work<'_>], with_tail: bool) -> Result<(), CodeError> {
        let parts = works.iter().map(|work| {
            let kernels = [Some("lynx_split"), with_tail.then_some("lynx_tail")];
            Ok(work.part(kernels, work.launch.left_out(None, with_tail)?))
        });
        let recipe = parts.collect::<Result<_, CodeError>>()?;
        self.repeat(works, recipe)
    }

    /// Kernels and sums, recorded once for all units of the same plans.
    fn repeat(&mut self, works: &[Work<'_>], recipe: Recipe) -> Result<(), CodeError> {
        let mut captured = match self.recordings.take(&recipe) {
            Some(captured) => captured,
            None => {
                self.recordings.note();
                Captured::record(&self.stream, || self.run(works, &recipe))?
            }
        };
        // SAFETY: the same arena, laid out for the same plans; the caches are these units', which their makers vouch for.
        unsafe { captured.launch(&self.stream) }?;
        self.recordings.keep(recipe, captured);
        Ok(())
    }

    fn run(&self, works: &[Work<'_>], recipe: &Recipe) -> Result<(), CodeError> {
        for (work, part) in works.iter().zip(recipe) {
            for (kernel, rows_of_raw) in part.kernels.into_iter().zip([true, false]) {
                if let Some(kernel) = kernel {
                    self.plan(work, kernel, rows_of_raw)?;
                }
            }
            self.sum(work, part.sums.as_ref())?;
        }
        Ok(())
    }

    /// Brings pieces of the arena down, as (start, length).
    fn download(&mut self, pieces: &[(usize, usize)]) -> Result<&[u8], CodeError> {
        let arena = self.arena.as_ref();
        let arena = arena.ok_or(CodeError::Length("the arena"))?;
        let pieces: Vec<_> = pieces.iter().map(|&(at, bytes)| (at, at, bytes)).collect();
        let copy = match (self.going_up.take(), self.pinned.take()) {
            // SAFETY: a coder has one stream.
            (Some(before), _) => unsafe { self.stream.download_behind(arena, before, &pieces) },
            (None, Some(pinned)) => self.stream.download(arena, pinned, &pieces),
            (None, None) => return Err(CodeError::Length("the arena")),
        };
        let pinned = copy?.wait()?;
        Ok(self.pinned.insert(pinned).as_slice())
    }

    /// What the kernels tell of each unit.
    fn statuses(&mut self, works: &[Work<'_>]) -> Result<Vec<Status>, CodeError> {
        let at = works.iter().map(|work| work.layout.status);
        let pieces: Vec<_> = at.clone().map(|at| (at, size_of::<Status>())).collect();
        let bytes = self.download(&pieces)?;
        Ok(at.map(|at| Status::from_bytes(&bytes[at..])).collect())
    }

    /// Runs the kernel that writes values, and checks what it tells.
    fn decode(
        &mut self,
        it: InCache<'_>,
        (kernel, steps): (&'static str, usize),
        (segments, read): (&Segments, &[usize]),
        extents: impl Fn(&Launch) -> Result<Option<Extents>, LaunchError>,
    ) -> Result<(), CodeError> {
        let (works, arena) = self.begin(&[it], Some(steps))?;
        self.upload(&works, &arena, Some(&segments.unit))?;
        let is_escaped = segments.unit.head.len() > it.plan.head_bytes();
        let kernels = [Some(kernel), is_escaped.then_some("lynx_unescape")];
        let parts = works.iter().map(|work| {
            let sums = extents(&work.launch)?;
            Ok(work.part(kernels, sums))
        });
        let recipe = parts.collect::<Result<_, CodeError>>()?;
        self.repeat(&works, recipe)?;
        for status in self.statuses(&works)? {
            check_status(it.plan, status, segments, read)?;
        }
        Ok(())
    }
}

impl Work<'_> {
    fn part(&self, kernels: [Option<&'static str>; 2], sums: Option<Extents>) -> Part {
        Part {
            build: self.build.clone(),
            launch: self.launch.clone(),
            kernels,
            sums,
        }
    }

    /// Writes what the kernels are told, and segments that they read, as they will lie in the arena.
    fn tell(&self, bytes: &mut [u8], arena: u64, segments: Option<&UnitBuffer>) {
        let (layout, cache) = (&self.layout, self.it.cache);
        let address = |offset: usize| arena + offset as u64;
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
        let steps = self.launch.plan().steps as usize;
        let mut put = |at: usize, from: &[u8]| bytes[at..][..from.len()].copy_from_slice(from);
        put(layout.unit, &unit.to_bytes());
        put(layout.table, &words(&cache.place.table));
        if self.plan.kind() == Kind::K {
            let places = Places::new(self.plan.shape(), self.it.order).0;
            put(layout.places, &halves(&places));
            let cut = Cut::new(self.plan, self.it.order, steps).0;
            put(layout.cuts, &halves(&cut));
            put(layout.owners, &self.launch.owners());
        }
        put(layout.status, &Status::NEW.to_bytes());
        let published = vec![0; (self.plan.tiles().count() + 1) * 4];
        put(layout.published, &published);
        if let Some(unit) = segments {
            put(layout.head, &unit.head);
            for (at, step) in layout.steps.iter().zip(&unit.steps) {
                put(*at, step);
            }
            put(layout.tail, &unit.tail);
        }
    }
}

/// Whether the segments that were read are those that were sent, and fit each other.
fn check_status(
    plan: &UnitPlan,
    status: Status,
    segments: &Segments,
    read: &[usize],
) -> Result<(), CodeError> {
    for &index in read {
        let bytes = segments.unit.segment(index).map_or(0, <[u8]>::len);
        if status.checksum(number(plan, index), bytes) != segments.sums.get(index).copied() {
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
        let units = [InCache { plan, order, cache }];
        Ok(self.split_all(&units, with_tail)?.pop().unwrap_or_default())
    }

    fn merge(
        &mut self,
        plan: &UnitPlan,
        order: &LayerOrder,
        (segments, steps): (&Segments, usize),
        cache: &mut Cache,
    ) -> Result<(), CodeError> {
        check_lengths(plan, &segments.unit, steps)?;
        let it = InCache { plan, order, cache };
        let read: Vec<usize> = (0..=steps).collect();
        let head = segments.unit.head.len();
        self.decode(it, ("lynx_merge", steps), (segments, &read), |launch| {
            launch.left_out(Some(head), false)
        })
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
        let it = InCache { plan, order, cache };
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
        let all = Extents::new(&read.iter().map(whole).collect::<Vec<_>>());
        let kernel = ("lynx_restore", plan.steps());
        self.decode(it, kernel, (segments, &read), |_| Ok(all))
    }
}
