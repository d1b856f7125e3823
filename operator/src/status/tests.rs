use std::time::Duration;

use k8s_openapi::jiff;
use lynx_crds::{ConditionType, condition};
use lynx_units::{BitRate, Timestamp, Width};
use serde_json::json;

use super::*;
use crate::streams::registry::LinkSeen;
use lynx_governor::width::{Decision, Reason};
use summary::Facts;

fn object() -> LynxDeployment {
    let mut object: LynxDeployment = serde_json::from_value(json!({
        "apiVersion": "lynx.dev/v1alpha1", "kind": "LynxDeployment",
        "metadata": {"name": "smol", "namespace": "team", "generation": 3},
        "spec": {
            "model": {"name": "smol", "source": {"hostPath": {"path": "/m"}}},
            "engine": {"type": "Embedded"},
        },
    }))
    .unwrap();
    object.metadata.uid = Some("u".into());
    object
}

fn running() -> Workload {
    Workload {
        desired: 1,
        replicas: 1,
        updated: 1,
        ready: 1,
        available: 1,
        draining: 0,
        observed: true,
    }
}

fn at(seconds: i64) -> Time {
    Time(jiff::Timestamp::from_second(seconds).unwrap())
}

fn seen<'a>(object: &'a LynxDeployment, summary: &'a Summary) -> Seen<'a> {
    Seen {
        object,
        prefill: Some(running()),
        decode: Some(running()),
        progress: None,
        summary,
        problems: &[],
    }
}

fn reason(status: &LynxDeploymentStatus, kind: ConditionType) -> (&str, &str) {
    let found = condition(&status.conditions, kind).unwrap();
    (&found.status, &found.reason)
}

fn link(megabits: u64) -> LinkSeen {
    LinkSeen {
        class: "",
        up: true,
        transport: "tcp".into(),
        rate: BitRate::from_megabits_per_second(megabits),
        error: String::new(),
    }
}

fn facts<'a>(object: &'a LynxDeployment, links: &'a [LinkSeen]) -> Facts<'a> {
    Facts {
        object,
        links,
        decision: Decision {
            width: Width::from_bits(4).unwrap(),
            reason: Reason::BestForLink,
            rate: BitRate::from_megabits_per_second(100),
        },
        accepted: None,
    }
}

fn tick(seconds: u64) -> Timestamp {
    Timestamp::from_origin(Duration::from_secs(seconds))
}

#[test]
fn an_unchanged_world_gives_an_equal_status() {
    let mut object = object();
    let summary = Summary::default();
    let first = status(&seen(&object, &summary), &at(1));
    object.status = Some(first.clone());
    let second = status(&seen(&object, &summary), &at(999));
    assert_eq!(first, second);
    assert!(notices(&first, &second).is_empty());
}

#[test]
fn every_condition_is_there_once_with_the_generation() {
    let object = object();
    let status = status(&seen(&object, &Summary::default()), &at(1));
    let types: Vec<_> = status
        .conditions
        .iter()
        .map(|condition| condition.type_.as_str())
        .collect();
    assert_eq!(
        types,
        [
            "Available",
            "Progressing",
            "Degraded",
            "LinkReady",
            "AnchorAdapted",
            "ScalingLimited",
            "Unsupported"
        ]
    );
    assert!(
        status
            .conditions
            .iter()
            .all(|condition| condition.observed_generation == Some(3))
    );
    assert_eq!(
        status.selector.as_deref(),
        Some("lynx.dev/deployment=smol,lynx.dev/role=decode")
    );
}

#[test]
fn a_running_pair_is_available_and_a_missing_half_is_named() {
    let object = object();
    let summary = Summary::default();
    let mut world = seen(&object, &summary);
    let status_of = |world: &Seen<'_>| status(world, &at(1));
    assert_eq!(
        reason(&status_of(&world), ConditionType::Available),
        ("True", "Serving")
    );
    world.prefill = Some(Workload {
        ready: 0,
        available: 0,
        ..running()
    });
    let status = status_of(&world);
    assert_eq!(
        reason(&status, ConditionType::Available),
        ("False", "NoPrefillPod")
    );
    assert_eq!(
        reason(&status, ConditionType::Progressing),
        ("True", "PodsNotReady")
    );
}

#[test]
fn a_refused_spec_keeps_its_numbers_and_says_what_is_wrong_with_one_warning() {
    let mut object = object();
    let summary = Summary::default();
    let before = status(&seen(&object, &summary), &at(1));
    object.status = Some(before.clone());
    let problems = [Problem {
        reason: "InvalidSpec",
        message: "two are called `a`".into(),
    }];
    let refused = Seen {
        prefill: None,
        decode: None,
        problems: &problems,
        ..seen(&object, &summary)
    };
    let after = status(&refused, &at(2));
    assert_eq!(
        reason(&after, ConditionType::Degraded),
        ("True", "InvalidSpec")
    );
    assert_eq!(after.decode, before.decode);
    let warnings = notices(&before, &after);
    assert_eq!(warnings[0].reason, "InvalidSpec");
}

#[test]
fn conditions_of_others_are_left_to_them() {
    let mut object = object();
    let summary = Summary::default();
    let mut old = status(&seen(&object, &summary), &at(1));
    let mut foreign = old.conditions[0].clone();
    foreign.type_ = "Audited".into();
    old.conditions.push(foreign);
    object.status = Some(old);
    let new = status(&seen(&object, &summary), &at(2));
    assert!(new.conditions.iter().all(|one| one.type_ != "Audited"));
}

#[test]
fn rates_are_told_when_they_have_changed_enough_and_not_too_often() {
    let object = object();
    let mut summary = Summary::default();
    assert!(summary.follow(&facts(&object, &[link(100)]), tick(0), &at(0)));
    assert_eq!(summary.link.as_ref().unwrap().summary, "100 Mbit/s TCP");
    assert!(!summary.follow(&facts(&object, &[link(50)]), tick(10), &at(10)));
    assert!(!summary.follow(&facts(&object, &[link(105)]), tick(40), &at(40)));
    assert!(summary.follow(&facts(&object, &[link(50)]), tick(42), &at(42)));
}

#[test]
fn tcp_where_rdma_was_asked_for_is_told_at_once() {
    let mut object = object();
    object.spec.transfer.transport = lynx_crds::spec::Transport::Rdma;
    let mut summary = Summary::default();
    let mut rdma = link(90_000);
    rdma.transport = "rdma".into();
    summary.follow(&facts(&object, &[rdma]), tick(0), &at(0));
    assert_eq!(summary.link_verdict.reason, "Measured");
    let mut tcp = link(900);
    tcp.error = "no device is seen".into();
    assert!(summary.follow(&facts(&object, &[tcp]), tick(1), &at(1)));
    assert_eq!(summary.link_verdict.reason, "TcpInUse");
    assert!(summary.link_verdict.message.contains("in use: no device"));
    assert_eq!(summary.link.as_ref().unwrap().transport, "TCP");
}

#[test]
fn tcp_of_which_no_agent_says_why_is_explained_by_the_spec_or_by_the_image() {
    use lynx_crds::spec::{TlsMode, Transport};

    let mut object = object();
    let mut says = |transport: Transport, mode: TlsMode| {
        object.spec.transfer.transport = transport;
        object.spec.transfer.tls.mode = mode;
        let card = || serde_json::from_value(serde_json::json!({"resourceName": "rdma/a"}));
        object.spec.prefill.pool.rdma = Some(card().unwrap());
        object.spec.decode.pool.rdma = Some(card().unwrap());
        let mut summary = Summary::default();
        summary.follow(&facts(&object, &[link(900)]), tick(0), &at(0));
        assert_eq!(summary.link_verdict.reason, "TcpInUse");
        summary.link_verdict.message
    };
    let encrypted = says(Transport::Auto, TlsMode::OperatorCa);
    assert!(
        encrypted.contains("Auto is TCP, since RDMA isn't encrypted"),
        "{encrypted}"
    );
    for (transport, mode) in [
        (Transport::Auto, TlsMode::Disabled),
        (Transport::Rdma, TlsMode::OperatorCa),
    ] {
        let unsaid = says(transport, mode);
        assert!(
            unsaid.contains("their image is one without RDMA"),
            "{unsaid}"
        );
    }
}

#[test]
fn the_anchors_time_is_that_of_its_last_change() {
    let object = object();
    let mut summary = Summary::default();
    let links = [link(100)];
    let mut facts = facts(&object, &links);
    summary.follow(&facts, tick(0), &at(10));
    facts.decision.reason = Reason::Following;
    assert!(!summary.follow(&facts, tick(2), &at(12)), "no news");
    facts.decision.width = Width::from_eighths(28).unwrap();
    assert!(summary.follow(&facts, tick(4), &at(14)));
    let anchor = summary.anchor.unwrap();
    assert_eq!(anchor.bits.to_string(), "3.5");
    assert_eq!(anchor.since, Some(at(14)));
}

#[test]
fn peers_that_differ_are_told_before_a_request_fails() {
    let object = object();
    let mut summary = Summary::default();
    let mut other = link(0);
    other.up = false;
    other.error =
        "it doesn't fit: tensor-parallel size: 2 here, 4 on p; run the same release, model and configuration on both"
            .into();
    assert!(summary.follow(&facts(&object, &[link(100), other]), tick(0), &at(0)));
    assert_eq!(summary.link_verdict.status, "False");
    assert_eq!(summary.link_verdict.reason, "PeersDiffer");
    assert!(
        summary
            .link_verdict
            .message
            .contains("tensor-parallel size")
    );
}

#[test]
fn rates_are_told_by_class_and_another_transport_of_one_class_at_once() {
    let object = object();
    let mut summary = Summary::default();
    let of = |class: &'static str, megabits: u64, transport: &str| LinkSeen {
        class,
        transport: transport.into(),
        ..link(megabits)
    };
    let links = [
        of("same", 900, "rdma"),
        of("cross", 100, "tcp"),
        of("same", 800, "rdma"),
    ];
    summary.follow(&facts(&object, &links), tick(0), &at(0));
    let told = |summary: &Summary| -> Vec<String> {
        let links = summary.links.iter();
        links
            .map(|link| format!("{}: {}", link.class, link.summary))
            .collect()
    };
    assert_eq!(
        told(&summary),
        ["same: 800 Mbit/s RDMA", "cross: 100 Mbit/s TCP"]
    );
    let links = [of("same", 900, "tcp"), of("cross", 100, "tcp")];
    assert!(summary.follow(&facts(&object, &links), tick(1), &at(1)));
    assert_eq!(
        told(&summary),
        ["same: 900 Mbit/s TCP", "cross: 100 Mbit/s TCP"]
    );
}

#[test]
fn links_far_below_the_promise_are_told_and_a_rate_near_half_of_it_is_told_once() {
    let mut object = object();
    object.spec.transfer.promised_rate =
        serde_json::from_value(json!({"same": "10G", "cross": "1G"})).unwrap();
    let mut summary = Summary::default();
    let mut reason_at = |class, megabits, second| {
        let link = LinkSeen {
            class,
            ..link(megabits)
        };
        summary.follow(&facts(&object, &[link]), tick(second), &at(0));
        summary.link_verdict.reason
    };
    assert_eq!(reason_at("same", 5100, 0), "Measured");
    assert_eq!(reason_at("same", 4900, 2), "BelowPromise");
    assert_eq!(reason_at("same", 5100, 4), "BelowPromise");
    assert_eq!(reason_at("same", 6100, 6), "Measured");
    assert_eq!(reason_at("cross", 600, 8), "Measured");
    assert_eq!(reason_at("", 400, 10), "BelowPromise");
}
