//! Several sending nodes and one receiving node behind one wire.

use std::time::Duration;

use lynx_protocol::CreditBook;
use lynx_protocol::receiver::ReceiverConfig;
use lynx_units::{Bytes, Epoch, Timestamp};

use super::network::{Direction, Path};
use super::receiving::Receiving;
use super::sending::Sending;
use super::work::Job;

/// Links that share a wire and a credit book.
#[derive(Debug)]
pub(crate) struct Fan {
    time: Timestamp,
    pub(crate) links: Vec<(Sending, Receiving)>,
    forward: Direction,
    backward: Direction,
}

impl Fan {
    /// One link for each list of jobs.
    pub(crate) fn new(work: Vec<Vec<Job>>, path: &Path) -> Self {
        let book = CreditBook::new(Bytes::from_mib(1024));
        let direction = || Direction::new(path.clone(), work.len(), 1);
        let (forward, backward) = (direction(), direction());
        let link = |(number, jobs): (usize, Vec<Job>)| {
            let config = ReceiverConfig::default();
            let mut sending = Sending::new(Epoch(1), jobs.clone(), Timestamp::ORIGIN);
            let mut receiving = Receiving::new(Epoch(1), config, &book, jobs);
            (sending.link, receiving.link) = (2 * number, 2 * number);
            (sending, receiving)
        };
        Self {
            time: Timestamp::ORIGIN,
            links: work.into_iter().enumerate().map(link).collect(),
            forward,
            backward,
        }
    }

    /// Runs until `end`.
    pub(crate) fn run(&mut self, end: Duration) {
        let end = Timestamp::from_origin(end);
        while self.time < end {
            self.step();
            let next = self.next().expect("a live link always has a timer");
            assert!(next > self.time);
            self.time = next.min(end);
        }
    }

    fn step(&mut self) {
        let now = self.time;
        let mut busy = true;
        while std::mem::take(&mut busy) {
            self.forward.advance(now);
            self.backward.advance(now);
            for (sending, receiving) in &mut self.links {
                sending.work(now);
                receiving.work(now);
                busy |= sending.drive(&mut self.backward, &mut self.forward, now);
                busy |= receiving.drive(&mut self.forward, &mut self.backward, now);
            }
        }
    }

    fn next(&self) -> Option<Timestamp> {
        let soon = |at: Timestamp| at.max(self.time);
        let of_link = |(sending, receiving): &(Sending, Receiving)| {
            let timers = [
                sending.sender.poll_timeout(),
                receiving.receiver.poll_timeout(),
            ];
            let work = [sending.next_work(), receiving.next_work()];
            timers.into_iter().chain(work).flatten().min()
        };
        let ways = [&self.forward, &self.backward];
        let moves = ways
            .into_iter()
            .filter_map(|way| way.next(self.time))
            .map(soon);
        self.links.iter().filter_map(of_link).chain(moves).min()
    }
}
