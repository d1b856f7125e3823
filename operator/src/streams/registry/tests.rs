use super::*;
use from_operator::Kind;
use lynx_proto::operator::v1::{Link, from_operator};

fn key() -> Key {
    Key {
        namespace: "default".into(),
        name: "smol".into(),
    }
}

fn hello(pod: &str, role: Role, generation: &str) -> Hello {
    Hello {
        namespace: "default".into(),
        deployment: "smol".into(),
        pod: pod.into(),
        role: role.into(),
        generation: generation.into(),
        peer_address: format!("{pod}:7400"),
        ..Hello::default()
    }
}

fn ready() -> Report {
    Report {
        ready: true,
        ..Report::default()
    }
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_origin(Duration::from_secs(seconds))
}

/// The pods of the last Peers message to a stream.
fn peers_told(messages: &[(StreamId, FromOperator)], to: StreamId) -> Option<Vec<String>> {
    messages.iter().rev().find_map(|(stream, message)| {
        let Some(Kind::Peers(peers)) = &message.kind else {
            return None;
        };
        let pods = peers.peers.iter().map(|peer| peer.pod.clone()).collect();
        (*stream == to).then_some(pods)
    })
}

#[test]
fn a_decode_agent_learns_of_ready_peers_of_its_own_generation_only() {
    let mut registry = Registry::default();
    let decode = registry.join(hello("d", Role::Decode, "new"), at(0));
    let old = registry.join(hello("p-old", Role::Prefill, "old"), at(0));
    let new = registry.join(hello("p-new", Role::Prefill, "new"), at(0));
    assert_eq!(
        peers_told(&registry.untold(&key(), at(0)), decode),
        Some(Vec::new())
    );
    registry.report(old, ready(), at(1));
    registry.report(new, ready(), at(1));
    let messages = registry.untold(&key(), at(1));
    assert_eq!(peers_told(&messages, decode), Some(vec!["p-new".into()]));
    assert_eq!(
        peers_told(&messages, new),
        None,
        "prefill agents have no peers"
    );
    assert!(registry.untold(&key(), at(1)).is_empty(), "it was told");
}

#[test]
fn a_peer_that_drains_or_falls_silent_is_taken_back() {
    let mut registry = Registry::default();
    let decode = registry.join(hello("d", Role::Decode, "g"), at(0));
    let prefill = registry.join(hello("p", Role::Prefill, "g"), at(0));
    registry.report(prefill, ready(), at(0));
    registry.untold(&key(), at(0));
    let draining = Report {
        draining: true,
        ..ready()
    };
    assert_eq!(registry.report(prefill, draining, at(1)), Some(key()));
    let messages = registry.untold(&key(), at(1));
    assert_eq!(peers_told(&messages, decode), Some(Vec::new()));
    registry.report(prefill, ready(), at(2));
    registry.untold(&key(), at(2));
    let messages = registry.untold(&key(), at(20));
    assert_eq!(peers_told(&messages, decode), Some(Vec::new()));
}

#[test]
fn a_new_stream_of_a_pod_replaces_the_old_one() {
    let mut registry = Registry::default();
    let first = registry.join(hello("d", Role::Decode, "g"), at(0));
    let second = registry.join(hello("d", Role::Decode, "g"), at(1));
    assert_eq!(registry.len(), 1);
    assert!(!registry.knows(first) && registry.knows(second));
    assert_eq!(
        registry.leave(first),
        None,
        "the old one's end says nothing"
    );
    assert_eq!(registry.report(first, ready(), at(2)), None);
    assert_eq!(registry.agents(&key()).count(), 1);
}

#[test]
fn a_drain_is_told_once_and_cancelled_once() {
    let mut registry = Registry::default();
    registry.join(hello("d", Role::Decode, "g"), at(0));
    registry.untold(&key(), at(0));
    let drain = BTreeMap::from([("d".to_owned(), Duration::from_secs(60))]);
    let kinds = |registry: &mut Registry| -> Vec<_> {
        let messages = registry.untold(&key(), at(1));
        messages
            .into_iter()
            .filter_map(|(_, message)| message.kind)
            .collect()
    };
    let staying = BTreeSet::from(["d".to_owned()]);
    registry.set_drains(&key(), drain, &staying);
    let drain = |deadline_ms, cancel| {
        Kind::Drain(Drain {
            deadline_ms,
            cancel,
        })
    };
    assert_eq!(kinds(&mut registry), [drain(60_000, false)]);
    assert!(kinds(&mut registry).is_empty());
    registry.set_drains(&key(), BTreeMap::new(), &BTreeSet::new());
    assert!(
        kinds(&mut registry).is_empty(),
        "a pod that is being deleted drains on"
    );
    registry.set_drains(&key(), BTreeMap::new(), &staying);
    assert_eq!(kinds(&mut registry), [drain(0, true)]);
}

#[test]
fn a_drain_whose_remaining_time_shrinks_is_not_told_again() {
    let mut registry = Registry::default();
    registry.join(hello("d", Role::Decode, "g"), at(0));
    registry.untold(&key(), at(0));
    for seconds in [60, 58, 56] {
        let drain = BTreeMap::from([("d".to_owned(), Duration::from_secs(seconds))]);
        registry.set_drains(&key(), drain, &BTreeSet::from(["d".to_owned()]));
        let told = registry.untold(&key(), at(1));
        assert_eq!(told.len(), usize::from(seconds == 60));
    }
}

#[test]
fn the_policy_reaches_every_agent_and_a_late_one_too() {
    let mut registry = Registry::default();
    registry.join(hello("d", Role::Decode, "g"), at(0));
    let policy = Policy {
        max_draft_tokens: 7,
        ..Policy::default()
    };
    registry.set_policy(&key(), policy.clone());
    registry.untold(&key(), at(0));
    let late = registry.join(hello("p", Role::Prefill, "g"), at(1));
    registry.set_look(&key(), "00-trace-look-01".into());
    let told = registry.untold(&key(), at(1));
    let expected = FromOperator {
        kind: Some(Kind::Policy(policy)),
        traceparent: "00-trace-look-01".into(),
    };
    assert_eq!(told, [(late, expected)]);
    registry.set_look(&key(), "00-trace-another-01".into());
    assert_eq!(registry.untold(&key(), at(1)), [], "a look is no news");
}

#[test]
fn only_changes_that_matter_ask_for_a_reconcile() {
    let mut registry = Registry::default();
    let stream = registry.join(hello("d", Role::Decode, "g"), at(0));
    assert_eq!(registry.report(stream, ready(), at(1)), Some(key()));
    let busier = Report {
        in_flight: 9,
        drafted_tokens: 100,
        ..ready()
    };
    assert_eq!(registry.report(stream, busier, at(2)), None);
    let refused = Report {
        attach_error: "another layout".into(),
        ..Report::default()
    };
    assert_eq!(registry.report(stream, refused, at(3)), Some(key()));
}

#[test]
fn counters_add_up_until_they_are_taken() {
    let mut registry = Registry::default();
    let stream = registry.join(hello("d", Role::Decode, "g"), at(0));
    for _ in 0..3 {
        let report = Report {
            drafted_tokens: 10,
            accepted_tokens: 8,
            anchor_eighths: 32,
            token_time_ns: 9_000_000,
            ..ready()
        };
        registry.report(stream, report, at(1));
    }
    let window = registry.take_window(&key());
    assert_eq!(window.drafts[&32].drafted, 30);
    assert_eq!(window.drafts[&32].accepted, 24);
    assert_eq!(window.token_time(), Some(Duration::from_millis(9)));
    assert_eq!(registry.take_window(&key()), Window::default());
}

#[test]
fn a_link_has_the_class_of_its_two_ends() {
    assert_eq!(link_class("rack-1", "rack-1"), "same");
    assert_eq!(link_class("rack-1", "rack-2"), "cross");
    assert_eq!(link_class("", "rack-2"), "");
}

#[test]
fn a_new_leader_tells_of_peers_when_those_that_were_ready_have_come_back_or_had_the_time() {
    let mut registry = Registry::default();
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    registry.await_agents(&key(), names(&["p-1", "p-2"]), at(0));
    let decode = registry.join(hello("d", Role::Decode, "g"), at(1));
    let first = registry.join(hello("p-1", Role::Prefill, "g"), at(1));
    registry.report(first, ready(), at(1));
    assert_eq!(peers_told(&registry.untold(&key(), at(1)), decode), None);
    let second = registry.join(hello("p-2", Role::Prefill, "g"), at(2));
    registry.report(second, ready(), at(2));
    registry.await_agents(&key(), names(&["p-3"]), at(2));
    assert_eq!(
        peers_told(&registry.untold(&key(), at(2)), decode),
        Some(vec!["p-1".into(), "p-2".into()])
    );

    let mut registry = Registry::default();
    registry.await_agents(&key(), names(&["gone"]), at(0));
    let decode = registry.join(hello("d", Role::Decode, "g"), at(1));
    assert_eq!(peers_told(&registry.untold(&key(), at(29)), decode), None);
    assert_eq!(
        peers_told(&registry.untold(&key(), at(30)), decode),
        Some(Vec::new())
    );
}

#[test]
fn of_an_agent_that_has_joined_nothing_is_known_until_it_reports() {
    let mut registry = Registry::default();
    let stream = registry.join(hello("d", Role::Decode, "g"), at(0));
    let knows = |registry: &Registry| registry.agents(&key()).all(|(_, agent)| agent.has_reported);
    assert!(!knows(&registry));
    registry.report(stream, ready(), at(0));
    assert!(knows(&registry));
    registry.join(hello("d", Role::Decode, "g"), at(1));
    assert!(!knows(&registry), "it may have started anew");
}

#[test]
fn of_a_link_to_a_pod_that_has_not_reported_nobody_knows_whether_it_pairs() {
    let mut registry = Registry::default();
    let paired = |registry: &Registry| {
        let (_, agent) = registry
            .agents(&key())
            .find(|(pod, _)| *pod == "d")
            .unwrap();
        registry.is_paired(&key(), agent, at(0))
    };
    let decode = registry.join(hello("d", Role::Decode, "g"), at(0));
    registry.report(decode, ready(), at(0));
    assert_eq!(paired(&registry), Some(false), "it has no link");
    let link = Link {
        peer: "p".into(),
        up: true,
        ..Link::default()
    };
    let linked = Report {
        links: vec![link],
        ..ready()
    };
    registry.report(decode, linked, at(0));
    assert_eq!(paired(&registry), None, "to whom?");
    let prefill = registry.join(hello("p", Role::Prefill, "g"), at(0));
    assert_eq!(paired(&registry), None);
    registry.report(prefill, Report::default(), at(0));
    assert_eq!(paired(&registry), Some(false), "it takes no work");
    registry.report(prefill, ready(), at(0));
    assert_eq!(paired(&registry), Some(true));
}

#[test]
fn a_new_leader_waits_for_no_pod_that_has_gone_meanwhile() {
    let mut registry = Registry::default();
    registry.await_agents(&key(), BTreeSet::from(["gone".to_owned()]), at(0));
    let decode = registry.join(hello("d", Role::Decode, "g"), at(1));
    assert_eq!(peers_told(&registry.untold(&key(), at(1)), decode), None);
    registry.await_agents(&key(), BTreeSet::new(), at(2));
    assert_eq!(
        peers_told(&registry.untold(&key(), at(2)), decode),
        Some(Vec::new())
    );
}

#[test]
fn places_are_told_and_where_they_are_required_only_peers_of_the_same_one() {
    let mut registry = Registry::default();
    let decode = registry.join(hello("d", Role::Decode, "g"), at(0));
    for pod in ["p-near", "p-far"] {
        let stream = registry.join(hello(pod, Role::Prefill, "g"), at(0));
        registry.report(stream, ready(), at(0));
    }
    let places = |required: bool, here: &str| Places {
        required,
        of: [("d", here), ("p-near", "red"), ("p-far", "blue")]
            .map(|(pod, place)| (pod.to_owned(), place.to_owned()))
            .into(),
    };
    registry.set_places(&key(), places(false, "red"));
    let messages = registry.untold(&key(), at(0));
    let Some(Kind::Peers(peers)) = messages
        .into_iter()
        .filter(|(stream, _)| *stream == decode)
        .find_map(|(_, message)| message.kind)
    else {
        panic!("no peers were told");
    };
    let told: Vec<_> = peers
        .peers
        .iter()
        .map(|peer| (&*peer.topology, &*peer.here))
        .collect();
    assert_eq!(told, [("blue", "red"), ("red", "red")]);

    registry.set_places(&key(), places(true, "red"));
    let messages = registry.untold(&key(), at(0));
    assert_eq!(peers_told(&messages, decode), Some(vec!["p-near".into()]));
    registry.set_places(&key(), places(true, ""));
    let messages = registry.untold(&key(), at(0));
    assert_eq!(
        peers_told(&messages, decode),
        Some(Vec::new()),
        "nobody knows where it is"
    );
}
