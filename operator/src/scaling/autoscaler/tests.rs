//! Traces of load through all that decides here: reports, the registry, the governor, one write, drains.

mod world;

use lynx_governor::replicas::Why;
use serde_json::{Value, json};

use super::*;
use world::{Trace, World, number};

const HOUR: u64 = 3600;

fn object(autoscaling: &Value) -> LynxDeployment {
    let object = serde_json::from_value(json!({
        "apiVersion": "lynx.dev/v1alpha1", "kind": "LynxDeployment",
        "metadata": {"name": "smol", "namespace": "team"},
        "spec": {
            "model": {"name": "smol", "source": {"hostPath": {"path": "/m"}}},
            "engine": {"type": "Custom", "image": "x", "tensorParallelSize": 2},
            "prefill": {"gpus": {"resourceName": "a/gpu", "count": 2}},
            "decode": {"gpus": {"resourceName": "a/gpu", "count": 1}, "autoscaling": autoscaling},
        },
    }));
    object.unwrap()
}

/// Both pools, between a floor and what sixteen GPUs carry.
fn both(target: &Value) -> LynxDeployment {
    object(&json!({
        "minReplicas": 1, "maxReplicas": 16, "prefill": {"maxReplicas": 6}, "target": target,
        "ratio": {"min": "1:6", "max": "2:1"}, "gpuBudget": 16,
    }))
}

fn requests() -> Value {
    json!({"runningRequests": 10, "timeToAnchor": "1500ms"})
}

fn never(_: u64) -> bool {
    false
}

fn trace(load: fn(u64) -> f64) -> Trace {
    Trace {
        load,
        lost: never,
        start: 120,
        places: 100,
    }
}

/// Between 0.5 and 5 requests a second, twice in four hours.
fn by_day(second: u64) -> f64 {
    let turn = std::time::Duration::from_secs(second).as_secs_f64() / 7200.0;
    2.75 - 2.25 * (turn * std::f64::consts::TAU).cos()
}

fn kept(world: &World) {
    assert_eq!(world.lost, 0, "a pod went with requests");
    assert!(world.most_gpus <= 16, "{} GPUs", world.most_gpus);
    for write in &world.writes {
        let [prefill, decode] = write.to;
        assert!(
            (1..=6).contains(&prefill) && (1..=16).contains(&decode),
            "{write:?}"
        );
    }
}

fn share(part: usize, of: usize) -> f64 {
    number(part) / number(of.max(1))
}

#[test]
fn by_day_and_night_both_pools_follow_within_the_budget_and_no_request_is_lost() {
    for target in [
        requests(),
        json!({"verifiedTokensPerSecond": 300, "timeToAnchor": "1500ms"}),
    ] {
        let mut world = World::new(both(&target), trace(by_day));
        world.run(4 * HOUR);
        kept(&world);
        let moved = |pool: usize| {
            let writes = world.writes.iter();
            writes
                .filter(|write| write.from[pool] != write.to[pool])
                .count()
        };
        assert!(moved(0) >= 4 && moved(1) >= 4, "{:?}", world.writes);
        assert!(world.writes.len() <= 48, "{} writes", world.writes.len());
        let late = share(world.late, world.served);
        // Pods take two minutes to start, and requests of this world come evenly, so that nothing is late, and nothing asks for a
        // pod, until the pods that there are can't keep up: what comes until the next one is ready is late.
        assert!(late < 0.11, "{target}: {late}");
    }
}

#[test]
fn a_burst_from_the_floor_grows_both_pools_and_they_return_to_the_floor() {
    let burst = |second| {
        if (HOUR..2 * HOUR).contains(&second) {
            5.0
        } else {
            0.05
        }
    };
    let mut world = World::new(both(&requests()), trace(burst));
    world.run(HOUR);
    assert_eq!(world.replicas(), [1, 1], "{:?}", world.writes);
    world.run(2 * HOUR);
    let [prefill, decode] = world.replicas();
    assert!(prefill >= 3 && decode >= 3, "{:?}", world.writes);
    world.run(4 * HOUR);
    assert_eq!(world.replicas(), [1, 1], "{:?}", world.writes);
    kept(&world);
}

#[test]
fn one_write_moves_both_pools_where_both_are_to_move() {
    let follow = object(&json!({
        "minReplicas": 1, "maxReplicas": 8, "prefill": {"maxReplicas": 8}, "gpuBudget": 24,
        "target": {"runningRequests": 8}, "ratio": {"min": "1:1", "max": "1:1"},
    }));
    let step = |second| if second < 600 { 0.5 } else { 4.0 };
    let mut world = World::new(follow, trace(step));
    world.run(HOUR);
    assert!(
        world.writes.iter().all(|write| write.to[0] == write.to[1]),
        "{:?}",
        world.writes
    );
    let [prefill, decode] = world.replicas();
    assert!(prefill == decode && decode >= 3, "{:?}", world.writes);
}

#[test]
fn pods_that_start_are_not_asked_for_again() {
    let cold = Trace {
        start: 600,
        ..trace(|_| 3.0)
    };
    let mut world = World::new(both(&requests()), cold);
    world.run(600);
    assert!(
        world.writes.is_empty(),
        "nobody is ready: {:?}",
        world.writes
    );
    assert_eq!(world.reasons, [Reason::NoPodReady]);
    world.run(2 * HOUR);
    kept(&world);
    let [_, decode] = world.replicas();
    assert!(
        (2..=5).contains(&decode),
        "eighteen answers at once: {:?}",
        world.writes
    );
}

#[test]
fn where_reports_are_lost_nothing_goes_and_the_reason_is_told() {
    let lost = Trace {
        lost: |second| (HOUR..HOUR + 1200).contains(&second),
        ..trace(|second| if second < HOUR { 3.0 } else { 0.1 })
    };
    let mut world = World::new(both(&requests()), lost);
    world.run(HOUR);
    let before = (world.replicas(), world.writes.len());
    world.run(HOUR + 1200);
    assert_eq!(before, (world.replicas(), world.writes.len()));
    assert_eq!(
        world.reasons.last(),
        Some(&Reason::Governor(Why::NoMetrics))
    );
    world.run(3 * HOUR);
    assert_eq!(world.replicas(), [1, 1], "{:?}", world.writes);
    kept(&world);
}

#[test]
fn every_limit_is_told_by_its_name() {
    let limited = |places, autoscaling: Value, load: fn(u64) -> f64| {
        let trace = Trace {
            places,
            ..trace(load)
        };
        let mut world = World::new(object(&autoscaling), trace);
        world.run(HOUR);
        world.reasons
    };
    let decode_alone = |most: u32, budget: u32| json!({"maxReplicas": most, "target": {"runningRequests": 4}, "gpuBudget": budget});
    let busy = |_| 1.5;
    let cases = [
        (limited(100, decode_alone(2, 99), busy), Why::MaxReplicas),
        (limited(100, decode_alone(9, 4), busy), Why::GpuBudget),
        (limited(2, decode_alone(9, 99), busy), Why::Unschedulable),
    ];
    for (reasons, why) in cases {
        assert!(
            reasons.contains(&Reason::Governor(why)),
            "{why:?}: {reasons:?}"
        );
    }
    let ratio = json!({
        "maxReplicas": 9, "prefill": {"maxReplicas": 2}, "target": {"runningRequests": 4},
        "ratio": {"min": "1:1", "max": "1:1"},
    });
    let reasons = limited(100, ratio, busy);
    let told = [Why::Ratio, Why::MaxReplicas];
    assert!(
        told.iter()
            .any(|why| reasons.contains(&Reason::Governor(*why))),
        "{reasons:?}"
    );
}

#[test]
fn bounds_hold_at_once_and_a_persons_zero_stays() {
    let mut object = both(&requests());
    let decide = |object: &LynxDeployment| {
        let nothing = [Vec::new(), Vec::new()];
        let mut autoscaler = Autoscaler::default();
        autoscaler.decide(object, [Pods::default(); 2], nothing, Timestamp::ORIGIN)
    };
    object.spec.decode.pool.replicas = 30;
    object.spec.prefill.pool.replicas = 9;
    assert_eq!(decide(&object).unwrap().replicas, [6, 16]);
    object.spec.decode.pool.replicas = 0;
    let zero = decide(&object).unwrap();
    assert_eq!(
        (zero.is_change(), zero.reason),
        (false, Reason::Governor(Why::ScaledToZero))
    );
    object.spec.decode.autoscaling = None;
    assert_eq!(decide(&object), None);
}
