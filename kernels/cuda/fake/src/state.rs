//! What the driver remembers.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::sync::Mutex;
use std::thread::{self, ThreadId};

use lynx_cuda_shim::{Kernel, run, sum};
use lynx_gpu::{Extents, Plan, Unit};

use crate::queue::{Queues, Work};

pub(crate) const SUCCESS: u32 = 0;
pub(crate) const INVALID_VALUE: u32 = 1;
pub(crate) const INVALID_HANDLE: u32 = 400;
pub(crate) const NOT_FOUND: u32 = 500;
pub(crate) const INVALID_IMAGE: u32 = 200;
pub(crate) const ALREADY_REGISTERED: u32 = 712;
pub(crate) const NOT_READY: u32 = 600;
pub(crate) const LAUNCH_FAILED: u32 = 719;
pub(crate) const CAPTURE_UNSUPPORTED: u32 = 900;
const CAPTURE_INVALIDATED: u32 = 901;

/// What a handle is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Sort {
    Stream,
    Event,
    Device,
    Host,
    /// Host memory of the caller's, pinned.
    Registered,
    Imported,
    Module,
    Function,
    Graph,
    Executable,
    /// Memory that a descriptor is of.
    Shared,
    /// Addresses without memory.
    Range,
    /// Memory at such addresses.
    Mapping,
}

/// A launch with its arguments.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    module: u64,
    build: String,
    kernel: Option<Kernel>,
    plan: Plan,
    extents: Extents,
    units: u64,
    grid: [u32; 3],
}

/// What a thread records of a stream.
#[derive(Debug)]
struct Recording {
    thread: ThreadId,
    launches: Vec<Recorded>,
    is_void: bool,
}

#[derive(Debug)]
pub(crate) struct State {
    next: u64,
    /// How often the context is held.
    pub(crate) retained: usize,
    handles: BTreeSet<(Sort, u64)>,
    pub(crate) sizes: BTreeMap<u64, usize>,
    pub(crate) modules: BTreeMap<u64, String>,
    /// A module and a kernel.
    pub(crate) functions: BTreeMap<u64, (u64, String)>,
    pub(crate) queues: Queues,
    recordings: BTreeMap<u64, Recording>,
    pub(crate) graphs: BTreeMap<u64, Vec<Recorded>>,
    pub(crate) shared: BTreeMap<u64, File>,
}

static STATE: Mutex<State> = Mutex::new(State {
    next: 0x1000,
    retained: 0,
    handles: BTreeSet::new(),
    sizes: BTreeMap::new(),
    modules: BTreeMap::new(),
    functions: BTreeMap::new(),
    queues: Queues::NEW,
    recordings: BTreeMap::new(),
    graphs: BTreeMap::new(),
    shared: BTreeMap::new(),
});

/// Runs `f` with the state; what it returns is a call's code.
pub(crate) fn with(f: impl FnOnce(&mut State) -> Result<(), u32>) -> u32 {
    match STATE.lock() {
        Ok(mut state) => f(&mut state).err().unwrap_or(SUCCESS),
        Err(_) => LAUNCH_FAILED,
    }
}

impl State {
    pub(crate) fn make(&mut self, sort: Sort) -> u64 {
        self.next += 0x10;
        self.handles.insert((sort, self.next));
        self.next
    }

    pub(crate) fn adopt(&mut self, sort: Sort, handle: u64) {
        self.handles.insert((sort, handle));
    }

    pub(crate) fn check(&self, sort: Sort, handle: u64) -> Result<(), u32> {
        let known = self.handles.contains(&(sort, handle));
        known.then_some(()).ok_or(INVALID_HANDLE)
    }

    pub(crate) fn destroy(&mut self, sort: Sort, handle: u64) -> Result<(), u32> {
        let known = self.handles.remove(&(sort, handle));
        known.then_some(()).ok_or(INVALID_HANDLE)
    }

    pub(crate) fn share(&mut self, file: File) -> u64 {
        let handle = self.make(Sort::Shared);
        self.shared.insert(handle, file);
        handle
    }

    /// What can't be recorded: where this thread records, its recording is void from then on.
    pub(crate) fn now(&mut self) -> Result<(), u32> {
        let own = thread::current().id();
        let mut recordings = self.recordings.values_mut();
        match recordings.find(|recording| recording.thread == own) {
            Some(recording) => {
                recording.is_void = true;
                Err(CAPTURE_UNSUPPORTED)
            }
            None => Ok(()),
        }
    }

    pub(crate) fn begin(&mut self, stream: u64) -> Result<(), u32> {
        self.now()?;
        let recording = Recording {
            thread: thread::current().id(),
            launches: Vec::new(),
            is_void: false,
        };
        self.recordings.insert(stream, recording);
        Ok(())
    }

    /// What was recorded.
    pub(crate) fn end(&mut self, stream: u64) -> Result<Vec<Recorded>, u32> {
        let recording = self.recordings.remove(&stream).ok_or(INVALID_VALUE)?;
        if recording.is_void {
            return Err(CAPTURE_INVALIDATED);
        }
        Ok(recording.launches)
    }

    /// Asks the stream for a launch, or records it.
    pub(crate) fn launch(&mut self, stream: u64, launch: Recorded) {
        match self.recordings.get_mut(&stream) {
            Some(recording) => recording.launches.push(launch),
            None => self.queues.ask(stream, Work::Launch(vec![launch])),
        }
    }

    pub(crate) fn is_recording(&self, stream: u64) -> bool {
        self.recordings.contains_key(&stream)
    }

    /// What the driver does not look at, and whoever frees memory must: nothing still copies from it or to it.
    pub(crate) fn assert_idle(&self, address: u64, bytes: usize) {
        let mut pending = self.queues.pending();
        let found = pending.find(|work| work.touches(address, bytes));
        assert!(
            found.is_none(),
            "{found:?} is not done, and its memory goes"
        );
    }

    /// The start and the length of the allocation that the address is in.
    pub(crate) fn allocation(&self, address: u64) -> Option<(u64, usize)> {
        let (start, size) = self.sizes.range(..=address).next_back()?;
        (address < start + *size as u64).then_some((*start, *size))
    }

    /// Whether the bytes lie in one allocation.
    pub(crate) fn check_memory(&self, address: u64, bytes: usize) -> Result<(), u32> {
        let found = self.sizes.range(..=address).next_back();
        let fits =
            found.is_some_and(|(start, size)| address + bytes as u64 <= start + *size as u64);
        fits.then_some(()).ok_or(INVALID_VALUE)
    }

    /// What is still there, of this sort.
    pub(crate) fn count(&self, sort: Sort) -> usize {
        self.handles.iter().filter(|(of, _)| *of == sort).count()
    }

    /// A launch as it was asked for.
    ///
    /// # Safety
    /// `arguments` are those of the function.
    pub(crate) unsafe fn recorded(
        &self,
        function: u64,
        grid: [u32; 3],
        arguments: *mut *mut u8,
    ) -> Result<Recorded, u32> {
        let (module, name) = self.functions.get(&function).ok_or(INVALID_HANDLE)?;
        let build = self.modules.get(module).ok_or(INVALID_HANDLE)?;
        // SAFETY: there are two.
        let pointers = unsafe { std::slice::from_raw_parts(arguments, 2) };
        // SAFETY: the second is an address.
        let units = unsafe { pointers[1].cast::<u64>().read_unaligned() };
        let kernel = kernel(name);
        let (mut plan, mut extents) = (Plan::default(), Extents::default());
        match kernel {
            // SAFETY: the first of all kernels but one is a plan.
            Some(_) => plan = unsafe { pointers[0].cast::<Plan>().read_unaligned() },
            // SAFETY: of the other one it is extents.
            None => extents = unsafe { pointers[0].cast::<Extents>().read_unaligned() },
        }
        Ok(Recorded {
            module: *module,
            build: build.clone(),
            kernel,
            plan,
            extents,
            units,
            grid,
        })
    }
}

/// `None` for `lynx_sum`.
fn kernel(name: &str) -> Option<Kernel> {
    match name {
        "lynx_split" => Some(Kernel::Split),
        "lynx_merge" => Some(Kernel::Merge),
        "lynx_escape" => Some(Kernel::Escape),
        "lynx_unescape" => Some(Kernel::Unescape),
        "lynx_tail" => Some(Kernel::Tail),
        "lynx_restore" => Some(Kernel::Restore),
        _ => None,
    }
}

pub(crate) fn is_kernel(name: &str) -> bool {
    name == "lynx_sum" || kernel(name).is_some()
}

impl Recorded {
    pub(crate) fn is_of(&self, module: u64) -> bool {
        self.module == module
    }

    /// Runs it.
    ///
    /// # Safety
    /// The memory that its units name is there.
    pub(crate) unsafe fn run(&self) -> Result<(), u32> {
        let count = self.grid[2] as usize;
        let units: *const Unit = std::ptr::with_exposed_provenance(
            usize::try_from(self.units).map_err(|_| INVALID_VALUE)?,
        );
        // SAFETY: the caller vouches for it.
        let units = unsafe { std::slice::from_raw_parts(units, count) };
        let said = match self.kernel {
            // SAFETY: as above.
            Some(kernel) => unsafe { run(&self.build, kernel, &self.plan, units, self.grid, 2) },
            // SAFETY: as above.
            None => unsafe { sum(&self.build, &self.extents, units, self.grid, 2) },
        };
        said.map_err(|_| LAUNCH_FAILED)
    }
}
