//! Links by RDMA, on a model of the cards, and by TCP where that can't be had.

use lynx_transport::emulate::Fabric;
use lynx_transport::{Dialler, LinkConfig, Listener, PeerInfo};

use super::*;
use crate::carriage::{Carriage, Carried, few_cards};
use crate::testing::soon;

fn on(fabric: &Fabric) -> Carriage {
    Carriage::by(fabric.adapter(), false)
}

/// How a link is carried both ends of which have this.
async fn carried_by(carriage: &Carriage) -> Carried {
    let config = || {
        let config = LinkConfig::new(Clock::start(), PeerInfo::new("an agent")).unwrap();
        carriage.carry(config, &Arc::default(), None)
    };
    let mut listener = Listener::bind("127.0.0.1:0".parse().unwrap(), config()).unwrap();
    let mut dialler = Dialler::new(listener.address(), config());
    let (accepted, dialled) =
        tokio::join!(listener.accept(), dialler.connect(Duration::from_secs(20)));
    let ends =
        [&accepted, &dialled.unwrap()].map(|end| Carried::of(end, &Security::default(), carriage));
    assert_eq!(ends[0], ends[1]);
    let [carried, _] = ends;
    carried
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_rdma_the_very_bits_come_and_the_link_is_told_as_such() {
    let fabric = Fabric::new(11);
    let (world, link) = World::carried([on(&fabric), on(&fabric)]).await;
    assert_eq!((link.transport.as_str(), link.error.as_str()), ("RDMA", ""));
    let answer = finish(world.generate(None)).await;
    assert_eq!(answer.tokens[..2], [FIRST, 101]);
    assert!(equal(&world, 1));
    assert_eq!(world.counters.transfers_complete.get(), 1);
    assert_eq!(world.counters.links.sums().without_rdma, 0);
    assert!(fabric.counts().bytes > world.counters.residual_bytes.get());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_that_has_to_do_without_rdma_works_and_says_why() {
    let (fabric, full) = (Fabric::new(12), Fabric::new(13));
    full.set_out(true);
    for (carriages, why) in [
        ([on(&fabric), on(&full)], "no room for a queue pair"),
        (
            [on(&full), on(&fabric)],
            "of the peer: the model has no room",
        ),
        ([Carriage::default(), on(&fabric)], "takes no part in RDMA"),
    ] {
        let (world, link) = World::carried(carriages).await;
        assert_eq!(link.transport, "TCP");
        assert!(link.error.contains(why), "{}", link.error);
        assert_eq!(world.counters.links.sums().without_rdma, 1);
        finish(world.generate(None)).await;
        assert!(equal(&world, 1));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_that_loses_a_card_goes_on_by_the_other_and_it_is_counted() {
    let fabric = Fabric::with_cards(16, 2);
    let (world, _) = World::carried([on(&fabric), on(&fabric)]).await;
    let links = &world.counters.links;
    finish(world.generate(None)).await;
    assert_eq!(links.sums().rails_lost, 0);
    fabric.fail_card(1);
    let lost = async {
        while links.sums().rails_lost == 0 {
            tokio::task::yield_now().await;
        }
    };
    soon(lost).await;
    finish(world.generate(None)).await;
    assert!(equal(&world, 2));
    let sums = links.sums();
    assert_eq!((sums.opened, sums.ended), (1, 0));
}

#[test]
fn a_link_that_begins_with_fewer_cards_than_it_may_have_is_told() {
    let [one, two] = [Fabric::with_cards(17, 1), Fabric::with_cards(18, 2)];
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for (fabric, rails, told) in [(&one, 1, None), (&two, 2, None), (&one, 2, Some([1, 2]))] {
        let carriage = on(fabric).expecting(rails);
        let carried = runtime.block_on(carried_by(&carriage));
        assert_eq!((carried.by, carried.few_cards), ("RDMA", told));
    }
    let few = few_cards([1, 2]);
    assert!(
        few.contains("1 of 2") && few.contains("lynx doctor rdma"),
        "{few}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_rdma_is_required_a_peer_without_it_is_no_peer_and_the_engine_computes() {
    let fabric = Fabric::new(14);
    let only = Carriage::by(fabric.adapter(), true);
    let mut world = World::without_engine(|own| own.carriage = only).await;
    world.attach().await;
    let link = world.linked(false).await;
    assert!(link.error.contains("no link by RDMA"), "{}", link.error);
    assert_eq!(finish(world.generate(None)).await.tokens, COMPUTED);
    assert_eq!(world.counters.kv_failures.of(KvFailure::NoPeer).get(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cable_that_is_pulled_costs_a_transfer_and_the_next_comes_by_what_there_is() {
    let fabric = Fabric::new(15);
    let (mut world, _) = World::carried([on(&fabric), on(&fabric)]).await;
    world.prefill().set_fault(Fault::Stall);
    let stalled = world.generate(None);
    let accepted = |event: &lynx_protocol::sender::Event| {
        matches!(event, lynx_protocol::sender::Event::Accepted(_))
    };
    world.prefill().happens(accepted).await;
    fabric.set_out(true);
    fabric.fail();
    let answer = finish(stalled).await;
    assert_eq!(answer.tokens[answer.tokens.len() - 2..], COMPUTED[1..]);
    assert_eq!(world.counters.kv_failures.of(KvFailure::Link).get(), 1);
    world.linked_anew(2).await;
    world.prefill().set_fault(Fault::None);
    finish(world.generate(None)).await;
    assert!(equal(&world, 2));
    assert_eq!(world.counters.links.sums().without_rdma, 1);
}
