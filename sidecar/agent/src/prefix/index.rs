//! What a prefill agent's engine has cached, and what has changed since a peer heard of it.
//!
//! The engine tells blocks by numbers of its own, with their tokens; the [`Index`] makes names of them. What it learns goes
//! into a [`Journal`], which all listening peers read at their own pace: it keeps the present contents and the last changes,
//! and a peer that is further behind than those reach, or that has just come, gets the contents as a whole. So a slow or a
//! lost peer costs no memory, and nothing has to be told twice.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

use lynx_proto::engine::v1::{CachedBlock, CachedBlocks};

use super::{BlockName, Salt, after};

/// The engine's blocks.
#[derive(Debug)]
pub(crate) struct Index {
    salt: Salt,
    limit: usize,
    /// By the engine's numbers: the name, and the block's place in `order`.
    blocks: HashMap<u64, (BlockName, u64)>,
    /// The engine's numbers, oldest first.
    order: BTreeMap<u64, u64>,
    told: u64,
}

/// The contents and the last changes, for peers.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    /// In order, so that a snapshot can be told in parts.
    blocks: BTreeSet<BlockName>,
    changes: VecDeque<Change>,
    /// The number of the first change in `changes`; every change before it is in `blocks` only.
    first: u64,
    /// How often the engine has begun anew.
    generation: u64,
    limit: usize,
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Added(BlockName),
    Removed(BlockName),
}

/// What a peer hears next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Since {
    /// Whether all that was told before is void: the contents are told anew.
    pub(crate) reset: bool,
    /// New blocks.
    pub(crate) added: Vec<BlockName>,
    /// Blocks that are gone, of those just added too.
    pub(crate) removed: Vec<BlockName>,
}

/// How far a peer has heard. Compare [`Journal::since`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Position {
    /// `None` before the first word.
    generation: Option<u64>,
    /// The next change.
    next: u64,
    /// In the middle of a snapshot: the last block that was told. Changes up to `next` are in it or will be told.
    snapshot: Option<BlockName>,
}

impl Index {
    /// Nothing, and room for the newest `limit` blocks.
    pub(crate) fn new(salt: Salt, limit: usize) -> Self {
        Self {
            salt,
            limit,
            blocks: HashMap::new(),
            order: BTreeMap::new(),
            told: 0,
        }
    }

    /// The engine's cache has changed.
    pub(crate) fn take(&mut self, told: &CachedBlocks, journal: &mut Journal) {
        if told.reset {
            self.blocks.clear();
            self.order.clear();
            journal.reset();
        }
        for block in &told.added {
            self.add(block, journal);
        }
        for number in &told.removed {
            self.remove(*number, journal);
        }
    }

    fn add(&mut self, block: &CachedBlock, journal: &mut Journal) {
        let parent = match block.parent {
            0 => Some(self.salt.root()),
            parent => self.blocks.get(&parent).map(|(name, _)| *name),
        };
        // A block whose parent is forgotten has no name. It is of no use either: a peer needs the blocks before it as well.
        let Some(parent) = parent.filter(|_| self.limit > 0) else {
            return;
        };
        self.remove(block.block, journal);
        if self.blocks.len() >= self.limit
            && let Some((_, oldest)) = self.order.pop_first()
            && let Some((name, _)) = self.blocks.remove(&oldest)
        {
            journal.remove(name);
        }
        let name = after(parent, &block.tokens);
        self.told += 1;
        self.blocks.insert(block.block, (name, self.told));
        self.order.insert(self.told, block.block);
        journal.add(name);
    }

    fn remove(&mut self, number: u64, journal: &mut Journal) {
        if let Some((name, place)) = self.blocks.remove(&number) {
            self.order.remove(&place);
            journal.remove(name);
        }
    }
}

impl Journal {
    /// Nothing, and room for `limit` changes that peers may be behind.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            ..Self::default()
        }
    }

    /// How many blocks there are.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
    }

    fn reset(&mut self) {
        self.generation += 1;
        self.blocks.clear();
        self.first += self.changes.len() as u64;
        self.changes.clear();
    }

    fn add(&mut self, name: BlockName) {
        if self.blocks.insert(name) {
            self.note(Change::Added(name));
        }
    }

    fn remove(&mut self, name: BlockName) {
        if self.blocks.remove(&name) {
            self.note(Change::Removed(name));
        }
    }

    fn note(&mut self, change: Change) {
        self.changes.push_back(change);
        if self.changes.len() > self.limit {
            self.changes.pop_front();
            self.first += 1;
        }
    }

    /// What a peer at `position` hears next, at most `most` blocks at a time; `None` where there is nothing new. `position`
    /// moves on.
    pub(crate) fn since(&self, position: &mut Position, most: usize) -> Option<Since> {
        let is_behind = position.next < self.first;
        let is_other = position.generation != Some(self.generation);
        let restarts = is_behind || is_other;
        if restarts {
            *position = Position {
                generation: Some(self.generation),
                next: self.first + self.changes.len() as u64,
                // Below every name: nothing is told yet.
                snapshot: (!self.blocks.is_empty()).then_some(BlockName(0)),
            };
        }
        let mut since = Since {
            reset: restarts,
            ..Since::default()
        };
        if let Some(last) = position.snapshot {
            // The name 0 is nobody's: one of 2^64, and it costs time only.
            let rest = self.blocks.range(BlockName(last.0.saturating_add(1))..);
            since.added.extend(rest.take(most).copied());
            let is_cut = since.added.len() == most;
            position.snapshot = since.added.last().copied().filter(|_| is_cut);
            return Some(since);
        }
        self.changes_since(position, most, &mut since);
        let is_empty = since.added.is_empty() && since.removed.is_empty();
        (restarts || !is_empty).then_some(since)
    }

    fn changes_since(&self, position: &mut Position, most: usize, since: &mut Since) {
        let skip = usize::try_from(position.next - self.first).unwrap_or(usize::MAX);
        let mut removed = HashSet::new();
        for change in self.changes.iter().skip(skip).take(most) {
            match *change {
                // A peer takes what is added before what is removed: what comes back is the next word's.
                Change::Added(name) if removed.contains(&name) => return,
                Change::Added(name) => since.added.push(name),
                Change::Removed(name) => {
                    removed.insert(name);
                    since.removed.push(name);
                }
            }
            position.next += 1;
        }
    }
}
