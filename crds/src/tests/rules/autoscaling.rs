//! Of autoscaling.

use serde_json::{Value, json};

use super::{Case, GPUS, case, vllm};

const AUTO: &str = "/spec/decode/autoscaling";

fn scaling(target: &Value) -> Value {
    json!({"maxReplicas": 4, "target": target})
}

fn ratio(min: &str, max: &str) -> Value {
    json!({"maxReplicas": 4, "target": {"runningRequests": 4}, "ratio": {"min": min, "max": max},
        "prefill": {"maxReplicas": 4}})
}

fn with_prefill(prefill: Value, target: Value) -> (&'static str, Value) {
    let auto = json!({"maxReplicas": 4, "prefill": prefill, "target": target});
    (AUTO, auto)
}

fn both() -> Value {
    json!({"runningRequests": 4, "timeToAnchor": "1s"})
}

pub(super) fn targets() -> Vec<Case> {
    vec![
        case(
            [(
                AUTO,
                scaling(&json!({"runningRequests": 4, "pendingKvBytes": "1Gi"})),
            )],
            [(AUTO, scaling(&json!({})))],
            "give autoscaling a target",
        ),
        case(
            [with_prefill(json!({"maxReplicas": 2}), both())],
            [(AUTO, scaling(&both()))],
            "move the prefill pool",
        ),
        case(
            [(AUTO, ratio("1:4", "1:1"))],
            [with_prefill(
                json!({"maxReplicas": 2}),
                json!({"runningRequests": 4}),
            )],
            "how many prefill pods there should be",
        ),
        case(
            [with_prefill(json!({"maxReplicas": 2}), both())],
            [with_prefill(
                json!({"maxReplicas": 2}),
                json!({"timeToAnchor": "1s"}),
            )],
            "how many decode pods there should be",
        ),
        case(
            [(AUTO, scaling(&json!({"pendingKvBytes": "512Mi"})))],
            [(AUTO, scaling(&json!({"pendingKvBytes": "0"})))],
            "more than nothing, such as 512Mi",
        ),
    ]
}

pub(super) fn bounds() -> Vec<Case> {
    let bounds = |min: i32, max: i32| json!({"minReplicas": min, "maxReplicas": max, "target": {"runningRequests": 4}});
    let within = |min: i32, most: i32, ratio: Value| {
        let auto = json!({"minReplicas": min, "maxReplicas": 8, "prefill": {"maxReplicas": most},
            "target": {"runningRequests": 4}, "ratio": ratio});
        (AUTO, auto)
    };
    let one_for_two = json!({"min": "1:2", "max": "1:1"});
    let gpus = || (GPUS, json!({"resourceName": "nvidia.com/gpu", "count": 2}));
    let budget = |gpus: u32| {
        let auto = json!({"minReplicas": 2, "maxReplicas": 4, "target": {"runningRequests": 4}, "gpuBudget": gpus});
        (AUTO, auto)
    };
    vec![
        case(
            [(AUTO, bounds(2, 2))],
            [(AUTO, bounds(3, 2))],
            "autoscaling.minReplicas is more than maxReplicas",
        ),
        case(
            [with_prefill(
                json!({"minReplicas": 2, "maxReplicas": 2}),
                both(),
            )],
            [with_prefill(
                json!({"minReplicas": 3, "maxReplicas": 2}),
                both(),
            )],
            "autoscaling.prefill.minReplicas is more",
        ),
        case(
            [(AUTO, ratio("1:4", "1:1"))],
            [(AUTO, ratio("1/4", "1:1"))],
            "prefill:decode",
        ),
        case(
            [(AUTO, ratio("1:3", "1:3"))],
            [(AUTO, ratio("1:2", "1:3"))],
            "than ratio.max",
        ),
        case(
            [within(8, 4, one_for_two.clone())],
            [within(8, 3, one_for_two)],
            "no two pools keep to",
        ),
        case(
            [budget(4), gpus(), vllm()],
            [budget(4)],
            "counts GPUs, and no pod has any",
        ),
        case(
            [budget(4), gpus(), vllm()],
            [budget(3), gpus(), vllm()],
            "less than the fewest pods of both pools take",
        ),
    ]
}
