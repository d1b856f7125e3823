//! Two sides of a link through an emulated one, and what tests do with them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use lynx_protocol::receiver::ReceiverConfig;
use lynx_protocol::sender::{Event as Sent, OpenTransfer};
use lynx_protocol::{CreditBook, Reason, TransferPlan};
use lynx_transport::emulate::{LinkOptions, Relay};
use lynx_transport::{
    Clock, Dialler, LinkConfig, Listener, PeerInfo, ReceiverEvent, ReceiverEvents, ReceiverHandle,
    SegmentPayload, SenderEvents, SenderHandle,
};
use lynx_units::{BitRate, Bytes, SegmentIndex, Timestamp, TransferId, UnitIndex};

pub(crate) const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

pub(crate) const FAST: BitRate = BitRate::from_megabits_per_second(1000);
pub(crate) const KIB: u32 = 1 << 10;
pub(crate) const MIB: u32 = 1 << 20;

/// Fails where something that must happen doesn't. Generous: the machine may be busy.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future)
        .await
        .expect("it happens in time")
}

pub(crate) fn config(clock: Clock, name: &str) -> LinkConfig {
    super::with_means(bare(clock, name))
}

/// Without what this program's links have besides.
pub(crate) fn bare(clock: Clock, name: &str) -> LinkConfig {
    LinkConfig::new(clock, PeerInfo::new(name).with("codec", "1")).unwrap()
}

/// What a transfer is made of: `segments` are (level, length), the same in each unit.
pub(crate) struct Shape {
    pub(crate) units: u32,
    pub(crate) segments: Vec<(u8, u32)>,
}

impl Shape {
    pub(crate) fn plan(&self) -> Arc<TransferPlan> {
        let levels: Vec<u8> = self.segments.iter().map(|(level, _)| *level).collect();
        let bound = |_, segment: SegmentIndex| self.segments[usize::from(segment.0)].1;
        Arc::new(TransferPlan::new(self.units, &levels, bound).unwrap())
    }

    pub(crate) fn open(&self, transfer: TransferId, deadline: Timestamp) -> OpenTransfer {
        OpenTransfer {
            transfer,
            descriptor: b"shape"[..].into(),
            plan: self.plan(),
            deadline,
        }
    }
}

/// A head, an anchor step, two residual steps of which one is empty, and a tail.
pub(crate) fn usual() -> Shape {
    Shape {
        units: 6,
        segments: vec![
            (0, 3 * KIB),
            (0, 200 * KIB),
            (1, 100 * KIB),
            (2, 0),
            (3, 333_333),
        ],
    }
}

/// Whether the event is the completion of this segment, in any unit.
pub(crate) fn is_segment(event: &ReceiverEvent, of: TransferId, index: u16) -> bool {
    matches!(event, ReceiverEvent::SegmentComplete { transfer, segment, .. }
        if *transfer == of && *segment == SegmentIndex(index))
}

/// Bytes that are different for each segment, and a checksum that says which it is.
pub(crate) fn payload(
    shape: &Shape,
    transfer: TransferId,
    unit: UnitIndex,
    segment: SegmentIndex,
) -> SegmentPayload {
    let length = shape.segments[usize::from(segment.0)].1 as usize;
    let name = transfer.0 * 1_000_003 + u64::from(unit.0) * 1009 + u64::from(segment.0);
    // Which come again after so many: made at once, since a link whose thread is busy is taken for dead.
    const PERIOD: usize = 251;
    let period = (name..).step_by(7).take(PERIOD);
    let period: Vec<u8> = period.map(|i| (i % 251).to_le_bytes()[0]).collect();
    let mut bytes = period.repeat(length.div_ceil(PERIOD));
    bytes.truncate(length);
    SegmentPayload {
        bytes: bytes.into(),
        checksum: name,
    }
}

/// A prefill node that listens and sends, a decode node that dials through a relay and receives.
pub(crate) struct Pair {
    pub(crate) clock: Clock,
    pub(crate) relay: Relay,
    pub(crate) sender: SenderHandle,
    pub(crate) sent: SenderEvents,
    pub(crate) receiver: ReceiverHandle,
    pub(crate) received: ReceiverEvents,
    listener: Listener,
    dialler: Dialler,
    window: ReceiverConfig,
    book: Arc<CreditBook>,
}

impl Pair {
    pub(crate) async fn new(rate: BitRate) -> Self {
        Self::with_window(rate, Bytes::from_mib(16)).await
    }

    pub(crate) async fn with_window(rate: BitRate, window: Bytes) -> Self {
        Self::with_config(rate, window, config).await
    }

    /// Both sides are configured by `config`, at a clock and with a name.
    pub(crate) async fn with_config(
        rate: BitRate,
        window: Bytes,
        config: impl Fn(Clock, &str) -> LinkConfig,
    ) -> Self {
        let clock = Clock::start();
        let mut listener = Listener::bind(LOOPBACK, config(clock, "prefill")).unwrap();
        let relay = Relay::start(LOOPBACK, listener.address(), LinkOptions::new(rate)).unwrap();
        let mut dialler = Dialler::new(relay.address(), config(clock, "decode"));
        let book = CreditBook::new(Bytes::from_mib(64));
        let window = ReceiverConfig {
            window: [window; 2],
        };
        let (accepted, dialled) =
            tokio::join!(listener.accept(), dialler.connect(Duration::from_secs(10)));
        let (sender, sent) = accepted.into_sender();
        let (receiver, received) = dialled.unwrap().into_receiver(window, &book).unwrap();
        Self {
            clock,
            relay,
            sender,
            sent,
            receiver,
            received,
            listener,
            dialler,
            window,
            book,
        }
    }

    /// Makes the next link, once the present one is over.
    pub(crate) async fn reconnect(&mut self) {
        let (accepted, dialled) = tokio::join!(
            self.listener.accept(),
            self.dialler.connect(Duration::from_secs(10))
        );
        (self.sender, self.sent) = accepted.into_sender();
        let dialled = dialled.unwrap();
        (self.receiver, self.received) = dialled.into_receiver(self.window, &self.book).unwrap();
    }

    pub(crate) fn offer(&self, transfer: TransferId, shape: &Shape, within: Duration) {
        let deadline = self.clock.now() + within;
        self.sender.open(shape.open(transfer, deadline)).unwrap();
    }

    /// Offers a transfer and accepts it on the other side.
    pub(crate) async fn open(&mut self, transfer: TransferId, shape: &Shape, within: Duration) {
        self.offer(transfer, shape, within);
        match soon(self.received.next()).await.unwrap() {
            ReceiverEvent::Offered {
                transfer: offered,
                descriptor,
                ..
            } => {
                assert_eq!((offered, &*descriptor), (transfer, &b"shape"[..]));
                self.receiver.accept(transfer, shape.plan()).unwrap();
            }
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn publish_all(&self, transfer: TransferId, shape: &Shape) {
        for unit in (0..shape.units).map(UnitIndex) {
            let segments = (0u16..).take(shape.segments.len()).map(SegmentIndex);
            let segments = segments.map(|segment| payload(shape, transfer, unit, segment));
            self.sender
                .publish(transfer, unit, segments.collect())
                .unwrap();
        }
    }

    pub(crate) async fn sent_event(&mut self) -> Sent {
        soon(self.sent.next()).await.unwrap()
    }

    /// Why the transfer failed on the sender's side.
    pub(crate) async fn sent_failure(&mut self, transfer: TransferId) -> Reason {
        loop {
            match self.sent_event().await {
                Sent::Failed(failed, reason) if failed == transfer => return reason,
                Sent::Complete(_) => panic!("the transfer completed"),
                _ => {}
            }
        }
    }

    /// Why the transfer failed on the receiver's side.
    pub(crate) async fn received_failure(&mut self, transfer: TransferId) -> Reason {
        loop {
            match soon(self.received.next()).await.unwrap() {
                ReceiverEvent::Failed(failed, reason) if failed == transfer => return reason,
                ReceiverEvent::Complete(_) => panic!("the transfer completed"),
                _ => {}
            }
        }
    }

    /// Waits until the receiver has everything.
    pub(crate) async fn complete(&mut self, transfer: TransferId) {
        loop {
            match soon(self.received.next()).await.unwrap() {
                ReceiverEvent::Complete(complete) if complete == transfer => return,
                ReceiverEvent::Failed(_, reason) => panic!("{reason}"),
                _ => {}
            }
        }
    }
}
