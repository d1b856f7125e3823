//! The thread that splits units and hands them to their link.
//!
//! One thread; what is next, and whether there is room for it, the [`Budget`] says. Not on the runtime, where splitting a
//! unit would hold up the links' heartbeats, and not a pool of threads, which would take cores from the engine that
//! computes the next layer.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use lynx_kernels::{Codec, Kind, Profile};
use lynx_telemetry::{self as telemetry, Context, KeyValue, attributes, names};
use lynx_transport::{SegmentPayload, SenderHandle, SharedBytes};
use lynx_units::{Bytes, Priority, Timestamp, TransferId, UnitIndex};

use super::budget::{Budget, Part, Turn};
use crate::clock;
use crate::coding::{Coding, EncodeError};
use crate::counters::{Counters, Pool};
use crate::pool::{Piece, Readable};

/// Hands jobs to the thread, which ends when the last clone of this is dropped.
#[derive(Clone, Debug)]
pub(super) struct Splitting {
    thread: Arc<Handle>,
}

/// Has the thread end: its own inbox is known to bytes that outlive it.
#[derive(Debug)]
struct Handle(Sender<Message>);

/// What all jobs of a transfer have in common.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) request: u64,
    pub(super) transfer: TransferId,
    /// The decode agent that it is for.
    pub(super) to: Arc<str>,
    pub(super) deadline: Timestamp,
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
    /// What of it was handed to the link so far, by [`Priority::index`], and how long that took.
    bytes: [u64; 2],
    took: Duration,
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

#[derive(Debug)]
enum Message {
    Job(Job),
    /// So many bytes for this decode agent are sent, or were dropped.
    Gone(Arc<str>, u64),
    /// A transfer is over.
    Over,
    /// Nobody wants anything any more.
    End,
}

impl Splitting {
    /// Starts the thread, which keeps what is split and not sent within `room`; `done` is told what becomes of jobs.
    ///
    /// # Errors
    /// The system has no thread to give.
    pub(super) fn start(
        codec: Codec,
        room: Bytes,
        counters: Arc<Counters>,
        done: impl Fn(Split) + Send + 'static,
    ) -> Result<Self, io::Error> {
        let (messages, inbox) = channel();
        counters.memory.of(Pool::Split).set_limit(room.get());
        let mut worker = Worker {
            codec,
            budget: Budget::new(room),
            counters,
            messages: messages.clone(),
            done,
        };
        std::thread::Builder::new()
            .name("lynx-split".to_owned())
            .spawn(move || worker.run(&inbox))?;
        let thread = Arc::new(Handle(messages));
        Ok(Self { thread })
    }

    /// Splits one layer of one range of tokens, when its turn comes.
    pub(super) fn split(&self, work: &Arc<Work>, range: usize, layer: usize) {
        self.tell(Message::Job(Job {
            work: Arc::clone(work),
            range,
            layer,
            bytes: [0; 2],
            took: Duration::ZERO,
        }));
    }

    /// A transfer is over: its jobs that wait for room are done.
    pub(super) fn over(&self) {
        self.tell(Message::Over);
    }

    fn tell(&self, message: Message) {
        // The thread lives as long as this handle.
        drop(self.thread.0.send(message));
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        drop(self.0.send(Message::End));
    }
}

struct Worker<F> {
    codec: Codec,
    budget: Budget<Arc<str>, Job>,
    counters: Arc<Counters>,
    /// For bytes, to say that they are gone.
    messages: Sender<Message>,
    done: F,
}

impl<F: Fn(Split)> Worker<F> {
    fn run(&mut self, inbox: &Receiver<Message>) {
        loop {
            // What has come meanwhile decides what is next.
            while let Ok(message) = inbox.try_recv() {
                if !self.hear(message) {
                    return;
                }
            }
            if let Some(turn) = self.budget.next() {
                self.take(turn);
                continue;
            }
            let message = inbox.recv();
            if !message.is_ok_and(|message| self.hear(message)) {
                return;
            }
        }
    }

    /// Whether to go on.
    fn hear(&mut self, message: Message) -> bool {
        match message {
            Message::Job(job) => {
                let cost = job.units().map(|unit| job.work.coding.bounds(unit));
                let cost = cost.fold([Bytes::ZERO; 2], |[a, b], [c, d]| [a + c, b + d]);
                let (to, deadline) = (Arc::clone(&job.work.to), job.work.deadline);
                self.budget.add(to, deadline, cost, job);
            }
            Message::Gone(to, bytes) => self.budget.gone(&to, Bytes::new(bytes)),
            Message::Over => {
                let over = self.budget.remove(Job::is_over);
                over.into_iter().for_each(|job| self.tell(job, Ok(())));
            }
            Message::End => return false,
        }
        true
    }

    fn take(&mut self, mut turn: Turn<Arc<str>, Job>) {
        let start = clock::unix_ns();
        let before: u64 = turn.job.bytes.iter().sum();
        let split = if turn.job.is_over() {
            Ok(())
        } else {
            turn.job.split(&self.codec, turn.part, &|bytes| {
                self.lend(bytes, &turn.link)
            })
        };
        let end = clock::unix_ns();
        turn.job.trace(start, end);
        turn.job.took += clock::until(end, start);
        let bytes = turn.job.bytes.iter().sum::<u64>() - before;
        if let Err(error) = split {
            // A part of it may be on its way; the rest never will be.
            turn.part = Part::Whole;
            if let Some(job) = self.budget.split(turn, Bytes::new(bytes)) {
                self.tell(job, Err(error));
            }
        } else if let Some(job) = self.budget.split(turn, Bytes::new(bytes)) {
            self.tell(job, Ok(()));
        }
    }

    /// Bytes that say when they are gone.
    fn lend(&self, bytes: Piece, to: &Arc<str>) -> SharedBytes {
        if bytes.is_empty() {
            return SharedBytes::new();
        }
        self.counters.memory.of(Pool::Split).add(bytes.len() as u64);
        SharedBytes::from_owner(Lent {
            bytes,
            to: Arc::clone(to),
            counters: Arc::clone(&self.counters),
            messages: self.messages.clone(),
        })
    }

    fn tell(&self, job: Job, split: Result<(), EncodeError>) {
        let Job {
            work, bytes, took, ..
        } = job;
        let request = work.request;
        drop(work);
        (self.done)(Split {
            request,
            bytes: split.map(|()| bytes),
            took,
        });
    }
}

/// Bytes of the budget, until the link has sent or dropped them.
struct Lent {
    bytes: Piece,
    to: Arc<str>,
    counters: Arc<Counters>,
    messages: Sender<Message>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let bytes = self.bytes.len() as u64;
        self.counters.memory.of(Pool::Split).sub(bytes);
        // A thread that has ended counts nothing any more.
        drop(
            self.messages
                .send(Message::Gone(Arc::clone(&self.to), bytes)),
        );
    }
}

impl Job {
    fn is_over(&self) -> bool {
        self.work.over.load(Ordering::Acquire)
    }

    /// The numbers of its K and its V.
    fn units(&self) -> Range<usize> {
        let units = self.work.coding.units();
        let first = self.range * units.units_per_range() + self.layer * Kind::ALL.len();
        first..first + Kind::ALL.len()
    }

    /// Splits a part of it and hands that to the link.
    fn split(
        &mut self,
        codec: &Codec,
        part: Part,
        lend: &impl Fn(Piece) -> SharedBytes,
    ) -> Result<(), EncodeError> {
        let work = Arc::clone(&self.work);
        let coding = &work.coding;
        let (anchor, all) = (coding.anchor_segments(), coding.transfer().segments());
        let wanted = match part {
            Part::Anchor => 0..anchor,
            Part::Rest => anchor..all,
            Part::Whole => 0..all,
        };
        let (profile, blocks) = (&work.profile, &work.blocks);
        let together = coding.encode_together(profile, self.units(), blocks, wanted.clone())?;
        let mut together = together.into_iter().flatten();
        for unit in self.units() {
            let segments = match together.next() {
                Some(segments) => segments,
                None => coding.encode_part(codec, profile, unit, blocks, wanted.clone())?,
            };
            let mut payload = Vec::with_capacity(segments.len());
            for (number, (bytes, checksum)) in wanted.clone().zip(segments) {
                let priority = if number < anchor {
                    Priority::Anchor
                } else {
                    Priority::Residual
                };
                self.bytes[priority.index()] += bytes.len() as u64;
                let bytes = lend(bytes);
                payload.push(SegmentPayload { bytes, checksum });
            }
            // A plan has fewer units than a u32 can count. A link that is over has failed the transfer on both sides.
            let unit = UnitIndex(u32::try_from(unit).unwrap_or(u32::MAX));
            work.link.publish(work.transfer, unit, payload).ok();
        }
        Ok(())
    }

    fn trace(&self, start: u64, end: u64) {
        telemetry::span_at(
            names::SPLIT,
            telemetry::Kind::Internal,
            &self.work.trace,
            clock::system_time(start),
            clock::system_time(end),
            [KeyValue::new(
                attributes::LAYER,
                i64::try_from(self.layer).unwrap_or(i64::MAX),
            )],
        );
    }
}
