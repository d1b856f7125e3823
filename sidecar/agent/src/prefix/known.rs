//! What a decode agent knows of one peer's cache.

use std::collections::HashSet;

use lynx_kernels::BLOCK_TOKENS;

use super::BlockName;

/// Blocks that a peer says it has, no more than a limit: what does not fit is not remembered, and costs time only.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Known {
    limit: usize,
    blocks: HashSet<BlockName>,
}

impl Known {
    /// Nothing, and room for `limit` blocks.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            blocks: HashSet::new(),
        }
    }

    /// The peer has begun a new life, or a new snapshot.
    pub(crate) fn clear(&mut self) {
        self.blocks.clear();
    }

    /// The peer has these blocks now.
    pub(crate) fn add(&mut self, blocks: impl IntoIterator<Item = BlockName>) {
        let room = self.limit.saturating_sub(self.blocks.len());
        self.blocks.extend(blocks.into_iter().take(room));
    }

    /// The peer has these no more.
    pub(crate) fn remove(&mut self, blocks: impl IntoIterator<Item = BlockName>) {
        for block in blocks {
            self.blocks.remove(&block);
        }
    }

    /// How many of a prompt's first tokens, in whole blocks, the peer has.
    pub(crate) fn tokens_of(&self, prompt: &[BlockName]) -> u32 {
        let known = prompt.iter().take_while(|name| self.blocks.contains(name));
        u32::try_from(known.count() * BLOCK_TOKENS).unwrap_or(u32::MAX)
    }

    /// How many blocks are known.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
    }
}
