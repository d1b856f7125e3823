//! A link over both cards, one of which fails in the middle.

use std::io;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use lynx_transport::emulate::LentPool;
use lynx_transport::rdma::{
    Adapter, Cards, Completion, Endpoint, Lendable, Lending, Loss, Queue, Route, Sizes, Source,
};
use lynx_transport::{Clock, LinkConfig, ReceiverEvent};
use lynx_units::{Bytes, Priority, TransferId};
use lynx_verbs::Path;

use super::lending::{PIECES, UNITS, publish};
use super::pair::{FAST, KIB, MIB, Pair, Shape, bare, payload, soon};

/// The second card's address.
const SECOND: [u8; 4] = [192, 168, 78, 1];
/// After so many writes by its second card a side ends that one's queue pair.
const WRITES: usize = 5;

/// Cards the second of which fails.
#[derive(Debug)]
struct Failing {
    cards: Cards,
    failed: AtomicUsize,
    losses: Mutex<Vec<Loss>>,
}

/// A queue pair of the second card, and how many writes went by it.
#[derive(Debug)]
struct Second {
    queue: Box<dyn Queue>,
    writes: usize,
    of: Arc<Failing>,
}

static CARDS: LazyLock<Arc<Failing>> = LazyLock::new(|| {
    let memory = Bytes::from_mib(256);
    let cards = Cards::new(super::CARD.parse().unwrap(), [Path::default(); 2], memory);
    Arc::new(Failing {
        cards: cards.with_rails(2).with_lent(Bytes::from_mib(256)),
        failed: AtomicUsize::new(0),
        losses: Mutex::default(),
    })
});

/// With cards that both sides have; the sender's read payload from the pool.
fn over_both(pool: &Arc<LentPool>, clock: Clock, name: &str) -> LinkConfig {
    let shared: Arc<dyn Adapter> = Arc::new(Shared(Arc::clone(&CARDS)));
    let adapter = match name {
        "prefill" => Arc::new(Lending::new(shared, Arc::clone(pool) as _)),
        _ => shared,
    };
    bare(clock, name)
        .with_adapter(Some(adapter))
        .requiring_rdma(true)
}

#[derive(Debug)]
struct Shared(Arc<Failing>);

impl Adapter for Shared {
    fn queue(&self, route: Route, on: Priority, sizes: Sizes) -> io::Result<Box<dyn Queue>> {
        self.0.cards.queue(route, on, sizes)
    }

    fn others(&self, first: &Endpoint) -> Vec<Route> {
        self.0.cards.others(first)
    }

    fn towards(&self, there: &Endpoint) -> Option<Route> {
        self.0.cards.towards(there)
    }

    fn not_lent(&self, why: &io::Error) {
        panic!("{why}");
    }

    fn lost(&self, loss: &Loss) {
        self.0.losses.lock().unwrap().push(loss.clone());
    }

    fn rail(&self, route: Route, on: Priority, sizes: Sizes) -> io::Result<Box<dyn Queue>> {
        assert_eq!(route.own, IpAddr::from(SECOND));
        Ok(Box::new(Second {
            queue: self.0.cards.rail(route, on, sizes)?,
            writes: 0,
            of: Arc::clone(&self.0),
        }))
    }
}

impl Queue for Second {
    fn endpoint(&self) -> Endpoint {
        self.queue.endpoint()
    }

    fn connect(&mut self, peer: &Endpoint) -> io::Result<()> {
        self.queue.connect(peer)
    }

    fn staging(&mut self, part: Range<usize>) -> &mut [u8] {
        self.queue.staging(part)
    }

    fn copy_out(&self, from: usize, into: &mut [u8]) {
        self.queue.copy_out(from, into);
    }

    fn lend(&mut self, memory: &Arc<dyn Lendable>) -> io::Result<()> {
        self.queue.lend(memory)
    }

    fn lent(&self, bytes: &[u8]) -> Option<Range<usize>> {
        self.queue.lent(bytes)
    }

    fn write(&mut self, from: Source, to: u32) -> io::Result<()> {
        self.queue.write(from, to)
    }

    fn write_with(&mut self, from: Source, to: u32, immediate: u32, told: bool) -> io::Result<()> {
        self.writes += usize::from(!from.is_empty());
        self.queue.write_with(from, to, immediate, told)?;
        if self.writes == WRITES {
            self.of.failed.fetch_add(1, Ordering::Relaxed);
            self.queue.end();
        }
        Ok(())
    }

    fn end(&mut self) {
        self.queue.end();
    }

    fn poll(&mut self) -> Option<Completion> {
        self.queue.poll()
    }

    fn poll_ready(&self, context: &mut Context<'_>) -> Poll<()> {
        self.queue.poll_ready(context)
    }
}

#[tokio::test]
async fn a_link_over_two_cards_outlives_one_of_them_and_every_byte_arrives() {
    let pool = LentPool::new(PIECES, MIB as usize);
    let over_both = |clock, name: &str| over_both(&pool, clock, name);
    let mut pair = Pair::with_config(FAST, Bytes::from_mib(16), over_both).await;
    let shape = Shape {
        units: UNITS,
        segments: vec![(0, 64 * KIB), (1, MIB)],
    };
    let transfer = TransferId(1);
    pair.open(transfer, &shape, Duration::from_secs(60)).await;
    publish(&pair, &pool, transfer, &shape);
    let mut segments = 0;
    loop {
        match soon(pair.received.next()).await.unwrap() {
            ReceiverEvent::SegmentComplete {
                unit,
                segment,
                bytes,
                ..
            } => {
                let sent = payload(&shape, transfer, unit, segment);
                assert!(*bytes == *sent.bytes, "unit {unit} segment {segment}");
                segments += 1;
            }
            ReceiverEvent::Complete(_) => break,
            ReceiverEvent::Failed(_, reason) => panic!("{reason}"),
            _ => {}
        }
    }
    assert_eq!(segments, 2 * shape.units);
    assert!(
        CARDS.failed.load(Ordering::Relaxed) > 0,
        "the second card was used"
    );
    let losses = CARDS.losses.lock().unwrap();
    assert!(!losses.is_empty());
    for loss in &*losses {
        assert_eq!(loss.card, IpAddr::from(SECOND), "{loss:?}");
        assert_eq!(loss.left, 1, "{loss:?}");
        assert!(!loss.why.is_empty(), "{loss:?}");
    }
}
