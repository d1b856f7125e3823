use lynx_proto::operator::v1::Link;

use super::*;

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

#[test]
fn everything_that_is_known_is_told_in_the_open_metrics_format() {
    let (sources, status, _attachments) = sources(Role::Decode);
    sources.counters.anchor_bytes.add(1000);
    sources.counters.drafted_tokens.add(10);
    sources.counters.accepted_tokens.add(9);
    sources.counters.time_to_anchor_ns.add(250_000_000);
    sources.counters.anchors.add(1);
    status.send_modify(|status| {
        status.running = 2;
        status.anchor_eighths = 28;
        status.links = vec![Link {
            peer: "prefill-0".to_owned(),
            up: true,
            rate_bps: 1_000_000_000,
            round_trip_ns: 200_000,
            ..Link::default()
        }];
    });
    let _work = sources.drain.enter();
    let metrics = Metrics::new(sources);
    metrics.first_token(0.125);
    metrics.request(Outcome::Stop, 0.5);
    insta::assert_snapshot!(metrics.encode());
}

#[test]
fn a_prefill_agent_tells_nothing_of_requests() {
    let text = Metrics::new(sources(Role::Prefill).0).encode();
    assert!(!text.contains("lynx_requests"), "{text}");
    assert!(text.contains("lynx_build_info"), "{text}");
    assert!(text.ends_with("# EOF\n"), "{text}");
}
