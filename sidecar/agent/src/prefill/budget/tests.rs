//! The budget against an oracle that keeps plain lists, over any order of what can happen to it.

use std::collections::BTreeMap;
use std::time::Duration;

use bolero::TypeGenerator;

use super::*;

const TOTAL: u64 = 1000;

#[derive(Clone, Debug, TypeGenerator)]
enum Op {
    /// A job of a link, with its deadline and its costs.
    Add(u8, u8, u8, u16),
    /// Split what is next, at so many 255ths of its bound.
    Split(u8),
    /// The oldest bytes of a link are gone.
    Send(u8),
    /// A link's peer has gone away: nobody wants its jobs.
    Forget(u8),
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Job {
    number: usize,
    link: u8,
    place: (u8, usize),
    cost: [u64; 2],
}

/// What lies ready by link, piece by piece, and what waits.
#[derive(Default)]
struct Model {
    ready: BTreeMap<u8, Vec<u64>>,
    anchors: Vec<Job>,
    rests: Vec<Job>,
    done: Vec<usize>,
    added: usize,
    largest: u64,
}

impl Model {
    fn held(&self) -> u64 {
        self.ready.values().flatten().sum()
    }

    fn held_by(&self, link: u8) -> u64 {
        self.ready.get(&link).into_iter().flatten().sum()
    }

    /// The jobs of a list that are their link's first.
    fn firsts(list: &[Job]) -> Vec<Job> {
        let is_first = |job: &&Job| {
            let same = list.iter().filter(|other| other.link == job.link);
            same.map(|other| other.place).min() == Some(job.place)
        };
        list.iter().filter(is_first).copied().collect()
    }

    fn fits(&self, job: &Job, cost: u64, total: u64) -> bool {
        let free = total.saturating_sub(self.held());
        self.held() == 0 || self.held_by(job.link) + cost <= free
    }

    /// Which job's turn it is, and whether its anchor's.
    fn expected(&self) -> Option<(Job, bool)> {
        let oldest = |jobs: Vec<Job>| jobs.into_iter().min_by_key(|job| job.place);
        let mut anchors = Self::firsts(&self.anchors);
        anchors.retain(|job| self.fits(job, job.cost[0], TOTAL));
        if let Some(job) = oldest(anchors) {
            return Some((job, true));
        }
        let mut rests = Self::firsts(&self.rests);
        rests.retain(|job| self.fits(job, job.cost[1], TOTAL - TOTAL / ANCHORS_ALONE));
        oldest(rests).map(|job| (job, false))
    }
}

fn at(deadline: u8) -> Timestamp {
    Timestamp::from_origin(Duration::from_secs(deadline.into()))
}

struct Check {
    budget: Budget<u8, Job>,
    model: Model,
}

impl Check {
    fn new() -> Self {
        Self {
            budget: Budget::new(Bytes::new(TOTAL)),
            model: Model::default(),
        }
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Add(link, deadline, anchor, rest) => self.add(link % 4, deadline, anchor, rest),
            Op::Split(share) => drop(self.split(share)),
            Op::Send(link) => self.send(link % 4),
            Op::Forget(link) => self.forget(link % 4),
        }
        let (held, bound) = (self.model.held(), TOTAL.max(self.model.largest));
        assert_eq!(self.budget.held.get(), held);
        assert!(held <= bound, "{held} of {bound} bytes");
    }

    fn add(&mut self, link: u8, deadline: u8, anchor: u8, rest: u16) {
        let number = self.model.added;
        self.model.added += 1;
        let cost = [u64::from(anchor) + 1, u64::from(rest % 1200)];
        let place = (deadline, number);
        let job = Job {
            number,
            link,
            place,
            cost,
        };
        self.model.largest = self.model.largest.max(cost[0] + cost[1]);
        self.model.anchors.push(job);
        self.budget
            .add(link, at(deadline), cost.map(Bytes::new), job);
    }

    /// Whether anything was split.
    fn split(&mut self, share: u8) -> bool {
        let expected = self.model.expected();
        let turn = self.budget.next();
        assert_eq!(
            expected.map(|(job, _)| job),
            turn.as_ref().map(|turn| turn.job)
        );
        let (Some((job, is_anchor)), Some(turn)) = (expected, turn) else {
            let waits = !(self.model.anchors.is_empty() && self.model.rests.is_empty());
            assert!(!waits || self.model.held() > 0, "it waits for nothing");
            return false;
        };
        assert_eq!(turn.part == Part::Rest, !is_anchor);
        let list = if is_anchor {
            &mut self.model.anchors
        } else {
            &mut self.model.rests
        };
        list.retain(|other| other.number != job.number);
        let bytes = turn.held.get() * u64::from(share) / 255;
        let part = turn.part;
        let done = self.budget.split(turn, Bytes::new(bytes));
        assert_eq!(done.is_none(), part == Part::Anchor);
        match done {
            Some(job) => self.model.done.push(job.number),
            None => self.model.rests.push(job),
        }
        if bytes > 0 {
            self.model.ready.entry(job.link).or_default().push(bytes);
        }
        true
    }

    fn send(&mut self, link: u8) {
        if let Some(pieces) = self.model.ready.get_mut(&link)
            && !pieces.is_empty()
        {
            let bytes = pieces.remove(0);
            self.budget.gone(&link, Bytes::new(bytes));
        }
    }

    fn forget(&mut self, link: u8) {
        let mut removed = self.budget.remove(|job| job.link == link);
        removed.sort_by_key(|job| job.number);
        let mut expected = Vec::new();
        for list in [&mut self.model.anchors, &mut self.model.rests] {
            expected.extend(list.extract_if(.., |job| job.link == link));
        }
        expected.sort_by_key(|job| job.number);
        assert_eq!(removed, expected);
        self.model.done.extend(removed.iter().map(|job| job.number));
    }

    /// Whoever still waits has its turn once the links send.
    fn drain(&mut self) {
        loop {
            if self.split(255) {
                continue;
            }
            if self.model.held() == 0 {
                break;
            }
            (0..4).for_each(|link| self.send(link));
        }
        self.model.done.sort_unstable();
        let all: Vec<usize> = (0..self.model.added).collect();
        assert_eq!(self.model.done, all, "every job ends, each once");
        assert!(self.budget.queues.is_empty(), "nothing is remembered");
    }
}

#[test]
fn whatever_happens_the_budget_holds_anchors_go_first_and_every_job_ends() {
    bolero::check!()
        .with_type::<Vec<Op>>()
        .for_each(|operations| {
            let mut check = Check::new();
            for op in operations {
                check.apply(op);
            }
            check.drain();
        });
}

#[test]
fn a_link_that_stands_still_leaves_room_for_the_others() {
    let mut budget = Budget::new(Bytes::new(TOTAL));
    let cost = [Bytes::new(20), Bytes::new(80)];
    for _ in 0..100 {
        budget.add("still", at(1), cost, ());
    }
    while let Some(turn) = budget.next() {
        let held = turn.held;
        budget.split(turn, held);
    }
    assert!(budget.held.get() <= TOTAL / 2, "{}", budget.held);
    budget.add("quick", at(2), cost, ());
    let turn = budget.next().unwrap();
    assert_eq!((turn.link, turn.part), ("quick", Part::Whole));
}

#[test]
fn residuals_that_fill_their_share_leave_anchors_of_the_same_link_room() {
    let mut budget = Budget::new(Bytes::new(TOTAL));
    for _ in 0..10 {
        budget.add("slow", at(1), [Bytes::new(1), Bytes::new(100)], ());
    }
    while let Some(turn) = budget.next() {
        let held = turn.held;
        budget.split(turn, held);
    }
    let before = budget.held;
    budget.add("slow", at(9), [Bytes::new(100), Bytes::new(400)], ());
    let turn = budget.next().unwrap();
    assert_eq!(turn.part, Part::Anchor);
    assert!(before.get() >= 200, "{before}");
}
