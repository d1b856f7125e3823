use std::collections::BTreeMap;

use lynx_metrics::{By, Kind, Metric, agent};
use lynx_proto::operator::v1::Link;
use lynx_units::{Bytes, Width};

use super::*;
use crate::counters::{KvFailure, LinkSums, Pool};

fn sources(role: Role) -> (Sources, watch::Sender<Status>, watch::Sender<Attachment>) {
    let (status, watched) = watch::channel(Status::default());
    let (attachments, attachment) = watch::channel(Attachment::default());
    let sources = Sources {
        role,
        counters: Arc::default(),
        status: watched,
        attachment,
        drain: Drain::new(),
    };
    (sources, status, attachments)
}

fn link(peer: &str, up: bool) -> Link {
    Link {
        peer: peer.to_owned(),
        up,
        rate_bps: 1_000_000_000,
        round_trip_ns: 200_000,
        ..Link::default()
    }
}

/// A text without what differs from run to run.
fn steady(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.starts_with("process_"));
    lines.map(|line| format!("{line}\n")).collect()
}

#[test]
fn everything_that_is_known_is_told_in_the_open_metrics_format() {
    let (sources, status, _attachments) = sources(Role::Decode);
    let counters = Arc::clone(&sources.counters);
    counters.anchor_bytes.add(1000);
    counters
        .drafts
        .verified(Width::from_eighths(28).unwrap(), 10, 9);
    counters.time_to_anchor.observe(0.25);
    counters.kv_failures.of(KvFailure::Link).add(2);
    counters.memory.of(Pool::Receive).set(64, 128);
    counters.pace.first_token[1].observe(0.125);
    status.send_modify(|status| {
        status.running = 2;
        status.preemptions = 3;
        status.anchor_eighths = 28;
        status.links = vec![link("prefill-0", true)];
    });
    let _work = sources.drain.enter();
    let metrics = Metrics::new(sources);
    metrics.request(Outcome::Stop, 0.5);
    insta::assert_snapshot!(steady(&metrics.encode()));
}

#[test]
fn an_engine_whose_kv_is_in_a_gpus_memory_is_told_of() {
    let (sources, _status, attachments) = sources(Role::Prefill);
    let metrics = Metrics::new(sources);
    assert!(metrics.encode().contains("\nlynx_engine_kv_on_gpu 0.0\n"));
    attachments.send_modify(|attachment| attachment.gpu = Some("a GPU".into()));
    assert!(metrics.encode().contains("\nlynx_engine_kv_on_gpu 1.0\n"));
}

/// The families of a text, with their types.
fn families(text: &str) -> BTreeMap<&str, &str> {
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types.filter_map(|line| line.split_once(' ')).collect()
}

#[test]
fn each_role_tells_exactly_what_is_documented_for_it() {
    for (role, own) in [(Role::Prefill, By::Prefill), (Role::Decode, By::Decode)] {
        let text = Metrics::new(sources(role).0).encode();
        let kind = |metric: &Metric| match metric.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram(_) => "histogram",
            Kind::Info => "info",
        };
        let documented: BTreeMap<_, _> = agent::GROUPS
            .iter()
            .flat_map(|group| group.metrics)
            .filter(|metric| metric.by == By::Agents || metric.by == own)
            .map(|metric| (metric.family(), kind(metric)))
            .collect();
        assert_eq!(families(&text), documented, "{role:?}");
        assert!(text.ends_with("# EOF\n"), "{text}");
    }
}

#[test]
fn two_lives_of_a_peer_are_one_and_names_are_escaped() {
    let (sources, status, _attachments) = sources(Role::Prefill);
    status.send_modify(|status| {
        status.links = vec![link("d-0", false), link("d-0", true), link("a\"\n", false)];
    });
    let text = Metrics::new(sources).encode();
    let up: Vec<_> = text
        .lines()
        .filter(|line| line.starts_with("lynx_link_up"))
        .collect();
    let wanted = [
        r#"lynx_link_up{peer="a\"\n"} 0.0"#,
        r#"lynx_link_up{peer="d-0"} 1.0"#,
    ];
    assert_eq!(up, wanted);
}

#[test]
fn no_more_than_the_documented_number_of_peers_is_told() {
    let (sources, status, _attachments) = sources(Role::Prefill);
    let many = (0..1000).map(|number| link(&format!("d-{number}"), true));
    status.send_modify(|status| status.links = many.collect());
    let text = Metrics::new(sources).encode();
    let told = text.lines().filter(|line| line.starts_with("lynx_link_up"));
    assert_eq!(told.count(), 256);
}

#[test]
fn what_links_count_is_told_for_both_classes_and_each_reason() {
    let (sources, ..) = sources(Role::Decode);
    let bytes = |anchor, residual| [Bytes::new(anchor), Bytes::new(residual)];
    sources.counters.links.set_over(LinkSums {
        opened: 21,
        ended: 20,
        without_rdma: 19,
        rails_lost: 17,
        wire_sent: bytes(1, 2),
        wire_received: bytes(3, 4),
        payload: bytes(5, 6),
        chunks: [7, 8],
        stale_frames: 9,
        late_frames: 10,
        duplicates: 11,
        late_chunks: 12,
        corrupt: 13,
        discarded: Bytes::new(14),
        granted: bytes(15, 16),
        withheld: Duration::from_millis(1500),
        starved: 18,
    });
    let text = Metrics::new(sources).encode();
    let told = text.lines().filter(|line| {
        let of_links = ["lynx_link", "lynx_credit"];
        of_links.iter().any(|start| line.starts_with(start))
    });
    insta::assert_snapshot!(told.collect::<Vec<_>>().join("\n"));
}
