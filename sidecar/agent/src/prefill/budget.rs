//! What is split next, so that what lies ready for the links stays within a budget.
//!
//! Pure: jobs come in, decisions come out, and bytes that are gone are told. Splitting is what waits, not the engine: its
//! blocks hold the KV anyway, they are bounded by themselves, and an engine that has none left says so to whoever asks. To hold
//! the engine's next chunk back instead would keep other transfers' anchors from being computed.
//!
//! Three rules, in this order. Anchors first: a residual is split only where no anchor could be, and never into the part of
//! the budget that is kept for anchors. Nobody alone: a link may hold as much as is free, and no more, so that a peer that has
//! stopped reading leaves half to the others, and two of them a third (the dynamic threshold of shared-memory switches,
//! after Choudhury and Hahne, 1998). The oldest deadline first: of one link's jobs a later one never overtakes an
//! earlier one of its kind, so that a large job is not starved by small ones. Where nothing lies ready, the next job goes
//! whatever it takes: so there is always one that ends.

use std::collections::BTreeMap;

use lynx_units::{Bytes, Timestamp};

/// The share of the budget that only anchors may use.
const ANCHORS_ALONE: u64 = 4;

/// Which of a job's bytes are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Those of its anchor; the rest comes later.
    Anchor,
    /// Those after the anchor, which was split before.
    Rest,
    /// All of them.
    Whole,
}

/// The order of jobs: of two with one deadline, the one that came first.
type Place = (Timestamp, u64);

/// Something to be split.
#[derive(Debug)]
struct Waiting<J> {
    job: J,
    /// What its anchor and its rest take at most.
    cost: [Bytes; 2],
}

/// A link's jobs, and what lies ready for it.
#[derive(Debug)]
struct Queue<J> {
    anchors: BTreeMap<Place, Waiting<J>>,
    rests: BTreeMap<Place, Waiting<J>>,
    held: Bytes,
}

/// The budget, and what waits for room in it.
#[derive(Debug)]
pub(super) struct Budget<L, J> {
    total: Bytes,
    held: Bytes,
    queues: BTreeMap<L, Queue<J>>,
    next: u64,
}

/// A job to be split now.
#[derive(Debug)]
pub(super) struct Turn<L, J> {
    pub(super) link: L,
    pub(super) job: J,
    pub(super) part: Part,
    /// What it holds of the budget until [`Budget::split`] says what it really takes.
    pub(super) held: Bytes,
    /// Where its rest belongs.
    place: Place,
    /// What its rest takes.
    rest: Bytes,
}

impl<L: Ord + Clone, J> Budget<L, J> {
    pub(super) fn new(total: Bytes) -> Self {
        Self {
            total,
            held: Bytes::ZERO,
            queues: BTreeMap::new(),
            next: 0,
        }
    }

    /// Something is to be split for a link: its anchor takes at most `cost[0]`, what follows at most `cost[1]`.
    pub(super) fn add(&mut self, link: L, deadline: Timestamp, cost: [Bytes; 2], job: J) {
        let place = (deadline, self.next);
        self.next += 1;
        let queue = self.queues.entry(link).or_insert_with(Queue::new);
        queue.anchors.insert(place, Waiting { job, cost });
    }

    /// What to split now; `None` until bytes are gone or something else is to be split.
    pub(super) fn next(&mut self) -> Option<Turn<L, J>> {
        let turn = self.next_anchor().or_else(|| self.next_rest())?;
        self.hold(&turn.link, turn.held);
        Some(turn)
    }

    fn next_anchor(&mut self) -> Option<Turn<L, J>> {
        let firsts = self.queues.iter().filter_map(|(link, queue)| {
            let (place, waiting) = queue.anchors.first_key_value()?;
            self.admits_anchor(queue, waiting.cost[0])
                .then(|| (*place, link.clone()))
        });
        let (place, link) = firsts.min_by_key(|(place, _)| *place)?;
        let queue = self.queues.get_mut(&link)?;
        let Waiting { job, cost } = queue.anchors.remove(&place)?;
        let [anchor, rest] = cost;
        // Splitting twice costs time, so all of it at once where there is room, and no rest of this link waits for room.
        let queue = self.queues.get(&link)?;
        let has_room = queue.rests.is_empty() && self.admits_rest(queue, anchor + rest);
        let (part, held) = if rest == Bytes::ZERO || has_room {
            (Part::Whole, anchor + rest)
        } else {
            (Part::Anchor, anchor)
        };
        Some(Turn {
            link,
            job,
            part,
            held,
            place,
            rest,
        })
    }

    fn next_rest(&mut self) -> Option<Turn<L, J>> {
        let firsts = self.queues.iter().filter_map(|(link, queue)| {
            let (place, waiting) = queue.rests.first_key_value()?;
            self.admits_rest(queue, waiting.cost[1])
                .then(|| (*place, link.clone()))
        });
        let (place, link) = firsts.min_by_key(|(place, _)| *place)?;
        let Waiting { job, cost } = self.queues.get_mut(&link)?.rests.remove(&place)?;
        Some(Turn {
            link,
            job,
            part: Part::Rest,
            held: cost[1],
            place,
            rest: Bytes::ZERO,
        })
    }

    fn admits_anchor(&self, queue: &Queue<J>, cost: Bytes) -> bool {
        self.held == Bytes::ZERO || queue.held + cost <= self.total.saturating_sub(self.held)
    }

    fn admits_rest(&self, queue: &Queue<J>, cost: Bytes) -> bool {
        let reserve = Bytes::new(self.total.get() / ANCHORS_ALONE);
        let free = self.total.saturating_sub(reserve).saturating_sub(self.held);
        self.held == Bytes::ZERO || queue.held + cost <= free
    }

    fn hold(&mut self, link: &L, bytes: Bytes) {
        if let Some(queue) = self.queues.get_mut(link) {
            queue.held += bytes;
            self.held += bytes;
        }
    }

    /// A turn's bytes are there, and so many they are: no more than it held. A job whose rest is still to come goes on
    /// waiting; one that is done comes back.
    pub(super) fn split(&mut self, turn: Turn<L, J>, bytes: Bytes) -> Option<J> {
        self.gone(&turn.link, turn.held.saturating_sub(bytes));
        if turn.part != Part::Anchor {
            return Some(turn.job);
        }
        let queue = self.queues.entry(turn.link).or_insert_with(Queue::new);
        let waiting = Waiting {
            job: turn.job,
            cost: [Bytes::ZERO, turn.rest],
        };
        queue.rests.insert(turn.place, waiting);
        None
    }

    /// So many of a link's bytes are gone: sent, or not wanted any more.
    pub(super) fn gone(&mut self, link: &L, bytes: Bytes) {
        let Some(queue) = self.queues.get_mut(link) else {
            return;
        };
        let bytes = bytes.min(queue.held);
        queue.held = queue.held.saturating_sub(bytes);
        self.held = self.held.saturating_sub(bytes);
        if queue.held == Bytes::ZERO && queue.anchors.is_empty() && queue.rests.is_empty() {
            self.queues.remove(link);
        }
    }

    /// Takes out every job that is not wanted any more.
    pub(super) fn remove(&mut self, unwanted: impl Fn(&J) -> bool) -> Vec<J> {
        let mut removed = Vec::new();
        for queue in self.queues.values_mut() {
            for jobs in [&mut queue.anchors, &mut queue.rests] {
                let out = jobs.extract_if(.., |_, waiting| unwanted(&waiting.job));
                removed.extend(out.map(|(_, waiting)| waiting.job));
            }
        }
        self.queues.retain(|_, queue| {
            queue.held > Bytes::ZERO || !queue.anchors.is_empty() || !queue.rests.is_empty()
        });
        removed
    }
}

impl<J> Queue<J> {
    const fn new() -> Self {
        Self {
            anchors: BTreeMap::new(),
            rests: BTreeMap::new(),
            held: Bytes::ZERO,
        }
    }
}

#[cfg(test)]
mod tests;
