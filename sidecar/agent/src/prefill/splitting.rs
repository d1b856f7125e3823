//! The thread that splits units and hands them to their link.
//!
//! One thread, in the order in which layers become ready: what goes first on the wire is the links' schedulers' affair. Not on
//! the runtime, where splitting a unit would hold up the links' heartbeats, and not a pool of threads, which would take cores
//! from the engine that computes the next layer.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use lynx_kernels::{Codec, Kind, Profile};
use lynx_telemetry::{self as telemetry, Context, KeyValue, attributes, names};
use lynx_transport::{SegmentPayload, SenderHandle, SharedBytes};
use lynx_units::{Priority, SegmentIndex, TransferId, UnitIndex};

use crate::clock;
use crate::coding::{Coding, EncodeError, Segments};
use crate::pool::Readable;

/// Hands jobs to the thread, which ends when this is dropped.
#[derive(Clone, Debug)]
pub(super) struct Splitting {
    jobs: Sender<Job>,
}

/// What all jobs of a transfer have in common.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) request: u64,
    pub(super) transfer: TransferId,
    pub(super) coding: Arc<Coding>,
    pub(super) profile: Arc<Profile>,
    pub(super) blocks: Arc<Readable>,
    pub(super) link: SenderHandle,
    /// The parent of the spans.
    pub(super) trace: Context,
    /// Whether the transfer is over: then its jobs do nothing.
    pub(super) over: AtomicBool,
}

/// One layer's K and V of one range of tokens.
#[derive(Debug)]
struct Job {
    work: Arc<Work>,
    range: usize,
    layer: usize,
}

/// What became of a job. By then the thread has let go of the blocks.
#[derive(Debug)]
pub(super) struct Split {
    pub(super) request: u64,
    /// Bytes that were handed to the link, by [`Priority::index`], or why they weren't.
    pub(super) bytes: Result<[u64; 2], EncodeError>,
    /// How long it took.
    pub(super) took: Duration,
}

impl Splitting {
    /// Starts the thread; `done` is told what becomes of jobs.
    ///
    /// # Errors
    /// The system has no thread to give.
    pub(super) fn start(
        codec: Codec,
        done: impl Fn(Split) + Send + 'static,
    ) -> Result<Self, io::Error> {
        let (jobs, inbox) = channel();
        std::thread::Builder::new()
            .name("lynx-split".to_owned())
            .spawn(move || run(&codec, &inbox, &done))?;
        Ok(Self { jobs })
    }

    /// Splits one layer of one range of tokens, after everything that was asked for before.
    pub(super) fn split(&self, work: &Arc<Work>, range: usize, layer: usize) {
        let work = Arc::clone(work);
        // The thread lives as long as this handle.
        drop(self.jobs.send(Job { work, range, layer }));
    }
}

fn run(codec: &Codec, inbox: &Receiver<Job>, done: &impl Fn(Split)) {
    while let Ok(Job { work, range, layer }) = inbox.recv() {
        let start = clock::unix_ns();
        let bytes = if work.over.load(Ordering::Acquire) {
            Ok([0; 2])
        } else {
            split(codec, &work, range, layer)
        };
        let end = clock::unix_ns();
        telemetry::span_at(
            names::SPLIT,
            telemetry::Kind::Internal,
            &work.trace,
            clock::system_time(start),
            clock::system_time(end),
            [KeyValue::new(
                attributes::LAYER,
                i64::try_from(layer).unwrap_or(i64::MAX),
            )],
        );
        let request = work.request;
        drop(work);
        done(Split {
            request,
            bytes,
            took: clock::until(end, start),
        });
    }
}

fn split(codec: &Codec, work: &Work, range: usize, layer: usize) -> Result<[u64; 2], EncodeError> {
    let coding = &work.coding;
    let first = range * coding.units().units_per_range() + layer * Kind::ALL.len();
    let mut bytes = [0; 2];
    for unit in first..first + Kind::ALL.len() {
        let segments = coding.encode(codec, &work.profile, unit, &work.blocks)?;
        count(coding, &segments, &mut bytes);
        let payload = |(bytes, checksum)| SegmentPayload {
            bytes: SharedBytes::from(bytes),
            checksum,
        };
        let segments = segments.into_iter().map(payload).collect();
        // A plan has fewer units than a u32 can count. A link that is over has failed the transfer on both sides.
        let unit = UnitIndex(u32::try_from(unit).unwrap_or(u32::MAX));
        work.link.publish(work.transfer, unit, segments).ok();
    }
    Ok(bytes)
}

fn count(coding: &Coding, segments: &Segments, bytes: &mut [u64; 2]) {
    for (index, (segment, _)) in (0..).zip(segments) {
        let priority = coding.transfer().priority(SegmentIndex(index));
        bytes[priority.unwrap_or(Priority::Residual).index()] += segment.len() as u64;
    }
}
