//! The prefix cache, as somebody outside may watch it.

use super::Engine;
use crate::prefix::PrefixChanges;

impl Engine {
    /// Has [`prefix_changes`](Self::prefix_changes) tell what the prefix cache has, and how that changes; or no more.
    pub fn watch_prefixes(&mut self, watched: bool) {
        if watched {
            self.cache.watch();
        } else {
            self.cache.unwatch();
        }
    }

    /// What has changed in the prefix cache since this was last asked: at first all that is there. Ask often: it is kept
    /// until then.
    pub fn prefix_changes(&mut self) -> PrefixChanges {
        self.cache.take_changes()
    }
}
