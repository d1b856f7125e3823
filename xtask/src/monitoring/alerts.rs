//! The alerts, as a file of rules.

use serde_json::{Value, json};

/// One alert, and what a person is to do about it.
#[derive(Debug)]
pub(super) struct Alert {
    pub(super) name: &'static str,
    pub(super) severity: &'static str,
    /// How long it must be so.
    pub(super) after: &'static str,
    pub(super) expression: &'static str,
    pub(super) summary: &'static str,
    pub(super) meaning: &'static str,
    pub(super) action: &'static str,
}

/// All of them, the gravest first.
pub(super) const ALERTS: &[Alert] = &[
    Alert {
        name: "LynxRequestsFail",
        severity: "critical",
        after: "5m",
        expression: r#"sum by (namespace, pod) (rate(lynx_requests_total{outcome="failed"}[5m])) / sum by (namespace, pod) (rate(lynx_requests_total[5m])) > 0.01"#,
        summary: "Over 1 % of a decode agent's requests fail.",
        meaning: "Clients get errors of the 500s. A transfer that fails is none: the decode engine computes the prompt then.",
        action: "Read the decode agent's log: each failed request has a line with its reason. If the engine is gone, see LynxNoEngine.",
    },
    Alert {
        name: "LynxNoEngine",
        severity: "critical",
        after: "10m",
        expression: "lynx_engine_attached == 0",
        summary: "An agent has had no engine for ten minutes.",
        meaning: "The pod takes no work. Its engine is starting, has ended, or does not fit the agent.",
        action: "Read `/readyz` of the agent, which says why, then the log of the engine's container. Large weights take minutes to load.",
    },
    Alert {
        name: "LynxEngineRefused",
        severity: "warning",
        after: "5m",
        expression: "rate(lynx_engine_refusals_total[5m]) > 0",
        summary: "An agent refuses its engine again and again.",
        meaning: "Engine and agent differ in release, role or layout; wrong tokens would be the alternative.",
        action: "The agent's log names what differs: use the same release, and the role and model that the deployment says.",
    },
    Alert {
        name: "LynxEngineRestarts",
        severity: "warning",
        after: "0m",
        expression: "increase(lynx_engine_attaches_total[30m]) > 3",
        summary: "An engine has come and gone more than three times in half an hour.",
        meaning: "The engine ends under load. Its requests failed each time.",
        action: "Look at the reason of the container's last termination (`kubectl describe pod`): out of memory is the usual one.",
    },
    Alert {
        name: "LynxNoPrefillPeer",
        severity: "warning",
        after: "5m",
        expression: "max by (namespace, pod) (lynx_link_up) == 0",
        summary: "An agent has no link that is up.",
        meaning: "On a decode agent: every prompt is computed by the decode engine, which is slow but right.",
        action: "Look whether prefill pods are ready, whether a network policy is between them (ports 7400 and 7401), and at the decode agent's log, which says why it can't dial.",
    },
    Alert {
        name: "LynxPeersDistrust",
        severity: "warning",
        after: "5m",
        expression: "sum by (namespace, pod, plane) (rate(lynx_tls_handshake_failures_total[5m])) > 0",
        summary: "Agents, or agent and operator, refuse each other's certificates again and again, or only one of them speaks TLS.",
        meaning: "There is no link between the two: prompts are computed by the decode engine. It is also what somebody looks like who has no business there.",
        action: "The log of the side that dials says what is wrong, and `lynx-agent doctor` what to do: one `tls.mode` for all agents, certificates of one CA in all `ca.crt`.",
    },
    Alert {
        name: "LynxCertificateEnds",
        severity: "critical",
        after: "10m",
        expression: "(lynx_tls_certificate_expiry_timestamp_seconds > 0) - time() < 86400",
        summary: "An agent's certificate ends within a day.",
        meaning: "Links that are up go on; when the certificate has ended, no new one comes up.",
        action: "Look at who issues it (`kubectl describe certificate`). An agent that was given a new one and can't use it says why in its log. Where certificates live for hours, edit this alert.",
    },
    Alert {
        name: "LynxKvFails",
        severity: "warning",
        after: "10m",
        expression: "sum by (namespace, pod) (rate(lynx_local_prompts_total[10m])) / sum by (namespace, pod) (rate(lynx_requests_total[10m])) > 0.05",
        summary: "Over 5 % of the prompts are computed by a decode engine, because no KV came.",
        meaning: "Answers are right, and late; the decode engine has less time for tokens.",
        action: "`lynx_kv_failures_total` by `reason` says which way it fails: `no-peer` and `link`, see LynxNoPrefillPeer; `deadline`, the link is too slow for the load or the deadline too short; `peer`, read the prefill agent's log; `content`, run the same release on both.",
    },
    Alert {
        name: "LynxLinkFlaps",
        severity: "warning",
        after: "0m",
        expression: "increase(lynx_links_ended_total[15m]) > 5",
        summary: "An agent's links have ended more than five times in a quarter of an hour.",
        meaning: "Transfers under way were lost each time. A rolling update of many pods does it too, and is no fault.",
        action: "If nothing was rolled out: look for packet loss or a proxy that cuts idle connections between the pods.",
    },
    Alert {
        name: "LynxCorruptChunks",
        severity: "critical",
        after: "0m",
        expression: r#"increase(lynx_link_dropped_chunks_total{reason="corrupt"}[1h]) > 0"#,
        summary: "A chunk came with another checksum than it was sent with.",
        meaning: "Nothing of it was merged, and its link was ended. Memory, a network card or a driver changes bytes.",
        action: "Find the pair of nodes by the agents' logs, take them out of service, and test their memory and network cards.",
    },
    Alert {
        name: "LynxQueueLong",
        severity: "warning",
        after: "10m",
        expression: "histogram_quantile(0.95, sum by (le, namespace) (rate(lynx_queue_seconds_bucket[10m]))) > 5",
        summary: "One request in twenty waits over five seconds for its engine.",
        meaning: "There are more requests than the decode engines can take.",
        action: "Add decode replicas, or lower `engine.queue` so that clients hear of it at once.",
    },
    Alert {
        name: "LynxDraftsWasted",
        severity: "info",
        after: "30m",
        expression: "sum by (namespace) (rate(lynx_accepted_tokens_total[30m])) / sum by (namespace) (rate(lynx_drafted_tokens_total[30m])) < 0.3",
        summary: "Less than a third of the drafted tokens stand.",
        meaning: "Drafting costs the decode engine more than it saves clients.",
        action: "Compare the widths (`lynx_accepted_tokens_total` by `width`): raise the anchor's least width, or make a profile of this model with `lynx calibrate`.",
    },
    Alert {
        name: "LynxResidualsStarve",
        severity: "info",
        after: "15m",
        expression: "rate(lynx_credit_starved_total[15m]) > 0",
        summary: "Residuals wait for other links' anchors until they are let through for fairness.",
        meaning: "Anchors arrive all the time: the network into this node is full. Full precision comes late.",
        action: "Add decode replicas on other nodes, or narrow the anchor.",
    },
    Alert {
        name: "LynxMemoryPoolFull",
        severity: "warning",
        after: "10m",
        expression: "lynx_memory_bytes / lynx_memory_limit_bytes > 0.9",
        summary: "A bounded pool of an agent's memory is nearly full.",
        meaning: "Work waits or is refused, by design. Of `receive` each link takes two windows: the next peer can't be linked.",
        action: "Raise the pool's bound (`transfer.receiveBuffer` for `receive`) and the container's memory limit with it, or add replicas.",
    },
    Alert {
        name: "LynxDrainStuck",
        severity: "warning",
        after: "15m",
        expression: "(lynx_draining == 1) and (lynx_in_flight > 0)",
        summary: "An agent has drained for a quarter of an hour and still has work.",
        meaning: "A long answer, or a client that does not read.",
        action: "Delete the pod if it is not worth waiting: its grace period ends what is left.",
    },
    Alert {
        name: "LynxNoLeader",
        severity: "warning",
        after: "2m",
        expression: "(sum(lynx_operator_leading) or vector(0)) < 1",
        summary: "No replica of the operator leads.",
        meaning: "Deployments keep working as they are; nothing is reconciled or scaled.",
        action: "Look at the operator's pods and at its Lease; replicas that can't reach the API server don't lead.",
    },
    Alert {
        name: "LynxReconcileFails",
        severity: "warning",
        after: "15m",
        expression: "sum by (namespace, reason) (rate(lynx_operator_reconcile_errors_total[10m])) > 0",
        summary: "The operator fails again and again.",
        meaning: "Some deployment is not what its spec says. The label `reason` says which kind of error it is.",
        action: "`kubectl describe lynx` says for each deployment what is wrong.",
    },
    Alert {
        name: "LynxReconcileSlow",
        severity: "warning",
        after: "15m",
        expression: "histogram_quantile(0.99, sum by (le, namespace) (rate(lynx_operator_reconcile_duration_seconds_bucket[10m]))) > 2",
        summary: "One look at a deployment in a hundred takes over two seconds.",
        meaning: "Changes of specs, and drains, are late. A look that changes nothing asks the API server for nothing, so it is writes that are slow.",
        action: "Compare `lynx_operator_api_request_duration_seconds` by `verb`: where all are slow it is the API server, or the operator's processor limit.",
    },
    Alert {
        name: "LynxApiRequestsFail",
        severity: "warning",
        after: "10m",
        expression: r#"sum by (namespace, verb, code) (rate(lynx_operator_api_requests_total{code=~"none|401|403|429|5.."}[5m])) > 0.1"#,
        summary: "The API server refuses the operator's requests, or doesn't answer.",
        meaning: "Deployments keep working as they are; changes wait. Conflicts (409) and what isn't there (404) don't count.",
        action: "The label `code` says why: 401 and 403 are rights, 429 is load, `none` and 5xx the API server itself.",
    },
    Alert {
        name: "LynxWatchesBreak",
        severity: "warning",
        after: "10m",
        expression: "sum by (namespace, kind) (increase(lynx_operator_watch_failures_total[10m])) > 20",
        summary: "A watch of the operator breaks again and again.",
        meaning: "What the operator knows of this kind of object is old; it decides on that.",
        action: "The operator's log says what the API server answered. 403: its role lacks `list` or `watch` of the kind.",
    },
    Alert {
        name: "LynxCertificateNotRenewed",
        severity: "critical",
        after: "30m",
        expression: "lynx_operator_certificate_expiry_timestamp_seconds - time() < 259200",
        summary: "A certificate that the operator issues ends within three days.",
        meaning: "It is renewed after two thirds of its life, so renewing has failed for days. When it has ended, no link of this deployment comes up.",
        action: "`kubectl describe lynx` says why (`NoCertificate`, `ApplyFailed`). Where `certificates.leafSeconds` is less than nine days, edit this alert.",
    },
];

/// Where it is said what to look at, and what to do. The chart puts the address of a copy of the pages in front.
pub(super) fn runbook(alert: &Alert) -> String {
    format!("docs/operations.md#{}", alert.name.to_lowercase())
}

/// The rules, as Prometheus and a PrometheusRule have them. JSON is YAML.
pub(super) fn rules() -> String {
    let rules: Vec<Value> = ALERTS.iter().map(rule).collect();
    super::pretty(&json!({"groups": [{"name": "lynx", "rules": rules}]}))
}

fn rule(alert: &Alert) -> Value {
    json!({
        "alert": alert.name,
        "expr": alert.expression,
        "for": alert.after,
        "labels": {"severity": alert.severity},
        "annotations": {
            "summary": alert.summary,
            "description": alert.meaning,
            "runbook_url": runbook(alert),
        },
    })
}
