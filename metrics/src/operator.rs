//! The operator's metrics.

use crate::Kind::{Counter, Gauge, Histogram};
use crate::Values::{Described, Of};
use crate::{By, Group, Label, Metric, Unit, group};

/// Upper bounds for a look at a deployment, and for a request to the API server: from one that asks nothing to one that
/// waits for a server with other things to do.
const LOOKS: &[f64] = &[
    0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0,
];
/// What requests ask.
const VERBS: Label = Label {
    name: "verb",
    values: Of(&[
        "get", "list", "watch", "create", "update", "apply", "patch", "delete", "other",
    ]),
};
/// Of the kinds that a deployment is made of.
const KINDS: Label = Label {
    name: "kind",
    values: Described("the object's kind, one of those that a deployment is made of"),
};
/// The deployment's namespace.
const NAMESPACE: Label = Label {
    name: "namespace",
    values: Described("the deployment's namespace"),
};
/// Which deployment.
const DEPLOYMENT: Label = Label {
    name: "deployment",
    values: Described("the deployment"),
};

group! {
    /// What the operator does.
    OPERATOR = "The operator" {
        DURATION: Histogram(LOOKS), Seconds, Operator, "lynx_operator_reconcile_duration_seconds" []
            "How long a look at a deployment takes";
        RECONCILES: Counter, None, Operator, "lynx_operator_reconciles_total" []
            "Looks at a deployment";
        ERRORS: Counter, None, Operator, "lynx_operator_reconcile_errors_total" [
            Label { name: "reason", values: Described("the kind of error, as in the deployment's conditions") }
        ] "Looks that failed, by reason";
        APPLIED: Counter, None, Operator, "lynx_operator_objects_applied_total" [KINDS]
            "Objects that were written, by kind";
        STATUSES: Counter, None, Operator, "lynx_operator_statuses_written_total" []
            "Statuses that were written";
        API_REQUESTS: Counter, None, Operator, "lynx_operator_api_requests_total" [
            VERBS,
            Label { name: "code", values: Described("the answer's HTTP status; `none` where no answer came") }
        ] "Requests to the API server, of leases and events too";
        API_DURATION: Histogram(LOOKS), Seconds, Operator, "lynx_operator_api_request_duration_seconds" [VERBS]
            "From a request to the API server until its answer begins";
        WATCHES_FAILED: Counter, None, Operator, "lynx_operator_watch_failures_total" [KINDS]
            "Watches of what deployments are made of that broke, or could not be opened; each is opened again within seconds";
        LEADING: Gauge, None, Operator, "lynx_operator_leading" []
            "1 where this replica leads";
        AGENTS: Gauge, None, Operator, "lynx_operator_agents" []
            "Agents that have joined";
        CERTIFICATE_EXPIRES: Gauge, Seconds, Operator, "lynx_operator_certificate_expiry_timestamp_seconds" [NAMESPACE, DEPLOYMENT]
            "When the certificate ends that the operator issued for a deployment's agents, in seconds since the Unix epoch";
        ANCHOR_WIDTH: Gauge, None, Operator, "lynx_operator_anchor_width" [NAMESPACE, DEPLOYMENT]
            "The anchor's mean width in bits, by deployment";
    }
}

/// All that the operator serves.
pub const GROUPS: &[Group] = &[OPERATOR];
