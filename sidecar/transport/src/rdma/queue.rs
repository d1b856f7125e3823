//! What this crate needs of a network card.

use std::fmt::Debug;
use std::io;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll};

use lynx_units::Priority;
use lynx_verbs::Lendable;

use super::Endpoint;

/// What a queue pair is to have, in bytes and in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// The ring that the peer writes into.
    pub ring: u32,
    /// Registered memory that this side writes from.
    pub staging: u32,
    /// Most work requests that are posted and not complete.
    pub sends: u32,
    /// Most receives that are posted; each is of a write with immediate, and has no memory.
    pub receives: u32,
}

/// Between which addresses a link's TCP connections are: what a card is chosen by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The peer's.
    pub peer: IpAddr,
    /// This side's.
    pub own: IpAddr,
}

/// A card that a connection goes on without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The card's address, which is its GID.
    pub card: IpAddr,
    /// How many cards the connection has left, one at least.
    pub left: usize,
    /// What it failed with.
    pub why: String,
}

/// What a write takes its bytes from: some of the staging memory and, behind that, some of the memory that was lent. Either may be empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// Of the staging memory.
    pub staged: Range<usize>,
    /// Of the memory that was [lent](Queue::lend).
    pub lent: Range<usize>,
}

impl Source {
    /// How many bytes they are.
    pub fn len(&self) -> usize {
        self.staged.len() + self.lent.len()
    }

    /// Whether they are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first so many bytes, and the others.
    pub(crate) fn split_at(self, bytes: usize) -> [Self; 2] {
        let staged = self.staged.len().min(bytes);
        let lent = self.lent.len().min(bytes - staged);
        let [staged, lent] = [(self.staged, staged), (self.lent, lent)].map(|(range, first)| {
            let cut = range.start + first;
            [range.start..cut, cut..range.end]
        });
        let ([first, second], [third, fourth]) = (staged, lent);
        [(first, third), (second, fourth)].map(|(staged, lent)| Self { staged, lent })
    }
}

impl From<Range<usize>> for Source {
    /// Of the staging memory alone.
    fn from(staged: Range<usize>) -> Self {
        Self {
            staged,
            ..Self::default()
        }
    }
}

/// This machine's network cards, as links use them.
pub trait Adapter: Debug + Send + Sync {
    /// A queue pair for one connection of a link, with its own completion queue, ring and staging memory, which nobody has
    /// connected, on the card that reaches the peer. The priority decides its service level and traffic class. May take some
    /// milliseconds; called within a Tokio runtime, where it may block.
    ///
    /// # Errors
    /// There is no such card, or the card or the system has no room: with what to change.
    fn queue(&self, route: Route, on: Priority, sizes: Sizes) -> io::Result<Box<dyn Queue>>;

    /// Another queue pair for the same connection, on the card whose address is `route.own`.
    ///
    /// # Errors
    /// As above.
    fn rail(&self, route: Route, on: Priority, sizes: Sizes) -> io::Result<Box<dyn Queue>> {
        self.queue(route, on, sizes)
    }

    /// For more rails of a connection whose first queue pair is here: the route from each other card that links may use, to itself, since
    /// nobody knows yet what it will reach. May block.
    fn others(&self, first: &Endpoint) -> Vec<Route> {
        let _ = first;
        Vec::new()
    }

    /// The route to a queue pair that a peer offers for one more rail; none where no other card than the first reaches it, or links
    /// may use no more than one. May block.
    fn towards(&self, there: &Endpoint) -> Option<Route> {
        let _ = there;
        None
    }

    /// A queue pair can't read memory that it was to be lent ([`Lending`](super::Lending)): payload is copied. For whoever wants to know.
    fn not_lent(&self, why: &io::Error) {
        let _ = why;
    }

    /// A connection has lost a card, and goes on. For whoever wants to know: the link's task calls it, so it must not wait.
    fn lost(&self, loss: &Loss) {
        let _ = loss;
    }
}

/// A reliable queue pair with the memory that belongs to it.
pub trait Queue: Debug + Send + Sync {
    /// What the peer has to know.
    fn endpoint(&self) -> Endpoint;

    /// Makes it one end of a connection. Receives are posted before the peer can send.
    ///
    /// # Errors
    /// The card does not take what the peer says of itself.
    fn connect(&mut self, peer: &Endpoint) -> io::Result<()>;

    /// Has it write from this memory too, from now on, and hold it until it is gone.
    ///
    /// # Errors
    /// The card does not take it: there is too much, or none can be lent.
    fn lend(&mut self, memory: &Arc<dyn Lendable>) -> io::Result<()>;

    /// Where these bytes lie in the memory that was lent; `None` where they don't.
    fn lent(&self, bytes: &[u8]) -> Option<Range<usize>>;

    /// Part of the memory that is written from. What is part of a write under way must be left alone.
    fn staging(&mut self, part: Range<usize>) -> &mut [u8];

    /// Copies out of the ring, from this offset on; the caller keeps within it.
    fn copy_out(&self, from: usize, into: &mut [u8]);

    /// Writes this into the peer's ring, from this offset on. Its completion is not told. What is lent must stay as it is until what is
    /// posted after it has completed.
    ///
    /// # Errors
    /// The card takes no more.
    fn write(&mut self, from: Source, to: u32) -> io::Result<()>;

    /// The same, with a number for the peer; there may be nothing to write. Where it is to be `told`, it completes after all that was
    /// posted before it.
    ///
    /// # Errors
    /// The card takes no more.
    fn write_with(&mut self, from: Source, to: u32, immediate: u32, told: bool) -> io::Result<()>;

    /// Ends the connection: what is with the card does not go on, and nothing more is taken from the peer. The memory stays.
    fn end(&mut self);

    /// The next completion; a receive that completed is posted again.
    fn poll(&mut self) -> Option<Completion>;

    /// Ready once there may be completions, or where there have been since [`poll`](Self::poll) last said that there are
    /// none.
    fn poll_ready(&self, context: &mut Context<'_>) -> Poll<()>;
}

/// Something that the card has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Completion {
    /// The next [`write_with`](Queue::write_with) that is to be told, and all before it, are in the peer's memory.
    Sent,
    /// The peer has written with this number, and all that it wrote before is here.
    Received(u32),
    /// The connection is over, and why.
    Failed(String),
    /// It is over, and nothing of what was posted is under way any more: the card reads nothing.
    Flushed,
}
