//! The threads that a forward pass runs on, and their working memory.

use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::sync::PoisonError;

use rayon::prelude::*;

use crate::forward::Scratch;
use crate::simd::Level;
use crate::tile::Local;

/// A pool of threads with the memory that a forward pass needs, kept from call to call.
///
/// Results do not depend on the number of threads or on the level. One forward pass runs at a time on a pool; a second one
/// waits.
#[derive(Debug)]
pub struct Workers {
    pool: rayon::ThreadPool,
    locals: Vec<Mutex<Local>>,
    level: Level,
    pub(crate) scratch: Mutex<Scratch>,
}

/// The threads could not be started.
#[derive(Debug, thiserror::Error)]
#[error("cannot start {threads} threads: allow more, or ask for fewer")]
pub struct WorkersError {
    threads: NonZeroUsize,
    source: rayon::ThreadPoolBuildError,
}

impl Workers {
    /// Starts threads that use the machine's best instructions.
    ///
    /// # Errors
    /// If the operating system gives no more threads.
    pub fn new(threads: NonZeroUsize) -> Result<Self, WorkersError> {
        Self::with_level(threads, Level::best())
    }

    /// Starts threads that use a given level of instructions.
    ///
    /// # Errors
    /// If the operating system gives no more threads.
    pub fn with_level(threads: NonZeroUsize, level: Level) -> Result<Self, WorkersError> {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads.get())
            .thread_name(|index| format!("lynx-engine-{index}"))
            .build()
            .map_err(|source| WorkersError { threads, source })?;
        let locals = (0..threads.get()).map(|_| Mutex::default()).collect();
        Ok(Self {
            pool,
            locals,
            level,
            scratch: Mutex::default(),
        })
    }

    /// How many threads there are.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.locals.len()
    }

    /// The instructions in use.
    #[must_use]
    pub fn level(&self) -> Level {
        self.level
    }

    /// Runs `body` on one of the threads; [`Self::each`] inside it does not have to wake that one.
    pub(crate) fn enter<T: Send>(&self, body: impl FnOnce() -> T + Send) -> T {
        self.pool.install(body)
    }

    /// Does every task, on whichever thread is free, with that thread's own memory.
    pub(crate) fn each<T: Send>(
        &self,
        mut tasks: Vec<T>,
        work: impl Fn(&mut T, &mut Local) + Sync,
    ) {
        let run = |task: &mut T| {
            let index = rayon::current_thread_index().unwrap_or(0);
            // A task that panicked leaves numbers of no use behind, but no broken structure.
            let mut local = self.locals[index]
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            work(task, &mut local);
        };
        if self.threads() == 1 || tasks.len() == 1 {
            tasks.iter_mut().for_each(run);
        } else {
            tasks.par_iter_mut().with_max_len(1).for_each(run);
        }
    }
}
