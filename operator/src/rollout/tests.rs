mod model;

use std::collections::BTreeMap;

use super::*;
use model::{Cluster, Event, Spec, Workload};

fn spec(generation: u8, prefill: u8, decode: u8) -> Spec {
    Spec {
        generation,
        prefill_revision: false,
        decode_revision: false,
        prefill: prefill - 1,
        decode: decode - 1,
    }
}

#[test]
fn whatever_happens_pairs_are_kept_the_surge_is_and_it_ends() {
    bolero::check!()
        .with_type::<(Spec, u8, Vec<Event>)>()
        .for_each(|(first, surge, events)| {
            let first = Spec {
                generation: first.generation % 2,
                ..*first
            };
            let mut cluster = Cluster::running(first, u32::from(surge % 2) + 1);
            for event in events {
                cluster.happens(*event);
            }
            if cluster.spec.works() {
                cluster.settle();
            }
        });
}

#[test]
fn a_change_of_generation_brings_up_a_pair_before_one_goes() {
    let mut cluster = Cluster::running(spec(0, 1, 2), 1);
    cluster.spec = spec(1, 1, 2);
    let plan = plan(&cluster.world());
    assert_eq!(
        plan.prefill,
        Wanted::from([("g0-0".into(), 1), ("g1-0".into(), 1)])
    );
    assert_eq!(
        plan.decode,
        Wanted::from([("g0-0".into(), 2), ("g1-0".into(), 1)])
    );
    let step = plan.step.unwrap();
    assert_eq!((step.old_prefill, step.old_decode), (1, 2));
    assert_eq!(
        step.waits,
        Wait::Drains,
        "nothing new is there yet to wait for"
    );
    let rounds = cluster.settle();
    assert!(rounds < 40, "{rounds}");
}

#[test]
fn a_change_of_one_role_leaves_the_other_alone() {
    let mut cluster = Cluster::running(spec(0, 2, 2), 1);
    let [prefill, _] = cluster.workloads.clone();
    cluster.spec.decode_revision = true;
    cluster.settle();
    let [after, _] = &cluster.workloads;
    let names = |all: &BTreeMap<String, Workload>| -> Vec<_> {
        all.values()
            .flat_map(|workload| &workload.pods)
            .map(|pod| pod.name.clone())
            .collect()
    };
    assert_eq!(names(&prefill), names(after));
}

#[test]
fn a_rollout_that_never_comes_up_keeps_the_old_pairs_and_goes_back() {
    let mut cluster = Cluster::running(spec(0, 2, 3), 1);
    cluster.spec = spec(2, 2, 3);
    for _ in 0..50 {
        for event in [Event::AgentsJoin, Event::Look, Event::Kubelet, Event::Time] {
            cluster.happens(event);
        }
    }
    let world = cluster.world();
    let working = world.working();
    assert_eq!((working.prefill, working.decode), (2, 3));
    assert_eq!(plan(&world).step.unwrap().waits, Wait::Pods);
    cluster.spec = spec(0, 2, 3);
    cluster.settle();
}

#[test]
fn an_operator_that_just_started_drains_nobody_it_has_not_heard_of() {
    let mut cluster = Cluster::running(spec(0, 1, 1), 1);
    cluster.spec = spec(1, 1, 1);
    cluster.look();
    for event in [
        Event::Kubelet,
        Event::Kubelet,
        Event::Kubelet,
        Event::OperatorStarts,
    ] {
        cluster.happens(event);
    }
    let plan = plan(&cluster.world());
    assert_eq!(plan.decode["g0-0"], 1);
    assert_eq!(plan.step.unwrap().waits, Wait::Agents);
    cluster.settle();
}

#[test]
fn without_a_floor_the_old_pods_go_first() {
    let cluster = Cluster::running(spec(0, 1, 2), 1);
    let mut world = cluster.world();
    world.prefill.target = spec(1, 1, 2).target(Role::Prefill);
    world.decode.target = spec(1, 1, 2).target(Role::Decode);
    world.limits = Limits {
        surge: 0,
        keep: false,
    };
    let plan = plan(&world);
    assert_eq!(
        plan.decode,
        Wanted::from([("g0-0".into(), 0), ("g1-0".into(), 0)])
    );
    assert_eq!(
        plan.prefill,
        Wanted::from([("g0-0".into(), 0), ("g1-0".into(), 0)])
    );
}
