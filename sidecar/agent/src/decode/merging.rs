//! The thread that checks segments and merges them into an engine's blocks.
//!
//! Segments go to it as they come, in order, and lie there until a merge is asked for: the order of a transfer's jobs is what
//! makes a merge cover exactly what has arrived before it. Between transfers the thread chooses: those whose anchor is
//! not merged first, then the oldest deadline, and it looks again after every unit, so that a large merge holds up no
//! other request's anchor for longer than a unit takes. The right to write travels with the job and comes back with its
//! result, so that nothing can be told to the engine while a merge is being made. Not on the runtime: a merge takes
//! milliseconds, and a link's heartbeat must not wait for it.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;

use lynx_kernels::{Codec, Profile, checksum};
use lynx_transport::SegmentBytes;
use lynx_units::{SegmentIndex, Timestamp, TransferId, UnitIndex};

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
    Open(TransferId, Box<Arriving>),
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
    pub(super) fn open(
        &self,
        transfer: TransferId,
        coding: Arc<Coding>,
        profile: Arc<Profile>,
        deadline: Timestamp,
    ) {
        let arriving = Box::new(Arriving::new(coding, profile, deadline));
        self.job(Job::Open(transfer, arriving));
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
    transfers: BTreeMap<TransferId, Arriving>,
    done: F,
}

/// One transfer's segments, and what is to be done with them.
#[derive(Debug)]
struct Arriving {
    coding: Arc<Coding>,
    profile: Arc<Profile>,
    deadline: Timestamp,
    units: Vec<Received>,
    /// Units with something to merge, each once.
    fresh: Vec<usize>,
    jobs: VecDeque<Task>,
    /// A merge that was begun.
    table: Option<Writable>,
    /// Whether anything of it was merged: the first merge is the anchor's.
    is_merged: bool,
}

#[derive(Debug)]
enum Task {
    Take(Segment),
    Merge(Writable),
}

impl<F: FnMut(Done)> Worker<F> {
    fn new(done: F) -> Self {
        Self {
            codec: Codec::detect(),
            transfers: BTreeMap::new(),
            done,
        }
    }

    fn run(mut self, inbox: &Receiver<Job>) {
        loop {
            // What has come meanwhile may be more urgent.
            loop {
                match inbox.try_recv() {
                    Ok(job) => self.note(job),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return,
                }
            }
            if self.step() {
                continue;
            }
            match inbox.recv() {
                Ok(job) => self.note(job),
                Err(_) => return,
            }
        }
    }

    fn note(&mut self, job: Job) {
        match job {
            Job::Open(transfer, arriving) => drop(self.transfers.insert(transfer, *arriving)),
            Job::Take(transfer, segment) => {
                if let Some(arriving) = self.transfers.get_mut(&transfer) {
                    arriving.jobs.push_back(Task::Take(segment));
                }
            }
            Job::Merge(transfer, table) => match self.transfers.get_mut(&transfer) {
                Some(arriving) => arriving.jobs.push_back(Task::Merge(table)),
                None => (self.done)(Done {
                    transfer,
                    table: Some(table),
                    error: None,
                }),
            },
            Job::Close(transfer) => drop(self.transfers.remove(&transfer)),
        }
    }

    /// Does the most urgent piece of work; whether there was any.
    fn step(&mut self) -> bool {
        let busy = self.transfers.iter_mut().filter(|(_, it)| it.has_work());
        let urgent = busy.min_by_key(|(transfer, it)| (it.is_merged, it.deadline, **transfer));
        let Some((&transfer, arriving)) = urgent else {
            return false;
        };
        match arriving.step(&self.codec) {
            Ok(None) => {}
            Ok(Some(table)) => (self.done)(Done {
                transfer,
                table: Some(table),
                error: None,
            }),
            Err(error) => {
                let gone = self.transfers.remove(&transfer);
                (self.done)(Done {
                    transfer,
                    table: gone.and_then(Arriving::into_table),
                    error: Some(error),
                });
            }
        }
        true
    }
}

impl Arriving {
    fn new(coding: Arc<Coding>, profile: Arc<Profile>, deadline: Timestamp) -> Self {
        Self {
            units: (0..coding.units().len())
                .map(|_| coding.receive())
                .collect(),
            coding,
            profile,
            deadline,
            fresh: Vec::new(),
            jobs: VecDeque::new(),
            table: None,
            is_merged: false,
        }
    }

    fn has_work(&self) -> bool {
        self.table.is_some() || !self.jobs.is_empty()
    }

    /// The blocks, whether a merge into them was begun or only asked for: whoever asked waits for them.
    fn into_table(self) -> Option<Writable> {
        let asked = self.jobs.into_iter().find_map(|task| match task {
            Task::Merge(table) => Some(table),
            Task::Take(_) => None,
        });
        self.table.or(asked)
    }

    /// Takes a segment, or merges a unit; the blocks once a merge is complete.
    fn step(&mut self, codec: &Codec) -> Result<Option<Writable>, MergingError> {
        if self.table.is_none() {
            match self.jobs.pop_front() {
                None => return Ok(None),
                Some(Task::Take(segment)) => {
                    self.take(segment)?;
                    return Ok(None);
                }
                Some(Task::Merge(table)) => self.table = Some(table),
            }
        }
        let Some(table) = &mut self.table else {
            return Ok(None);
        };
        if let Some(unit) = self.fresh.pop()
            && let Some(received) = self.units.get_mut(unit)
        {
            self.coding
                .decode(codec, &self.profile, unit, received, table)?;
            received.merged();
        }
        if !self.fresh.is_empty() {
            return Ok(None);
        }
        self.is_merged = true;
        Ok(self.table.take())
    }

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
        received.take(usize::from(segment.0), bytes.into_vec(), expected)?;
        if received.merge_next() != Next::Nothing && !self.fresh.contains(&index) {
            self.fresh.push(index);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
