//! A wish counts when it has lasted, and the most cautious wish of a window wins.

use alloc::collections::VecDeque;
use core::time::Duration;

use lynx_units::Timestamp;

use super::Settings;

#[derive(Clone, Debug, Default)]
pub(super) struct Window {
    wishes: VecDeque<(Timestamp, u32)>,
    since: Option<Timestamp>,
    grew: Option<Timestamp>,
    shrank: Option<Timestamp>,
    /// How often it grew after it had shrunk: a pool that turns needs a longer surplus each time.
    turns: u32,
}

/// After so many turns a surplus need not last longer still: sixteen windows are enough to tell a day from a whim.
const MOST_TURNS: u32 = 4;

/// Between two steps down: a pool that empties goes in few steps rather than one for every pod.
const PACE: Duration = Duration::from_secs(60);

impl Window {
    /// One wish more; the number that has been wished for long enough.
    pub(super) fn last(
        &mut self,
        wish: u32,
        current: u32,
        settings: &Settings,
        now: Timestamp,
    ) -> u32 {
        let since = *self.since.get_or_insert(now);
        self.wishes.push_back((now, wish));
        let longest = settings.up.max(settings.down);
        while let Some((at, _)) = self.wishes.front()
            && now.saturating_since(*at) > longest
        {
            self.wishes.pop_front();
        }
        let within = |window| {
            let recent = move |at: &Timestamp| now.saturating_since(*at) <= window;
            self.wishes
                .iter()
                .filter(move |(at, _)| recent(at))
                .map(|(_, wish)| *wish)
        };
        let watched = now.saturating_since(since);
        let up = within(settings.up).min().unwrap_or(current);
        let down = within(settings.down).max().unwrap_or(current);
        let past =
            |at: Option<Timestamp>, time| at.is_none_or(|at| now.saturating_since(at) > time);
        let may_grow = watched >= settings.up && past(self.grew, settings.up);
        let may_shrink = watched >= settings.down
            && past(
                self.grew,
                settings.down * 2_u32.pow(self.turns.min(MOST_TURNS)),
            )
            && past(self.shrank, PACE.min(settings.down));
        if up > current && may_grow {
            up
        } else if down < current && may_shrink {
            down
        } else {
            current
        }
    }

    /// What was decided. Of pods that were added none goes before a window has passed with them.
    pub(super) fn went(&mut self, from: u32, to: u32, now: Timestamp) {
        if to > from {
            if self.shrank > self.grew {
                self.turns += 1;
            }
            self.grew = Some(now);
        } else if to < from {
            self.shrank = Some(now);
        }
    }
}
