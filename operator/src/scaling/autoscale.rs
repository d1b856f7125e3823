//! How many decode replicas the load asks for.
//!
//! By the sum of the load and not by a mean of ratios: the sum says what the replicas that stay would carry, so removing
//! one never overloads the rest. The most recent recommendations are kept, and the most cautious of a window wins.

use std::collections::VecDeque;
use std::time::Duration;

use lynx_units::Timestamp;

/// A replica that became ready this recently is still warming up: what it reports says little.
const COLD: Duration = Duration::from_secs(30);
/// By how much the load may exceed the target before a replica is added.
const TOLERANCE: f64 = 1.1;
/// How full the remaining replicas may be, of the target, for one to go.
const CONSOLIDATED: f64 = 0.9;

/// What a deployment asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Fewest replicas.
    pub min: u32,
    /// Most replicas.
    pub max: u32,
    /// What one replica should carry, in the unit of [`Load::value`].
    pub target: f64,
    /// More replicas are added only when this long a window agrees.
    pub up: Duration,
    /// Replicas go only when this long a window agrees.
    pub down: Duration,
}

/// One replica's load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Requests, bytes: what the deployment's metric says.
    pub value: f64,
    /// Since when the replica is ready; `None` where it isn't.
    pub ready_since: Option<Timestamp>,
}

/// The recommendations of the last windows.
#[derive(Clone, Debug, Default)]
pub struct Autoscaler {
    history: VecDeque<(Timestamp, u32)>,
    since: Option<Timestamp>,
}

impl Autoscaler {
    /// How many replicas there should be, given that there are `current` (as the spec says, ready or not).
    pub fn desired(
        &mut self,
        settings: &Settings,
        loads: &[Load],
        current: u32,
        now: Timestamp,
    ) -> u32 {
        let since = *self.since.get_or_insert(now);
        let wish = recommend(settings, loads, current, now);
        self.history.push_back((now, wish));
        let longest = settings.up.max(settings.down);
        while let Some((at, _)) = self.history.front()
            && now.saturating_since(*at) > longest
        {
            self.history.pop_front();
        }
        let within = |window: Duration| {
            self.history
                .iter()
                .filter(move |(at, _)| now.saturating_since(*at) <= window)
                .map(|(_, wish)| *wish)
        };
        let watched = now.saturating_since(since);
        let up = within(settings.up).min().unwrap_or(current);
        let down = within(settings.down).max().unwrap_or(current);
        let stable = if up > current && watched >= settings.up {
            up
        } else if down < current && watched >= settings.down {
            down
        } else {
            current
        };
        stable.clamp(settings.min, settings.max)
    }
}

/// A quantity of bytes in Kubernetes' notation, such as `512Mi`; `None` where it is none, or nothing.
pub fn bytes(quantity: &str) -> Option<f64> {
    const UNITS: [(&str, f64); 11] = [
        ("Ki", 1024.0),
        ("Mi", 1_048_576.0),
        ("Gi", 1_073_741_824.0),
        ("Ti", 1_099_511_627_776.0),
        ("Pi", 1_125_899_906_842_624.0),
        ("k", 1e3),
        ("M", 1e6),
        ("G", 1e9),
        ("T", 1e12),
        ("P", 1e15),
        ("", 1.0),
    ];
    let (number, unit) = UNITS
        .iter()
        .find_map(|(suffix, unit)| Some((quantity.strip_suffix(suffix)?, unit)))?;
    let bytes = number.parse::<f64>().ok()? * unit;
    (bytes.is_finite() && bytes > 0.0).then_some(bytes)
}

/// What this moment alone would say.
fn recommend(settings: &Settings, loads: &[Load], current: u32, now: Timestamp) -> u32 {
    let warm = |load: &&Load| {
        load.ready_since
            .is_some_and(|since| now.saturating_since(since) >= COLD)
    };
    let (count, sum) = loads
        .iter()
        .filter(warm)
        .fold((0u32, 0.0), |(count, sum), load| {
            (count + 1, sum + load.value)
        });
    if count == 0 || settings.target <= 0.0 {
        return current;
    }
    let per_replica = sum / f64::from(current.max(1));
    if per_replica > settings.target * TOLERANCE {
        return replicas(sum / settings.target).max(current);
    }
    // A replica that isn't warm has not taken its share yet: nothing can be said about who could go.
    if count < current {
        return current;
    }
    replicas(sum / (settings.target * CONSOLIDATED))
        .max(1)
        .min(current)
}

fn replicas(ratio: f64) -> u32 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to u32's range"
    )]
    {
        ratio.ceil().clamp(0.0, f64::from(u32::MAX)) as u32
    }
}

#[cfg(test)]
mod tests;
