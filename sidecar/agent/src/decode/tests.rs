//! The whole role over real sockets, with everything that can go wrong.

mod carrying;
mod choosing;
mod engine;
mod leaving;
mod overtaking;
mod prefill;
mod served;
mod world;

use std::time::Duration;

use lynx_proto::engine::v1::from_agent;
use lynx_proto::operator::v1::{self as operator, ClassWidth};

use self::engine::COMPUTED;
use self::prefill::{FIRST, Fault};
use self::world::{TOKENS, World, equal, finish, refusal, request};
use super::*;
use crate::counters::KvFailure;
use crate::method::Method;
use crate::requests::{Finish, Generate, Input};
use crate::timeline::{Class, Event};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_drafts_on_the_anchor_and_ends_on_the_very_bits_of_the_prefill_engine() {
    let world = World::start().await;
    let answer = finish(world.generate(None)).await;
    assert_eq!(answer.tokens[..2], [FIRST, 101]);
    assert_eq!(answer.finish, Finish::Length);
    assert!(answer.has_anchor && equal(&world, 1));
    assert_eq!(answer.memory[0], Some(1234));
    let said = world.engine().said();
    let full = said.iter().find_map(|said| match said {
        from_agent::Kind::FullReady(full) => Some(full.exact),
        _ => None,
    });
    assert_eq!(full, Some(true));
    assert!(
        said.iter()
            .any(|said| matches!(said, from_agent::Kind::AnchorReady(_)))
    );
    let happened = |is: fn(&Event) -> bool| answer.events.iter().any(is);
    assert!(happened(|event| matches!(
        event,
        Event::PrefillLayer { .. }
    )));
    assert!(happened(|event| matches!(
        event,
        Event::LevelComplete { level: 0, .. }
    )));
    assert!(happened(|event| matches!(event, Event::AnchorReady { .. })));
    assert!(happened(|event| matches!(event, Event::FullReady { .. })));
    let sent = |class| {
        let sent = answer
            .events
            .iter()
            .rev()
            .find_map(move |event| match event {
                Event::Sent {
                    priority, bytes, ..
                } if *priority == class => Some(*bytes),
                _ => None,
            });
        sent.unwrap()
    };
    let (anchor, residual) = (sent(Class::Anchor), sent(Class::Residual));
    let counters = &world.counters;
    assert!(anchor > counters.anchor_bytes.get() && anchor < 2 * counters.anchor_bytes.get());
    assert!(residual > counters.residual_bytes.get());
    assert_eq!(counters.transfers_complete.get(), 1);
    assert_eq!(counters.time_to_anchor.count(), 1);
    assert!(counters.time_to_full.sum_nanos() >= counters.time_to_anchor.sum_nanos());
    let asked = &world.prefill().asked()[0];
    let ticket = lynx_transport::Ticket::parse(&asked.link);
    assert!(ticket.is_some(), "the link is named by its ticket");
    assert_eq!(asked.tokens.len(), TOKENS as usize);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn methods_without_an_anchor_tell_the_engine_of_everything_at_once() {
    let world = World::start().await;
    for (method, exact) in [
        (Method::Bf16, true),
        (Method::Int8, false),
        (Method::Int4, false),
    ] {
        let answer = finish(world.generate(Some(method))).await;
        assert!(!answer.has_anchor);
        let said = world.engine().said();
        assert!(
            !said
                .iter()
                .any(|said| matches!(said, from_agent::Kind::AnchorReady(_)))
        );
        let last = said.iter().rev().find_map(|said| match said {
            from_agent::Kind::FullReady(full) => Some((full.request, full.exact)),
            _ => None,
        });
        let (number, is_exact) = last.unwrap();
        assert_eq!(is_exact, exact);
        assert_eq!(equal(&world, number), exact, "{method}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_requests_at_once_get_their_own_blocks() {
    let world = World::with(|settings| settings.queue = 12).await;
    let answers: Vec<_> = (0..12).map(|_| world.generate(None)).collect();
    for answer in answers {
        finish(answer).await;
    }
    // Eight at a time: the others were refused at first, and came again under other numbers.
    let full = world
        .engine()
        .said()
        .into_iter()
        .filter_map(|said| match said {
            from_agent::Kind::FullReady(full) => Some(full.request),
            _ => None,
        });
    let full: Vec<u64> = full.collect();
    assert_eq!(full.len(), 12);
    assert!(full.into_iter().all(|number| equal(&world, number)));
    let mut in_flight = world.drain.in_flight();
    in_flight.wait_for(|count| *count == 0).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_segment_with_a_wrong_checksum_is_not_merged_and_the_engine_computes() {
    let world = World::start().await;
    world.prefill().set_fault(Fault::Checksum);
    world.falls_back(KvFailure::Content, "checksum").await;
    world.prefill().set_fault(Fault::None);
    finish(world.generate(None)).await;
    assert!(equal(&world, 2), "the next one is whole");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_offer_of_something_else_is_rejected_and_the_engine_computes() {
    let world = World::start().await;
    world.prefill().set_fault(Fault::Offer);
    world
        .falls_back(KvFailure::Content, "not what was asked for")
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prefill_agent_that_fails_midway_leaves_the_engine_to_compute() {
    let world = World::start().await;
    world.prefill().set_fault(Fault::Error);
    world.falls_back(KvFailure::Peer, "the engine broke").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_that_is_lost_midway_leaves_the_engine_to_compute_and_comes_back() {
    let mut world = World::start().await;
    world.prefill().set_fault(Fault::Cut);
    world.falls_back(KvFailure::Link, "shutdown").await;
    world.prefill().set_fault(Fault::None);
    world.linked_anew(2).await;
    finish(world.generate(None)).await;
    assert!(equal(&world, 2), "the next one comes in a new epoch");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kv_that_does_not_come_in_time_is_given_up() {
    for fault in [Fault::Stall, Fault::Silent] {
        let deadline = Duration::from_millis(300);
        let world = World::with(|settings| settings.transfer.deadline = deadline).await;
        world.prefill().set_fault(fault);
        world.falls_back(KvFailure::Deadline, "in time").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prefill_agent_that_takes_nothing_new_is_left_alone() {
    let world = World::start().await;
    world.prefill().set_fault(Fault::Busy);
    world.falls_back(KvFailure::Peer, "being drained").await;
    let answer = finish(world.generate(None)).await;
    assert_eq!(answer.tokens, COMPUTED, "computed without asking");
    assert_eq!(world.prefill().asked().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_any_prefill_agent_the_engine_computes() {
    let mut world = World::start().await;
    world.prefill = None;
    world.linked(false).await;
    let answer = finish(world.generate(None)).await;
    assert_eq!(answer.tokens, COMPUTED);
    let said = world.engine().said();
    assert!(
        said.iter()
            .all(|said| !matches!(said, from_agent::Kind::KvFailed(_)))
    );
    assert_eq!(world.counters.requests_local.get(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_goes_away_aborts_its_request_and_its_transfer() {
    let world = World::start().await;
    world.prefill().set_fault(Fault::Stall);
    let answer = world.generate(None);
    world
        .engine()
        .wait(|said| matches!(said, from_agent::Kind::FirstToken(_)))
        .await;
    drop(answer);
    world
        .engine()
        .wait(|said| matches!(said, from_agent::Kind::Abort(_)))
        .await;
    world.drain.begin(Duration::from_secs(60));
    assert_eq!(world.drain.finished().await, 0, "nothing stays in flight");
    assert_eq!(world.counters.transfers_cancelled.get(), 1);
    assert_eq!(world.counters.requests_aborted.get(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_whose_first_token_is_its_last_lets_go_of_its_blocks() {
    let world = World::start().await;
    world.prefill().set_fault(Fault::Stall);
    let wanted = Generate {
        max_tokens: 1,
        ..request(None)
    };
    let answer = finish(world.requests.generate(wanted)).await;
    assert_eq!(answer.tokens, [FIRST]);
    world
        .engine()
        .wait(|said| matches!(said, from_agent::Kind::Abort(_)))
        .await;
    world.drain.begin(Duration::from_secs(60));
    assert_eq!(world.drain.finished().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_grant_nothing_is_written_into_blocks_that_the_engine_reads() {
    let world = World::start().await;
    world.engine().set_grants(false);
    let answer = world.generate(None);
    let wanted = |said: &from_agent::Kind| matches!(said, from_agent::Kind::WantGrant(_));
    world.engine().wait(wanted).await;
    let before = std::fs::read(world.directory.path().join("pool")).unwrap();
    drop(answer);
    world
        .engine()
        .wait(|said| matches!(said, from_agent::Kind::Abort(_)))
        .await;
    let after = std::fs::read(world.directory.path().join("pool")).unwrap();
    assert!(before == after);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_the_engine_has_no_room_for_wait_up_to_a_bound_and_keep_their_order() {
    let world = World::start().await;
    world.engine().set_room(1);
    world.prefill().set_fault(Fault::Stall);
    let first = world.generate(None);
    world
        .engine()
        .wait(|said| matches!(said, from_agent::Kind::FirstToken(_)))
        .await;
    let waiting: Vec<_> = (0..3).map(|_| world.generate(None)).collect();
    let refused = refusal(world.generate(None)).await;
    assert!(matches!(&refused, Refusal::Busy(why) if why.contains("4 requests")));
    world.prefill().set_fault(Fault::None);
    drop(first);
    for answer in waiting {
        finish(answer).await;
    }
    assert_eq!(world.counters.requests_finished.get(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_can_never_be_taken_is_invalid() {
    let world = World::start().await;
    let wanted = Generate {
        input: Arc::new(Input::Text("hello".to_owned())),
        ..request(None)
    };
    let refused = refusal(world.requests.generate(wanted)).await;
    assert_eq!(refused, Refusal::Invalid("only tokens".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_goes_away_fails_its_requests_and_the_next_one_works() {
    let mut world = World::start().await;
    world.prefill().set_fault(Fault::Stall);
    let answer = world.generate(None);
    world
        .engine()
        .wait(|said| matches!(said, from_agent::Kind::FirstToken(_)))
        .await;
    world.engine = None;
    let refused = refusal(answer).await;
    assert!(matches!(refused, Refusal::Unavailable(_)), "{refused}");
    world.status.wait_for(|status| !status.ready).await.unwrap();
    let refused = refusal(world.generate(None)).await;
    assert!(matches!(refused, Refusal::Unavailable(_)), "{refused}");
    world.prefill().set_fault(Fault::None);
    world.attach().await;
    world.linked(true).await;
    finish(world.generate(None)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forgetting_ends_what_runs_and_then_asks_the_engine() {
    let world = World::start().await;
    world.prefill().set_fault(Fault::Stall);
    let answer = world.generate(None);
    world
        .engine()
        .wait(|said| matches!(said, from_agent::Kind::FirstToken(_)))
        .await;
    world.requests.forget().await.unwrap();
    let refused = refusal(answer).await;
    assert!(matches!(refused, Refusal::Failed(_)), "{refused}");
    let said = world.engine().said();
    assert!(matches!(
        said[said.len() - 2..],
        [from_agent::Kind::Abort(_), from_agent::Kind::Forget(_)]
    ));
    let warmed = world.requests.warm(vec![1]).await;
    assert!(matches!(warmed, Err(Refusal::Invalid(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_draining_agent_takes_nothing_and_finishes_what_it_has() {
    let world = World::start().await;
    let answer = world.generate(None);
    world
        .engine()
        .wait(|said| matches!(said, from_agent::Kind::Submit(_)))
        .await;
    world.drain.begin(Duration::from_secs(60));
    let refused = refusal(world.generate(None)).await;
    assert!(matches!(refused, Refusal::Unavailable(_)), "{refused}");
    finish(answer).await;
    assert_eq!(world.drain.finished().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_operator_says_of_peers_and_widths_holds_for_the_next_request() {
    let mut world = World::without_engine(|settings| settings.peers.clear()).await;
    world.attach().await;
    let address = world.prefill().address.to_string();
    let widths = vec![ClassWidth {
        link_class: String::new(),
        anchor_eighths: 48,
    }];
    world.sinks.policy.send_replace(Some(Policy {
        fidelity: operator::Fidelity::Int8.into(),
        widths,
        ..Policy::default()
    }));
    world.sinks.peers.send_replace(Some(vec![PeerAddress {
        pod: "prefill-0".to_owned(),
        address,
        ..PeerAddress::default()
    }]));
    let link = world.linked(true).await;
    assert_eq!(link.peer, "prefill-0");
    finish(world.generate(None)).await;
    let coding = world.prefill().asked()[0].coding.clone().unwrap();
    assert_eq!(coding.method(), lynx_proto::peer::v1::Method::LynxInt8);
    let (k, v) = (coding.anchor_k_eighths, coding.anchor_v_bits);
    assert_eq!((k + 8 * v) / 2, 48, "the mean over K and V");
    world.sinks.peers.send_replace(Some(Vec::new()));
    let none = |status: &Status| status.links.is_empty();
    world.status.wait_for(none).await.unwrap();
    let answer = finish(world.generate(None)).await;
    assert_eq!(answer.tokens, COMPUTED);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_does_not_fit_is_named_and_not_used() {
    let mut world = World::without_engine(|settings| {
        settings.generation = "gen-2".to_owned();
    })
    .await;
    world.attach().await;
    let link = world.linked(false).await;
    assert!(link.error.contains("generation is gen-1"), "{}", link.error);
    let answer = finish(world.generate(None)).await;
    assert_eq!(answer.tokens, COMPUTED);
}
