//! Which prefill agent is asked, and which one next.

use std::sync::atomic::{AtomicU64, Ordering};

use lynx_kernels::Profile;
use lynx_proto::engine::v1 as engine_api;
use lynx_proto::peer::v1::{Load, PeerNews};
use lynx_units::{Bytes, Timestamp};

use super::prefill::Prefill;
use super::*;
use crate::identity::Identity;
use crate::peers::{Ask, Peers};
use crate::pool::Layout;
use crate::prefix::{Salt, names};
use crate::testing;

/// A decode agent with two prefill agents: the world's own, and another.
struct Two {
    world: World,
    other: Prefill,
    _directory: tempfile::TempDir,
}

async fn two() -> Two {
    two_with(|_| {}).await
}

async fn two_with(change: impl FnOnce(&mut Settings)) -> Two {
    let directory = tempfile::tempdir().unwrap();
    let other = Prefill::start(directory.path(), TOKENS, "gen-1").await;
    let address = other.address.to_string();
    let mut world = World::with(|settings| {
        settings.peers.push(PeerAddress {
            address,
            topology: "rack-1".to_owned(),
            ..PeerAddress::default()
        });
        change(settings);
    })
    .await;
    world.all_linked(2).await;
    Two {
        world,
        other,
        _directory: directory,
    }
}

impl Two {
    fn asked(&self) -> [usize; 2] {
        [self.world.prefill(), &self.other].map(|prefill| prefill.asked().len())
    }

    fn set_faults(&self, fault: Fault) {
        self.world.prefill().set_fault(fault);
        self.other.set_fault(fault);
    }
}

fn identity() -> Identity {
    let attach = testing::attach(engine_api::Role::Decode, engine::BLOCKS);
    let layout = Layout::parse(attach.layout.as_ref().unwrap()).unwrap();
    let profile = Profile::uniform(layout.shape()).unwrap();
    Identity::new("decode-0 (1)", &attach, &layout, &profile, "gen-1")
}

/// All blocks of the prompt that every test asks, and an idle engine.
fn has_it_all() -> PeerNews {
    let prompt: Vec<u32> = (0..TOKENS).collect();
    let names = names(Salt::of(&identity()), &prompt);
    assert_eq!(names.len(), 4);
    PeerNews {
        reset: true,
        added: names.iter().map(|name| name.0).collect(),
        load: Some(Load {
            token_time_ns: 10_000_000,
            ..Load::default()
        }),
        ..PeerNews::default()
    }
}

/// Asks until three requests in a row go to one prefill agent, which is no turn: news travel at their own pace.
async fn settles_on(two: &Two, which: usize) {
    for _ in 0..100 {
        let before = two.asked();
        for _ in 0..3 {
            finish(two.world.generate(Some(Method::Int4))).await;
        }
        if two.asked()[which] == before[which] + 3 {
            return;
        }
    }
    panic!("it does not settle: {:?}", two.asked());
}

/// The world's own prefill agent is the nearer one.
fn own_is_near(settings: &mut Settings) {
    settings.topology = "rack-2".to_owned();
    settings.peers[0].topology = "rack-2".to_owned();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn equal_prefill_agents_take_turns() {
    let two = two().await;
    for _ in 0..4 {
        finish(two.world.generate(Some(Method::Int4))).await;
    }
    assert_eq!(two.asked(), [2, 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_prefill_agent_that_has_the_prefix_is_asked_until_its_queue_costs_more() {
    let two = two().await;
    two.other.tell(has_it_all()).await;
    settles_on(&two, 1).await;
    let busy = PeerNews {
        load: Some(Load {
            token_time_ns: 10_000_000,
            queued_tokens: 100_000,
            ..Load::default()
        }),
        ..PeerNews::default()
    };
    two.other.tell(busy).await;
    settles_on(&two, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prefill_agent_that_says_it_drains_is_not_asked() {
    let two = two().await;
    let mut draining = has_it_all();
    draining.load = Some(Load {
        draining: true,
        ..Load::default()
    });
    two.other.tell(draining).await;
    settles_on(&two, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prefill_agent_near_by_is_preferred_to_an_equal_one_elsewhere() {
    let two = two_with(own_is_near).await;
    for _ in 0..3 {
        finish(two.world.generate(Some(Method::Int4))).await;
    }
    assert_eq!(two.asked(), [3, 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_transfer_is_asked_of_another_prefill_agent_under_another_number() {
    let two = two_with(own_is_near).await;
    two.world.prefill().set_fault(Fault::Busy);
    for _ in 0..2 {
        let answer = finish(two.world.generate(None)).await;
        assert_eq!(answer.tokens[..2], [FIRST, 101]);
    }
    let counters = &two.world.counters;
    assert_eq!(two.asked(), [1, 2], "it is left alone after its refusal");
    assert_eq!(counters.transfers_retried.get(), 1);
    assert_eq!(counters.requests_local.get(), 0);
    assert_eq!(counters.kv_failures.of(KvFailure::Peer).get(), 0);
    let all = two
        .world
        .prefill()
        .asked()
        .into_iter()
        .chain(two.other.asked());
    let numbers: std::collections::BTreeSet<u64> = all.map(|asked| asked.transfer).collect();
    assert_eq!(numbers.len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prefill_agent_that_vanishes_before_anything_came_costs_no_recomputation() {
    let two = two_with(own_is_near).await;
    two.world.prefill().set_fault(Fault::Gone);
    let answer = finish(two.world.generate(None)).await;
    assert_eq!(answer.tokens[..2], [FIRST, 101]);
    assert!(equal(&two.world, 1));
    assert_eq!(two.asked(), [1, 1]);
    assert_eq!(two.world.counters.transfers_retried.get(), 1);
    assert_eq!(two.world.counters.requests_local.get(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_all_prefill_agents_refuse_the_engine_computes() {
    let two = two().await;
    two.set_faults(Fault::Busy);
    two.world.falls_back(KvFailure::Peer, "being drained").await;
    assert_eq!(two.asked(), [1, 1]);
    assert_eq!(two.world.counters.transfers_retried.get(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_begun_to_come_is_not_asked_for_again() {
    let two = two().await;
    two.set_faults(Fault::Cut);
    two.world.falls_back(KvFailure::Link, "shutdown").await;
    assert_eq!(two.world.counters.transfers_retried.get(), 0);
}

/// The ninth peer was left without a link: the others' windows had the whole budget.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn peers_that_come_later_are_linked_too_and_the_others_windows_make_room() {
    const MORE: usize = 12;
    let mut world = World::with(|settings| {
        settings.transfer.receive_buffer = Bytes::from_mib(64);
    })
    .await;
    let directory = tempfile::tempdir().unwrap();
    let mut others = Vec::new();
    for number in 0..MORE {
        let directory = directory.path().join(number.to_string());
        std::fs::create_dir(&directory).unwrap();
        others.push(Prefill::start(&directory, TOKENS, "gen-1").await);
    }
    let named = |others: &[Prefill]| {
        let addresses = others.iter().map(|other| PeerAddress {
            address: other.address.to_string(),
            ..PeerAddress::default()
        });
        Some(addresses.collect::<Vec<_>>())
    };
    world.sinks.peers.send_replace(named(&others[..7]));
    world.all_linked(8).await;
    world.sinks.peers.send_replace(named(&others));
    world.all_linked(1 + MORE).await;
    // They are asked one after the other, and send what they should through smaller windows. The engine has blocks for
    // twelve prompts.
    for _ in 0..12 {
        finish(world.generate(Some(Method::Int4))).await;
    }
    assert_eq!(world.counters.requests_local.get(), 0);
    assert_eq!(world.counters.transfers_failed.get(), 0);
}

/// A peer that refused once was taken for a draining one for as long as its link was up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prefill_agent_that_was_busy_is_asked_again_later() {
    let directory = tempfile::tempdir().unwrap();
    let prefill = Prefill::start(directory.path(), TOKENS, "gen-1").await;
    let (told, mut news) = mpsc::unbounded_channel();
    let settings = LinkSettings {
        clock: Clock::start(),
        budget: Bytes::from_mib(64),
        security: crate::security::Security::default(),
        carriage: crate::carriage::Carriage::default(),
        counters: Arc::default(),
        topology: String::new(),
        prefix_blocks: 10,
    };
    let mut peers = Peers::new(settings, move |news| told.send(news).is_ok());
    peers.set_identity(Some(identity()));
    peers.set_named(vec![PeerAddress {
        address: prefill.address.to_string(),
        ..PeerAddress::default()
    }]);
    let now = Timestamp::ORIGIN + Duration::from_secs(100);
    while !peers.any(now) {
        let news = news.recv().await.unwrap();
        peers.handle(news);
    }
    let ask = Ask {
        prompt_tokens: TOKENS,
        prompt: &[],
        bytes: Bytes::from_mib(1),
        tried: &[],
    };
    let next = AtomicU64::new(0);
    let number = || TransferId(next.fetch_add(1, Ordering::Relaxed));
    let chosen = peers.choose(number(), &ask, now).unwrap();
    peers.avoid(chosen.peer, now);
    assert!(peers.choose(number(), &ask, now).is_none());
    let later = now + Duration::from_secs(2);
    assert!(peers.any(later) && peers.choose(number(), &ask, later).is_some());
    let tried = [chosen.peer];
    let ask = Ask {
        tried: &tried,
        ..ask
    };
    assert!(peers.choose(number(), &ask, later).is_none());
}
