//! What streams were asked for and haven't done: it is done when somebody waits, in an order that a seed decides.
//!
//! So nothing is there early by luck. Whoever reads what a copy brings without having waited finds what was there before, and of
//! two streams that no event puts in order either may come first.

use std::collections::{BTreeMap, VecDeque};

use crate::state::{LAUNCH_FAILED, Recorded};

/// What a seed is read from.
const SEED: &str = "LYNX_FAKE_CUDA_SEED";

/// One thing that a stream does.
#[derive(Debug)]
pub(crate) enum Work {
    Copy {
        from: u64,
        to: u64,
        bytes: usize,
    },
    Fill {
        at: u64,
        value: u8,
        bytes: usize,
    },
    Launch(Vec<Recorded>),
    /// An event comes for so many times.
    Come(u64, u64),
    /// Waits until it has.
    Await(u64, u64),
}

/// How often an event was recorded, and how often it has come.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    recorded: u64,
    come: u64,
}

/// All streams' work.
#[derive(Debug)]
pub(crate) struct Queues {
    /// `None` before the first choice.
    random: Option<u64>,
    /// Of the streams that can go on the one with the highest does: so one may be far behind another for long.
    priorities: BTreeMap<u64, u64>,
    streams: BTreeMap<u64, VecDeque<Work>>,
    /// Kept when an event is destroyed: streams still wait for it.
    events: BTreeMap<u64, Times>,
    /// What the first work that failed has failed with: nothing works after it.
    failed: Option<u32>,
}

impl Queues {
    pub(crate) const NEW: Self = Self {
        random: None,
        priorities: BTreeMap::new(),
        streams: BTreeMap::new(),
        events: BTreeMap::new(),
        failed: None,
    };

    /// The stream does this after all that it was asked for before.
    pub(crate) fn ask(&mut self, stream: u64, work: Work) {
        self.streams.entry(stream).or_default().push_back(work);
    }

    /// The event comes after all that the stream was asked for before.
    pub(crate) fn record(&mut self, event: u64, stream: u64) {
        let times = self.events.entry(event).or_default();
        times.recorded += 1;
        let recorded = times.recorded;
        self.ask(stream, Work::Come(event, recorded));
    }

    /// What the stream is asked for from now on comes after the event, if that was ever recorded.
    pub(crate) fn wait_for(&mut self, event: u64, stream: u64) {
        if let Some(times) = self.events.get(&event) {
            let recorded = times.recorded;
            self.ask(stream, Work::Await(event, recorded));
        }
    }

    pub(crate) fn has_come(&self, event: u64) -> bool {
        let times = self.events.get(&event);
        times.is_none_or(|times| times.come >= times.recorded)
    }

    /// Whether the stream has nothing left to do.
    pub(crate) fn is_done(&self, stream: u64) -> bool {
        self.streams.get(&stream).is_none_or(VecDeque::is_empty)
    }

    pub(crate) fn are_done(&self) -> bool {
        self.streams.values().all(VecDeque::is_empty)
    }

    /// What is asked for and not done.
    pub(crate) fn pending(&self) -> impl Iterator<Item = &Work> {
        self.streams.values().flatten()
    }

    /// Does work until `is_over`.
    pub(crate) fn until(&mut self, is_over: impl Fn(&Self) -> bool) -> Result<(), u32> {
        while !is_over(self) && self.step() {}
        self.failed.map_or(Ok(()), Err)
    }

    /// Does one thing that a stream can do now; false where none can do any.
    pub(crate) fn step(&mut self) -> bool {
        let can_go_on = |work: &Work| match work {
            Work::Await(event, time) => self.events.get(event).is_some_and(|it| it.come >= *time),
            _ => true,
        };
        let streams = self.streams.iter();
        let ready: Vec<u64> = streams
            .filter(|(_, queue)| queue.front().is_some_and(can_go_on))
            .map(|(stream, _)| *stream)
            .collect();
        if ready.is_empty() {
            return false;
        }
        let chosen = self.choose(&ready);
        let queue = self.streams.get_mut(&chosen);
        if let Some(work) = queue.and_then(VecDeque::pop_front) {
            self.run(work);
        }
        true
    }

    fn run(&mut self, work: Work) {
        match work {
            Work::Come(event, time) => self.events.entry(event).or_default().come = time,
            Work::Await(..) => {}
            // As on a GPU: what follows a failure is not done.
            _ if self.failed.is_some() => {}
            Work::Copy { from, to, bytes } => {
                // SAFETY: both lie in memory that was there when it was asked for, and that isn't freed before.
                unsafe { pointer(from).copy_to(pointer(to), bytes) };
            }
            // SAFETY: as above.
            Work::Fill { at, value, bytes } => unsafe { pointer(at).write_bytes(value, bytes) },
            Work::Launch(launches) => {
                // SAFETY: callers vouch for the memory.
                let done = launches.iter().try_for_each(|it| unsafe { it.run() });
                self.failed = done.is_err().then_some(LAUNCH_FAILED);
            }
        }
    }

    /// One of the streams, of which there are some.
    fn choose(&mut self, ready: &[u64]) -> u64 {
        for stream in ready {
            if !self.priorities.contains_key(stream) {
                let priority = self.random();
                self.priorities.insert(*stream, priority);
            }
        }
        let first = ready
            .iter()
            .max_by_key(|stream| self.priorities.get(stream));
        let chosen = first.copied().unwrap_or_default();
        // Seldom enough that others wait, often enough that they come.
        if self.random().is_multiple_of(8) {
            self.priorities.remove(&chosen);
        }
        chosen
    }

    fn random(&mut self) -> u64 {
        let state = self.random.get_or_insert_with(seed);
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

impl Work {
    /// Whether it copies from or to any of these bytes, or fills them.
    pub(crate) fn touches(&self, address: u64, bytes: usize) -> bool {
        let meets =
            |at: u64, length: usize| at < address + bytes as u64 && address < at + length as u64;
        match *self {
            Self::Copy { from, to, bytes } => meets(from, bytes) || meets(to, bytes),
            Self::Fill { at, bytes, .. } => meets(at, bytes),
            Self::Launch(_) | Self::Come(..) | Self::Await(..) => false,
        }
    }
}

/// The seed that the environment gives, otherwise 0.
#[expect(clippy::disallowed_methods, reason = "a driver has no other arguments")]
fn seed() -> u64 {
    let text = std::env::var(SEED).unwrap_or_default();
    text.parse().unwrap_or_default()
}

fn pointer(address: u64) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap_or_default())
}
