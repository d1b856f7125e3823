//! Real cards, by verbs.

use std::collections::{HashMap, VecDeque};
use std::error::Error;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context as Waking, Poll};

use lynx_units::{Bytes, Priority};
use lynx_verbs::{
    CallError, Choice, CompletionQueue, Context, Domain, Gid, GidEntry, Lendable, Lent, Library,
    Local, Mtu, Outcome, Path, QueuePair, Ring, Staging, Target, Wakeups, Write, choose,
    source_towards,
};

use super::room::{Room, Taken};
use super::{Adapter, Completion, Endpoint, Queue, Route, Sizes, Source};

/// Up to how many bytes a write carries its payload in the request: a frame without a chunk.
const INLINE: u32 = 64;

/// How long a card waits for an answer where there are other rails, as the exponent of 4 µs: 17 ms, eight times until the rail has failed
/// (cards may take up to four times as long). What waits for the next message meanwhile has to live through it.
const RAILS_TIMEOUT: u8 = 12;

/// This machine's cards. A link's queue pairs are on the card that reaches its peer, or on a chosen one ([`choose`] has the rule).
///
/// Each queue pair has a protection domain of its own: what a peer is told of a ring is of use with its own queue pair and with
/// no other, whatever it tells whom. So no registration outlives its link, and there is nothing to cache; there is a bound on what
/// is registered at a time instead.
#[derive(Debug)]
pub struct Cards {
    choice: Choice,
    /// By [`Priority::index`].
    paths: [Path; 2],
    /// How many cards a link goes by at most.
    rails: usize,
    room: Arc<Room>,
    /// For memory that is lent.
    lent: Arc<Room>,
    /// The devices that are open as long as a queue pair is on them, by name.
    open: Mutex<HashMap<String, Weak<Context>>>,
}

impl Cards {
    /// Those that the choice fits, with the paths of anchor and residual, and so many bytes of registered memory at most. Nothing is
    /// opened before the first link.
    pub fn new(choice: Choice, paths: [Path; 2], memory: Bytes) -> Self {
        Self {
            choice,
            paths,
            rails: 1,
            room: Room::new("transfer.rdma.memory", memory),
            lent: Room::new("transfer.rdma.lent", Bytes::ZERO),
            open: Mutex::default(),
        }
    }

    /// The same with so many bytes besides, at most, of memory that is lent to queue pairs. Without, none can be.
    #[must_use]
    pub fn with_lent(self, memory: Bytes) -> Self {
        let lent = Room::new("transfer.rdma.lent", memory);
        Self { lent, ..self }
    }

    /// The same with up to so many cards for each link: the one of the rule, and others with an address in a network of the peer's. Each has
    /// to fail before the link is taken for dead.
    #[must_use]
    pub fn with_rails(self, rails: u8) -> Self {
        let mut paths = self.paths;
        if rails > 1 {
            for path in &mut paths {
                path.timeout = path.timeout.min(RAILS_TIMEOUT);
            }
        }
        Self {
            rails: rails.into(),
            paths,
            ..self
        }
    }

    /// The names of this machine's devices.
    ///
    /// # Errors
    /// libibverbs can't be loaded, or its list not be had: with what to do.
    pub fn names() -> io::Result<Vec<String>> {
        let library = Library::open().map_err(told)?;
        library.names().map_err(told)
    }

    fn device(&self, library: &Library, name: &str) -> io::Result<Arc<Context>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(device) = open.get(name).and_then(Weak::upgrade) {
            return Ok(device);
        }
        let device = Arc::new(library.device(name).map_err(told)?);
        open.insert(name.to_owned(), Arc::downgrade(&device));
        Ok(device)
    }
}

impl Adapter for Cards {
    fn queue(&self, route: Route, on: Priority, sizes: Sizes) -> io::Result<Box<dyn Queue>> {
        let (library, gids) = gids()?;
        let gid = choose(&gids, Some(&self.choice), route.peer, Some(route.own)).map_err(told)?;
        self.pair(&library, gid, on, sizes)
    }

    fn others(&self, first: &Endpoint) -> Vec<Route> {
        let others = self.rails.saturating_sub(1);
        if others == 0 {
            return Vec::new();
        }
        let gids = gids().map_or(Vec::new(), |(_, gids)| gids);
        let found = lynx_verbs::others(&gids, Gid(first.gid));
        let addresses = found.into_iter().map(|entry| entry.gid.address());
        let routes = addresses.map(|own| Route { peer: own, own });
        routes.take(others).collect()
    }

    fn towards(&self, there: &Endpoint) -> Option<Route> {
        if self.rails < 2 {
            return None;
        }
        let peer = Gid(there.gid).address();
        let (_, gids) = gids().ok()?;
        let gid = choose(&gids, None, peer, source_towards(peer).ok()).ok()?;
        let own = gid.gid.address();
        Some(Route { peer, own })
    }

    fn rail(&self, route: Route, on: Priority, sizes: Sizes) -> io::Result<Box<dyn Queue>> {
        let (library, gids) = gids()?;
        let gid = choose(&gids, None, route.own, Some(route.own)).map_err(told)?;
        self.pair(&library, gid, on, sizes)
    }
}

impl Cards {
    /// A queue pair with this GID.
    fn pair(
        &self,
        library: &Library,
        gid: &GidEntry,
        on: Priority,
        sizes: Sizes,
    ) -> io::Result<Box<dyn Queue>> {
        let taken = self
            .room
            .take(u64::from(sizes.ring) + u64::from(sizes.staging))?;
        let device = self.device(library, &gid.device)?;
        let domain = Domain::new(&device).map_err(told)?;
        let work = sizes.sends + sizes.receives;
        let queue = CompletionQueue::new(&device, work).map_err(told)?;
        let of_pair = lynx_verbs::Sizes {
            writes: sizes.sends,
            receives: sizes.receives,
            inline: INLINE,
        };
        let pair = QueuePair::new(&domain, &queue, gid, of_pair, random()).map_err(told)?;
        pair.post_receives(sizes.receives).map_err(told)?;
        let memory = |bytes: u32| usize::try_from(bytes).map_err(io::Error::other);
        Ok(Box::new(Pair {
            pair,
            path: self.paths[on.index()],
            lent: None,
            room: Arc::clone(&self.lent),
            staging: Staging::new(&domain, memory(sizes.staging)?).map_err(told)?,
            ring: Ring::new(&domain, memory(sizes.ring)?).map_err(told)?,
            ring_bytes: sizes.ring,
            peer: None,
            wakeups: Wakeups::new(queue)?,
            armed: AtomicBool::new(false),
            posted: 0,
            over: 0,
            has_failed: false,
            is_flushed: false,
            found: Vec::new(),
            completions: VecDeque::new(),
            _device: device,
            _taken: taken,
        }))
    }
}

/// libibverbs, and the GIDs of all cards.
fn gids() -> io::Result<(Library, Vec<GidEntry>)> {
    let library = Library::open().map_err(told)?;
    let gids = library.gids().map_err(told)?;
    Ok((library, gids))
}

/// An error with its causes, in one line.
fn told(error: impl Error) -> io::Error {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    io::Error::other(text)
}

/// For packets' numbers: each hasher of the standard library is keyed at random.
fn random() -> u32 {
    let [a, b, c, d, ..] = RandomState::new().build_hasher().finish().to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// A queue pair of a card.
#[derive(Debug)]
struct Pair {
    /// Before the memory: work that is posted ends with it.
    pair: QueuePair,
    path: Path,
    /// What it was lent, and what of the room that takes.
    lent: Option<(Lent, Taken)>,
    /// For that.
    room: Arc<Room>,
    staging: Staging,
    ring: Ring,
    ring_bytes: u32,
    /// The peer's ring.
    peer: Option<Target>,
    wakeups: Wakeups,
    /// Whether the next completion wakes, or has.
    armed: AtomicBool,
    /// How many writes were posted, which is the number of the next, and how many of them are known to be over: they complete in their order.
    posted: u64,
    over: u64,
    /// Whether the connection is over, and whether it was said that the card reads nothing any more.
    has_failed: bool,
    is_flushed: bool,
    found: Vec<lynx_verbs::Completion>,
    completions: VecDeque<Completion>,
    /// So that the next queue pair finds it open.
    _device: Arc<Context>,
    /// What is registered counts until it isn't.
    _taken: Taken,
}

/// A part of registered memory that a write is of, where it is of any.
fn part<'a>(
    range: Range<usize>,
    of: impl FnOnce(Range<usize>) -> Option<Local<'a>>,
) -> io::Result<Option<Local<'a>>> {
    if range.is_empty() {
        return Ok(None);
    }
    let outside = || io::Error::other("a write from outside of the memory that is registered");
    of(range).map(Some).ok_or_else(outside)
}

impl Pair {
    fn post(
        &mut self,
        Source { staged, lent }: Source,
        to: u32,
        immediate: Option<u32>,
        signalled: bool,
    ) -> io::Result<()> {
        let memory = self.lent.as_ref().map(|(memory, _)| memory);
        let from = part(staged, |staged| self.staging.part(staged))?;
        let then = part(lent, |lent| memory?.part(lent))?;
        let ring = self.peer.ok_or(io::ErrorKind::NotConnected)?;
        let write = Write {
            work: self.posted,
            from,
            then,
            to: Target {
                address: ring.address.wrapping_add(u64::from(to)),
                ..ring
            },
            immediate,
            signalled,
        };
        self.pair.post(&write).map_err(told)?;
        self.posted += 1;
        Ok(())
    }

    /// Takes what the card has done; whether there was anything.
    fn collect(&mut self) -> Result<bool, CallError> {
        self.found.clear();
        let any = self.wakeups.queue().poll(&mut self.found)? > 0;
        for completion in &self.found {
            if let Outcome::Written { work } | Outcome::WriteFailed { work, .. } =
                completion.outcome
            {
                self.over = work + 1;
            }
            self.completions.push_back(match completion.outcome {
                Outcome::Written { .. } => Completion::Sent,
                Outcome::Announced { immediate, .. } => {
                    self.pair.post_receives(1)?;
                    Completion::Received(immediate)
                }
                Outcome::WriteFailed { failure, .. } | Outcome::ReceiveFailed { failure } => {
                    self.has_failed = true;
                    Completion::Failed(failure.to_string())
                }
            });
        }
        // Every write that is posted when a queue pair fails is flushed, and has a completion.
        if self.has_failed && !self.is_flushed && self.over == self.posted {
            self.is_flushed = true;
            self.completions.push_back(Completion::Flushed);
        }
        Ok(any)
    }

    /// Collects until there is something to tell, or the card is to wake when there is.
    fn look(&mut self) -> Result<(), CallError> {
        while self.completions.is_empty() && !self.collect()? {
            if self.armed.swap(true, Ordering::Relaxed) {
                return Ok(());
            }
            // What came before this makes no event: look once more.
            self.wakeups.queue().arm()?;
        }
        Ok(())
    }
}

impl Queue for Pair {
    fn endpoint(&self) -> Endpoint {
        let (end, ring) = (self.pair.endpoint(), self.ring.target());
        Endpoint {
            queue_pair: end.number,
            packet: end.first_packet,
            gid: end.gid.0,
            lid: end.lid,
            mtu: u16::try_from(end.mtu.bytes()).unwrap_or(u16::MAX),
            address: ring.address,
            key: ring.key,
            ring: self.ring_bytes,
        }
    }

    fn connect(&mut self, peer: &Endpoint) -> io::Result<()> {
        let mtu = (1..=5)
            .filter_map(Mtu::from_number)
            .find(|mtu| mtu.bytes() == u32::from(peer.mtu))
            .ok_or_else(|| io::Error::other(format!("no card has an MTU of {}", peer.mtu)))?;
        let end = lynx_verbs::Endpoint {
            number: peer.queue_pair,
            first_packet: peer.packet,
            gid: Gid(peer.gid),
            lid: peer.lid,
            mtu,
        };
        self.pair.connect(&end, &self.path).map_err(told)?;
        self.peer = Some(Target {
            address: peer.address,
            bytes: peer.ring.into(),
            key: peer.key,
        });
        Ok(())
    }

    fn staging(&mut self, part: Range<usize>) -> &mut [u8] {
        &mut self.staging.bytes()[part]
    }

    fn copy_out(&self, from: usize, into: &mut [u8]) {
        self.ring.copy_to(from, into);
    }

    fn lend(&mut self, memory: &Arc<dyn Lendable>) -> io::Result<()> {
        let taken = self.room.take(memory.bytes() as u64)?;
        let lent = Lent::new(self.pair.domain(), memory).map_err(told)?;
        self.lent = Some((lent, taken));
        Ok(())
    }

    fn lent(&self, bytes: &[u8]) -> Option<Range<usize>> {
        let (memory, _) = self.lent.as_ref()?;
        memory.find(bytes)
    }

    fn write(&mut self, from: Source, to: u32) -> io::Result<()> {
        self.post(from, to, None, false)
    }

    fn write_with(&mut self, from: Source, to: u32, immediate: u32, told: bool) -> io::Result<()> {
        self.post(from, to, Some(immediate), told)
    }

    fn end(&mut self) {
        self.has_failed = true;
        // Where the card refuses even this, it has nothing left to end.
        drop(self.pair.fail());
    }

    fn poll(&mut self) -> Option<Completion> {
        if let Err(error) = self.look() {
            return Some(Completion::Failed(told(error).to_string()));
        }
        self.completions.pop_front()
    }

    fn poll_ready(&self, context: &mut Waking<'_>) -> Poll<()> {
        // An error is told by the next look at the card.
        self.wakeups.poll_woken(context).map(|_| {
            self.armed.store(false, Ordering::Relaxed);
        })
    }
}
