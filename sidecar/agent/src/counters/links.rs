//! What links count, over all of them and all of their lives.
//!
//! A link counts for itself, on its own task, and publishes its figures. They are read when somebody asks; those of a link
//! that is over are added to a sum, so that what is told only grows. Why not count twice: a chunk would pay for it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lynx_protocol::receiver::ReceiverStats;
use lynx_protocol::sender::SenderStats;
use lynx_transport::{LinkStats, ReceiverHandle, SenderHandle, Watched};
use lynx_units::Bytes;

use crate::carriage::Carried;

/// Sums over links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkSums {
    /// Links that came up.
    pub opened: u64,
    /// Links that ended.
    pub ended: u64,
    /// Links that came up by TCP on an agent that would have had RDMA.
    pub without_rdma: u64,
    /// Cards that connections lost while they went on by others, each for itself.
    pub rails_lost: u64,
    /// Bytes given to sockets, headers included, by [`Priority::index`](lynx_units::Priority::index).
    pub wire_sent: [Bytes; 2],
    /// Bytes taken from sockets, likewise.
    pub wire_received: [Bytes; 2],
    /// Bytes of chunks that were sent or received, likewise.
    pub payload: [Bytes; 2],
    /// Chunks, likewise.
    pub chunks: [u64; 2],
    /// Frames of an older epoch.
    pub stale_frames: u64,
    /// Frames about transfers that are over.
    pub late_frames: u64,
    /// Chunks that came twice.
    pub duplicates: u64,
    /// Chunks of transfers that are over.
    pub late_chunks: u64,
    /// Chunks whose payload was corrupt.
    pub corrupt: u64,
    /// Bytes of chunks that were thrown away.
    pub discarded: Bytes,
    /// Credit that senders were told, by [`Priority::index`](lynx_units::Priority::index).
    pub granted: [Bytes; 2],
    /// How long residuals' credit was kept back.
    pub withheld: Duration,
    /// How often it was given after all.
    pub starved: u64,
}

/// All links of an agent.
#[derive(Debug, Default)]
pub struct Links(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    next: u64,
    up: Vec<(u64, Figures)>,
    over: LinkSums,
}

#[derive(Debug)]
enum Figures {
    Receiver(Watched<ReceiverStats>),
    Sender(Watched<SenderStats>),
}

/// A link that is counted as up, until this is dropped.
#[derive(Debug)]
pub struct Counted {
    links: Arc<Links>,
    number: u64,
}

impl Links {
    /// A link is up on which this agent receives.
    pub fn receiving(self: &Arc<Self>, link: &ReceiverHandle, carried: &Carried) -> Counted {
        self.add(Figures::Receiver(link.watch_stats()), carried)
    }

    /// A link is up on which this agent sends.
    pub fn sending(self: &Arc<Self>, link: &SenderHandle, carried: &Carried) -> Counted {
        self.add(Figures::Sender(link.watch_stats()), carried)
    }

    /// Sums over the links that are up and those that are over.
    pub fn sums(&self) -> LinkSums {
        let state = self.lock();
        let mut sums = state.over;
        for (_, figures) in &state.up {
            figures.add_to(&mut sums);
        }
        sums
    }

    /// A connection goes on without one of its cards.
    pub fn lost_rail(&self) {
        self.lock().over.rails_lost += 1;
    }

    /// As if links had counted this before they ended.
    #[cfg(test)]
    pub(crate) fn set_over(&self, over: LinkSums) {
        self.lock().over = over;
    }

    fn add(self: &Arc<Self>, figures: Figures, carried: &Carried) -> Counted {
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        state.over.opened += 1;
        state.over.without_rdma += u64::from(carried.without_rdma.is_some());
        state.up.push((number, figures));
        Counted {
            links: Arc::clone(self),
            number,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut state = self.links.lock();
        let State { up, over, .. } = &mut *state;
        for (_, figures) in up.extract_if(.., |(number, _)| *number == self.number) {
            figures.add_to(over);
            over.ended += 1;
        }
    }
}

impl Figures {
    fn add_to(&self, sums: &mut LinkSums) {
        match self {
            Self::Receiver(watched) => {
                let stats = watched.get();
                sums.add_wire(&stats);
                sums.add_receiver(&stats.protocol);
            }
            Self::Sender(watched) => {
                let stats = watched.get();
                sums.add_wire(&stats);
                sums.add_sender(&stats.protocol);
            }
        }
    }
}

impl LinkSums {
    fn add_wire<C>(&mut self, stats: &LinkStats<C>) {
        for class in 0..2 {
            self.wire_sent[class] += stats.wire_sent[class];
            self.wire_received[class] += stats.wire_received[class];
        }
    }

    fn add_receiver(&mut self, stats: &ReceiverStats) {
        for class in 0..2 {
            self.payload[class] += stats.received[class];
            self.chunks[class] += stats.chunks[class];
            self.granted[class] += stats.granted[class];
        }
        self.stale_frames += stats.stale_frames;
        self.late_frames += stats.late_frames;
        self.duplicates += stats.duplicates;
        self.late_chunks += stats.late_chunks;
        self.corrupt += stats.corrupt;
        self.discarded += stats.discarded;
        self.withheld += stats.withheld;
        self.starved += stats.starved;
    }

    fn add_sender(&mut self, stats: &SenderStats) {
        for class in 0..2 {
            self.payload[class] += stats.sent[class];
            self.chunks[class] += stats.chunks[class];
        }
        self.stale_frames += stats.stale_frames;
        self.late_frames += stats.late_frames;
    }
}
