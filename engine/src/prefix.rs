//! Who owns which KV block, and which blocks hold the KV of a known beginning of a prompt.
//!
//! A tree: a node is a block and the tokens in it, its parent the block before it, so that a path from the root is a
//! prefix. A node is found by its parent's number and its own tokens. Numbers are never reused, so a match is exact;
//! chained hashes, the usual key, would have to be strong enough that nobody can craft a prompt that reads another's KV.
//!
//! A block that nobody uses keeps its contents until it is needed, the least recently used first, leaves before their
//! parents. A block in the tree is never written again: what a request needs of a block's first tokens only, it copies
//! ([`Claim::copy`]). That is how the last, partial block of a prompt is reused, so that a prompt asked again costs the
//! evaluation of one token.
//!
//! What enters the tree is the caller's promise: KV computed here, or restored bit for bit.

#[cfg(test)]
mod tests;
mod watch;

pub use watch::{CachedBlock, PrefixChanges};

use std::collections::{BTreeMap, HashMap};

use crate::{BLOCK_TOKENS, BlockId, TokenId};

/// A node of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Node(u64);

impl Node {
    /// The empty prefix.
    pub(crate) const ROOT: Self = Self(0);
}

/// How finely a prefix may be matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Match {
    /// Whole blocks only: what a transfer, which works in blocks, can leave out.
    Blocks,
    /// To the token, by a copy of the block in which the prompts part.
    Tokens,
}

/// The blocks of a new sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    /// The block table: shared blocks, to be read only, then blocks of its own, with arbitrary contents.
    pub(crate) blocks: Vec<BlockId>,
    /// How many blocks are shared.
    pub(crate) shared: usize,
    /// The node of the last shared block.
    pub(crate) node: Node,
    /// What to copy into the first block of its own, before anything else is claimed.
    pub(crate) copy: Option<Copy>,
}

/// A beginning of a block to be reused by copying the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Copy {
    /// The block to copy.
    pub(crate) from: BlockId,
    /// How many of its tokens are those of the new sequence.
    pub(crate) tokens: usize,
}

impl Claim {
    /// How many tokens of the sequence are in its blocks already, once [`copy`](Self::copy) is done.
    pub(crate) fn cached(&self) -> usize {
        self.shared * BLOCK_TOKENS + self.copy.map_or(0, |copy| copy.tokens)
    }
}

/// The blocks of a pool.
#[derive(Debug)]
pub(crate) struct PrefixCache {
    slots: Vec<Slot>,
    /// Blocks without contents.
    free: Vec<BlockId>,
    /// Blocks in the tree that nobody uses, by when they were last used.
    idle: BTreeMap<u64, BlockId>,
    children: HashMap<Node, Vec<BlockId>>,
    nodes: u64,
    clock: u64,
    /// What has changed, for whoever watches.
    changes: Option<PrefixChanges>,
}

#[derive(Clone, Debug, Default)]
struct Slot {
    users: u32,
    entry: Option<Entry>,
    /// The key in `idle`, where it is idle.
    idle_since: u64,
}

/// A block's place in the tree.
#[derive(Clone, Debug)]
struct Entry {
    node: Node,
    parent: Node,
    /// Up to [`BLOCK_TOKENS`].
    tokens: Box<[TokenId]>,
}

impl PrefixCache {
    /// All of a pool's blocks, free.
    pub(crate) fn new(blocks: u32) -> Self {
        Self {
            slots: vec![Slot::default(); blocks as usize],
            free: (0..blocks).rev().map(BlockId).collect(),
            idle: BTreeMap::new(),
            children: HashMap::new(),
            nodes: 0,
            clock: 0,
            changes: None,
        }
    }

    /// How many blocks there are.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// How many blocks could be claimed now.
    pub(crate) fn available(&self) -> usize {
        self.free.len() + self.idle.len()
    }

    /// How many of the first tokens of `prompt` a claim would find.
    pub(crate) fn probe(&self, prompt: &[TokenId], kind: Match) -> usize {
        let (shared, _, copy) = self.find(prompt, kind);
        shared.len() * BLOCK_TOKENS + copy.map_or(0, |copy| copy.tokens)
    }

    /// Claims `blocks` blocks for a sequence that begins with `prompt` (of no more tokens than they hold); `None` where
    /// that many are not available, and `reserve` more.
    pub(crate) fn claim(
        &mut self,
        prompt: &[TokenId],
        blocks: usize,
        reserve: usize,
        kind: Match,
    ) -> Option<Claim> {
        let (shared, node, copy) = self.find(prompt, kind);
        let own = blocks.checked_sub(shared.len())?;
        for &block in &shared {
            self.take(block);
        }
        // The block to copy must outlive the evictions of this claim; where that leaves too few, it is not worth it.
        let copy = copy.filter(|copy| {
            self.take(copy.from);
            let enough = self.available() >= own + reserve;
            if !enough {
                self.release(&[copy.from]);
            }
            enough
        });
        if self.available() < own + reserve {
            self.release(&shared);
            return None;
        }
        let mut claimed = shared;
        let shared = claimed.len();
        claimed.extend((0..own).filter_map(|_| self.allocate()));
        if let Some(copy) = copy {
            self.release(&[copy.from]);
        }
        Some(Claim {
            blocks: claimed,
            shared,
            node,
            copy,
        })
    }

    /// Enters a block, used and complete up to `tokens`, under its parent, and returns its node and the block that holds
    /// it: another one where the tree has the same prefix already, and then `block` is released and the other taken.
    ///
    /// A partial block must not be written any more.
    pub(crate) fn publish(
        &mut self,
        parent: Node,
        tokens: &[TokenId],
        block: BlockId,
    ) -> (Node, BlockId) {
        let known = self.child(parent, |entry| &*entry.tokens == tokens);
        if let Some((other, node)) = known {
            if other != block {
                self.take(other);
                self.release(&[block]);
            }
            return (node, other);
        }
        self.nodes += 1;
        let node = Node(self.nodes);
        self.children.entry(parent).or_default().push(block);
        self.slot(block).entry = Some(Entry {
            node,
            parent,
            tokens: tokens.into(),
        });
        self.note_published(node, parent, tokens);
        (node, block)
    }

    /// Whether a block of these tokens is in the tree under its parent.
    pub(crate) fn has(&self, parent: Node, tokens: &[TokenId]) -> bool {
        self.child(parent, |entry| &*entry.tokens == tokens)
            .is_some()
    }

    /// Gives up a sequence's blocks, in the order of its block table. Those in the tree stay there while they last.
    pub(crate) fn release(&mut self, blocks: &[BlockId]) {
        // Backwards, so that a parent is always younger than its children, and evicted after them.
        for &block in blocks.iter().rev() {
            self.clock += 1;
            let now = self.clock;
            let slot = self.slot(block);
            slot.users = slot.users.saturating_sub(1);
            if slot.users > 0 {
                continue;
            }
            if slot.entry.is_some() {
                slot.idle_since = now;
                self.idle.insert(now, block);
            } else {
                self.free.push(block);
            }
        }
    }

    /// The shared blocks for a prompt, the node of the last, and the block in which the match ends.
    fn find(&self, prompt: &[TokenId], kind: Match) -> (Vec<BlockId>, Node, Option<Copy>) {
        let mut shared = Vec::new();
        let mut node = Node::ROOT;
        for tokens in prompt.chunks(BLOCK_TOKENS) {
            let whole = (tokens.len() == BLOCK_TOKENS)
                .then(|| self.child(node, |entry| &*entry.tokens == tokens))
                .flatten();
            let Some((block, next)) = whole else {
                let copy = match kind {
                    Match::Blocks => None,
                    Match::Tokens => self.closest(node, tokens),
                };
                return (shared, node, copy);
            };
            shared.push(block);
            node = next;
        }
        (shared, node, None)
    }

    fn child(&self, parent: Node, wanted: impl Fn(&Entry) -> bool) -> Option<(BlockId, Node)> {
        self.entries(parent)
            .find(|(_, entry)| wanted(entry))
            .map(|(block, entry)| (block, entry.node))
    }

    /// The child that shares the most first tokens, the first of equals.
    fn closest(&self, parent: Node, tokens: &[TokenId]) -> Option<Copy> {
        let common = |entry: &Entry| {
            let pairs = entry.tokens.iter().zip(tokens);
            pairs.take_while(|(a, b)| a == b).count()
        };
        self.entries(parent)
            .map(|(from, entry)| Copy {
                from,
                tokens: common(entry),
            })
            .filter(|copy| copy.tokens > 0)
            .reduce(|best, next| {
                if next.tokens > best.tokens {
                    next
                } else {
                    best
                }
            })
    }

    fn entries(&self, parent: Node) -> impl Iterator<Item = (BlockId, &Entry)> {
        let children = self.children.get(&parent).into_iter().flatten();
        children.filter_map(|&block| {
            let entry = self.slots[block.0 as usize].entry.as_ref()?;
            Some((block, entry))
        })
    }

    fn slot(&mut self, block: BlockId) -> &mut Slot {
        &mut self.slots[block.0 as usize]
    }

    fn take(&mut self, block: BlockId) {
        let slot = self.slot(block);
        slot.users += 1;
        let since = slot.idle_since;
        if slot.users == 1 {
            self.idle.remove(&since);
        }
    }

    /// A block without contents and with one user, by eviction if need be.
    pub(crate) fn allocate(&mut self) -> Option<BlockId> {
        let block = self.free.pop().or_else(|| self.evict())?;
        self.slot(block).users = 1;
        Some(block)
    }

    fn evict(&mut self) -> Option<BlockId> {
        let (_, block) = self.idle.pop_first()?;
        let entry = self.slot(block).entry.take()?;
        debug_assert!(
            !self.children.contains_key(&entry.node),
            "a parent is evicted before its children"
        );
        if let Some(siblings) = self.children.get_mut(&entry.parent) {
            siblings.retain(|&sibling| sibling != block);
            if siblings.is_empty() {
                self.children.remove(&entry.parent);
            }
        }
        self.note_evicted(&entry);
        Some(block)
    }
}
