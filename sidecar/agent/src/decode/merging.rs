//! The thread that checks segments and merges them into an engine's blocks.
//!
//! Segments go to it as they come, in order, and lie there until a merge is asked for: the order of the jobs is what makes a
//! merge cover exactly what has arrived before it. The right to write travels with the job and comes back with its
//! result, so that nothing can be told to the engine while a merge is being made. Not on the runtime: a merge takes
//! milliseconds, and a link's heartbeat must not wait for it.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use lynx_kernels::{Codec, Profile, checksum};
use lynx_transport::SegmentBytes;
use lynx_units::{SegmentIndex, TransferId, UnitIndex};

use crate::coding::{Coding, DecodeError, Next, NoSuchSegment, Received};
use crate::pool::Writable;

/// Hands jobs to the thread. Dropped, it waits for the thread's end: then nothing of this process writes any more.
#[derive(Debug)]
pub(super) struct Merging {
    /// Both are there until this is dropped.
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Merging {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A thread that has panicked has said so.
            drop(thread.join());
        }
    }
}

/// What became of a job.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) transfer: TransferId,
    /// The blocks, after a merge; `None` for a segment that was refused.
    pub(super) table: Option<Writable>,
    /// Why the transfer can't go on, where it can't. Said once.
    pub(super) error: Option<MergingError>,
}

/// What is wrong with what came.
#[derive(Debug, thiserror::Error)]
pub(super) enum MergingError {
    #[error("segment {segment} of unit {unit} has another checksum than its sender computed")]
    Checksum {
        unit: UnitIndex,
        segment: SegmentIndex,
    },
    #[error("a segment of unit {0}, which the transfer doesn't have")]
    NoSuchUnit(UnitIndex),
    #[error(transparent)]
    NoSuchSegment(#[from] NoSuchSegment),
    #[error(transparent)]
    Decode(#[from] DecodeError),
}

#[derive(Debug)]
enum Job {
    Open(TransferId, Arc<Coding>, Arc<Profile>),
    Take(TransferId, Segment),
    Merge(TransferId, Writable),
    Close(TransferId),
}

/// A segment as the link gives it.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) unit: UnitIndex,
    pub(super) segment: SegmentIndex,
    pub(super) bytes: SegmentBytes,
    pub(super) checksum: u64,
}

impl Merging {
    /// Starts the thread; `done` is told what becomes of jobs.
    ///
    /// # Errors
    /// The system has no thread to give.
    pub(super) fn start(done: impl FnMut(Done) + Send + 'static) -> io::Result<Self> {
        let (jobs, inbox) = channel();
        let thread = std::thread::Builder::new()
            .name("lynx-codec".to_owned())
            .spawn(move || Worker::new(done).run(&inbox))?;
        Ok(Self {
            jobs: Some(jobs),
            thread: Some(thread),
        })
    }

    /// Segments of this transfer will come.
    pub(super) fn open(&self, transfer: TransferId, coding: Arc<Coding>, profile: Arc<Profile>) {
        self.job(Job::Open(transfer, coding, profile));
    }

    /// A segment has come. It counts against the link's window until the thread has it.
    pub(super) fn take(&self, transfer: TransferId, segment: Segment) {
        self.job(Job::Take(transfer, segment));
    }

    /// Merge what has come into `table`.
    pub(super) fn merge(&self, transfer: TransferId, table: Writable) {
        self.job(Job::Merge(transfer, table));
    }

    /// Nothing of this transfer is needed any more.
    pub(super) fn close(&self, transfer: TransferId) {
        self.job(Job::Close(transfer));
    }

    fn job(&self, job: Job) {
        if let Some(jobs) = &self.jobs {
            // The thread lives as long as this handle.
            drop(jobs.send(job));
        }
    }
}

struct Worker<F> {
    codec: Codec,
    transfers: HashMap<TransferId, Arriving>,
    done: F,
}

/// One transfer's segments.
struct Arriving {
    coding: Arc<Coding>,
    profile: Arc<Profile>,
    units: Vec<Received>,
    /// Units with something to merge, each once.
    fresh: Vec<usize>,
}

impl<F: FnMut(Done)> Worker<F> {
    fn new(done: F) -> Self {
        Self {
            codec: Codec::detect(),
            transfers: HashMap::new(),
            done,
        }
    }

    fn run(mut self, inbox: &Receiver<Job>) {
        while let Ok(job) = inbox.recv() {
            self.carry_out(job);
        }
    }

    fn carry_out(&mut self, job: Job) {
        match job {
            Job::Open(transfer, coding, profile) => {
                let units = (0..coding.units().len()).map(|_| coding.receive());
                let arriving = Arriving {
                    units: units.collect(),
                    coding,
                    profile,
                    fresh: Vec::new(),
                };
                self.transfers.insert(transfer, arriving);
            }
            Job::Take(transfer, segment) => {
                let Some(arriving) = self.transfers.get_mut(&transfer) else {
                    return;
                };
                if let Err(error) = arriving.take(segment) {
                    self.refuse(transfer, None, error);
                }
            }
            Job::Merge(transfer, mut table) => {
                let merged = match self.transfers.get_mut(&transfer) {
                    Some(arriving) => arriving.merge(&self.codec, &mut table),
                    None => Ok(()),
                };
                match merged {
                    Ok(()) => (self.done)(Done {
                        transfer,
                        table: Some(table),
                        error: None,
                    }),
                    Err(error) => self.refuse(transfer, Some(table), error.into()),
                }
            }
            Job::Close(transfer) => drop(self.transfers.remove(&transfer)),
        }
    }

    fn refuse(&mut self, transfer: TransferId, table: Option<Writable>, error: MergingError) {
        self.transfers.remove(&transfer);
        (self.done)(Done {
            transfer,
            table,
            error: Some(error),
        });
    }
}

impl Arriving {
    fn take(&mut self, segment: Segment) -> Result<(), MergingError> {
        let Segment {
            unit,
            segment,
            bytes,
            checksum: expected,
        } = segment;
        if checksum(&bytes) != expected {
            return Err(MergingError::Checksum { unit, segment });
        }
        let index = unit.0 as usize;
        let found = self.units.get_mut(index);
        let received = found.ok_or(MergingError::NoSuchUnit(unit))?;
        received.take(usize::from(segment.0), bytes.into_vec())?;
        if received.merge_next() != Next::Nothing && !self.fresh.contains(&index) {
            self.fresh.push(index);
        }
        Ok(())
    }

    fn merge(&mut self, codec: &Codec, table: &mut Writable) -> Result<(), DecodeError> {
        for unit in self.fresh.drain(..) {
            let received = &mut self.units[unit];
            self.coding
                .decode(codec, &self.profile, unit, received, table)?;
            received.merged();
        }
        Ok(())
    }
}
