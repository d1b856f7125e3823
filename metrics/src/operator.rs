//! The operator's metrics.

use crate::Kind::{Counter, Gauge, Histogram};
use crate::Values::Described;
use crate::{By, Group, Label, Metric, Unit, group};

/// Upper bounds for a look at a deployment: a handful of requests to the API server.
const LOOKS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

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
        APPLIED: Counter, None, Operator, "lynx_operator_objects_applied_total" [
            Label { name: "kind", values: Described("the object's kind, one of those that a deployment is made of") }
        ] "Objects that were written, by kind";
        STATUSES: Counter, None, Operator, "lynx_operator_statuses_written_total" []
            "Statuses that were written";
        LEADING: Gauge, None, Operator, "lynx_operator_leading" []
            "1 where this replica leads";
        AGENTS: Gauge, None, Operator, "lynx_operator_agents" []
            "Agents that have joined";
        ANCHOR_WIDTH: Gauge, None, Operator, "lynx_operator_anchor_width" [
            Label { name: "namespace", values: Described("the deployment's namespace") },
            Label { name: "deployment", values: Described("the deployment") }
        ] "The anchor's mean width in bits, by deployment";
    }
}

/// All that the operator serves.
pub const GROUPS: &[Group] = &[OPERATOR];
