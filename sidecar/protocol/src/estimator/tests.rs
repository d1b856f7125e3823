use super::*;

const RATE: BitRate = BitRate::from_megabits_per_second(800);

fn at(millis: u64) -> Timestamp {
    Timestamp::from_origin(Duration::from_millis(millis))
}

/// 100 bytes per microsecond.
fn delivered(millis: u64) -> Bytes {
    Bytes::new(millis * 100_000)
}

#[test]
fn a_steady_flow_gives_its_rate() {
    let mut estimator = LinkEstimator::new();
    for ms in 0..100 {
        estimator.on_delivery(delivered(ms), Duration::from_millis(ms), at(ms));
    }
    assert_eq!(estimator.estimate().rate, RATE);
    assert_eq!(estimator.estimate().chunk(), 100_000);
}

#[test]
fn time_without_anything_to_send_is_not_measured() {
    let mut estimator = LinkEstimator::new();
    let mut sent = Bytes::ZERO;
    // A burst of 30 ms every second, each followed by an idle mark.
    for burst in 0..20 {
        let start = burst * 1000;
        for ms in 0..30 {
            sent += Bytes::new(100_000);
            if ms == 29 {
                estimator.on_idle(sent);
            }
            let now = start + ms;
            estimator.on_delivery(sent, Duration::from_millis(now), at(now));
        }
    }
    assert_eq!(estimator.estimate().rate, RATE);
}

#[test]
fn a_prefill_that_publishes_layer_by_layer_gives_the_rate_of_the_link_and_not_its_own() {
    let mut estimator = LinkEstimator::new();
    let mut sent = Bytes::ZERO;
    // Six chunks of 2 ms for each layer, of which one takes 40 ms: 800 Mbit/s, a quarter of the time.
    for layer in 0..30 {
        estimator.on_idle(sent);
        for chunk in 0..6 {
            sent += Bytes::new(200_000);
            let now = layer * 40 + chunk * 2;
            estimator.on_delivery(sent, Duration::from_millis(now), at(now));
        }
    }
    assert_eq!(estimator.estimate().rate, RATE);
}

#[test]
fn bursts_that_lie_seconds_apart_are_no_sample_together() {
    let mut estimator = LinkEstimator::new();
    let mut sent = Bytes::ZERO;
    for burst in 0..20 {
        estimator.on_idle(sent);
        for chunk in 0..6 {
            sent += Bytes::new(200_000);
            let now = burst * 2000 + chunk * 2;
            estimator.on_delivery(sent, Duration::from_millis(now), at(now));
        }
    }
    assert_eq!(estimator.estimate().rate, BitRate::ZERO);
}

#[test]
fn a_trickle_gives_no_rate_at_all() {
    let mut estimator = LinkEstimator::new();
    for second in 1..20 {
        let sent = Bytes::from_kib(second);
        estimator.on_idle(sent);
        estimator.on_delivery(sent, Duration::from_secs(second), at(second * 1000));
    }
    assert_eq!(estimator.estimate().rate, BitRate::ZERO);
}

#[test]
fn jitter_of_acknowledgements_does_not_enter_the_rate() {
    let mut estimator = LinkEstimator::new();
    for ms in 0..100 {
        // All acknowledgements of ten milliseconds come at once.
        estimator.on_delivery(delivered(ms), Duration::from_millis(ms), at(ms / 10 * 10));
    }
    assert_eq!(estimator.estimate().rate, RATE);
}

#[test]
fn a_slower_link_is_believed_once_the_window_has_passed() {
    let mut estimator = LinkEstimator::new();
    let mut sent = Bytes::ZERO;
    for ms in 0..5000 {
        sent += Bytes::new(if ms < 1000 { 100_000 } else { 10_000 });
        estimator.on_delivery(sent, Duration::from_millis(ms), at(ms));
        if ms == 2000 {
            assert_eq!(estimator.estimate().rate, RATE);
        }
    }
    assert_eq!(
        estimator.estimate().rate,
        BitRate::from_megabits_per_second(80)
    );
}

#[test]
fn an_idle_link_keeps_its_estimate() {
    let mut estimator = LinkEstimator::new();
    for ms in 0..100 {
        estimator.on_delivery(delivered(ms), Duration::from_millis(ms), at(ms));
    }
    estimator.on_idle(delivered(99));
    let hour = 3_600_000;
    estimator.on_delivery(delivered(100), Duration::from_millis(hour), at(hour));
    assert_eq!(estimator.estimate().rate, RATE);
}

#[test]
fn the_shortest_round_trip_of_ten_seconds_counts() {
    let mut estimator = LinkEstimator::new();
    estimator.on_round_trip(Duration::from_millis(3), true, at(0));
    estimator.on_round_trip(Duration::from_millis(9), true, at(500));
    assert_eq!(
        estimator.estimate().round_trip,
        Some(Duration::from_millis(3))
    );
    estimator.on_round_trip(Duration::from_millis(5), true, at(10_000));
    assert_eq!(
        estimator.estimate().round_trip,
        Some(Duration::from_millis(5))
    );
}

#[test]
fn the_window_shrinks_to_little_more_than_the_wire_holds() {
    let mut estimator = LinkEstimator::new();
    assert_eq!(estimator.bulk_window(), Bytes::from_kib(128));
    estimator.on_round_trip(Duration::from_millis(4), true, at(0));
    for ms in 0..20 {
        estimator.on_delivery(delivered(ms), Duration::from_millis(ms), at(ms));
    }
    let product = estimator.estimate().bandwidth_delay();
    assert_eq!(product, Bytes::new(400_000));
    // 4 ms on top of twice the product while searching, and of 5/4 of it afterwards.
    assert_eq!(estimator.bulk_window(), Bytes::new(1_200_000));
    for ms in 20..80 {
        estimator.on_delivery(delivered(ms), Duration::from_millis(ms), at(ms));
    }
    assert_eq!(estimator.bulk_window(), Bytes::new(900_000));
}

#[test]
fn a_chunk_is_a_millisecond_within_its_limits() {
    let chunk = |megabits| {
        LinkEstimate {
            rate: BitRate::from_megabits_per_second(megabits),
            round_trip: None,
        }
        .chunk()
    };
    assert_eq!(chunk(0), MIN_CHUNK);
    assert_eq!(chunk(10), MIN_CHUNK);
    assert_eq!(chunk(100), MIN_CHUNK);
    assert_eq!(chunk(200), 25_000);
    assert_eq!(chunk(1_000), 125_000);
    assert_eq!(chunk(100_000), MAX_CHUNK);
}
