//! The signs of the width choice: what widens an anchor and what narrows it.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::time::Duration;

use lynx_policy::{
    Acceptance, Bounds, Choice, Costs, Fidelity, Inputs, Objective, Prior, choose_width,
};
use lynx_units::{BitRate, Bytes, Timestamp, Width};

/// One megabyte at this rate takes a second.
const RATE: BitRate = BitRate::from_megabits_per_second(8);

fn width(text: &str) -> Width {
    text.parse().unwrap()
}

/// A choice for a transfer that would take `bf16` as BF16.
#[derive(Clone)]
struct Case {
    objective: Objective,
    fidelity: Fidelity,
    bf16: Duration,
    bounds: Bounds,
    acceptance: Acceptance,
}

impl Case {
    fn new(prior: Prior, objective: Objective, fidelity: Fidelity) -> Self {
        Self {
            objective,
            fidelity,
            bf16: Duration::from_secs(1),
            bounds: Bounds::new(width("2"), width("8")).unwrap(),
            acceptance: Acceptance::new(prior, Duration::from_secs(60)),
        }
    }

    fn with_transfer_of(&self, milliseconds: u64) -> Self {
        Self {
            bf16: Duration::from_millis(milliseconds),
            ..self.clone()
        }
    }

    fn choose(&self) -> Choice {
        choose_width(&Inputs {
            objective: self.objective,
            bounds: self.bounds,
            link: RATE,
            kv: RATE.bytes_in(self.bf16),
            costs: Costs {
                token: Duration::from_millis(15),
                verification: Duration::from_millis(30),
                verified_token: Duration::ZERO,
            },
            fidelity: self.fidelity,
            overhead: 0.5,
            acceptance: &self.acceptance,
            now: Timestamp::ORIGIN,
        })
    }
}

/// BF16 transfer times from ten milliseconds to a hundred seconds, ascending.
fn transfer_times() -> impl Iterator<Item = u64> {
    (0..=40).scan(10.0, |milliseconds, _| {
        let now = *milliseconds;
        *milliseconds *= 1.26;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "positive and far from the limit"
        )]
        Some(now as u64)
    })
}

#[test]
fn the_measured_examples_come_out() {
    let case = Case::new(Prior::UNIFORM, Objective::Verified, Fidelity::Int8);
    for (milliseconds, bits, verified) in [(100, "3", 0.52), (1000, "4", 0.84), (5000, "6", 2.76)] {
        let choice = case.with_transfer_of(milliseconds).choose();
        assert_eq!(choice.width, width(bits), "{milliseconds} ms");
        let expected = choice.expected.unwrap().verified.as_secs_f64();
        assert!((expected - verified).abs() < 0.015, "{expected}");
    }
}

#[test]
fn verified_widens_as_transfers_get_longer() {
    for prior in [Prior::UNIFORM, Prior::PROFILE] {
        for fidelity in [Fidelity::Int8, Fidelity::Exact] {
            let case = Case::new(prior, Objective::Verified, fidelity);
            let widths: Vec<_> = transfer_times()
                .map(|t| case.with_transfer_of(t).choose().width)
                .collect();
            assert!(widths.is_sorted(), "{fidelity:?}: {widths:?}");
            assert!(widths.first() < widths.last());
        }
    }
}

#[test]
fn first_tokens_narrows_as_the_link_gets_slower() {
    for prior in [Prior::UNIFORM, Prior::PROFILE] {
        let case = Case::new(prior, Objective::FirstTokens, Fidelity::Exact);
        let widths: Vec<_> = transfer_times()
            .map(|t| case.with_transfer_of(t).choose().width)
            .collect();
        assert!(widths.is_sorted_by(|a, b| a >= b), "{widths:?}");
        assert!(widths.first() > widths.last());
    }
}

#[test]
fn a_profile_is_never_slower_than_uniform_widths() {
    for milliseconds in transfer_times() {
        let of = |prior| {
            Case::new(prior, Objective::Verified, Fidelity::Exact)
                .with_transfer_of(milliseconds)
                .choose()
                .expected
                .unwrap()
                .verified
        };
        assert!(
            of(Prior::PROFILE) <= of(Prior::UNIFORM),
            "{milliseconds} ms"
        );
    }
}

#[test]
fn the_choice_stays_within_its_bounds() {
    let (three_and_an_eighth, five) = (width("3.125"), width("5"));
    for objective in [Objective::FirstTokens, Objective::Verified] {
        let mut case = Case::new(Prior::UNIFORM, objective, Fidelity::Exact);
        case.bounds = Bounds::new(three_and_an_eighth, five).unwrap();
        for milliseconds in transfer_times() {
            let chosen = case.with_transfer_of(milliseconds).choose().width;
            assert!((three_and_an_eighth..=five).contains(&chosen), "{chosen}");
        }
        case.bounds = Bounds::new(five, five).unwrap();
        assert_eq!(case.choose().width, five, "a fixed width");
    }
    assert_eq!(Bounds::new(five, three_and_an_eighth), None);
}

#[test]
fn low_acceptance_widens_the_anchor() {
    let mut case = Case::new(Prior::PROFILE, Objective::Verified, Fidelity::Exact);
    let before = case.choose().width;
    for bits in 0..=before.eighths() {
        let narrow = Width::from_eighths(bits).unwrap();
        for _ in 0..50 {
            case.acceptance.record(narrow, 32, 1, Timestamp::ORIGIN);
        }
    }
    assert!(case.choose().width > before);
}

#[test]
fn no_draft_is_expected_where_the_residual_is_due_at_once() {
    let case = Case::new(Prior::PROFILE, Objective::Verified, Fidelity::Exact);
    let expected = case.with_transfer_of(10).choose().expected.unwrap();
    assert_eq!(expected.depth, 0);
    assert!(expected.accepted < f64::EPSILON);
    let steps = Duration::from_millis(15) * 32;
    assert_eq!(expected.verified, expected.full + steps);
}

#[test]
fn an_unknown_link_gets_four_bits_within_the_bounds() {
    let acceptance = Acceptance::new(Prior::PROFILE, Duration::from_secs(60));
    let inputs = |min, max, link, kv| Inputs {
        objective: Objective::Verified,
        bounds: Bounds::new(width(min), width(max)).unwrap(),
        link,
        kv,
        costs: Costs {
            token: Duration::ZERO,
            verification: Duration::ZERO,
            verified_token: Duration::ZERO,
        },
        fidelity: Fidelity::Exact,
        overhead: 0.5,
        acceptance: &acceptance,
        now: Timestamp::ORIGIN,
    };
    let megabyte = Bytes::from_mib(1);
    for (min, max, chosen) in [("2", "8", "4"), ("5", "8", "5"), ("2", "3", "3")] {
        for (link, kv) in [(BitRate::ZERO, megabyte), (RATE, Bytes::ZERO)] {
            let choice = choose_width(&inputs(min, max, link, kv));
            assert_eq!(choice.width, width(chosen));
            assert_eq!(choice.expected, None);
        }
    }
    // Costs that nobody measured are no reason to fail.
    let choice = choose_width(&inputs("2", "8", RATE, megabyte));
    assert_eq!(choice.expected.unwrap().depth, 0);
}
