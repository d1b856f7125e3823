//! What the prefix cache has, told as it changes.

use lynx_engine::{CachedBlock, PrefixChanges};
use lynx_proto::engine::v1::{self as api, from_engine};

use super::Host;

/// The most blocks of one message: some 200 KiB of tokens.
const MOST_BLOCKS: usize = 1024;

impl Host {
    /// Tells the agent, if there is something to tell.
    pub(super) fn tell_cached(&mut self) {
        let changes = self.engine.prefix_changes();
        if changes.is_empty() {
            return;
        }
        let PrefixChanges {
            mut reset,
            added,
            removed,
        } = changes;
        let mut added = added.into_iter().map(told).peekable();
        loop {
            let part: Vec<_> = added.by_ref().take(MOST_BLOCKS).collect();
            let is_last = added.peek().is_none();
            self.tell(from_engine::Kind::CachedBlocks(api::CachedBlocks {
                reset: core::mem::take(&mut reset),
                added: part,
                // What is gone may have been added in any part.
                removed: if is_last { removed.clone() } else { Vec::new() },
            }));
            if is_last {
                return;
            }
        }
    }
}

fn told(block: CachedBlock) -> api::CachedBlock {
    api::CachedBlock {
        block: block.number,
        parent: block.parent,
        tokens: block.tokens,
    }
}
