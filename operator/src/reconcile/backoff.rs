//! How long to wait after a failure.

use std::time::Duration;

use sha2::{Digest as _, Sha256};

const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(300);

/// The pause after so many failures in a row: doubling, with up to half of it taken off by a number that follows from
/// `seed` and the count, so that objects that failed together don't come back together.
pub fn pause(failures: u32, seed: &str) -> Duration {
    let doubled = FIRST.saturating_mul(1u32 << failures.saturating_sub(1).min(16));
    let whole = doubled.min(LONGEST);
    let digest = Sha256::digest(format!("{seed}/{failures}"));
    let random = digest.first().copied().unwrap_or_default();
    whole - whole / 2 * u32::from(random) / 255
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_to_a_limit_and_is_never_less_than_half() {
        for failures in 1..100 {
            let whole = (FIRST * 2u32.pow(failures.min(17) - 1)).min(LONGEST);
            let pause = pause(failures, "a");
            assert!(
                pause <= whole && pause >= whole / 2,
                "{failures}: {pause:?}"
            );
        }
        assert!(pause(u32::MAX, "a") >= LONGEST / 2);
    }

    #[test]
    fn two_objects_do_not_come_back_together() {
        let pauses: std::collections::BTreeSet<_> =
            (0..20).map(|seed| pause(5, &format!("{seed}"))).collect();
        assert!(pauses.len() > 10, "{pauses:?}");
    }
}
