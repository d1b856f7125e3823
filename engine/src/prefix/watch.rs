//! What the cache has, for somebody outside who wants to know it.

use super::{BLOCK_TOKENS, Entry, Node, PrefixCache};
use crate::TokenId;

/// How the cached whole blocks have changed. What was added counts before what is gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrefixChanges {
    /// Whether all that was told before is void.
    pub reset: bool,
    /// New blocks, each after its parent.
    pub added: Vec<CachedBlock>,
    /// The numbers of those that are no more.
    pub removed: Vec<u64>,
}

/// A whole block that a prompt would find.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedBlock {
    /// Its number, from 1 on; never used again.
    pub number: u64,
    /// The number of the block before it; 0 at the beginning.
    pub parent: u64,
    /// Its 64 tokens.
    pub tokens: Vec<TokenId>,
}

impl PrefixChanges {
    /// Whether nothing has changed.
    pub fn is_empty(&self) -> bool {
        !self.reset && self.added.is_empty() && self.removed.is_empty()
    }
}

impl PrefixCache {
    /// Notes changes from now on, beginning with all that is here.
    pub(crate) fn watch(&mut self) {
        let entries = self.slots.iter().filter_map(|slot| slot.entry.as_ref());
        let mut added: Vec<_> = entries.filter_map(Entry::told).collect();
        // Numbers grow, so that a parent's is less than its children's.
        added.sort_unstable_by_key(|block| block.number);
        self.changes = Some(PrefixChanges {
            reset: true,
            added,
            removed: Vec::new(),
        });
    }

    /// Notes nothing any more.
    pub(crate) fn unwatch(&mut self) {
        self.changes = None;
    }

    /// The same cache without anything in it; the watcher is told.
    pub(crate) fn emptied(&self) -> Self {
        let blocks = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
        let mut cache = Self::new(blocks);
        if self.changes.is_some() {
            cache.watch();
        }
        cache
    }

    /// What has changed since this was last asked.
    pub(crate) fn take_changes(&mut self) -> PrefixChanges {
        let changes = self.changes.as_mut();
        changes.map(core::mem::take).unwrap_or_default()
    }

    pub(super) fn note_published(&mut self, node: Node, parent: Node, tokens: &[TokenId]) {
        if let Some(changes) = &mut self.changes {
            changes.added.extend(told(node, parent, tokens));
        }
    }

    pub(super) fn note_evicted(&mut self, entry: &Entry) {
        if let Some(changes) = &mut self.changes
            && entry.tokens.len() == BLOCK_TOKENS
        {
            changes.removed.push(entry.node.0);
        }
    }
}

impl Entry {
    fn told(&self) -> Option<CachedBlock> {
        told(self.node, self.parent, &self.tokens)
    }
}

/// A part of a block is nobody's parent, and saves little: nobody is told of it.
fn told(node: Node, parent: Node, tokens: &[TokenId]) -> Option<CachedBlock> {
    (tokens.len() == BLOCK_TOKENS).then(|| CachedBlock {
        number: node.0,
        parent: parent.0,
        tokens: tokens.to_vec(),
    })
}
