//! Clients that go away, in each phase of a request, and choices that share a prompt.

use std::sync::Arc;
use std::time::Duration;

use lynx_proto::engine::v1::{Submit, from_agent};
use lynx_protocol::sender::Event;
use tokio::sync::mpsc::UnboundedReceiver;

use super::engine::COMPUTED;
use super::prefill::{FIRST, Fault};
use super::world::{World, finish, refusal, request};
use crate::requests::{Generate, Generated, Input, Refusal};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(10);

fn submitted(world: &World) -> Vec<Submit> {
    let said = world.engine().said().into_iter();
    let submits = said.filter_map(|said| match said {
        from_agent::Kind::Submit(submit) => Some(submit),
        _ => None,
    });
    submits.collect()
}

/// Three choices of one prompt. On a runtime of one thread all are handed in before the agent looks at any; elsewhere the first may be answered
/// before the last is there, which then is the first again.
fn three_choices(world: &World) -> [UnboundedReceiver<Generated>; 3] {
    let group = world.requests.group();
    [(); 3].map(|()| {
        world.requests.generate(Generate {
            group,
            ..request(None)
        })
    })
}

/// Until nothing is in flight.
async fn quiet(world: &World) {
    let mut in_flight = world.drain.in_flight();
    let none = in_flight.wait_for(|count| *count == 0);
    let quiet = tokio::time::timeout(PATIENCE, none).await;
    quiet.expect("something stays in flight").unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_can_go_away_in_every_phase_and_nothing_stays_in_flight() {
    type IsPhase = fn(&from_agent::Kind) -> bool;
    let phases: [(Fault, IsPhase); 4] = [
        // The prefill engine is at work, and has told nothing.
        (Fault::Silent, |said| {
            matches!(said, from_agent::Kind::Submit(_))
        }),
        (Fault::Stall, |said| {
            matches!(said, from_agent::Kind::FirstToken(_))
        }),
        (Fault::None, |said| {
            matches!(said, from_agent::Kind::AnchorReady(_))
        }),
        // The agent waits for a grant to complete what it has.
        (Fault::None, |said| {
            matches!(said, from_agent::Kind::WantGrant(_))
        }),
    ];
    for (fault, is_phase) in phases {
        let world = World::start().await;
        world.prefill().set_fault(fault);
        world.engine().set_grants(false);
        let answer = world.generate(None);
        let phase = tokio::time::timeout(PATIENCE, world.engine().wait(is_phase));
        phase.await.expect("the phase comes");
        drop(answer);
        let abort = |said: &from_agent::Kind| matches!(said, from_agent::Kind::Abort(_));
        let aborted = tokio::time::timeout(PATIENCE, world.engine().wait(abort));
        aborted.await.expect("the engine is told");
        quiet(&world).await;
        assert_eq!(world.counters.requests_aborted.get(), 1);
        world.prefill().set_fault(Fault::None);
        world.engine().set_grants(true);
        finish(world.generate(None)).await;
    }
}

/// The prefill agent was told that its transfer was rejected, and counted a failure.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transfer_that_is_offered_after_its_client_has_gone_is_cancelled() {
    let world = World::start().await;
    world.prefill().set_fault(Fault::Late);
    let answer = world.generate(None);
    let first = |said: &from_agent::Kind| matches!(said, from_agent::Kind::FirstToken(_));
    world.engine().wait(first).await;
    drop(answer);
    quiet(&world).await;
    let ended = world
        .prefill()
        .happens(|event| !matches!(event, Event::Accepted(_)));
    let ended = tokio::time::timeout(PATIENCE, ended).await.unwrap();
    assert!(matches!(ended, Event::Cancelled(..)), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_waits_in_the_queue_can_go_away() {
    let world = World::start().await;
    world.engine().set_room(1);
    world.prefill().set_fault(Fault::Stall);
    let first = world.generate(None);
    let drafts = |said: &from_agent::Kind| matches!(said, from_agent::Kind::FirstToken(_));
    world.engine().wait(drafts).await;
    drop(world.generate(None));
    let mut in_flight = world.drain.in_flight();
    let one = in_flight.wait_for(|count| *count == 1);
    tokio::time::timeout(PATIENCE, one).await.unwrap().unwrap();
    drop(first);
    quiet(&world).await;
    assert_eq!(world.counters.requests_aborted.get(), 2);
}

#[tokio::test]
async fn choices_of_a_prompt_share_one_transfer() {
    let world = World::start().await;
    let answers = three_choices(&world);
    let mut tokens = Vec::new();
    for answer in answers {
        tokens.push(finish(answer).await.tokens);
    }
    assert_eq!(tokens[0][0], FIRST, "the first brings the KV");
    assert_eq!(
        tokens[1..],
        [COMPUTED, COMPUTED],
        "the others go on from it"
    );
    assert_eq!(world.prefill().asked().len(), 1);
    let transfers: Vec<_> = submitted(&world).iter().map(|one| one.transfer).collect();
    assert_eq!(transfers, [true, false, false]);
    assert_eq!(world.counters.requests_local.get(), 0, "nothing went wrong");
    quiet(&world).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn choices_whose_first_one_goes_away_are_answered_all_the_same() {
    let world = World::start().await;
    world.prefill().set_fault(Fault::Silent);
    let [first, others @ ..] = three_choices(&world);
    let asked = |said: &from_agent::Kind| matches!(said, from_agent::Kind::Submit(_));
    world.engine().wait(asked).await;
    world.prefill().set_fault(Fault::None);
    drop(first);
    for other in others {
        let answer = tokio::time::timeout(PATIENCE, finish(other)).await.unwrap();
        // Where the first was faster than its client's end, they go on from its KV.
        assert!([FIRST, COMPUTED[0]].contains(&answer.tokens[0]));
    }
    quiet(&world).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn choices_that_wait_for_the_first_can_go_away_with_it() {
    let world = World::start().await;
    world.prefill().set_fault(Fault::Silent);
    let answers = three_choices(&world);
    let asked = |said: &from_agent::Kind| matches!(said, from_agent::Kind::Submit(_));
    world.engine().wait(asked).await;
    // The last first: none of them is handed in when its turn would come.
    answers.into_iter().rev().for_each(drop);
    quiet(&world).await;
    assert_eq!(world.counters.requests_aborted.get(), 3);
}

/// Each of them was handed in when the one before had gone, and began a transfer that nobody waited for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn choices_that_go_away_together_begin_one_transfer() {
    let world = World::start().await;
    world.prefill().set_fault(Fault::Silent);
    let answers = three_choices(&world);
    let asked = |said: &from_agent::Kind| matches!(said, from_agent::Kind::Submit(_));
    world.engine().wait(asked).await;
    drop(answers);
    quiet(&world).await;
    assert_eq!(submitted(&world).len(), 1);
    assert_eq!(world.counters.requests_aborted.get(), 3);
}

/// Those that waited for the first one were told that something broke.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn choices_of_an_agent_that_ends_are_told_to_ask_another() {
    let world = World::start().await;
    world.prefill().set_fault(Fault::Silent);
    let answers = three_choices(&world);
    let mut in_flight = world.drain.in_flight();
    in_flight.wait_for(|count| *count == 3).await.unwrap();
    drop(world);
    for answer in answers {
        let told = tokio::time::timeout(PATIENCE, refusal(answer))
            .await
            .unwrap();
        assert!(matches!(told, Refusal::Unavailable(_)), "{told}");
    }
}

/// Each of them copied the prompt for the engine, which refused it as often.
#[tokio::test]
async fn choices_of_a_prompt_that_is_refused_are_refused_with_the_first() {
    let world = World::start().await;
    let group = world.requests.group();
    let answers = [(); 3].map(|()| {
        world.requests.generate(Generate {
            input: Arc::new(Input::Text("hello".to_owned())),
            group,
            ..request(None)
        })
    });
    for answer in answers {
        let refused = refusal(answer).await;
        assert_eq!(refused, Refusal::Invalid("only tokens".to_owned()));
    }
    assert_eq!(world.counters.requests_failed.get(), 3);
    assert_eq!(submitted(&world).len(), 1);
    quiet(&world).await;
}
