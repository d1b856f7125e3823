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

/// How a pair begins.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) jobs: Vec<Job>,
    /// From the sending node, and to it.
    pub(crate) paths: [Path; 2],
    pub(crate) config: ReceiverConfig,
    pub(crate) book: Arc<CreditBook>,
    pub(crate) epoch: Epoch,
    pub(crate) seed: u64,
    /// How far the receiving node's clock is ahead.
    pub(crate) ahead: Duration,
}

impl Setup {
    /// Windows of 2 MiB, in the first epoch.
    pub(crate) fn new(jobs: Vec<Job>, paths: [Path; 2], seed: u64) -> Self {
        Self {
            jobs,
            paths,
            config: ReceiverConfig {
                window: [Bytes::from_mib(2); 2],
            },
            book: CreditBook::new(Bytes::from_mib(4)),
            epoch: Epoch(1),
            seed,
            ahead: Duration::ZERO,
        }
    }

    /// The same with windows of 64 MiB.
    pub(crate) fn roomy(mut self) -> Self {
        self.config = ReceiverConfig::default();
        self.book = CreditBook::new(Bytes::from_mib(128));
        self
    }
}

#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) time: Timestamp,
    pub(crate) sending: Sending,
    pub(crate) receiving: Receiving,
    pub(crate) forward: Direction,
    pub(crate) backward: Direction,
    /// When both connections are reset.
    pub(crate) cut: Option<Timestamp>,
}

impl Pair {
    pub(crate) fn new(setup: Setup) -> Self {
        let start = Timestamp::ORIGIN;
        let Setup {
            jobs,
            paths: [forward, backward],
            config,
            book,
            epoch,
            seed,
            ahead,
        } = setup;
        Self {
            time: start,
            sending: Sending::new(epoch, jobs.clone(), start),
            receiving: Receiving::new(epoch, config, &book, jobs, (start, ahead)),
            forward: Direction::new(forward, 1, seed),
            backward: Direction::new(backward, 1, seed ^ 1),
            cut: None,
        }
    }

    /// Everything that happens at the present moment.
    fn step(&mut self) {
        let now = self.time;
        for round in 0.. {
            assert!(round < 100_000, "the pair does not come to rest at {now:?}");
            self.forward.advance(now);
            self.backward.advance(now);
            let mut busy = false;
            if self.sending.process.is_running(now) {
                busy |= self
                    .sending
                    .drive(&mut self.backward, &mut self.forward, now);
            }
            if self.receiving.process.is_running(now) {
                busy |= self
                    .receiving
                    .drive(&mut self.forward, &mut self.backward, now);
            }
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

    fn next(&self) -> Option<Timestamp> {
        let now = self.time;
        let (sending, receiving) = (&self.sending, &self.receiving);
        let processes = [
            (sending.process, sending.next()),
            (receiving.process, receiving.next()),
        ];
        let turns = processes
            .into_iter()
            .flat_map(|(process, next)| turns(process, next, now));
        let moves = [self.forward.next(now), self.backward.next(now)];
        let moves = moves.into_iter().flatten().map(|at| at.max(now));
        let ends = [self.cut, self.closing()].into_iter().flatten();
        turns.chain(moves).chain(ends).min()
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
        if self.cut.is_some_and(|cut| cut <= now) {
            self.cut = None;
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

/// When a process acts: at its own next moment, and, where it sleeps, as soon as it runs, since something may have come.
pub(crate) fn turns(
    process: super::process::Process,
    next: Option<Timestamp>,
    now: Timestamp,
) -> impl Iterator<Item = Timestamp> {
    let own = next.map(|at| process.runs(at.max(now)));
    let awake = process.runs(now);
    let awake = (awake > now).then_some(awake);
    own.into_iter().chain(awake)
}
