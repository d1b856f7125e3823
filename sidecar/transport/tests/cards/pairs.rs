//! Two queue pairs of a real card, as a link's stream uses them.

use std::future::poll_fn;
use std::time::Duration;

use lynx_transport::rdma::{Adapter, Cards, Completion, Queue, Route, Sizes, Source};
use lynx_units::{Bytes, Priority};
use lynx_verbs::{Choice, Path};
use tokio::time::timeout;

const SIZES: Sizes = Sizes {
    ring: 1 << 20,
    staging: 1 << 18,
    sends: 16,
    receives: 16,
};

async fn next(queue: &mut dyn Queue) -> Completion {
    let waited = timeout(Duration::from_secs(60), async {
        loop {
            if let Some(completion) = queue.poll() {
                return completion;
            }
            poll_fn(|context| queue.poll_ready(context)).await;
        }
    });
    waited.await.unwrap()
}

#[tokio::test]
async fn a_cards_pairs_write_announce_and_notice_the_others_end() {
    let impatient = Path {
        timeout: 10,
        retries: 2,
        ..Path::default()
    };
    let address = "192.168.77.1".parse().unwrap();
    let cards = Cards::new(Choice::default(), [impatient; 2], Bytes::from_mib(3));
    let route = Route {
        peer: address,
        own: address,
    };
    let mut a = cards.queue(route, Priority::Anchor, SIZES).unwrap();
    let mut b = cards.queue(route, Priority::Anchor, SIZES).unwrap();
    let error = cards.queue(route, Priority::Anchor, SIZES).unwrap_err();
    assert!(
        error.to_string().contains("transfer.rdma.memory"),
        "{error}"
    );
    a.connect(&b.endpoint()).unwrap();
    b.connect(&a.endpoint()).unwrap();
    // More rounds than receives and sends, so that both come back.
    for round in 0_u32..40 {
        let filling = round.to_le_bytes()[0];
        a.staging(0..1000).fill(filling);
        a.write((0..900).into(), 5000).unwrap();
        a.write_with((900..1000).into(), 5900, round, true).unwrap();
        assert_eq!(next(&mut *b).await, Completion::Received(round));
        let mut arrived = [0; 1000];
        b.copy_out(5000, &mut arrived);
        assert_eq!(arrived, [filling; 1000]);
        assert_eq!(next(&mut *a).await, Completion::Sent);
        b.write_with(Source::default(), 0, 1 << 31, round % 8 == 0)
            .unwrap();
        assert_eq!(next(&mut *a).await, Completion::Received(1 << 31));
        if round % 8 == 0 {
            assert_eq!(next(&mut *b).await, Completion::Sent);
        }
    }
    drop(b);
    for told in [false, false, true] {
        a.write_with((0..10).into(), 0, 1, told).unwrap();
    }
    // Each that was posted, told or not, and the receives; then the card is known to read nothing.
    let mut failed = 0;
    loop {
        match next(&mut *a).await {
            Completion::Failed(_) => failed += 1,
            Completion::Flushed => break,
            other => panic!("{other:?}"),
        }
    }
    assert!(failed >= 3, "{failed}");
}
