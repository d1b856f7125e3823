use alloc::vec::Vec;

use super::*;

const SPAN: Duration = Duration::from_millis(100);

#[test]
fn the_best_of_any_samples_is_that_of_a_plain_list() {
    bolero::check!()
        .with_type::<(bool, Vec<(u16, u8)>)>()
        .for_each(|(largest, samples)| {
            let better: fn(&u8, &u8) -> bool = if *largest { |a, b| a > b } else { |a, b| a < b };
            let mut best = Best::new(SPAN, better);
            let mut all: Vec<(u128, u8)> = Vec::new();
            let mut now = Timestamp::ORIGIN;
            assert_eq!(best.get(), None);
            for &(millis, value) in samples {
                now += Duration::from_millis(u64::from(millis % 2048));
                best.add(value, now);
                let number = now.since_origin().as_nanos() / SPAN.as_nanos();
                all.push((number, value));
                let kept = all
                    .iter()
                    .filter(|(of, _)| of + BUCKETS as u128 > number)
                    .map(|&(_, value)| value);
                let expected = if *largest { kept.max() } else { kept.min() };
                assert_eq!(best.get(), expected);
            }
        });
}

#[test]
fn a_clock_that_stands_still_forgets_nothing() {
    let mut best = Best::new(SPAN, |a: &u8, b: &u8| a > b);
    let now = Timestamp::from_origin(Duration::from_secs(5));
    for value in [3, 9, 4] {
        best.add(value, now);
    }
    // Nor does one sample that comes out of order.
    best.add(1, Timestamp::ORIGIN);
    assert_eq!(best.get(), Some(9));
}
