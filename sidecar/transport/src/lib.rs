//! The driver, over TCP or RDMA, that carries out what the protocol decides.
//!
//! A link is two TCP connections with one peer, one per priority, and one task that moves bytes between them and one side
//! of [`lynx_protocol`]. The protocol says what goes next, where payload belongs and when to give up; this crate only reads,
//! writes, keeps payload alive and tells the time. It refuses to decide anything about transfers: no retry, no order, no
//! deadline is here. Why one task for both connections, and not one each: whether a residual may go depends on whether an
//! anchor is pending, so both are one decision, made when a socket can take bytes.
//!
//! ```text
//!  application ── SenderHandle ──► ┌─────────────┐ anchor   ┌─────────────┐ ◄── ReceiverHandle ── application
//!     (Bytes)                      │  link task  ├──────────┤  link task  │
//!              ◄── SenderEvents ── │  + Sender   ├──────────┤  + Receiver │ ── ReceiverEvents ──► (SegmentBytes)
//!                                  └─────────────┘ residual └─────────────┘
//! ```
//!
//! A [`Dialler`] or a [`Listener`] makes a [`Connected`] link, and the application says which side of it it is. Every link
//! lives for one epoch: when it is over, the application dials (or accepts) the next one and retries there, so nothing
//! of an old life can reach a new one.
//!
//! With credentials both connections are TLS 1.3, each side with a certificate; without, they are in clear. One that
//! speaks the other way is told so.
//!
//! Where both sides have an RDMA adapter, a connection's bytes travel by RDMA once it is made ([`rdma`]).
//!
//! [`emulate`] has narrow links, and a model of RDMA, for demonstrations and tests.

mod anteroom;
mod backoff;
mod checksum;
mod clock;
mod dialler;
pub mod emulate;
mod handshake;
mod inbound;
mod link;
mod listener;
mod outbound;
mod peer;
pub mod rdma;
mod receiving;
mod secure;
mod segment;
mod sending;
mod side;
mod socket;
mod stream;
mod tally;
mod ticket;
mod wire;

/// Shared memory of a payload: made from a `Vec<u8>`, or with `from_owner` from any memory that has an owner.
pub use anteroom::{Anteroom, Spoken};
pub use bytes::Bytes as SharedBytes;
pub use clock::Clock;
pub use dialler::{DialError, Dialler};
pub use handshake::{Connected, HandshakeError, LinkConfig};
pub use link::{LinkStats, Watched};
pub use listener::{ListenError, Listener, ONLY_ENCRYPTED};
pub use peer::{Besides, PeerInfo};
pub use receiving::{ReceiverEvent, ReceiverEvents, ReceiverHandle};
pub use segment::SegmentBytes;
pub use sending::{LinkOver, SegmentPayload, SenderEvents, SenderHandle};
pub use stream::Carrier;
pub use tally::Tally;
pub use ticket::Ticket;
