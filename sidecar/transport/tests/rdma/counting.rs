//! What RDMA costs in requests and completions.

use std::time::Duration;

use lynx_protocol::CreditBook;
use lynx_protocol::receiver::ReceiverConfig;
use lynx_transport::emulate::Fabric;
use lynx_transport::{
    Clock, Dialler, LinkConfig, Listener, PeerInfo, ReceiverEvent, SegmentPayload, SharedBytes,
};
use lynx_units::{Bytes, TransferId, UnitIndex};

use super::pair::{LOOPBACK, MIB, Shape, soon};

/// A transfer of so many MiB of residual.
const SIZE: u32 = 256;

#[tokio::test]
async fn a_chunk_is_one_write_and_one_completion_and_finds_its_receive() {
    let fabric = Fabric::new(7);
    let clock = Clock::start();
    let means = || {
        let config = LinkConfig::new(clock, PeerInfo::new("a side")).unwrap();
        config.with_adapter(Some(fabric.adapter()))
    };
    let mut listener = Listener::bind(LOOPBACK, means()).unwrap();
    let mut dialler = Dialler::new(listener.address(), means());
    let patience = Duration::from_secs(10);
    let (accepted, dialled) = tokio::join!(listener.accept(), dialler.connect(patience));
    let book = CreditBook::new(Bytes::from_mib(64));
    let window = ReceiverConfig {
        window: [Bytes::from_mib(16); 2],
    };
    let (receiver, mut received) = dialled.unwrap().into_receiver(window, &book).unwrap();
    let (sender, _sent) = accepted.into_sender();
    let shape = Shape {
        units: SIZE,
        segments: vec![(0, 64), (1, MIB)],
    };
    let transfer = TransferId(1);
    let deadline = clock.now() + Duration::from_secs(60);
    sender.open(shape.open(transfer, deadline)).unwrap();
    let large = SharedBytes::from(vec![7; MIB as usize]);
    for unit in (0..SIZE).map(UnitIndex) {
        let segments = [large.slice(..64), large.clone()];
        let segments = segments.map(|bytes| SegmentPayload { bytes, checksum: 0 });
        sender.publish(transfer, unit, segments.into()).unwrap();
    }
    loop {
        match soon(received.next()).await.unwrap() {
            ReceiverEvent::Offered { .. } => receiver.accept(transfer, shape.plan()).unwrap(),
            ReceiverEvent::SegmentComplete { bytes, .. } => drop(bytes),
            ReceiverEvent::Complete(_) => break,
            ReceiverEvent::Failed(_, reason) => panic!("{reason}"),
            _ => {}
        }
    }
    let counts = fabric.counts();
    assert_eq!(counts.not_ready, 0);
    // A chunk has a quarter of a mebibyte at most, and that where the link is fast: then a mebibyte is four of these, and one more
    // where the ring ends within one.
    assert!(counts.long >= 4 * u64::from(SIZE), "{counts:?}");
    // Of what is short one in eight is told; a word is for 2 MiB or 32 messages.
    let (short, words) = (
        counts.requests - counts.long,
        u64::from(SIZE) / 2 + counts.requests / 32,
    );
    assert!(
        counts.signalled <= counts.long + short / 8 + words + 8,
        "{counts:?}"
    );
    // Two chunks, each of two writes where the ring ends in it, and what is short.
    assert!(counts.most_under_way <= 4 + 16 + 2, "{counts:?}");
}
