use super::*;

const TICK: Duration = Duration::from_secs(2);

fn settings() -> Settings {
    Settings {
        min: 1,
        max: 10,
        target: 8.0,
        up: Duration::from_secs(10),
        down: Duration::from_secs(60),
    }
}

fn at(tick: u32) -> Timestamp {
    Timestamp::from_origin(Duration::from_secs(1000)) + TICK * tick
}

fn warm(value: f64) -> Load {
    Load {
        value,
        ready_since: Some(Timestamp::ORIGIN),
    }
}

/// A perfectly balanced fleet under a load that is a function of the tick.
fn simulate(ticks: u32, load: impl Fn(u32) -> f64) -> Vec<u32> {
    let mut autoscaler = Autoscaler::default();
    let mut current = 1;
    (0..ticks)
        .map(|tick| {
            let share = load(tick) / f64::from(current);
            let loads: Vec<_> = (0..current).map(|_| warm(share)).collect();
            current = autoscaler.desired(&settings(), &loads, current, at(tick));
            current
        })
        .collect()
}

#[test]
fn a_lasting_load_gets_its_replicas_and_gives_them_back() {
    let sizes = simulate(200, |tick| if tick < 60 { 30.0 } else { 3.0 });
    assert_eq!(sizes[59], 4);
    assert_eq!(sizes[199], 1);
}

#[test]
fn a_burst_shorter_than_the_window_changes_nothing() {
    let sizes = simulate(100, |tick| if tick % 20 == 0 { 80.0 } else { 4.0 });
    assert!(sizes.iter().all(|size| *size == 1), "{sizes:?}");
}

#[test]
fn a_load_near_the_edge_does_not_swing_between_two_sizes() {
    for load in [7.9, 8.1, 15.0, 16.2, 17.0, 23.9] {
        let sizes = simulate(500, |_| load);
        let mut changes = sizes.clone();
        changes.dedup();
        assert!(changes.len() <= 3, "{load}: {changes:?}");
        assert!(changes.is_sorted(), "{load}: {changes:?}");
    }
}

#[test]
fn a_replica_goes_only_where_the_rest_can_carry_its_load() {
    let loads = [warm(6.0), warm(6.0)];
    assert_eq!(recommend(&settings(), &loads, 2, at(0)), 2);
    let loads = [warm(3.0), warm(3.0)];
    assert_eq!(recommend(&settings(), &loads, 2, at(0)), 1);
}

#[test]
fn samples_of_a_cold_replica_are_left_out() {
    let cold = Load {
        value: 500.0,
        ready_since: Some(at(0)),
    };
    assert_eq!(recommend(&settings(), &[warm(4.0), cold], 2, at(1)), 2);
    let starting = Load {
        value: 0.0,
        ready_since: None,
    };
    let loads = [warm(20.0), starting, starting];
    assert_eq!(
        recommend(&settings(), &loads, 3, at(1)),
        3,
        "what was added has not taken its share yet"
    );
}

#[test]
fn without_a_sample_nothing_moves() {
    assert_eq!(recommend(&settings(), &[], 3, at(0)), 3);
}

#[test]
fn bounds_hold_for_any_load() {
    bolero::check!()
        .with_type::<Vec<u16>>()
        .for_each(|loads: &Vec<u16>| {
            let mut autoscaler = Autoscaler::default();
            let mut current = 5;
            for (tick, load) in (0u32..).zip(loads) {
                let loads = [warm(f64::from(*load))];
                current = autoscaler.desired(&settings(), &loads, current, at(tick));
                assert!((1..=10).contains(&current));
            }
        });
}

#[test]
fn quantities_of_bytes_are_read_as_kubernetes_writes_them() {
    assert_eq!(bytes("512Mi"), Some(536_870_912.0));
    assert_eq!(bytes("2G"), Some(2e9));
    assert_eq!(bytes("1e3"), Some(1000.0));
    for wrong in ["", "Mi", "0", "-1Gi", "inf", "NaN", "1Xi"] {
        assert_eq!(bytes(wrong), None, "{wrong}");
    }
}
