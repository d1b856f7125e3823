//! Payload that cards read where it lies.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use lynx_transport::emulate::LentPool;
use lynx_transport::rdma::{Adapter, Lending, Queue, Route, Sizes};
use lynx_transport::{ReceiverEvent, SegmentPayload, SharedBytes};
use lynx_units::{Bytes, Priority, SegmentIndex, TransferId, UnitIndex};

use super::pair::{FAST, KIB, MIB, Pair, Shape, bare, payload, soon};

/// Each of two segments.
pub(crate) const UNITS: u32 = 6;
pub(crate) const PIECES: usize = 12;

/// Cards that can be lent memory, or nothing is proven.
#[derive(Debug)]
struct Strict(Arc<dyn Adapter>);

impl Adapter for Strict {
    fn queue(&self, route: Route, on: Priority, sizes: Sizes) -> io::Result<Box<dyn Queue>> {
        self.0.queue(route, on, sizes)
    }

    fn not_lent(&self, why: &io::Error) {
        panic!("{why}");
    }
}

/// A transfer's payload, in pieces of the pool.
pub(crate) fn publish(pair: &Pair, pool: &Arc<LentPool>, transfer: TransferId, shape: &Shape) {
    for unit in (0..shape.units).map(UnitIndex) {
        let segments = [0, 1].map(|index| {
            let SegmentPayload { bytes, checksum } =
                payload(shape, transfer, unit, SegmentIndex(index));
            let taken = pool.take(bytes.len(), |piece| piece.copy_from_slice(&bytes));
            SegmentPayload {
                bytes: taken.expect("a piece is free"),
                checksum,
            }
        });
        let published = pair.sender.publish(transfer, unit, segments.into());
        published.unwrap();
    }
}

async fn given_back(pool: &LentPool) {
    soon(async {
        while pool.free() < PIECES {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// A piece is spoilt once it is given back, and belongs to the next transfer.
#[tokio::test]
async fn payload_in_lent_memory_arrives_as_it_was_also_where_transfers_are_cancelled() {
    let pool = LentPool::new(PIECES, MIB as usize);
    let lender = Arc::new(Lending::new(
        Arc::new(Strict(super::adapter())),
        Arc::clone(&pool) as _,
    ));
    let mut pair = Pair::with_config(FAST, Bytes::from_mib(16), |clock, name| {
        let config = bare(clock, name).requiring_rdma(true);
        config.with_adapter(Some(match name {
            "prefill" => Arc::clone(&lender) as _,
            _ => super::adapter(),
        }))
    })
    .await;
    let shape = Shape {
        units: UNITS,
        segments: vec![(0, 300 * KIB), (1, MIB)],
    };
    let mut arrived = 0;
    for number in 1..=6 {
        let transfer = TransferId(number);
        let is_cancelled = number % 2 == 1;
        pair.open(transfer, &shape, Duration::from_secs(60)).await;
        publish(&pair, &pool, transfer, &shape);
        loop {
            match soon(pair.received.next()).await.unwrap() {
                ReceiverEvent::SegmentComplete {
                    transfer,
                    unit,
                    segment,
                    bytes,
                    ..
                } => {
                    let sent: SharedBytes = payload(&shape, transfer, unit, segment).bytes;
                    assert!(*bytes == *sent, "transfer {transfer} unit {unit}");
                    arrived += u32::from(!is_cancelled);
                    if is_cancelled {
                        // Another time is too late, and does nothing.
                        pair.sender.cancel(transfer, "the client has left").unwrap();
                    }
                }
                ReceiverEvent::Complete(_) | ReceiverEvent::Cancelled(..) => break,
                ReceiverEvent::Failed(_, reason) => panic!("{reason}"),
                _ => {}
            }
        }
        given_back(&pool).await;
    }
    assert_eq!(arrived, 3 * 2 * shape.units);
}
