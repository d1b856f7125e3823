//! What a cached block of a prompt is called, so that one agent can tell another which prefixes it has.
//!
//! A block's name is the start of SHA-256 over its parent's name and its own tokens, a block being [`BLOCK_TOKENS`] tokens;
//! the first block's parent is a salt made of all that two agents must have in common to work together, so that blocks of
//! different models, layouts or generations never have one name. Two prompts share their names exactly as far as they share
//! whole blocks.
//!
//! A name only ranks peers. Whether a peer truly has a block, its engine finds out by the tokens themselves; a name that
//! means two blocks costs time, and never a token. That is why 64 bits are enough, and why engines are not asked for hashes:
//! they tell tokens, and only agents, which are of one release, have to agree on this function.

mod index;
mod known;

pub(crate) use index::{Index, Journal, Position};
pub(crate) use known::Known;

use std::fmt;

use lynx_kernels::BLOCK_TOKENS;
use sha2::{Digest as _, Sha256};

use crate::identity::Identity;

/// A block and all before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct BlockName(pub(crate) u64);

/// What the first block of every prompt comes after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Salt(BlockName);

impl Salt {
    /// Equal for agents that may work together.
    pub(crate) fn of(identity: &Identity) -> Self {
        let mut hash = Sha256::new();
        for (key, value) in identity.facts() {
            for text in [key, value] {
                // With its length: "ab" and "c" aren't "a" and "bc".
                hash.update((text.len() as u64).to_le_bytes());
                hash.update(text);
            }
        }
        Self(name(hash))
    }

    /// The parent of a first block.
    pub(crate) const fn root(self) -> BlockName {
        self.0
    }
}

/// The name of the block with these tokens after `parent`.
pub(crate) fn after(parent: BlockName, tokens: &[u32]) -> BlockName {
    let mut hash = Sha256::new();
    hash.update(parent.0.to_le_bytes());
    for token in tokens {
        hash.update(token.to_le_bytes());
    }
    name(hash)
}

/// The names of a prompt's whole blocks, first to last.
pub(crate) fn names(salt: Salt, tokens: &[u32]) -> Vec<BlockName> {
    let blocks = tokens.as_chunks::<BLOCK_TOKENS>().0.iter();
    let named = blocks.scan(salt.root(), |parent, tokens| {
        *parent = after(*parent, tokens);
        Some(*parent)
    });
    named.collect()
}

fn name(hash: Sha256) -> BlockName {
    let [a, b, c, d, e, f, g, h, ..]: [u8; 32] = hash.finalize().into();
    BlockName(u64::from_le_bytes([a, b, c, d, e, f, g, h]))
}

impl fmt::Display for BlockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests;
