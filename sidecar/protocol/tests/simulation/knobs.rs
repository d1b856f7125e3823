//! What can go wrong, by name, each decided by the seed.

use std::time::Duration;

use lynx_units::{BitRate, Timestamp};

use super::network::Path;
use super::pair::{Cut, Pair};
use super::random::Random;
use super::work::Job;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Knob {
    Delay,
    Jitter,
    RateSteps,
    Cut,
    Corruption,
    Stall,
    SlowReceiver,
    Cancellation,
    Rejection,
    ShortDeadlines,
    SlowPrefill,
}

impl Knob {
    pub(crate) const ALL: [Self; 11] = [
        Self::Delay,
        Self::Jitter,
        Self::RateSteps,
        Self::Cut,
        Self::Corruption,
        Self::Stall,
        Self::SlowReceiver,
        Self::Cancellation,
        Self::Rejection,
        Self::ShortDeadlines,
        Self::SlowPrefill,
    ];

    /// Whether every transfer completes in spite of it.
    pub(crate) fn is_harmless(self) -> bool {
        matches!(
            self,
            Self::Delay | Self::Jitter | Self::RateSteps | Self::SlowReceiver | Self::SlowPrefill
        )
    }
}

/// A pair whose work and network a seed decides, within what the knobs allow.
pub(crate) fn pair(seed: u64, knobs: &[Knob]) -> (Pair, Vec<Job>) {
    let mut random = Random::new(seed);
    let on = |knob| knobs.contains(&knob);
    let jobs: Vec<Job> = (1..=random.within(1, 6))
        .map(|transfer| job(transfer, &mut random, knobs))
        .collect();
    let mut path = || Path {
        rate: BitRate::from_megabits_per_second(random.within(20, 2000)),
        delay: millis(&mut random, on(Knob::Delay), 20),
        jitter: millis(&mut random, on(Knob::Jitter), 5),
        steps: if on(Knob::RateSteps) {
            steps(&mut random)
        } else {
            Vec::new()
        },
        stall: None,
        corrupt: None,
    };
    let mut paths = [path(), path()];
    let side = usize::from(random.one_in(3));
    if on(Knob::Stall) {
        let from = Timestamp::from_origin(millis(&mut random, true, 300));
        paths[side].stall = Some((from, from + millis(&mut random, true, 5000)));
    }
    if on(Knob::Corruption) {
        let bytes = if side == 0 { 2_000_000 } else { 4_000 };
        paths[side].corrupt = Some(random.within(0, bytes));
    }
    let [forward, backward] = paths;
    let mut pair = Pair::new(jobs.clone(), forward, backward, seed);
    if on(Knob::Cut) {
        pair.cut = Some(Cut {
            at: millis(&mut random, true, 300),
        });
    }
    pair.receiving.hold = millis(&mut random, on(Knob::SlowReceiver), 100);
    (pair, jobs)
}

fn job(transfer: u64, random: &mut Random, knobs: &[Knob]) -> Job {
    let on = |knob| knobs.contains(&knob);
    let units = u32::try_from(random.within(1, 9)).unwrap();
    let bound = u32::try_from(random.within(1, 80_000)).unwrap();
    let mut job = Job::new(transfer, units, bound);
    job.open_at = millis(random, true, 200);
    job.pace = millis(random, on(Knob::SlowPrefill), 40);
    if on(Knob::Cancellation) && random.one_in(2) {
        job.cancel_at = Some(job.open_at + millis(random, true, 200));
    }
    if on(Knob::ShortDeadlines) {
        job.lifetime = millis(random, true, 400) + Duration::from_nanos(1);
    }
    job.rejected = on(Knob::Rejection) && random.one_in(3);
    job
}

fn steps(random: &mut Random) -> Vec<(Timestamp, BitRate)> {
    (0..5)
        .map(|step| {
            let from = Duration::from_millis(step * 50);
            let rate = BitRate::from_megabits_per_second(random.within(10, 2000));
            (Timestamp::from_origin(from), rate)
        })
        .collect()
}

fn millis(random: &mut Random, enabled: bool, most: u64) -> Duration {
    let micros = random.within(0, most * 1000);
    if enabled {
        Duration::from_micros(micros)
    } else {
        Duration::ZERO
    }
}
