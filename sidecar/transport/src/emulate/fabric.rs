//! A model of RDMA: queue pairs of one process that write into each other's rings.
//!
//! What a queue pair promises is kept, and nothing more: writes of one queue pair happen in order, those of two in any; a
//! write reads its source when it happens and not when it is posted; a write with immediate waits for a receive; what was
//! posted when a connection fails never completes. When each happens is drawn from a seed.

mod counts;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use lynx_units::Priority;

pub use self::counts::FabricCounts;
use super::pool;
use crate::rdma::{Adapter, Completion, Endpoint, Lendable, Loss, Queue, Route, Sizes, Source};

/// How often a write to a peer that has failed is tried, on average.
const TRIES: u32 = 16;
const RETRIES_OVER: &str = "transport retry counter exceeded";

/// The model.
#[derive(Clone, Debug)]
pub struct Fabric {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    random: u64,
    next: u32,
    pairs: BTreeMap<u32, Pair>,
    counts: FabricCounts,
    is_out: bool,
    takes_none: bool,
    holds_flushes: bool,
    longest: Option<usize>,
    cards: u8,
}

/// One queue pair.
#[derive(Debug)]
struct Pair {
    sizes: Sizes,
    card: u8,
    is_failed: bool,
    is_flushed: bool,
    key: u32,
    ring: Vec<u8>,
    staging: Vec<u8>,
    lent: Option<Arc<dyn Lendable>>,
    peer: Option<Endpoint>,
    posted: VecDeque<Posted>,
    receives: u32,
    completions: VecDeque<Completion>,
    waker: Option<Waker>,
}

#[derive(Debug)]
struct Posted {
    from: Source,
    to: u32,
    /// And whether its completion is told.
    immediate: Option<(u32, bool)>,
}

/// One end, as its link has it.
#[derive(Debug)]
struct End {
    fabric: Fabric,
    number: u32,
    /// What is being written into the staging memory.
    staging: Vec<u8>,
}

impl Fabric {
    /// Without queue pairs, and with one card. The seed decides when writes happen.
    pub fn new(seed: u64) -> Self {
        Self::with_cards(seed, 1)
    }

    /// With so many cards, each of which reaches itself alone.
    pub fn with_cards(seed: u64, cards: u8) -> Self {
        let state = State {
            random: seed,
            next: 1,
            cards,
            ..State::default()
        };
        Self {
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// For either side of a link.
    pub fn adapter(&self) -> Arc<dyn Adapter> {
        Arc::new(self.clone())
    }

    /// What has been asked so far.
    pub fn counts(&self) -> FabricCounts {
        self.state().counts
    }

    /// Every connection fails, as where a cable is pulled.
    pub fn fail(&self) {
        let mut state = self.state();
        for pair in state.pairs.values_mut() {
            pair.fail(RETRIES_OVER);
        }
    }

    /// One side's queue pairs on a card fail, or both's, and of what they had some is with the peer, though nobody is told. Whose, and
    /// what, the seed decides.
    pub fn fail_card(&self, card: u8) {
        let mut state = self.state();
        let on_card = state.pairs.iter().filter(|(_, pair)| pair.card == card);
        let numbers: Vec<u32> = on_card.map(|(number, _)| *number).collect();
        let of = state.draw() % 3;
        for (number, side) in numbers.into_iter().zip([0, 1].into_iter().cycle()) {
            if of == side {
                continue;
            }
            while state.draw().is_multiple_of(2) && state.happen(number) {}
            if let Some(pair) = state.pairs.get_mut(&number) {
                let told = |completion: &Completion| matches!(completion, Completion::Received(_));
                pair.completions.retain(told);
                pair.fail("the model's card has failed");
            }
        }
    }

    /// Whether there are no more queue pairs to be had, as where a process may lock no more memory.
    pub fn set_out(&self, is_out: bool) {
        self.state().is_out = is_out;
    }

    /// Whether memory that is to be lent is refused, as where a process may lock no more.
    pub fn refuse_memory(&self, refuse: bool) {
        self.state().takes_none = refuse;
    }

    /// Whether failed queue pairs go on reading what they were given, as far as anybody knows.
    pub fn hold_flushes(&self, hold: bool) {
        self.state().holds_flushes = hold;
    }

    /// Whether longer writes than these bytes vanish, as where a switch has a smaller MTU than both cards; `None` lets all pass.
    pub fn set_longest(&self, longest: Option<usize>) {
        self.state().longest = longest;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The address of a card but the first, whose address is any.
fn address(card: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, card])
}

impl Adapter for Fabric {
    fn queue(&self, _: Route, _: Priority, sizes: Sizes) -> io::Result<Box<dyn Queue>> {
        self.queue_on(0, sizes)
    }

    fn others(&self, _: &Endpoint) -> Vec<Route> {
        let addresses = (1..self.state().cards).map(address);
        let routes = addresses.map(|own| Route { peer: own, own });
        routes.collect()
    }

    fn towards(&self, there: &Endpoint) -> Option<Route> {
        let peer = Ipv6Addr::from(there.gid).to_canonical();
        let known = (1..self.state().cards).map(address);
        let mut known = known.filter(|own| *own == peer);
        known.next().map(|own| Route { peer, own })
    }

    fn lost(&self, _: &Loss) {
        self.state().counts.lost += 1;
    }

    fn rail(&self, route: Route, _: Priority, sizes: Sizes) -> io::Result<Box<dyn Queue>> {
        let mut cards = 1..self.state().cards;
        let card = cards.find(|card| address(*card) == route.own);
        self.queue_on(card.unwrap_or(0), sizes)
    }
}

impl Fabric {
    fn queue_on(&self, card: u8, sizes: Sizes) -> io::Result<Box<dyn Queue>> {
        let mut state = self.state();
        if state.is_out {
            return Err(io::Error::other("the model has no room for a queue pair"));
        }
        let number = state.next;
        state.next += 1;
        let key = state.draw();
        let pair = Pair {
            sizes,
            card,
            is_failed: false,
            is_flushed: false,
            key,
            ring: vec![0; sizes.ring as usize],
            staging: vec![0; sizes.staging as usize],
            lent: None,
            peer: None,
            posted: VecDeque::new(),
            receives: 0,
            completions: VecDeque::new(),
            waker: None,
        };
        state.pairs.insert(number, pair);
        drop(state);
        Ok(Box::new(End {
            fabric: self.clone(),
            number,
            staging: vec![0; sizes.staging as usize],
        }))
    }
}

impl Queue for End {
    fn endpoint(&self) -> Endpoint {
        let state = self.fabric.state();
        let pair = &state.pairs[&self.number];
        Endpoint {
            queue_pair: self.number,
            packet: 0,
            gid: Ipv4Addr::from([192, 0, 2, pair.card])
                .to_ipv6_mapped()
                .octets(),
            lid: 0,
            mtu: 4096,
            address: 0,
            key: pair.key,
            ring: pair.sizes.ring,
        }
    }

    fn connect(&mut self, peer: &Endpoint) -> io::Result<()> {
        let mut state = self.fabric.state();
        let known = state.pairs.get(&peer.queue_pair);
        if known.is_none_or(|there| there.key != peer.key) {
            return Err(io::Error::other(
                "there is no such queue pair on this fabric",
            ));
        }
        if let Some(pair) = state.pairs.get_mut(&self.number) {
            pair.peer = Some(*peer);
            pair.receives = pair.sizes.receives;
        }
        Ok(())
    }

    fn staging(&mut self, part: Range<usize>) -> &mut [u8] {
        self.staging.get_mut(part).unwrap_or_default()
    }

    fn copy_out(&self, from: usize, into: &mut [u8]) {
        let state = self.fabric.state();
        let ring = &state.pairs[&self.number].ring;
        into.copy_from_slice(&ring[from..from + into.len()]);
    }

    fn lend(&mut self, memory: &Arc<dyn Lendable>) -> io::Result<()> {
        let mut state = self.fabric.state();
        if state.takes_none {
            return Err(io::Error::other("the model takes no memory"));
        }
        if let Some(pair) = state.pairs.get_mut(&self.number) {
            pair.lent = Some(Arc::clone(memory));
        }
        Ok(())
    }

    fn lent(&self, bytes: &[u8]) -> Option<Range<usize>> {
        let state = self.fabric.state();
        state.pairs.get(&self.number)?.lent.as_ref()?.find(bytes)
    }

    fn write(&mut self, from: Source, to: u32) -> io::Result<()> {
        self.post(from, to, None)
    }

    fn write_with(&mut self, from: Source, to: u32, immediate: u32, told: bool) -> io::Result<()> {
        self.post(from, to, Some((immediate, told)))
    }

    fn end(&mut self) {
        let mut state = self.fabric.state();
        if let Some(pair) = state.pairs.get_mut(&self.number) {
            pair.fail("the queue pair was ended");
        }
    }

    fn poll(&mut self) -> Option<Completion> {
        let mut state = self.fabric.state();
        state.step();
        let pair = state.pairs.get_mut(&self.number)?;
        let completion = pair.completions.pop_front()?;
        if matches!(completion, Completion::Received(_)) {
            pair.receives += 1;
        }
        Some(completion)
    }

    fn poll_ready(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.fabric.state();
        state.step();
        let Some(pair) = state.pairs.get_mut(&self.number) else {
            return Poll::Ready(());
        };
        if !pair.completions.is_empty() {
            return Poll::Ready(());
        }
        // Whoever has something under way looks again: nobody else makes it happen.
        if !pair.posted.is_empty() {
            context.waker().wake_by_ref();
        }
        pair.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl End {
    fn post(&self, from: Source, to: u32, immediate: Option<(u32, bool)>) -> io::Result<()> {
        let mut state = self.fabric.state();
        let Some(pair) = state.pairs.get_mut(&self.number) else {
            return Err(io::Error::other("the queue pair is gone"));
        };
        if pair.is_failed {
            pair.fail("the queue pair is in its error state");
            return Ok(());
        }
        if pair.posted.len() == pair.sizes.sends as usize {
            return Err(io::Error::other("the send queue is full"));
        }
        let part = from.staged.clone();
        let overlaps = |posted: &Posted| {
            let under_way = &posted.from.staged;
            under_way.start < part.end && part.start < under_way.end
        };
        if pair.posted.iter().any(overlaps) {
            return Err(io::Error::other(
                "staging memory was written while it was under way",
            ));
        }
        if let (Some(there), Some(here)) =
            (pair.staging.get_mut(part.clone()), self.staging.get(part))
        {
            there.copy_from_slice(here);
        }
        let (bytes, lent) = (from.len() as u64, from.lent.len() as u64);
        pair.posted.push_back(Posted {
            from,
            to,
            immediate,
        });
        let under_way = pair.posted.len();
        let bytes_under_way = pair.posted.iter().map(|posted| posted.from.len() as u64);
        let bytes_under_way = bytes_under_way.sum();
        let counts = &mut state.counts;
        counts.bytes += bytes;
        counts.lent += lent;
        counts.requests += 1;
        counts.long += u64::from(bytes > 1024);
        counts.signalled += u64::from(immediate.is_some_and(|(_, told)| told));
        counts.most_under_way = counts.most_under_way.max(under_way);
        counts.most_bytes_under_way = counts.most_bytes_under_way.max(bytes_under_way);
        Ok(())
    }
}

/// The peer's next write finds nobody.
impl Drop for End {
    fn drop(&mut self) {
        let mut state = self.fabric.state();
        state.pairs.remove(&self.number);
        for pair in state.pairs.values_mut() {
            if pair.peer.is_some_and(|peer| peer.queue_pair == self.number) {
                pair.fail("the peer's queue pair is gone");
            }
        }
    }
}

impl State {
    /// Has some of what is posted happen.
    fn step(&mut self) {
        let held = self.holds_flushes;
        for pair in self.pairs.values_mut() {
            if pair.is_failed && !pair.is_flushed && !held {
                pair.is_flushed = true;
                pair.completions.push_back(Completion::Flushed);
                pair.wake();
            }
        }
        let numbers: Vec<u32> = self.pairs.keys().copied().collect();
        for number in numbers {
            while !self.draw().is_multiple_of(4) && self.happen(number) {}
        }
    }

    /// Has the oldest write of a queue pair happen; whether it did.
    fn happen(&mut self, number: u32) -> bool {
        let Some(from) = self.pairs.get(&number) else {
            return false;
        };
        let (Some(posted), Some(to)) = (from.posted.front(), from.peer) else {
            return false;
        };
        if self
            .longest
            .is_some_and(|longest| longest < posted.from.len())
        {
            return false;
        }
        let bytes = from.read(&posted.from);
        let (place, immediate) = (posted.to as usize, posted.immediate);
        let Some(there) = self.pairs.get_mut(&to.queue_pair) else {
            return false;
        };
        // Who has failed doesn't answer: some tries later that is known here.
        if there.is_failed {
            if self.draw().is_multiple_of(TRIES)
                && let Some(here) = self.pairs.get_mut(&number)
            {
                here.fail(RETRIES_OVER);
            }
            return false;
        }
        if let Some((immediate, _)) = immediate {
            if there.receives == 0 {
                self.counts.not_ready += 1;
                return false;
            }
            there.receives -= 1;
            there.completions.push_back(Completion::Received(immediate));
        }
        there.ring[place..place + bytes.len()].copy_from_slice(&bytes);
        there.wake();
        if let Some(here) = self.pairs.get_mut(&number) {
            here.posted.pop_front();
            if immediate.is_some_and(|(_, told)| told) {
                here.completions.push_back(Completion::Sent);
                here.wake();
            }
        }
        true
    }

    /// The next number of splitmix64, its upper half.
    fn draw(&mut self) -> u32 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        let [.., a, b, c, d] = mixed.to_le_bytes();
        u32::from_le_bytes([a, b, c, d])
    }
}

impl Pair {
    /// What is there just now.
    fn read(&self, from: &Source) -> Vec<u8> {
        let mut bytes = self.staging[from.staged.clone()].to_vec();
        if let Some(memory) = &self.lent {
            bytes.extend(pool::read(&**memory, from.lent.clone()));
        }
        bytes
    }

    fn fail(&mut self, why: &str) {
        self.is_failed = true;
        self.posted.clear();
        self.completions
            .push_back(Completion::Failed(why.to_owned()));
        self.wake();
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}
