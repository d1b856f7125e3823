//! What this moment alone asks for.
//!
//! By sums of the load and not by means of ratios: the sum says what the pods that stay would carry, so removing one never
//! overloads the rest.

use core::time::Duration;

use lynx_units::Timestamp;

use super::{COLD, Load, Pool, Targets};

/// By how much the load may exceed the target before a pod is added.
const TOLERANCE: f64 = 1.1;
/// How full the remaining pods may be, of the target, for one to go.
const CONSOLIDATED: f64 = 0.85;
/// How busy prefill pods may be after some have gone.
const BUSY: f64 = 0.6;
/// Prefill pods less busy than this are not what an anchor waits for: more of them would change nothing.
const IDLE: f64 = 0.3;
/// A pool grows to four times its size at most, and then looks again.
const LEAP: f64 = 4.0;
/// Half-life of what is smoothed: as many requests as there are by chance are no load that lasts.
const HALF_LIFE: Duration = Duration::from_secs(20);

/// A figure, smoothed over time; forgotten where nobody has told it for a minute.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Smoothed(Option<(f64, Timestamp)>);

impl Smoothed {
    pub(super) fn saw(&mut self, value: f64, now: Timestamp) {
        let known = self.at(now).zip(self.0);
        let next = known.map_or(value, |(known, (_, at))| {
            let elapsed = now.saturating_since(at).as_secs_f64();
            let kept = libm::exp2(-elapsed / HALF_LIFE.as_secs_f64());
            known * kept + value * (1.0 - kept)
        });
        self.0 = Some((next, now));
    }

    pub(super) fn at(&self, now: Timestamp) -> Option<f64> {
        let fresh = |at| now.saturating_since(at) < Duration::from_secs(60);
        self.0.filter(|(_, at)| fresh(*at)).map(|(value, _)| value)
    }
}

/// What the warm pods of a pool carry together, smoothed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Carried {
    requests: Smoothed,
    pending_kv: Smoothed,
    verified: Smoothed,
    time_to_anchor: Smoothed,
}

impl Carried {
    /// What the pods report now; how many of them are warm.
    pub(super) fn saw(&mut self, pool: &Pool, now: Timestamp) -> u32 {
        let is_warm = |load: &&Load| {
            load.ready_since
                .is_some_and(|since| now.saturating_since(since) >= COLD)
        };
        let (mut count, mut sum, mut times) = (0, Load::default(), (0.0, 0.0));
        for load in pool.loads.iter().filter(is_warm) {
            count += 1;
            sum.running += load.running;
            sum.waiting += load.waiting;
            sum.pending_kv += load.pending_kv;
            sum.verified += load.verified;
            if let Some(time) = load.time_to_anchor {
                times.0 += time;
                times.1 += 1.0;
            }
        }
        if count > 0 {
            self.requests.saw(sum.running + sum.waiting, now);
            self.pending_kv.saw(sum.pending_kv, now);
            // And those that would be verified of what waits: a pool at its limit verifies no more than its limit.
            let waiting = sum.waiting / sum.running.max(1.0);
            self.verified.saw(sum.verified * (1.0 + waiting), now);
        }
        if times.1 > 0.0 {
            self.time_to_anchor.saw(times.0 / times.1, now);
        }
        count
    }

    /// Seconds.
    pub(super) fn time_to_anchor(&self, now: Timestamp) -> Option<f64> {
        self.time_to_anchor.at(now)
    }
}

/// Decode pods: the largest of what the targets ask for.
pub(super) fn decode(
    targets: &Targets,
    pool: &Pool,
    (warm, carried): (u32, &Carried),
    now: Timestamp,
) -> u32 {
    let asked = [
        (targets.running, carried.requests),
        (targets.pending_kv, carried.pending_kv),
        (targets.verified, carried.verified),
    ];
    asked
        .into_iter()
        .filter_map(|(target, load)| Some(by_sum(pool, warm, load.at(now)?, target?)))
        .max()
        .unwrap_or(pool.replicas)
}

fn by_sum(pool: &Pool, warm: u32, sum: f64, target: f64) -> u32 {
    let current = pool.replicas;
    if warm == 0 || target <= 0.0 {
        return current;
    }
    if sum > target * f64::from(current) * TOLERANCE {
        let leap = f64::from(current) * LEAP;
        return whole((sum / target).min(leap)).max(current);
    }
    // Pods that have a place and are not heard, because they start or because their reports are lost, may carry their
    // share. Those without a place carry nothing.
    let unheard = f64::from(current.saturating_sub(warm + pool.unplaced));
    whole(sum / (target * CONSOLIDATED) + unheard)
        .max(1)
        .min(current)
}

/// Prefill pods, by the time to an anchor: more where it is too long and they are what is waited for, fewer where those
/// that stay have the time.
pub(super) fn prefill(
    target: Duration,
    time: f64,
    pool: &Pool,
    (warm, carried): (u32, &Carried),
    now: Timestamp,
) -> u32 {
    let current = pool.replicas;
    let Some(requests) = carried.requests.at(now).filter(|_| warm > 0) else {
        return current;
    };
    let starting = current.saturating_sub(warm + pool.unplaced);
    let over = time / target.as_secs_f64();
    if over > TOLERANCE && requests >= IDLE * f64::from(warm) {
        if starting > 0 {
            return current;
        }
        return whole(f64::from(current) * over.min(LEAP)).max(current + 1);
    }
    if over < CONSOLIDATED && starting == 0 {
        // As many as are busy enough with what there is: a backlog that is gone needed more.
        whole(requests / BUSY).max(1).min(current)
    } else {
        current
    }
}

fn whole(pods: f64) -> u32 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to u32's range"
    )]
    {
        libm::ceil(pods).clamp(0.0, f64::from(u32::MAX)) as u32
    }
}
