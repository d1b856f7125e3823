//! What the two machines promise to a driver, one promise at a time.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod credit;
mod receiving;
mod sending;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use lynx_protocol::limits::{MAX_LIFETIME, MAX_TRANSFERS};
use lynx_protocol::receiver::{self, AcceptError, Discard, Receiver, ReceiverConfig};
use lynx_protocol::sender::{
    self, OpenError, OpenTransfer, PublishError, Segment, Sender, Transmit,
};
use lynx_protocol::wire::{Ack, ChunkHeader, Credit, Frame, Open, Packet};
use lynx_protocol::{Code, CreditBook, Extent, Reason, TransferPlan, handshake};
use lynx_units::{Bytes, Epoch, Priority, SegmentIndex, Timestamp, TransferId, UnitIndex};

const EPOCH: Epoch = Epoch(5);
const NAME: TransferId = TransferId(1);
const BOUND: u32 = 100_000;

fn at(millis: u64) -> Timestamp {
    Timestamp::from_origin(Duration::from_millis(millis))
}

/// Two units of an anchor segment and a residual one.
fn plan() -> Arc<TransferPlan> {
    Arc::new(TransferPlan::new(2, &[0, 1], |_, _| BOUND).unwrap())
}

fn open(transfer: u64) -> OpenTransfer {
    OpenTransfer {
        transfer: TransferId(transfer),
        descriptor: Cow::Borrowed(b"plan"),
        plan: plan(),
        deadline: at(10_000),
    }
}

fn packet(frame: Frame<'static>) -> Packet<'static> {
    Packet {
        epoch: EPOCH,
        frame,
    }
}

fn segments(len: u32) -> [Segment; 2] {
    [Segment { len, checksum: 7 }; 2]
}

fn grant(bytes: u64) -> Packet<'static> {
    packet(Frame::Credit(Credit {
        limit: [Bytes::new(bytes); 2],
    }))
}

fn book() -> Arc<CreditBook> {
    CreditBook::new(Bytes::from_mib(64))
}

fn config() -> ReceiverConfig {
    ReceiverConfig {
        window: [Bytes::from_mib(1); 2],
    }
}

/// A receiver with one accepted transfer, whose credit has been announced.
fn receiver(book: &Arc<CreditBook>) -> Receiver {
    let mut receiver = Receiver::new(EPOCH, config(), book, at(0)).unwrap();
    offer(&mut receiver, NAME);
    receiver.accept(NAME, plan(), at(0)).unwrap();
    say(&mut receiver, at(0));
    receiver
}

fn offer(receiver: &mut Receiver, transfer: TransferId) {
    let open = Open {
        transfer,
        remaining: Duration::from_secs(10),
        descriptor: Cow::Borrowed(b"plan"),
    };
    receiver.handle_frame(Priority::Anchor, &packet(Frame::Open(open)), at(0));
}

/// Everything that a receiver has to say.
fn say(receiver: &mut Receiver, now: Timestamp) -> Vec<Frame<'static>> {
    std::iter::from_fn(|| receiver.poll_transmit(Priority::Anchor, now))
        .map(|packet| packet.frame)
        .collect()
}

fn events(receiver: &mut Receiver) -> Vec<receiver::Event> {
    std::iter::from_fn(|| receiver.poll_event()).collect()
}

/// Everything that a sender wants to write to a connection.
fn writes(sender: &mut Sender, on: Priority) -> Vec<Transmit> {
    std::iter::from_fn(|| sender.poll_transmit(on, at(0))).collect()
}

fn chunks(sender: &mut Sender, on: Priority) -> Vec<ChunkHeader> {
    writes(sender, on)
        .into_iter()
        .filter_map(|transmit| match transmit {
            Transmit::Chunk(header) => Some(header),
            Transmit::Frame(_) => None,
        })
        .collect()
}

fn chunk(segment: u16, offset: u32, len: u32) -> ChunkHeader {
    ChunkHeader {
        epoch: EPOCH,
        extent: Extent {
            transfer: NAME,
            unit: UnitIndex(0),
            segment: SegmentIndex(segment),
            offset,
            len,
        },
        after_pause: false,
        segment_len: BOUND,
        segment_checksum: 7,
        payload_crc: 0,
    }
}

/// The frame that failed a transfer, and its code.
fn failure(frames: &[Frame<'_>]) -> Option<Code> {
    frames.iter().find_map(|frame| match frame {
        Frame::Failed(NAME, reason) => Some(reason.code()),
        _ => None,
    })
}

#[test]
fn a_deadline_ends_a_transfer_on_each_side_and_the_other_side_is_told() {
    let mut sender = Sender::new(EPOCH, at(0));
    let soon = OpenTransfer {
        deadline: at(100),
        ..open(1)
    };
    sender.open(soon, at(0)).unwrap();
    assert_eq!(sender.poll_timeout(), Some(at(100)));
    sender.handle_timeout(at(100));
    assert!(
        matches!(sender.poll_event(), Some(sender::Event::Failed(NAME, reason)) if reason.code() == Code::Deadline)
    );
    let told = writes(&mut sender, Priority::Anchor);
    assert!(matches!(
        told.last(),
        Some(Transmit::Frame(Packet {
            frame: Frame::Failed(..),
            ..
        }))
    ));

    let mut receiver = receiver(&book());
    let keep_alive = |receiver: &mut Receiver, now| {
        Priority::ALL
            .into_iter()
            .for_each(|on| receiver.handle_activity(on, now));
        receiver.handle_timeout(now);
    };
    (1..10).for_each(|second| keep_alive(&mut receiver, at(second * 1000)));
    assert_eq!(events(&mut receiver).len(), 1);
    keep_alive(&mut receiver, at(10_000));
    assert!(
        matches!(&events(&mut receiver)[..], [receiver::Event::Failed(NAME, reason)] if reason.code() == Code::Deadline)
    );
    assert_eq!(
        failure(&say(&mut receiver, at(10_000))),
        Some(Code::Deadline)
    );
}

#[test]
fn a_hello_of_another_version_or_an_older_epoch_is_refused_with_what_differs() {
    let Packet {
        frame: Frame::Hello(mut hello),
        ..
    } = handshake::hello(EPOCH, Priority::Anchor, 9, b"info")
    else {
        panic!("a hello is a hello");
    };
    assert_eq!(handshake::check(&hello, EPOCH, None), Ok(()));
    assert_eq!(handshake::check(&hello, EPOCH, Some(EPOCH)), Ok(()));
    let old = handshake::check(&hello, Epoch(4), Some(EPOCH)).unwrap_err();
    assert!(
        old.text().contains("epoch 4") && old.text().contains("epoch 5"),
        "{old}"
    );
    hello.version = 9;
    let other = handshake::check(&hello, EPOCH, None).unwrap_err();
    assert!(other.text().contains("version 1, the peer 9"), "{other}");
}
