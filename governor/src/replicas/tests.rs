use std::vec;

use super::*;

fn settings() -> Settings {
    Settings {
        prefill: Some(Bounds { min: 1, max: 8 }),
        decode: Bounds { min: 1, max: 16 },
        targets: Targets {
            running: Some(8.0),
            ..Targets::default()
        },
        ratio: Some(Ratio {
            min: (1, 4),
            max: (1, 1),
        }),
        budget: Some(Budget {
            gpus: 12,
            prefill: 2,
            decode: 1,
        }),
        up: Duration::from_secs(10),
        down: Duration::from_secs(60),
    }
}

fn at(second: u32) -> Timestamp {
    Timestamp::from_origin(Duration::from_secs(1000 + u64::from(second)))
}

/// So many pods, each of which carries so much, and has for long.
fn pool(replicas: u32, running: f64) -> Pool {
    let load = Load {
        ready_since: Some(Timestamp::ORIGIN),
        running,
        ..Load::default()
    };
    Pool {
        replicas,
        holding: replicas,
        loads: vec![load; replicas as usize],
        ..Pool::default()
    }
}

/// What is decided once the same has been seen for two minutes.
fn settled(settings: &Settings, pools: [&Pool; 2]) -> Decision {
    let mut scaler = Scaler::default();
    for second in 0..120 {
        let decision = scaler.decide(settings, pools, at(second));
        if decision.replicas != pools.map(|pool| pool.replicas) {
            return decision;
        }
    }
    scaler.decide(settings, pools, at(120))
}

#[test]
fn both_pools_grow_in_one_decision() {
    let decision = settled(&settings(), [&pool(1, 0.0), &pool(3, 14.0)]);
    assert_eq!(decision.replicas, [2, 6]);
    assert_eq!(decision.why, Why::Load);
}

#[test]
fn a_wish_beyond_the_budget_is_cut_and_told() {
    let decision = settled(&settings(), [&pool(2, 0.0), &pool(8, 12.0)]);
    assert_eq!(
        decision.replicas,
        [2, 8],
        "four GPUs and eight are all twelve"
    );
    assert_eq!(decision.why, Why::GpuBudget);
}

#[test]
fn pods_that_drain_keep_their_gpus_until_they_are_gone() {
    let draining = Pool {
        holding: 5,
        ..pool(1, 0.0)
    };
    let decision = settled(&settings(), [&draining, &pool(2, 20.0)]);
    assert_eq!(
        decision.replicas,
        [1, 2],
        "ten GPUs are held, and two are used"
    );
    assert_eq!(decision.why, Why::GpuBudget);
    let decision = settled(&settings(), [&pool(1, 0.0), &pool(2, 20.0)]);
    assert_eq!(decision.replicas, [2, 5], "and now there is room for both");
}

#[test]
fn no_data_is_no_zero_load() {
    let silent = Pool {
        loads: vec![],
        ..pool(4, 0.0)
    };
    let decision = settled(&settings(), [&pool(1, 0.0), &silent]);
    assert_eq!((decision.replicas, decision.why), ([1, 4], Why::NoMetrics));
    let mut half = pool(4, 3.0);
    half.loads.truncate(2);
    let decision = settled(&settings(), [&pool(1, 0.0), &half]);
    assert_eq!(decision.replicas, [1, 3], "two may carry what nobody knows");
}

#[test]
fn what_has_no_place_is_given_up_and_not_asked_for_again_soon() {
    let mut stuck = pool(6, 30.0);
    stuck.loads.truncate(3);
    stuck.unplaced = 3;
    stuck.unplaced_since = Some(Timestamp::ORIGIN);
    let decision = settled(&settings(), [&pool(2, 0.0), &stuck]);
    assert_eq!(decision.replicas, [2, 3]);
    assert_eq!(decision.why, Why::Unschedulable);
}

#[test]
fn pods_without_a_place_do_not_keep_a_pool_from_shrinking() {
    let mut pending = pool(4, 3.0);
    pending.loads.truncate(2);
    pending.unplaced = 2;
    pending.unplaced_since = Some(at(0));
    let decision = settled(&settings(), [&pool(1, 0.0), &pending]);
    assert_eq!(decision.replicas, [1, 1]);
}

#[test]
fn zero_is_a_persons_word() {
    let decision = settled(&settings(), [&pool(1, 0.0), &pool(0, 0.0)]);
    assert_eq!(
        (decision.replicas, decision.why),
        ([1, 0], Why::ScaledToZero)
    );
}

#[test]
fn a_pod_that_has_just_started_says_little() {
    let mut cold = pool(2, 4.0);
    for load in &mut cold.loads {
        load.ready_since = Some(at(100));
    }
    let decision = settled(&settings(), [&pool(1, 0.0), &cold]);
    assert_eq!(decision.replicas, [1, 2]);
}

#[test]
fn bounds_and_budget_hold_whatever_is_reported() {
    bolero::check!()
        .with_type::<Vec<(u8, u8, u8)>>()
        .for_each(|seen: &Vec<(u8, u8, u8)>| {
            let (settings, mut scaler) = (settings(), Scaler::default());
            let mut replicas = [1, 1];
            for (second, (running, leaving, unplaced)) in (0..).step_by(20).zip(seen) {
                let [prefill, mut decode] = replicas.map(|count| pool(count, f64::from(*running)));
                decode.holding += u32::from(leaving % 3);
                decode.unplaced = u32::from(*unplaced).min(decode.replicas);
                decode.unplaced_since = (decode.unplaced > 0).then(|| at(0));
                let held = 2 * prefill.holding + decode.holding;
                let before = replicas;
                replicas = scaler
                    .decide(&settings, [&prefill, &decode], at(second))
                    .replicas;
                assert!((1..=8).contains(&replicas[0]) && (1..=16).contains(&replicas[1]));
                let grown = 2 * replicas[0].saturating_sub(before[0])
                    + replicas[1].saturating_sub(before[1]);
                assert!(
                    grown == 0 || held + grown <= 12,
                    "{before:?} to {replicas:?}"
                );
            }
        });
}
