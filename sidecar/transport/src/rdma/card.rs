//! A real card's port, by verbs.

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use lynx_units::Priority;
use lynx_verbs::{
    CallError, Choice, CompletionQueue, Domain, Gid, GidEntry, Library, Local, Mtu, Outcome, Path,
    QueuePair, Ring, Staging, Target, Wakeups, Write, choose,
};

use super::{Adapter, Completion, Endpoint, Queue, Sizes};

/// Up to how many bytes a write carries its payload in the request: a frame without a chunk.
const INLINE: u32 = 64;

/// The number of all writes: those that are told complete in their order.
const WRITE: u64 = 0;

/// A port of a card, with one of its addresses.
#[derive(Clone, Debug)]
pub struct Card {
    domain: Domain,
    gid: GidEntry,
    paths: [Path; 2],
}

impl Card {
    /// The card that reaches `peer`, or the chosen one ([`choose`] has the rule), with the paths of anchor and residual.
    ///
    /// # Errors
    /// Where there is no libibverbs, no such card, or it can't be opened: with what there is.
    pub fn open(
        choice: Option<&Choice>,
        peer: IpAddr,
        source: Option<IpAddr>,
        paths: [Path; 2],
    ) -> io::Result<Self> {
        let library = Library::open().map_err(io::Error::other)?;
        let gids = library.gids().map_err(io::Error::other)?;
        let gid = choose(&gids, choice, peer, source).map_err(io::Error::other)?;
        let context = library.device(&gid.device).map_err(io::Error::other)?;
        Ok(Self {
            domain: Domain::new(&context).map_err(io::Error::other)?,
            gid: gid.clone(),
            paths,
        })
    }
}

impl Adapter for Card {
    fn queue(&self, on: Priority, sizes: Sizes) -> io::Result<Box<dyn Queue>> {
        let work = sizes.sends + sizes.receives;
        let queue = CompletionQueue::new(self.domain.context(), work).map_err(io::Error::other)?;
        let of_pair = lynx_verbs::Sizes {
            writes: sizes.sends,
            receives: sizes.receives,
            inline: INLINE,
        };
        let pair = QueuePair::new(&self.domain, &queue, &self.gid, of_pair, random())
            .map_err(io::Error::other)?;
        pair.post_receives(sizes.receives)
            .map_err(io::Error::other)?;
        let memory = |bytes: u32| usize::try_from(bytes).map_err(io::Error::other);
        Ok(Box::new(Pair {
            pair,
            path: self.paths[on.index()],
            staging: Staging::new(&self.domain, memory(sizes.staging)?)
                .map_err(io::Error::other)?,
            ring: Ring::new(&self.domain, memory(sizes.ring)?).map_err(io::Error::other)?,
            ring_bytes: sizes.ring,
            peer: None,
            wakeups: Wakeups::new(queue)?,
            armed: AtomicBool::new(false),
            found: Vec::new(),
            completions: VecDeque::new(),
        }))
    }
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
    staging: Staging,
    ring: Ring,
    ring_bytes: u32,
    /// The peer's ring.
    peer: Option<Target>,
    wakeups: Wakeups,
    /// Whether the next completion wakes, or has.
    armed: AtomicBool,
    found: Vec<lynx_verbs::Completion>,
    completions: VecDeque<Completion>,
}

impl Pair {
    fn post(
        &self,
        part: Range<usize>,
        to: u32,
        immediate: Option<u32>,
        told: bool,
    ) -> io::Result<()> {
        let outside = || io::Error::other("a write from outside of the staging memory");
        let from: Option<Local<'_>> = if part.is_empty() {
            None
        } else {
            Some(self.staging.part(part).ok_or_else(outside)?)
        };
        let ring = self.peer.ok_or(io::ErrorKind::NotConnected)?;
        let write = Write {
            work: WRITE,
            from,
            to: Target {
                address: ring.address.wrapping_add(u64::from(to)),
                ..ring
            },
            immediate,
            signalled: told,
        };
        self.pair.post(&write).map_err(io::Error::other)
    }

    /// Takes what the card has done; whether there was anything.
    fn collect(&mut self) -> Result<bool, CallError> {
        self.found.clear();
        let any = self.wakeups.queue().poll(&mut self.found)? > 0;
        for completion in &self.found {
            self.completions.push_back(match completion.outcome {
                Outcome::Written { .. } => Completion::Sent,
                Outcome::Announced { immediate, .. } => {
                    self.pair.post_receives(1)?;
                    Completion::Received(immediate)
                }
                Outcome::WriteFailed { failure, .. } | Outcome::ReceiveFailed { failure } => {
                    Completion::Failed(failure.to_string())
                }
            });
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
        self.pair
            .connect(&end, &self.path)
            .map_err(io::Error::other)?;
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

    fn write(&mut self, part: Range<usize>, to: u32) -> io::Result<()> {
        self.post(part, to, None, false)
    }

    fn write_with(
        &mut self,
        part: Range<usize>,
        to: u32,
        immediate: u32,
        told: bool,
    ) -> io::Result<()> {
        self.post(part, to, Some(immediate), told)
    }

    fn poll(&mut self) -> Option<Completion> {
        if let Err(error) = self.look() {
            return Some(Completion::Failed(error.to_string()));
        }
        self.completions.pop_front()
    }

    fn poll_ready(&self, context: &mut Context<'_>) -> Poll<()> {
        // An error is told by the next look at the card.
        self.wakeups.poll_woken(context).map(|_| {
            self.armed.store(false, Ordering::Relaxed);
        })
    }
}

#[cfg(test)]
mod tests;
