//! The choice on links whose rate wanders: over a trace it must do about as well as the best width that anybody could
//! have fixed for that trace, and better than every fixed width over all of them.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::time::Duration;

use lynx_policy::{
    Acceptance, Bounds, Costs, DraftInputs, Fidelity, Inputs, MAX_DEPTH, Objective, Prior,
    choose_width, draft_depth,
};
use lynx_units::{BitRate, Bytes, Timestamp, Width};

const COSTS: Costs = Costs {
    token: Duration::from_millis(15),
    verification: Duration::from_millis(20),
    verified_token: Duration::from_micros(500),
};
const KV: Bytes = Bytes::from_mib(48);
const OVERHEAD: f64 = 0.5;

/// A small generator, so that a trace is a number: the same seed, the same run, on every machine.
struct Random(u64);

impl Random {
    /// Uniform in 0..1 (xorshift64*).
    fn unit(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let bits = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32;
        f64::from(u32::try_from(bits).unwrap()) / 4_294_967_296.0
    }
}

/// Link rates of consecutive transfers: a random walk in ratio around `megabits`, with an outage to a tenth now and then.
fn trace(seed: u64, megabits: f64, transfers: usize) -> Vec<BitRate> {
    let mut random = Random(seed);
    let mut ratio = 1.0_f64;
    (0..transfers)
        .map(|_| {
            ratio = (ratio * (1.0 + 0.3 * (random.unit() - 0.5))).clamp(0.3, 3.0);
            let outage = if random.unit() < 0.05 { 0.1 } else { 1.0 };
            let bits = megabits * 1e6 * ratio * outage;
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a rate between 1 kbit/s and 100 Gbit/s"
            )]
            BitRate::from_bits_per_second(bits as u64)
        })
        .collect()
}

/// One transfer as it turns out: the depth is drafted by the estimate, the tokens are accepted by chance.
/// Returns the time of the 32nd verified token, the tokens drafted and those accepted.
fn transfer(
    width: Width,
    link: BitRate,
    estimated_rate: f64,
    true_rate: f64,
    random: &mut Random,
) -> (f64, u32, u32) {
    let bf16 = link.time_for(KV).unwrap().as_secs_f64();
    let anchor = bf16 * (width.bits() + OVERHEAD) / 16.0;
    let full = bf16 * Fidelity::Exact.bits_per_element(OVERHEAD) / 16.0;
    let depth = draft_depth(&DraftInputs {
        full_due_in: Duration::from_secs_f64(full - anchor),
        rate: estimated_rate,
        costs: COSTS,
        limit: MAX_DEPTH,
    });
    let token = COSTS.token.as_secs_f64();
    if depth == 0 {
        return (full + 32.0 * token, 0, 0);
    }
    let mut accepted = 0;
    while accepted < depth && random.unit() < true_rate {
        accepted += 1;
    }
    let verification =
        COSTS.verification.as_secs_f64() + f64::from(depth) * COSTS.verified_token.as_secs_f64();
    let left = 32_u32.saturating_sub(accepted + 1);
    (
        full + verification + f64::from(left) * token,
        depth,
        accepted,
    )
}

/// The mean time of the 32nd verified token over a trace, where `choose` names each transfer's width from the rate that
/// the transfer before it saw.
fn run(
    links: &[BitRate],
    seed: u64,
    truth: Prior,
    choose: impl Fn(&Acceptance, BitRate, Timestamp) -> Width,
) -> f64 {
    let mut acceptance = Acceptance::new(Prior::UNIFORM, Duration::from_secs(300));
    let mut random = Random(seed);
    let mut now = Timestamp::ORIGIN;
    let mut seen = links[0];
    let mut total = 0.0;
    for &link in links {
        let width = choose(&acceptance, seen, now);
        let estimated = acceptance.rate(width, now);
        let (time, drafted, accepted) =
            transfer(width, link, estimated, truth.rate(width), &mut random);
        now += Duration::from_secs_f64(time);
        if drafted > 0 {
            acceptance.record(width, drafted, accepted, now);
        }
        seen = link;
        total += time;
    }
    #[expect(clippy::cast_precision_loss, reason = "a few hundred transfers")]
    let count = links.len() as f64;
    total / count
}

fn chosen(acceptance: &Acceptance, link: BitRate, now: Timestamp) -> Width {
    let bounds = Bounds::new(Width::from_bits(2).unwrap(), Width::FULL).unwrap();
    choose_width(&Inputs {
        objective: Objective::Verified,
        bounds,
        link,
        kv: KV,
        costs: COSTS,
        fidelity: Fidelity::Exact,
        overhead: OVERHEAD,
        acceptance,
        now,
    })
    .width
}

#[test]
fn the_choice_keeps_up_with_the_best_fixed_width_on_every_trace() {
    // Twenty milliseconds to eight seconds of BF16 transfer in the mean; the truth is the table that was started from, or a
    // better one.
    let mut sum_chosen = 0.0;
    let mut sum_fixed = [0.0; 7];
    for (seed, megabits) in [
        (1, 50.0),
        (2, 200.0),
        (3, 800.0),
        (4, 3000.0),
        (5, 20_000.0),
    ] {
        for truth in [Prior::UNIFORM, Prior::PROFILE] {
            let links = trace(seed, megabits, 300);
            let adaptive = run(&links, seed, truth, chosen);
            let fixed: Vec<f64> = (2..=8)
                .map(|bits| {
                    run(&links, seed, truth, |_, _, _| {
                        Width::from_bits(bits).unwrap()
                    })
                })
                .collect();
            let best = fixed.iter().copied().fold(f64::INFINITY, f64::min);
            assert!(
                adaptive <= best * 1.02,
                "{megabits} Mbit/s, seed {seed}: {adaptive:.3} s against {best:.3} s"
            );
            // Relative to the trace's best, or the slowest trace would decide alone.
            sum_chosen += adaptive / best;
            for (sum, time) in sum_fixed.iter_mut().zip(&fixed) {
                *sum += time / best;
            }
        }
    }
    for (bits, sum) in (2..=8).zip(sum_fixed) {
        assert!(
            sum_chosen < sum,
            "{bits} bits: {sum:.4} against {sum_chosen:.4}"
        );
    }
}
