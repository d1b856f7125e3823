//! Several sending nodes and one receiving node behind one wire. Links come and go.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use lynx_protocol::CreditBook;
use lynx_protocol::receiver::ReceiverConfig;
use lynx_units::{Bytes, Epoch, Timestamp};

use super::network::{Direction, Path};
use super::old::OldFrames;
use super::pair::turns;
use super::process::Process;
use super::receiving::Receiving;
use super::sending::Sending;
use super::work::Job;

/// One epoch of a link.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    pub(crate) from: Timestamp,
    /// When its connections are reset; `None` lets it live to the end.
    pub(crate) until: Option<Timestamp>,
    /// Offered at times from the beginning of the run.
    pub(crate) jobs: Vec<Job>,
}

impl Life {
    /// From the beginning to the end.
    pub(crate) fn whole(jobs: Vec<Job>) -> Self {
        Self {
            from: Timestamp::ORIGIN,
            until: None,
            jobs,
        }
    }
}

/// A link that is up.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) sending: Sending,
    pub(crate) receiving: Receiving,
    until: Option<Timestamp>,
}

impl Link {
    fn is_idle(&self) -> bool {
        self.sending.is_idle() && self.receiving.is_idle()
    }

    fn is_over(&self) -> bool {
        self.sending.broken.is_some() && self.receiving.broken.is_some()
    }
}

/// Links that share a wire and a credit book.
#[derive(Debug)]
pub(crate) struct Fan {
    pub(crate) time: Timestamp,
    pub(crate) links: Vec<Option<Link>>,
    /// What each link will be.
    lives: Vec<VecDeque<Life>>,
    epochs: Vec<Epoch>,
    /// Links that are over. Their receivers' memory has come back.
    pub(crate) past: Vec<(Sending, Ended)>,
    pub(crate) config: ReceiverConfig,
    pub(crate) book: Arc<CreditBook>,
    forward: Direction,
    backward: Direction,
    /// When the sending nodes run, and when the receiving one.
    pub(crate) process: [Process; 2],
    /// Seed of the frames of older epochs that come in between.
    pub(crate) old_frames: Option<u64>,
    /// How long the application holds a complete segment.
    pub(crate) hold: Duration,
}

/// What is left of a receiving side that is over.
pub(crate) type Ended =
    std::collections::BTreeMap<lynx_units::TransferId, (lynx_protocol::receiver::Event, Timestamp)>;

impl Fan {
    /// One link for each list of lives. The book has room for one life of each link, and no more.
    pub(crate) fn new(
        lives: Vec<Vec<Life>>,
        [forward, backward]: [Path; 2],
        window: Bytes,
    ) -> Self {
        let links = lives.len();
        let config = ReceiverConfig {
            window: [window; 2],
        };
        let each: Bytes = config.window.into_iter().sum();
        let budget = Bytes::new(each.get() * links as u64);
        Self {
            time: Timestamp::ORIGIN,
            links: (0..links).map(|_| None).collect(),
            lives: lives.into_iter().map(VecDeque::from).collect(),
            epochs: vec![Epoch(0); links],
            past: Vec::new(),
            config,
            book: CreditBook::new(budget),
            forward: Direction::new(forward, links, 1),
            backward: Direction::new(backward, links, 2),
            process: [Process::default(); 2],
            old_frames: None,
            hold: Duration::ZERO,
        }
    }

    /// Runs until everything is done, and at most until `end`.
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
        let quiet = |link: &Option<Link>| link.as_ref().is_none_or(Link::is_idle);
        self.lives.iter().all(VecDeque::is_empty) && self.links.iter().all(quiet)
    }

    fn step(&mut self) {
        let now = self.time;
        self.come_and_go(now);
        let mut busy = true;
        while std::mem::take(&mut busy) {
            self.forward.advance(now);
            self.backward.advance(now);
            for link in self.links.iter_mut().flatten() {
                let Link {
                    sending, receiving, ..
                } = link;
                if sending.process.is_running(now) {
                    busy |= sending.drive(&mut self.backward, &mut self.forward, now);
                }
                if receiving.process.is_running(now) {
                    busy |= receiving.drive(&mut self.forward, &mut self.backward, now);
                }
            }
        }
        self.check_memory();
    }

    /// Ends links whose time has come, or which are over, and begins others.
    fn come_and_go(&mut self, now: Timestamp) {
        for number in 0..self.links.len() {
            if let Some(link) = &mut self.links[number] {
                if link.until.is_some_and(|until| until <= now)
                    || link.sending.broken.is_some() != link.receiving.broken.is_some()
                {
                    link.sending.disconnect("reset", now);
                    link.receiving.disconnect("reset", now);
                }
                if link.is_over() {
                    self.retire(number);
                }
            }
            let due = |life: &Life| life.from <= now;
            if self.links[number].is_none() && self.lives[number].front().is_some_and(due) {
                self.begin(number, now);
            }
        }
    }

    fn retire(&mut self, number: usize) {
        let before = self.book.left();
        if let Some(link) = self.links[number].take() {
            self.past.push((link.sending, link.receiving.ended.clone()));
        }
        let windows: Bytes = self.config.window.into_iter().sum();
        assert_eq!(self.book.left(), before + windows);
        self.forward.close(2 * number);
        self.backward.close(2 * number);
    }

    fn begin(&mut self, number: usize, now: Timestamp) {
        let Some(life) = self.lives[number].pop_front() else {
            return;
        };
        self.epochs[number].0 += 1;
        let epoch = self.epochs[number];
        let start = (now, Duration::ZERO);
        let mut sending = Sending::new(epoch, life.jobs.clone(), now);
        let mut receiving = Receiving::new(epoch, self.config, &self.book, life.jobs, start);
        (sending.link, receiving.link) = (2 * number, 2 * number);
        [sending.process, receiving.process] = self.process;
        receiving.hold = self.hold;
        if let Some(seed) = self.old_frames {
            let seed = seed ^ (number as u64) << 32 ^ u64::from(epoch.0);
            sending.old = OldFrames::new(seed);
            receiving.old = OldFrames::new(!seed);
        }
        self.links[number] = Some(Link {
            sending,
            receiving,
            until: life.until,
        });
    }

    fn check_memory(&self) {
        let up: Vec<_> = self.links.iter().flatten().collect();
        let windows: Bytes = self.config.window.into_iter().sum();
        let taken = Bytes::new(windows.get() * up.len() as u64);
        assert_eq!(self.book.left() + taken, self.book.budget());
    }

    fn next(&self) -> Option<Timestamp> {
        let now = self.time;
        let of_link = |link: &Link| {
            let Link {
                sending,
                receiving,
                until,
            } = link;
            let over = link.sending.broken.is_some() != link.receiving.broken.is_some();
            let over = over.then_some(now + Duration::from_nanos(1));
            turns(sending.process, sending.next(), now)
                .chain(turns(receiving.process, receiving.next(), now))
                .chain(*until)
                .chain(over)
                .min()
        };
        let links = self.links.iter().flatten().filter_map(of_link);
        let waiting = self.lives.iter().zip(&self.links);
        let begins = waiting
            .filter(|(_, link)| link.is_none())
            .filter_map(|(lives, _)| lives.front())
            .map(|life| life.from.max(now + Duration::from_nanos(1)));
        let moves = [self.forward.next(now), self.backward.next(now)];
        let moves = moves.into_iter().flatten().map(|at| at.max(now));
        links.chain(begins).chain(moves).min()
    }
}
