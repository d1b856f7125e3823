//! The few statistics that Lynx's figures need. Not a statistics library: each is one definition, on slices.
//!
//! Everything is computed in f64, because a KL divergence of 1e-4 between rows of 50 000 logits drowns in f32's rounding.

/// The Kullback-Leibler divergence `Σ p·ln(p/q)` in nats, where p and q are the softmax of the logits `reference` and `other`.
///
/// `None` where the rows differ in length, are empty or hold a logit that is not finite.
pub fn kl_divergence(reference: &[f32], other: &[f32]) -> Option<f64> {
    if reference.len() != other.len() {
        return None;
    }
    let (p, q) = (log_softmax(reference)?, log_softmax(other)?);
    let sum: f64 = p.iter().zip(&q).map(|(p, q)| p.exp() * (p - q)).sum();
    // Rounding can take the divergence of two equal rows a little below its least value.
    Some(sum.max(0.0))
}

fn log_softmax(logits: &[f32]) -> Option<Vec<f64>> {
    if !logits.iter().all(|x| x.is_finite()) {
        return None;
    }
    let largest = f64::from(logits.iter().copied().reduce(f32::max)?);
    let shifted = || logits.iter().map(|&x| f64::from(x) - largest);
    let log_sum = shifted().map(f64::exp).sum::<f64>().ln();
    Some(shifted().map(|x| x - log_sum).collect())
}

/// The index of the largest logit, the first of equal ones: what greedy decoding picks. NaNs never win; `None` where nothing
/// else is there.
pub fn argmax(logits: &[f32]) -> Option<usize> {
    let numbers = logits.iter().enumerate().filter(|(_, x)| !x.is_nan());
    numbers
        .reduce(|best, next| if next.1 > best.1 { next } else { best })
        .map(|(index, _)| index)
}

/// The share of places at which both sequences hold the same token; a place that only one of them has counts as different.
/// `None` where both are empty.
pub fn agreement(left: &[u32], right: &[u32]) -> Option<f64> {
    let same = left.iter().zip(right).filter(|(l, r)| l == r).count();
    ratio(same, left.len().max(right.len()))
}

/// How many drafted tokens stand: those before the first that the full-precision engine would not have chosen.
pub fn accepted_prefix(drafted: &[u32], truth: &[u32]) -> usize {
    let pairs = drafted.iter().zip(truth);
    pairs
        .take_while(|(drafted, truth)| drafted == truth)
        .count()
}

/// The middle value, or the mean of the two middle ones; `None` for an empty slice or one with a NaN.
pub fn median(values: &[f64]) -> Option<f64> {
    if values.iter().any(|x| x.is_nan()) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    Some(if sorted.len() % 2 == 1 {
        upper
    } else {
        f64::midpoint(sorted[middle - 1], upper)
    })
}

/// The arithmetic mean; `None` for an empty slice.
pub fn mean(values: &[f64]) -> Option<f64> {
    let sum: f64 = values.iter().sum();
    (!values.is_empty()).then(|| sum / as_f64(values.len()))
}

/// The geometric mean: how ratios average. `None` for an empty slice or one with a value that is not positive and finite.
pub fn geometric_mean(values: &[f64]) -> Option<f64> {
    if !values.iter().all(|x| x.is_finite() && *x > 0.0) {
        return None;
    }
    let logs: Vec<f64> = values.iter().map(|x| x.ln()).collect();
    mean(&logs).map(f64::exp)
}

fn ratio(part: usize, whole: usize) -> Option<f64> {
    (whole > 0).then(|| as_f64(part) / as_f64(whole))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts of tokens and samples stay far below 2^53"
)]
fn as_f64(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(left: Option<f64>, right: f64) {
        let left = left.unwrap();
        assert!((left - right).abs() < 1e-9, "{left} is not {right}");
    }

    #[test]
    fn kl_of_two_coins_is_the_textbooks() {
        // p = (3/4, 1/4), q = (1/2, 1/2): 0.75 ln 1.5 + 0.25 ln 0.5.
        let p = [3.0_f32.ln(), 0.0];
        let expected = 0.75 * 1.5_f64.ln() + 0.25 * 0.5_f64.ln();
        let kl = kl_divergence(&p, &[0.0, 0.0]).unwrap();
        assert!((kl - expected).abs() < 1e-7, "{kl}");
    }

    #[test]
    fn kl_ignores_a_shift_and_survives_large_logits() {
        let row = [1000.0, 1001.0, 998.5];
        let shifted = [0.0, 1.0, -1.5];
        close(kl_divergence(&row, &shifted), 0.0);
    }

    #[test]
    fn kl_refuses_rows_it_has_no_answer_for() {
        assert_eq!(kl_divergence(&[1.0], &[1.0, 2.0]), None);
        assert_eq!(kl_divergence(&[], &[]), None);
        assert_eq!(kl_divergence(&[f32::NAN], &[1.0]), None);
        assert_eq!(kl_divergence(&[1.0], &[f32::INFINITY]), None);
    }

    #[test]
    fn kl_is_never_negative() {
        bolero::check!()
            .with_type::<Vec<(i16, i16)>>()
            .for_each(|rows| {
                let left: Vec<f32> = rows.iter().map(|r| f32::from(r.0) / 1000.0).collect();
                let right: Vec<f32> = rows.iter().map(|r| f32::from(r.1) / 1000.0).collect();
                if let Some(kl) = kl_divergence(&left, &right) {
                    assert!(kl >= 0.0 && kl.is_finite());
                }
            });
    }

    #[test]
    fn argmax_takes_the_first_of_equals_and_no_nan() {
        assert_eq!(argmax(&[1.0, 3.0, 3.0]), Some(1));
        assert_eq!(argmax(&[f32::NAN, -1.0]), Some(1));
        assert_eq!(argmax(&[f32::NAN]), None);
        assert_eq!(argmax(&[]), None);
    }

    #[test]
    fn agreement_counts_missing_tokens_as_different() {
        close(agreement(&[1, 2, 3, 4], &[1, 9, 3]), 0.5);
        assert_eq!(agreement(&[], &[]), None);
    }

    #[test]
    fn a_prefix_ends_at_the_first_wrong_token() {
        assert_eq!(accepted_prefix(&[5, 6, 7], &[5, 6, 9, 7]), 2);
        assert_eq!(accepted_prefix(&[5], &[]), 0);
    }

    #[test]
    fn means_are_what_they_are_called() {
        close(median(&[3.0, 1.0, 2.0]), 2.0);
        close(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[1.0, f64::NAN]), None);
        close(geometric_mean(&[2.0, 8.0]), 4.0);
        assert_eq!(geometric_mean(&[1.0, 0.0]), None);
        assert_eq!(geometric_mean(&[]), None);
        close(mean(&[1.0, 2.0, 6.0]), 3.0);
        assert_eq!(mean(&[]), None);
    }
}
