//! The Grafana dashboard.

use serde_json::{Value, json};

/// Panels that belong together.
struct Row {
    title: &'static str,
    panels: &'static [Panel],
}

/// A chart: its title, Grafana's unit, and expressions with the names of their curves.
struct Panel(
    &'static str,
    &'static str,
    &'static [(&'static str, &'static str)],
);

/// A quantile over all pods that are shown.
macro_rules! quantile {
    ($quantile:literal, $metric:literal) => {
        concat!(
            "histogram_quantile(",
            $quantile,
            ", sum by (le) (rate(",
            $metric,
            "_bucket{namespace=~\"$namespace\"}[$__rate_interval])))"
        )
    };
    ($quantile:literal, $metric:literal, $labels:literal) => {
        concat!(
            "histogram_quantile(",
            $quantile,
            ", sum by (le) (rate(",
            $metric,
            "_bucket{namespace=~\"$namespace\", ",
            $labels,
            "}[$__rate_interval])))"
        )
    };
}

/// A rate, summed by some labels.
macro_rules! rate {
    ($metric:literal by $labels:literal) => {
        concat!(
            "sum by (",
            $labels,
            ") (rate(",
            $metric,
            "{namespace=~\"$namespace\"}[$__rate_interval]))"
        )
    };
}

const ROWS: &[Row] = &[
    Row {
        title: "Requests",
        panels: &[
            Panel(
                "Requests by outcome",
                "reqps",
                &[(rate!("lynx_requests_total" by "outcome"), "{{outcome}}")],
            ),
            Panel(
                "Running and waiting",
                "short",
                &[
                    (
                        r#"sum(lynx_running_requests{namespace=~"$namespace"})"#,
                        "running",
                    ),
                    (
                        r#"sum(lynx_waiting_requests{namespace=~"$namespace"})"#,
                        "waiting",
                    ),
                    (
                        r#"sum(lynx_in_flight{namespace=~"$namespace"})"#,
                        "in flight, transfers included",
                    ),
                ],
            ),
            Panel(
                "Verified tokens",
                "ops",
                &[(rate!("lynx_verified_tokens_total" by "pod"), "{{pod}}")],
            ),
        ],
    },
    Row {
        title: "Latency",
        panels: &[
            Panel(
                "Time to anchor and to full KV, median and 95th",
                "s",
                &[
                    (
                        quantile!("0.5", "lynx_time_to_anchor_seconds"),
                        "anchor, median",
                    ),
                    (
                        quantile!("0.95", "lynx_time_to_anchor_seconds"),
                        "anchor, 95th",
                    ),
                    (
                        quantile!("0.5", "lynx_time_to_full_seconds"),
                        "full, median",
                    ),
                    (quantile!("0.95", "lynx_time_to_full_seconds"), "full, 95th"),
                ],
            ),
            Panel(
                "Time to the first token, 95th",
                "s",
                &[
                    (
                        quantile!(
                            "0.95",
                            "lynx_time_to_first_token_seconds",
                            "tokens=\"provisional\""
                        ),
                        "in whatever form",
                    ),
                    (
                        quantile!(
                            "0.95",
                            "lynx_time_to_first_token_seconds",
                            "tokens=\"verified\""
                        ),
                        "verified",
                    ),
                ],
            ),
            Panel(
                "Time to the second token, 95th",
                "s",
                &[
                    (
                        quantile!(
                            "0.95",
                            "lynx_time_to_second_token_seconds",
                            "tokens=\"provisional\""
                        ),
                        "in whatever form",
                    ),
                    (
                        quantile!(
                            "0.95",
                            "lynx_time_to_second_token_seconds",
                            "tokens=\"verified\""
                        ),
                        "verified",
                    ),
                ],
            ),
            Panel(
                "Between tokens, and in the queue",
                "s",
                &[
                    (
                        quantile!("0.95", "lynx_inter_token_seconds"),
                        "between tokens, 95th",
                    ),
                    (
                        quantile!("0.95", "lynx_queue_seconds"),
                        "in the queue, 95th",
                    ),
                    (
                        quantile!("0.95", "lynx_request_duration_seconds"),
                        "whole request, 95th",
                    ),
                ],
            ),
        ],
    },
    Row {
        title: "Links",
        panels: &[
            Panel(
                "What links carry at best",
                "Bps",
                &[(
                    r#"min by (pod) (lynx_link_rate_bytes_per_second{namespace=~"$namespace"} > 0)"#,
                    "{{pod}}, slowest peer",
                )],
            ),
            Panel(
                "Bytes of chunks by priority",
                "Bps",
                &[(
                    rate!("lynx_link_payload_bytes_total" by "priority"),
                    "{{priority}}",
                )],
            ),
            Panel(
                "Round trip, slowest peer",
                "s",
                &[(
                    r#"max by (pod) (lynx_link_round_trip_seconds{namespace=~"$namespace"})"#,
                    "{{pod}}",
                )],
            ),
            Panel(
                "Handshakes that failed",
                "ops",
                &[(
                    rate!("lynx_tls_handshake_failures_total" by "plane"),
                    "{{plane}}",
                )],
            ),
            Panel(
                "Links up, and links that ended",
                "short",
                &[
                    (r#"sum(lynx_link_up{namespace=~"$namespace"})"#, "up"),
                    (
                        r#"sum(increase(lynx_links_ended_total{namespace=~"$namespace"}[$__rate_interval]))"#,
                        "ended",
                    ),
                ],
            ),
        ],
    },
    Row {
        title: "Drafts",
        panels: &[
            Panel(
                "Share of drafted tokens that stand, by width",
                "percentunit",
                &[(
                    r#"sum by (width) (rate(lynx_accepted_tokens_total{namespace=~"$namespace"}[$__rate_interval])) / sum by (width) (rate(lynx_drafted_tokens_total{namespace=~"$namespace"}[$__rate_interval]))"#,
                    "{{width}} bits",
                )],
            ),
            Panel(
                "Tokens that were drafted for nothing",
                "ops",
                &[(
                    rate!("lynx_wasted_tokens_total" by "width"),
                    "{{width}} bits",
                )],
            ),
            Panel(
                "Length of a draft, median and 95th",
                "short",
                &[
                    (quantile!("0.5", "lynx_draft_tokens"), "median"),
                    (quantile!("0.95", "lynx_draft_tokens"), "95th"),
                ],
            ),
            Panel(
                "The anchor's width",
                "short",
                &[
                    (
                        r#"avg by (pod) (lynx_anchor_width{namespace=~"$namespace"})"#,
                        "{{pod}}",
                    ),
                    (
                        "lynx_operator_anchor_width",
                        "operator: {{namespace}}/{{deployment}}",
                    ),
                ],
            ),
        ],
    },
    Row {
        title: "Credit",
        panels: &[
            Panel(
                "Credit that was granted",
                "Bps",
                &[(
                    rate!("lynx_credit_granted_bytes_total" by "priority"),
                    "{{priority}}",
                )],
            ),
            Panel(
                "Share of time that residuals' credit was kept back",
                "percentunit",
                &[(
                    rate!("lynx_credit_withheld_seconds_total" by "pod"),
                    "{{pod}}",
                )],
            ),
            Panel(
                "Residuals that were let through for fairness",
                "ops",
                &[(rate!("lynx_credit_starved_total" by "pod"), "{{pod}}")],
            ),
        ],
    },
    Row {
        title: "Failures",
        panels: &[
            Panel(
                "KV that did not come, by reason",
                "ops",
                &[(rate!("lynx_kv_failures_total" by "reason"), "{{reason}}")],
            ),
            Panel(
                "Prompts that decode engines computed",
                "ops",
                &[(rate!("lynx_local_prompts_total" by "pod"), "{{pod}}")],
            ),
            Panel(
                "Transfers by outcome",
                "ops",
                &[(rate!("lynx_transfers_total" by "outcome"), "{{outcome}}")],
            ),
            Panel(
                "Chunks and frames that were thrown away",
                "ops",
                &[
                    (
                        rate!("lynx_link_dropped_chunks_total" by "reason"),
                        "chunks: {{reason}}",
                    ),
                    (
                        rate!("lynx_link_dropped_frames_total" by "reason"),
                        "frames: {{reason}}",
                    ),
                ],
            ),
            Panel(
                "Engines taken and refused",
                "short",
                &[
                    (
                        r#"sum by (pod) (lynx_engine_attaches_total{namespace=~"$namespace"})"#,
                        "{{pod}}: taken",
                    ),
                    (
                        r#"sum by (pod) (lynx_engine_refusals_total{namespace=~"$namespace"})"#,
                        "{{pod}}: refused",
                    ),
                ],
            ),
        ],
    },
    Row {
        title: "Memory and process",
        panels: &[
            Panel(
                "Bounded pools: share that is taken",
                "percentunit",
                &[(
                    r#"lynx_memory_bytes{namespace=~"$namespace"} / lynx_memory_limit_bytes{namespace=~"$namespace"}"#,
                    "{{pod}}: {{pool}}",
                )],
            ),
            Panel(
                "KV of transfers under way, as BF16",
                "bytes",
                &[(
                    r#"sum by (pod) (lynx_pending_kv_bytes{namespace=~"$namespace"})"#,
                    "{{pod}}",
                )],
            ),
            Panel(
                "Agents: resident memory",
                "bytes",
                &[(
                    r#"process_resident_memory_bytes and on (instance, job) lynx_build_info{namespace=~"$namespace"}"#,
                    "{{pod}}",
                )],
            ),
            Panel(
                "Agents: processors",
                "short",
                &[(
                    r#"rate(process_cpu_seconds_total[$__rate_interval]) and on (instance, job) lynx_build_info{namespace=~"$namespace"}"#,
                    "{{pod}}",
                )],
            ),
        ],
    },
    Row {
        title: "Operator",
        panels: &[
            Panel(
                "Agents that have joined",
                "short",
                &[("sum(lynx_operator_agents)", "agents")],
            ),
            Panel(
                "A look at a deployment, 99th",
                "s",
                &[(
                    "histogram_quantile(0.99, sum by (le) (rate(lynx_operator_reconcile_duration_seconds_bucket[$__rate_interval])))",
                    "99th",
                )],
            ),
            Panel(
                "Looks that failed, by reason",
                "ops",
                &[(
                    "sum by (reason) (rate(lynx_operator_reconcile_errors_total[$__rate_interval]))",
                    "{{reason}}",
                )],
            ),
            Panel(
                "Requests to the API server, by what is asked",
                "ops",
                &[(
                    "sum by (verb) (rate(lynx_operator_api_requests_total[$__rate_interval]))",
                    "{{verb}}",
                )],
            ),
            Panel(
                "Requests that fail, and watches that break",
                "ops",
                &[
                    (
                        r#"sum by (code) (rate(lynx_operator_api_requests_total{code!~"2.."}[$__rate_interval]))"#,
                        "{{code}}",
                    ),
                    (
                        "sum by (kind) (rate(lynx_operator_watch_failures_total[$__rate_interval]))",
                        "watch: {{kind}}",
                    ),
                ],
            ),
            Panel(
                "A request to the API server, 99th",
                "s",
                &[(
                    "histogram_quantile(0.99, sum by (le, verb) (rate(lynx_operator_api_request_duration_seconds_bucket[$__rate_interval])))",
                    "{{verb}}",
                )],
            ),
            Panel(
                "Days until certificates end",
                "d",
                &[(
                    r#"(lynx_operator_certificate_expiry_timestamp_seconds{namespace=~"$namespace"} - time()) / 86400"#,
                    "{{namespace}}/{{deployment}}",
                )],
            ),
        ],
    },
];

/// The dashboard, as Grafana imports it.
pub(super) fn model() -> String {
    let mut panels = Vec::new();
    let mut y = 0;
    for row in ROWS {
        panels.push(json!({
            "type": "row", "title": row.title, "collapsed": false, "panels": [],
            "gridPos": {"h": 1, "w": 24, "x": 0, "y": y},
        }));
        y += 1;
        for pair in row.panels.chunks(2) {
            let places = pair.iter().zip([0, 12]);
            panels.extend(places.map(|(panel, x)| chart(panel, x, y)));
            y += 8;
        }
    }
    for (id, panel) in (1..).zip(&mut panels) {
        panel["id"] = json!(id);
    }
    super::pretty(&json!({
        "title": "Lynx", "uid": "lynx", "schemaVersion": 39, "tags": ["lynx"],
        "time": {"from": "now-1h", "to": "now"}, "refresh": "30s",
        "templating": {"list": [
            {"name": "source", "type": "datasource", "query": "prometheus"},
            {
                "name": "namespace", "type": "query", "datasource": {"type": "prometheus", "uid": "${source}"},
                "query": "label_values(lynx_build_info, namespace)", "refresh": 2,
                "includeAll": true, "multi": true, "allValue": ".*", "current": {"text": "All", "value": "$__all"},
            },
        ]},
        "panels": panels,
    }))
}

fn chart(Panel(title, unit, curves): &Panel, x: u32, y: u32) -> Value {
    let source = json!({"type": "prometheus", "uid": "${source}"});
    let targets = ('A'..).zip(*curves).map(|(letter, (expression, name))| {
        json!({"refId": letter, "expr": expression, "legendFormat": name, "datasource": source})
    });
    json!({
        "type": "timeseries", "title": title, "datasource": source,
        "gridPos": {"h": 8, "w": 12, "x": x, "y": y},
        "fieldConfig": {"defaults": {"unit": unit}, "overrides": []},
        "targets": targets.collect::<Vec<_>>(),
    })
}
