//! A connection over RDMA: the same stream of bytes, written by the network card into a ring that the peer has registered.
//!
//! Each of a link's two connections is first a TCP connection, with TLS where that is configured, on which the two sides
//! say Hello. Where both have an [`Adapter`], the Hellos carry [`Endpoint`]s too, and from then on bytes travel by a
//! reliable queue pair: a message is an RDMA write of up to one chunk with its frame, the last part of it *with immediate*
//! (the number of bytes), so that the receiving side hears of it without a receive buffer of its own. The TCP connection
//! stays, silent: its end says that the peer's process has died, which a queue pair notices only when it is written to. Before the
//! first message a packet of full length goes each way: a pair of cards that don't reach each other, or a switch between them whose
//! MTU is too small, is found while the link can still be made over TCP.
//!
//! So [`protocol`](lynx_protocol), frames, handshake and the link's loop know nothing of RDMA: it is one more kind of
//! stream. What that costs is a copy of what is received, out of registered memory, and of what is sent, into it, unless the card reads
//! payload where it lies ([`Lending`]); what it gains is that no peer's write, however late, lands where anything is kept: a byte of the ring is written again only after it has been taken out,
//! and the ring is deregistered with the link's epoch. A copy is what a codec makes anyway, which takes planes apart and puts
//! them together.
//!
//! Few chunks are with the card at a time ([`MOST_LONG`](outgoing::MOST_LONG)): what is there can't be overtaken. No shared receive queue: receives here have no memory, and with a queue of its own no link's flood takes the
//! receives of another.
//!
//! Devices are an [`Adapter`]'s: `Cards`, with the feature `rdma`, are real ones by verbs, and [`emulate`](crate::emulate) has one that is a
//! model.

#[cfg(feature = "rdma")]
mod card;
mod endpoint;
mod incoming;
mod lending;
mod number;
mod outgoing;
mod queue;
mod rail;
mod rails;
#[cfg(feature = "rdma")]
mod room;
mod stream;
#[cfg(test)]
mod tests;

#[cfg(feature = "rdma")]
pub use card::Cards;
pub use endpoint::Endpoint;
pub use lending::Lending;
pub use lynx_verbs::Lendable;
pub use queue::{Adapter, Completion, Loss, Queue, Route, Sizes, Source};
pub(crate) use stream::{MOST_RAILS, Paired, Prepared, Remote};

/// What is known of a peer without RDMA that doesn't say why: it is configured so, or of a build without.
pub(crate) const NOT_OFFERED: &str = "the peer takes no part in RDMA";

/// What a side says that takes only links by RDMA, and has no card.
pub(crate) const NO_CARD: &str = "this side takes only links by RDMA, and has no card";
