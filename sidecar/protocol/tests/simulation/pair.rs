//! Two nodes, a network, and a time that is a field.

use std::sync::Arc;
use std::time::Duration;

use lynx_protocol::CreditBook;
use lynx_protocol::receiver::ReceiverConfig;
use lynx_units::{Bytes, Epoch, Timestamp};

use super::network::{Direction, Path};
use super::receiving::Receiving;
use super::sending::Sending;
use super::work::Job;

/// How and when the connections are lost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    pub(crate) at: Duration,
}

#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) time: Timestamp,
    pub(crate) sending: Sending,
    pub(crate) receiving: Receiving,
    pub(crate) forward: Direction,
    pub(crate) backward: Direction,
    pub(crate) cut: Option<Cut>,
    cut_done: bool,
}

impl Pair {
    pub(crate) fn new(jobs: Vec<Job>, forward: Path, backward: Path, seed: u64) -> Self {
        let config = ReceiverConfig {
            window: [Bytes::from_mib(2); 2],
        };
        let book = CreditBook::new(Bytes::from_mib(4));
        Self::with_book(jobs, [forward, backward], (config, &book), Epoch(1), seed)
    }

    pub(crate) fn with_book(
        jobs: Vec<Job>,
        [forward, backward]: [Path; 2],
        (config, book): (ReceiverConfig, &Arc<CreditBook>),
        epoch: Epoch,
        seed: u64,
    ) -> Self {
        Self {
            time: Timestamp::ORIGIN,
            sending: Sending::new(epoch, jobs.clone(), Timestamp::ORIGIN),
            receiving: Receiving::new(epoch, config, book, jobs),
            forward: Direction::new(forward, 1, seed),
            backward: Direction::new(backward, 1, seed ^ 1),
            cut: None,
            cut_done: false,
        }
    }

    /// Everything that happens at the present moment.
    pub(crate) fn step(&mut self) {
        let now = self.time;
        for round in 0.. {
            assert!(round < 100_000, "the pair does not come to rest at {now:?}");
            self.forward.advance(now);
            self.backward.advance(now);
            self.sending.work(now);
            self.receiving.work(now);
            let mut busy = self
                .sending
                .drive(&mut self.backward, &mut self.forward, now);
            busy |= self
                .receiving
                .drive(&mut self.forward, &mut self.backward, now);
            self.disconnect(now);
            if !busy {
                break;
            }
        }
    }

    /// Runs until both sides are done with everything, or have lost the link, and at most until `end`.
    pub(crate) fn run(&mut self, end: Duration) {
        let end = Timestamp::from_origin(end);
        loop {
            self.step();
            if self.is_done() || self.time >= end {
                return;
            }
            let next = self.next().expect("a live link always has a timer");
            assert!(next > self.time, "a wake-up at {next:?} that was not used");
            self.time = next.min(end);
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        let (sending, receiving) = (&self.sending, &self.receiving);
        let over = sending.broken.is_some() && receiving.broken.is_some();
        over || (sending.is_idle() && sending.broken.is_none() && receiving.is_idle())
    }

    pub(crate) fn next(&self) -> Option<Timestamp> {
        let soon = |at: Timestamp| at.max(self.time);
        [
            self.sending.sender.poll_timeout(),
            self.receiving.receiver.poll_timeout(),
            self.sending
                .next_work()
                .filter(|_| self.sending.broken.is_none()),
            self.receiving.next_work(),
            self.forward.next(self.time).map(soon),
            self.backward.next(self.time).map(soon),
            self.cut
                .filter(|_| !self.cut_done)
                .map(|cut| Timestamp::from_origin(cut.at)),
            self.closing(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// A side that is over closes its connections; the other side sees it a moment later, unless nothing gets through.
    fn closing(&self) -> Option<Timestamp> {
        match (&self.sending.broken, &self.receiving.broken) {
            (Some((_, at)), None) => Some(*at + self.forward.delay()),
            (None, Some((_, at))) => Some(*at + self.backward.delay()),
            _ => None,
        }
        .filter(|&at| at > self.time)
    }

    fn disconnect(&mut self, now: Timestamp) {
        if let Some(cut) = self.cut
            && Timestamp::from_origin(cut.at) <= now
            && !self.cut_done
        {
            self.cut_done = true;
            self.sending.disconnect("reset", now);
            self.receiving.disconnect("reset", now);
        }
        let reached =
            |at: Timestamp, way: &Direction| at + way.delay() <= now && !way.is_stalled(now);
        if let Some((_, at)) = self.sending.broken
            && reached(at, &self.forward)
        {
            self.receiving.disconnect("closed by the peer", now);
        }
        if let Some((_, at)) = self.receiving.broken
            && reached(at, &self.backward)
        {
            self.sending.disconnect("closed by the peer", now);
        }
    }
}
