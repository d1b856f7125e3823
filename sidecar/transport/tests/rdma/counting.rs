//! What RDMA costs in requests and completions.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lynx_protocol::CreditBook;
use lynx_protocol::receiver::ReceiverConfig;
use lynx_transport::emulate::{Fabric, LentPool};
use lynx_transport::rdma::{Adapter, Endpoint, Lending, Queue, Route, Sizes};
use lynx_transport::{
    Clock, Dialler, LinkConfig, Listener, PeerInfo, ReceiverEvent, SegmentPayload, SharedBytes,
};
use lynx_units::{Bytes, Priority, TransferId, UnitIndex};

use super::pair::{LOOPBACK, MIB, Shape, soon};

/// A transfer of so many MiB of residual.
const SIZE: u32 = 256;

/// Sends 256 MiB by these cards, of memory that they may have been lent.
async fn send(large: SharedBytes, by: [Arc<dyn Adapter>; 2]) {
    let clock = Clock::start();
    let [near, far] = by.map(|adapter| {
        let config = LinkConfig::new(clock, PeerInfo::new("a side")).unwrap();
        config.with_adapter(Some(adapter))
    });
    let mut listener = Listener::bind(LOOPBACK, near).unwrap();
    let mut dialler = Dialler::new(listener.address(), far);
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
}

#[tokio::test]
async fn a_chunk_is_one_write_and_one_completion_and_finds_its_receive() {
    let fabric = Fabric::new(7);
    let large = SharedBytes::from(vec![7; MIB as usize]);
    send(large, [fabric.adapter(), fabric.adapter()]).await;
    let counts = fabric.counts();
    assert_eq!((counts.not_ready, counts.lent), (0, 0));
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

/// Cards that keep what they are told of memory that can't be lent.
#[derive(Debug)]
struct Listening {
    cards: Arc<dyn Adapter>,
    heard: Mutex<Vec<String>>,
}

impl Adapter for Listening {
    fn queue(&self, route: Route, on: Priority, sizes: Sizes) -> io::Result<Box<dyn Queue>> {
        self.cards.queue(route, on, sizes)
    }

    fn others(&self, first: &Endpoint) -> Vec<Route> {
        self.cards.others(first)
    }

    fn not_lent(&self, why: &io::Error) {
        self.heard.lock().unwrap().push(why.to_string());
    }
}

#[tokio::test]
async fn payload_in_lent_memory_is_not_copied_and_where_it_can_not_be_lent_it_is_and_that_is_told()
{
    for refuses in [false, true] {
        let fabric = Fabric::new(7);
        fabric.refuse_memory(refuses);
        let pool = LentPool::new(1, MIB as usize);
        let large = pool.take(MIB as usize, |bytes| bytes.fill(7)).unwrap();
        let listening = Arc::new(Listening {
            cards: fabric.adapter(),
            heard: Mutex::default(),
        });
        let lender = Lending::new(Arc::clone(&listening) as _, pool as _);
        send(large, [Arc::new(lender), fabric.adapter()]).await;
        let payload = u64::from(SIZE) * u64::from(MIB);
        let counts = fabric.counts();
        // Two queue pairs.
        let refused = vec!["the model takes no memory"; if refuses { 2 } else { 0 }];
        assert_eq!(*listening.heard.lock().unwrap(), refused);
        if refuses {
            assert_eq!(counts.lent, 0);
        } else {
            // A chunk whose frame comes behind others may end in a message of its own, which is copied where it is short.
            assert!(counts.lent > payload - payload / 1000, "{counts:?}");
        }
    }
}
