//! `lynx bench link`: whether an anchor waits behind a bulk, and what of a link's rate is left for payload.
//!
//! Real sockets over an emulated link in this process. The comparison is between an anchor on an idle link and the same
//! anchor posted while a bulk of twenty times its size is on its way; both pay the same framing, checksums and copies.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use lynx_protocol::receiver::ReceiverConfig;
use lynx_protocol::sender::OpenTransfer;
use lynx_protocol::{CreditBook, TransferPlan};
use lynx_transport::emulate::{LinkOptions, Relay};
use lynx_transport::{
    Clock, Dialler, LinkConfig, Listener, PeerInfo, ReceiverEvent, ReceiverEvents, ReceiverHandle,
    SegmentPayload, SenderEvents, SenderHandle, SharedBytes,
};
use lynx_units::{BitRate, Bytes, Timestamp, TransferId, UnitIndex};

const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// How long after the bulk the anchor is posted.
const HEAD_START: Duration = Duration::from_millis(100);

/// Longer than any of the transfers here takes.
const LIFETIME: Duration = Duration::from_secs(60);

/// How long the link may take to come up.
const PATIENCE: Duration = Duration::from_secs(10);

/// One measured link. Times in milliseconds, from the publication to the receiver's "level complete".
#[derive(Clone, Debug, serde::Serialize)]
pub struct LinkRow {
    /// What the link is like and how much was sent.
    pub test: String,
    /// The link's rate in bits per second; zero where it has no limit.
    pub rate_bps: u64,
    /// The anchor on an idle link.
    pub anchor_alone_ms: f64,
    /// The anchor posted 100 ms after the bulk.
    pub anchor_behind_bulk_ms: f64,
    /// Payload bits per second, of bulk and anchor together, until the last byte is there.
    pub goodput_bps: u64,
}

/// How much is sent over which link.
struct Case {
    /// `None` for the loopback as it is: what the two ends cost.
    link: Option<LinkOptions>,
    anchor: Bytes,
    bulk: Bytes,
    runs: usize,
}

/// Measures head-of-line delay and goodput; `quick` takes about a second instead of about twenty.
///
/// # Errors
/// The link does not come up, or a transfer fails.
pub async fn run(quick: bool) -> Result<Vec<LinkRow>> {
    let mut rows = Vec::new();
    for case in cases(quick) {
        rows.push(measure(&case).await?);
    }
    Ok(rows)
}

fn cases(quick: bool) -> Vec<Case> {
    let gigabit = LinkOptions::new(BitRate::from_megabits_per_second(1000));
    let hundred = LinkOptions::new(BitRate::from_megabits_per_second(100));
    let case = |link, anchor_kib, bulk_mib, runs| Case {
        link,
        anchor: Bytes::from_kib(anchor_kib),
        bulk: Bytes::from_mib(bulk_mib),
        runs,
    };
    if quick {
        return vec![case(Some(gigabit), 2048, 48, 1)];
    }
    vec![
        case(Some(gigabit), 8192, 192, 3),
        case(
            Some(gigabit.with_delay(Duration::from_millis(1))),
            8192,
            192,
            3,
        ),
        case(
            Some(hundred.with_delay(Duration::from_millis(5))),
            1024,
            24,
            3,
        ),
        case(None, 8192, 512, 3),
    ]
}

async fn measure(case: &Case) -> Result<LinkRow> {
    let mut alone = Vec::new();
    let mut behind = Vec::new();
    let mut goodput = Vec::new();
    for _ in 0..case.runs {
        let mut pair = Pair::new(case.link).await?;
        // The first transfer finds the link's rate; it is not measured.
        pair.anchor(TransferId(1), case.anchor).await?;
        alone.push(pair.anchor(TransferId(2), case.anchor).await?);
        let (anchor, all) = pair.anchor_behind_bulk(case).await?;
        behind.push(anchor);
        goodput.push(BitRate::from_delivery(case.anchor + case.bulk, all).bits_per_second());
    }
    let link = match case.link {
        Some(link) => format!("{} at {} ms", link.rate, link.one_way_delay.as_millis()),
        None => "the loopback".to_owned(),
    };
    Ok(LinkRow {
        test: format!("{} anchor, {} bulk, {link}", case.anchor, case.bulk),
        rate_bps: case.link.map_or(0, |link| link.rate.bits_per_second()),
        anchor_alone_ms: median(alone).as_secs_f64() * 1e3,
        anchor_behind_bulk_ms: median(behind).as_secs_f64() * 1e3,
        goodput_bps: median(goodput),
    })
}

/// The median, the upper one of two; the default of no values.
fn median<T: Ord + Copy + Default>(mut values: Vec<T>) -> T {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// Both ends of a link in this process.
struct Pair {
    clock: Clock,
    sender: SenderHandle,
    receiver: ReceiverHandle,
    received: ReceiverEvents,
    /// Held, because the link ends with them.
    _ends: (Option<Relay>, SenderEvents),
}

/// A transfer of equal segments, one per unit.
struct Parcel {
    transfer: TransferId,
    plan: Arc<TransferPlan>,
    segments: Vec<SegmentPayload>,
}

impl Pair {
    async fn new(link: Option<LinkOptions>) -> Result<Self> {
        let clock = Clock::start();
        let config = |name| LinkConfig::new(clock, PeerInfo::new(name));
        let mut listener = Listener::bind(LOOPBACK, config("prefill")?)?;
        let target = listener.address();
        let relay = link
            .map(|link| Relay::start(LOOPBACK, target, link))
            .transpose()?;
        let entrance = relay.as_ref().map_or(target, Relay::address);
        let mut dialler = Dialler::new(entrance, config("decode")?);
        let (accepted, dialled) = tokio::join!(listener.accept(), dialler.connect(PATIENCE));
        let (sender, sent) = accepted.into_sender();
        let book = CreditBook::new(Bytes::from_mib(256));
        let (receiver, received) = dialled?.into_receiver(ReceiverConfig::default(), &book)?;
        Ok(Self {
            clock,
            sender,
            receiver,
            received,
            _ends: (relay, sent),
        })
    }

    /// How long an anchor takes on an idle link.
    async fn anchor(&mut self, transfer: TransferId, length: Bytes) -> Result<Duration> {
        let parcel = Parcel::anchor(transfer, length)?;
        self.offer(&parcel).await?;
        let start = self.clock.now();
        self.publish(parcel)?;
        let [end] = self.level_complete([(transfer, 0)]).await?;
        Ok(end - start)
    }

    /// How long an anchor takes that is posted after a bulk, and both together.
    async fn anchor_behind_bulk(&mut self, case: &Case) -> Result<(Duration, Duration)> {
        let bulk = Parcel::bulk(TransferId(3), case.bulk)?;
        let anchor = Parcel::anchor(TransferId(4), case.anchor)?;
        self.offer(&bulk).await?;
        self.offer(&anchor).await?;
        let start = self.clock.now();
        self.publish(bulk)?;
        tokio::time::sleep(HEAD_START).await;
        let posted = self.clock.now();
        self.publish(anchor)?;
        let levels = [(TransferId(4), 0), (TransferId(3), 1)];
        let [anchor_end, bulk_end] = self.level_complete(levels).await?;
        Ok((anchor_end - posted, bulk_end - start))
    }

    /// Offers a transfer and waits until it is accepted on the receiving side.
    async fn offer(&mut self, parcel: &Parcel) -> Result<()> {
        self.sender.open(OpenTransfer {
            transfer: parcel.transfer,
            descriptor: b""[..].into(),
            plan: Arc::clone(&parcel.plan),
            deadline: self.clock.now() + LIFETIME,
        })?;
        loop {
            if let ReceiverEvent::Offered { transfer, .. } = self.next().await? {
                self.receiver.accept(transfer, Arc::clone(&parcel.plan))?;
                return Ok(());
            }
        }
    }

    fn publish(&self, parcel: Parcel) -> Result<()> {
        let transfer = parcel.transfer;
        let per_unit = parcel.plan.segments();
        for (unit, segments) in (0..).map(UnitIndex).zip(parcel.segments.chunks(per_unit)) {
            self.sender.publish(transfer, unit, segments.to_vec())?;
        }
        Ok(())
    }

    /// When each of these levels of transfers was complete. Segments are dropped as they come: what a merge costs is
    /// another bench.
    async fn level_complete<const N: usize>(
        &mut self,
        wanted: [(TransferId, u8); N],
    ) -> Result<[Timestamp; N]> {
        let mut moments = [Timestamp::NEVER; N];
        while moments.contains(&Timestamp::NEVER) {
            match self.next().await? {
                ReceiverEvent::LevelComplete { transfer, level } => {
                    let now = self.clock.now();
                    for (moment, of) in moments.iter_mut().zip(&wanted) {
                        if *of == (transfer, level) {
                            *moment = now;
                        }
                    }
                }
                ReceiverEvent::Failed(transfer, reason) => {
                    bail!("transfer {transfer} failed: {reason}")
                }
                ReceiverEvent::Broken(reason) => bail!("the link broke: {reason}"),
                _ => {}
            }
        }
        Ok(moments)
    }

    async fn next(&mut self) -> Result<ReceiverEvent> {
        self.received.next().await.context("the link ended early")
    }
}

impl Parcel {
    /// Anchor only, in units of 256 KiB: about a layer of a small model.
    fn anchor(transfer: TransferId, length: Bytes) -> Result<Self> {
        Self::new(transfer, length, 256 << 10, &[0])
    }

    /// An empty anchor and a residual, in units of 1 MiB.
    fn bulk(transfer: TransferId, length: Bytes) -> Result<Self> {
        Self::new(transfer, length, 1 << 20, &[0, 1])
    }

    /// The last of the `levels` has the bytes.
    fn new(transfer: TransferId, length: Bytes, unit: u32, levels: &[u8]) -> Result<Self> {
        let units = u32::try_from(length.get().div_ceil(u64::from(unit)))?;
        let full = levels.len() - 1;
        let bound = |index: usize| if index == full { unit } else { 0 };
        let plan = TransferPlan::new(units, levels, |_, segment| bound(usize::from(segment.0)))?;
        // All units share one memory: what is measured is the way, not the memory at its start.
        let bytes = SharedBytes::from(vec![0x5a; unit as usize]);
        let segments = (0..units as usize * levels.len()).map(|i| SegmentPayload {
            bytes: bytes.slice(..bound(i % levels.len()) as usize),
            checksum: 0,
        });
        Ok(Self {
            transfer,
            plan: Arc::new(plan),
            segments: segments.collect(),
        })
    }
}
