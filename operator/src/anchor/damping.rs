//! From what is best now to what is said: hysteresis, damped steps, and patience with a link that flaps.
//!
//! Why not a smoothed rate alone: a link that changes slower than the smoothing still drags the width along, and each
//! change costs what was learnt about acceptance at the old width. So a wish must last, a step is small, and turning
//! back costs more patience each time.

use std::time::Duration;

use lynx_units::{Timestamp, Width};

/// How hard it is to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How long one direction must have been wished for, without a break.
    pub hold: Duration,
    /// Least time between two steps in one direction.
    pub pace: Duration,
    /// Least time between two steps in opposite directions, at first; it doubles with each turn.
    pub turn: Duration,
    /// What it doubles up to. After this long without a turn it starts over.
    pub longest_turn: Duration,
    /// Longest step, in eighths of a bit.
    pub step: u8,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            hold: Duration::from_secs(6),
            pace: Duration::from_secs(4),
            turn: Duration::from_secs(30),
            longest_turn: Duration::from_secs(600),
            step: 4,
        }
    }
}

/// A width that follows wishes reluctantly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Damped {
    width: Width,
    /// The direction that is wished for, and since when.
    wish: Option<(Direction, Timestamp)>,
    /// The last step.
    last: Option<(Direction, Timestamp)>,
    /// When the direction last turned, and how long it takes to turn again.
    turned: Option<(Timestamp, Duration)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Narrower,
    Wider,
}

impl Damped {
    /// Starts at `width`.
    pub fn new(width: Width) -> Self {
        Self {
            width,
            wish: None,
            last: None,
            turned: None,
        }
    }

    /// The width now.
    pub fn width(&self) -> Width {
        self.width
    }

    /// Sets the width at once: its bounds changed, or its mode.
    pub fn jump(&mut self, width: Width) {
        *self = Self::new(width);
    }

    /// `best` is what would be best now. True where the width took a step.
    pub fn follow(&mut self, best: Width, limits: &Limits, now: Timestamp) -> bool {
        let Some(direction) = self.direction_to(best) else {
            self.wish = None;
            return false;
        };
        let since = match self.wish {
            Some((wished, since)) if wished == direction => since,
            _ => now,
        };
        self.wish = Some((direction, since));
        if now.saturating_since(since) < limits.hold || !self.may_step(direction, limits, now) {
            return false;
        }
        self.step(direction, best, limits, now);
        true
    }

    fn direction_to(&self, best: Width) -> Option<Direction> {
        match best.cmp(&self.width) {
            std::cmp::Ordering::Less => Some(Direction::Narrower),
            std::cmp::Ordering::Equal => None,
            std::cmp::Ordering::Greater => Some(Direction::Wider),
        }
    }

    fn may_step(&self, direction: Direction, limits: &Limits, now: Timestamp) -> bool {
        let Some((last, at)) = self.last else {
            return true;
        };
        let waited = now.saturating_since(at);
        if last == direction {
            waited >= limits.pace
        } else {
            waited >= self.patience(limits, now)
        }
    }

    /// How long a turn takes now.
    fn patience(&self, limits: &Limits, now: Timestamp) -> Duration {
        match self.turned {
            Some((at, patience)) if now.saturating_since(at) < limits.longest_turn * 2 => patience,
            _ => limits.turn,
        }
    }

    fn step(&mut self, direction: Direction, best: Width, limits: &Limits, now: Timestamp) {
        if self.last.is_some_and(|(last, _)| last != direction) {
            let next = (self.patience(limits, now) * 2).min(limits.longest_turn);
            self.turned = Some((now, next));
        }
        let (from, to) = (self.width.eighths(), best.eighths());
        let eighths = match direction {
            Direction::Narrower => to.max(from.saturating_sub(limits.step)),
            Direction::Wider => to.min(from.saturating_add(limits.step)),
        };
        self.width = Width::from_eighths(eighths).unwrap_or(best);
        self.last = Some((direction, now));
    }
}

#[cfg(test)]
mod tests;
