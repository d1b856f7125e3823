//! The end that receives: every byte to its place in memory of its own, as a merge would.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use lynx_protocol::CreditBook;
use lynx_protocol::receiver::ReceiverConfig;
use lynx_transport::{Connected, LinkConfig, Listener, ReceiverEvent, ReceiverHandle};
use lynx_units::{Bytes, Priority, TransferId, UnitIndex};
use serde::{Deserialize, Serialize};

use super::payload::Shape;
use super::{Orders, cpu_seconds, moment};

/// Memory for the windows of a few links.
const BUDGET: Bytes = Bytes::from_mib(1024);

/// "Say what you have": the only order that a receiver gets.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Order {}

/// What came since the last order.
#[derive(Clone, Debug, Default, Serialize)]
struct Answer {
    cpu_s: f64,
    /// Checksums of what is complete, in no order.
    crcs: Vec<u32>,
    placed_at: PlacedAt,
}

/// When the last bytes were in their place.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct PlacedAt {
    bulk: f64,
    anchor: f64,
}

/// What nobody has asked about yet.
#[derive(Debug, Default)]
struct Arrivals {
    underway: usize,
    complete: Vec<Vec<u8>>,
    /// Memory of earlier orders, cleared: the other peers' is registered, and there, before they start.
    spare: Vec<Vec<u8>>,
    placed_at: PlacedAt,
}

type Shared = Arc<Mutex<Arrivals>>;

fn lock(arrivals: &Mutex<Arrivals>) -> MutexGuard<'_, Arrivals> {
    arrivals.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Arrivals {
    fn memory(&mut self, length: usize) -> Vec<u8> {
        let fits = self.spare.iter().position(|memory| memory.len() == length);
        fits.map_or_else(|| vec![0; length], |at| self.spare.swap_remove(at))
    }

    /// Checksums of all that is complete; its memory is spare then.
    fn check(&mut self) -> Vec<u32> {
        let crc = |mut memory: Vec<u8>| {
            let crc = crc32c::crc32c(&memory);
            // What is checked next time has to have come again.
            memory.fill(0);
            self.spare.push(memory);
            crc
        };
        std::mem::take(&mut self.complete)
            .into_iter()
            .map(crc)
            .collect()
    }
}

pub(super) async fn run(listen: SocketAddr, config: LinkConfig, orders: &mut Orders) -> Result<()> {
    let mut listener = Listener::bind(listen, config)?;
    let address = listener.address().to_string();
    orders
        .answer(&serde_json::json!({ "hello": { "address": address } }))
        .await?;
    let book = CreditBook::new(BUDGET);
    let arrivals = Shared::default();
    let mut links = tokio::task::JoinSet::new();
    let mut cpu = cpu_seconds();
    loop {
        tokio::select! {
            connected = listener.accept() => {
                links.spawn(serve(connected, Arc::clone(&book), Arc::clone(&arrivals)));
            }
            Some(ended) = links.join_next() => ended??,
            order = orders.next::<Order>() => {
                let Some(Order {}) = order? else { return Ok(()) };
                // A sender hears that all has come a moment before the last of it is in its place.
                while lock(&arrivals).underway > 0 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                let cpu_s = cpu_seconds() - cpu;
                let answer = {
                    let mut arrivals = lock(&arrivals);
                    let placed_at = std::mem::take(&mut arrivals.placed_at);
                    Answer { cpu_s, crcs: arrivals.check(), placed_at }
                };
                orders.answer(&answer).await?;
                cpu = cpu_seconds();
            }
        }
    }
}

/// Receives on one link until its sender closes it.
async fn serve(connected: Connected, book: Arc<CreditBook>, arrivals: Shared) -> Result<()> {
    let (handle, mut events) = connected.into_receiver(ReceiverConfig::default(), &book)?;
    let mut arriving = HashMap::new();
    while let Some(event) = events.next().await {
        match event {
            ReceiverEvent::Broken(_) => break,
            event => on_event(event, &handle, &mut arriving, &arrivals)?,
        }
    }
    Ok(())
}

fn on_event(
    event: ReceiverEvent,
    handle: &ReceiverHandle,
    arriving: &mut HashMap<TransferId, (Shape, Vec<u8>)>,
    arrivals: &Mutex<Arrivals>,
) -> Result<()> {
    match event {
        ReceiverEvent::Offered {
            transfer,
            descriptor,
            ..
        } => {
            let shape = Shape::of_descriptor(&descriptor)?;
            let mut arrivals = lock(arrivals);
            arrivals.underway += 1;
            let memory = arrivals.memory(shape.bytes as usize);
            drop(arrivals);
            arriving.insert(transfer, (shape, memory));
            handle.accept(transfer, shape.plan()?)?;
        }
        ReceiverEvent::SegmentComplete {
            transfer,
            unit,
            bytes,
            ..
        } => place(arriving, transfer, unit, &bytes)?,
        ReceiverEvent::Complete(transfer) => {
            let (shape, bytes) = arriving.remove(&transfer).context("nobody's transfer")?;
            let mut arrivals = lock(arrivals);
            arrivals.underway -= 1;
            arrivals.complete.push(bytes);
            match shape.priority {
                Priority::Anchor => arrivals.placed_at.anchor = moment(),
                Priority::Residual => arrivals.placed_at.bulk = moment(),
            }
        }
        ReceiverEvent::Failed(_, reason) | ReceiverEvent::Cancelled(_, reason) => {
            bail!("a transfer failed: {reason}")
        }
        ReceiverEvent::LevelComplete { .. } | ReceiverEvent::Broken(_) => {}
    }
    Ok(())
}

fn place(
    arriving: &mut HashMap<TransferId, (Shape, Vec<u8>)>,
    transfer: TransferId,
    unit: UnitIndex,
    bytes: &[u8],
) -> Result<()> {
    // The anchor of a residual is empty, and has no place.
    if bytes.is_empty() {
        return Ok(());
    }
    let (shape, memory) = arriving.get_mut(&transfer).context("nobody's segment")?;
    let place = memory
        .get_mut(shape.range(unit))
        .context("a unit too many")?;
    if place.len() != bytes.len() {
        bail!(
            "a segment of {} bytes where {} go",
            bytes.len(),
            place.len()
        );
    }
    place.copy_from_slice(bytes);
    Ok(())
}
