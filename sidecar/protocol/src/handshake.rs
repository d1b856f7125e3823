//! What the two sides say before there is a link.
//!
//! The dialling side opens two connections, one per priority, and says Hello on each, with the same link number and epoch;
//! the dialled side answers each with HelloAck or Refuse. Who dials has nothing to do with who sends: a decode node dials,
//! and a prefill node sends. These are functions and not a machine, because the dialled side learns only from the Hello
//! which link a connection belongs to.

use alloc::borrow::Cow;
use alloc::format;

use lynx_units::{Epoch, Priority};

use crate::limits::PROTOCOL_VERSION;
use crate::wire::{Frame, Hello, Packet};
use crate::{Code, Reason};

/// The dialling side's first packet on the connection for `priority`.
///
/// `link` is drawn at random once in the life of the dialling process; `epoch` is larger than any that this process used
/// before for this peer.
pub fn hello(epoch: Epoch, priority: Priority, link: u64, info: &[u8]) -> Packet<'_> {
    Packet {
        epoch,
        frame: Frame::Hello(Hello {
            version: PROTOCOL_VERSION,
            priority,
            link,
            info: Cow::Borrowed(info),
        }),
    }
}

/// The dialled side's answer that takes the connection.
pub fn accept(epoch: Epoch, info: &[u8]) -> Packet<'_> {
    Packet {
        epoch,
        frame: Frame::HelloAck(Cow::Borrowed(info)),
    }
}

/// The dialled side's answer that does not.
pub fn refuse(epoch: Epoch, reason: Reason) -> Packet<'static> {
    Packet {
        epoch,
        frame: Frame::Refuse(reason),
    }
}

/// Whether the dialled side can take a connection, before the application compares `hello.info` with its own.
///
/// `latest` is the newest epoch that this side has seen from `hello.link`. An older epoch is refused: its connection is a
/// late one of a life that is over. The reason goes into a [`refuse`] packet.
pub fn check(hello: &Hello<'_>, epoch: Epoch, latest: Option<Epoch>) -> Result<(), Reason> {
    if hello.version != PROTOCOL_VERSION {
        return Err(Reason::new(
            Code::Protocol,
            &format!(
                "this side speaks protocol version {PROTOCOL_VERSION}, the peer {}: run the same release on both",
                hello.version
            ),
        ));
    }
    match latest {
        Some(latest) if epoch < latest => Err(Reason::new(
            Code::Protocol,
            &format!(
                "epoch {epoch} is over, the link is in epoch {latest}: dial again with a newer one"
            ),
        )),
        _ => Ok(()),
    }
}
