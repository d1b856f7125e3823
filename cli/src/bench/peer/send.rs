//! The end that sends.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use lynx_protocol::sender::{Event, OpenTransfer};
use lynx_transport::{Clock, Dialler, LinkConfig, SenderEvents, SenderHandle, SharedBytes};
use lynx_units::{Priority, Timestamp, TransferId, UnitIndex};
use serde::{Deserialize, Serialize};

use super::payload::{Shape, noise};
use super::{Orders, PATIENCE, cpu_seconds, moment};

/// Longer than any of the transfers here takes.
const LIFETIME: Duration = Duration::from_secs(120);

/// What to send.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Order {
    /// Bytes of residual; none where 0.
    bulk: u32,
    /// Bytes of anchor; none where 0.
    anchor: u32,
    /// How long after the residual the anchor is posted.
    after_s: f64,
    /// What makes the payload another one than the last order's.
    seed: u64,
}

/// What came of it. Times are from handing over the payload to hearing that the receiver has all of it.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Answer {
    #[serde(skip_serializing_if = "Option::is_none")]
    bulk_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    anchor_s: Option<f64>,
    bulk_posted_at: f64,
    anchor_posted_at: f64,
    cpu_s: f64,
    bulk_crc: u32,
    anchor_crc: u32,
}

/// What the receiver says of itself.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Hello {
    address: SocketAddr,
}

pub(super) async fn run(clock: Clock, config: LinkConfig, orders: &mut Orders) -> Result<()> {
    let hello: Hello = orders.next().await?.context("no receiver's hello")?;
    let mut dialler = Dialler::new(hello.address, config);
    let (handle, events) = dialler.connect(PATIENCE).await?.into_sender();
    let mut end = Sending {
        clock,
        handle,
        events,
        last: 0,
        started: Vec::new(),
    };
    orders.answer(&serde_json::json!({ "ready": true })).await?;
    while let Some(order) = orders.next().await? {
        let answer = end.carry_out(order).await?;
        orders.answer(&answer).await?;
    }
    Ok(())
}

struct Sending {
    clock: Clock,
    handle: SenderHandle,
    events: SenderEvents,
    last: u64,
    /// Transfers whose payload has been handed over, and when.
    started: Vec<(TransferId, Timestamp)>,
}

/// A transfer that the receiver has accepted.
struct Ready {
    transfer: TransferId,
    shape: Shape,
    payload: SharedBytes,
}

impl Sending {
    async fn carry_out(&mut self, order: Order) -> Result<Answer> {
        let bulk = self
            .prepare(Priority::Residual, order.bulk, order.seed)
            .await?;
        let anchor = self
            .prepare(Priority::Anchor, order.anchor, !order.seed)
            .await?;
        let mut answer = Answer::default();
        let cpu = cpu_seconds();
        if let Some(bulk) = &bulk {
            answer.bulk_posted_at = moment();
            self.post(bulk)?;
        }
        if let (Some(_), Some(_)) = (&bulk, &anchor) {
            tokio::time::sleep(Duration::from_secs_f64(order.after_s)).await;
        }
        if let Some(anchor) = &anchor {
            answer.anchor_posted_at = moment();
            self.post(anchor)?;
        }
        while !self.started.is_empty() {
            let (transfer, took) = self.complete().await?;
            if bulk.as_ref().is_some_and(|bulk| bulk.transfer == transfer) {
                answer.bulk_s = Some(took);
            } else {
                answer.anchor_s = Some(took);
            }
        }
        answer.cpu_s = cpu_seconds() - cpu;
        let crc = |ready: Option<Ready>| ready.map_or(0, |ready| crc32c::crc32c(&ready.payload));
        answer.bulk_crc = crc(bulk);
        answer.anchor_crc = crc(anchor);
        Ok(answer)
    }

    /// Opens a transfer, and waits until it is accepted.
    async fn prepare(
        &mut self,
        priority: Priority,
        bytes: u32,
        seed: u64,
    ) -> Result<Option<Ready>> {
        if bytes == 0 {
            return Ok(None);
        }
        let shape = Shape { priority, bytes };
        self.last += 1;
        let transfer = TransferId(self.last);
        self.handle.open(OpenTransfer {
            transfer,
            descriptor: shape.descriptor().into(),
            plan: shape.plan()?,
            deadline: self.clock.now() + LIFETIME,
        })?;
        let payload = noise(bytes as usize, seed);
        match self.next().await? {
            Event::Accepted(accepted) if accepted == transfer => Ok(Some(Ready {
                transfer,
                shape,
                payload,
            })),
            other => bail!("the receiver did not accept: {other:?}"),
        }
    }

    fn post(&mut self, ready: &Ready) -> Result<()> {
        self.started.push((ready.transfer, self.clock.now()));
        for unit in (0..ready.shape.bytes.div_ceil(ready.shape.unit())).map(UnitIndex) {
            let segments = ready.shape.segments(&ready.payload, unit);
            self.handle.publish(ready.transfer, unit, segments)?;
        }
        Ok(())
    }

    /// The next transfer that the receiver has all of, and how many seconds it took.
    async fn complete(&mut self) -> Result<(TransferId, f64)> {
        match self.next().await? {
            Event::Complete(transfer) => {
                let now = self.clock.now();
                let at = self.started.iter().position(|(of, _)| *of == transfer);
                let (_, start) = self
                    .started
                    .swap_remove(at.context("a transfer of nobody's")?);
                Ok((transfer, (now - start).as_secs_f64()))
            }
            other => bail!("a transfer did not complete: {other:?}"),
        }
    }

    async fn next(&mut self) -> Result<Event> {
        self.events.next().await.context("the link ended early")
    }
}
