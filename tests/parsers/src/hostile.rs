//! The two machines of a transfer beside a peer that says what it likes, when it likes.
//!
//! An oracle as plain as can be keeps what the application and the driver know, and holds every event and every transmit
//! against it.

mod receiving;
mod sending;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use lynx_protocol::wire::{Frame, Heartbeat, Hello};
use lynx_protocol::{Code, Reason, TransferPlan};
use lynx_units::{Epoch, Priority, TransferId};

pub(crate) use receiving::receiver;
pub(crate) use sending::sender;

use crate::bytes::Bytes;

const EPOCH: Epoch = Epoch(3);
/// Longest segment of a plan here.
const BOUND: u32 = 40_000;
const UNITS: u32 = 2;
/// The levels of a unit's segments.
const LEVELS: [u8; 3] = [0, 1, 1];

fn plan() -> Arc<TransferPlan> {
    Arc::new(TransferPlan::new(UNITS, &LEVELS, |_, _| BOUND).expect("a small plan"))
}

/// A name of a few, so that names meet.
fn name(bytes: &mut Bytes<'_>) -> TransferId {
    TransferId(u64::from(bytes.u8() % 6))
}

fn priority(bytes: &mut Bytes<'_>) -> Priority {
    Priority::ALL[usize::from(bytes.u8() % 2)]
}

/// The link's epoch, mostly.
fn epoch(bytes: &mut Bytes<'_>) -> Epoch {
    match bytes.u8() {
        0 => Epoch(2),
        1 => Epoch(4),
        _ => EPOCH,
    }
}

fn reason(bytes: &mut Bytes<'_>) -> Reason {
    Reason::new(Code::from_number(bytes.u16()), "a reason")
}

fn heartbeat(bytes: &mut Bytes<'_>) -> Frame<'static> {
    Frame::Heartbeat(Heartbeat {
        stamp: bytes.u64(),
        echo: bytes.u64(),
    })
}

/// What a peer of this side never says after the handshake.
fn out_of_place(bytes: &mut Bytes<'_>) -> Frame<'static> {
    match bytes.u8() % 3 {
        0 => Frame::Refuse(reason(bytes)),
        1 => Frame::HelloAck(Cow::Borrowed(b"info")),
        _ => Frame::Hello(Hello {
            version: bytes.u16(),
            priority: priority(bytes),
            link: bytes.u64(),
            info: Cow::Borrowed(b"info"),
        }),
    }
}

/// Up to four seconds: sometimes none, sometimes more than silence may last.
fn pause(bytes: &mut Bytes<'_>) -> Duration {
    Duration::from_millis(u64::from(bytes.u16() % 4096))
}
