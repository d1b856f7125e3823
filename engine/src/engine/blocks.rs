//! Who has blocks: as outputs grow, and where there are not enough of them.
//!
//! Age decides, the order of submission. A request that needs a block and finds none takes those of the youngest of the
//! requests after it that the engine alone touches: not of one whose KV somebody outside writes, or reads. What it gives up
//! stays in the prefix cache while there is room. It goes on, before any new one, when there is room for all that it had:
//! its prompt and its output are computed again, and give the same tokens.
//!
//! The oldest request is preempted by nobody, and can have every block that nobody outside has. That is enough for it, since
//! no sequence is longer than the pool ([`Longest`](super::Longest)); so it ends, and then the next one is the oldest. Where
//! somebody outside has what it needs, it waits: transfers end, and so does reading.
//!
//! Nothing is preempted for the sake of a draft, or of a new request: those take what is left when each request that grows
//! could have a block more.

use super::request::{KvSource, Request, SubmitError};
use super::view::blocks_for;
use super::{Engine, EngineEvent};
use crate::prefix::{Claim, Match};
use crate::speculate::Action;
use crate::{BLOCK_TOKENS, BlockId, TokenId};

impl Engine {
    /// How many times a request has given up its blocks, since the engine began.
    pub fn preemptions(&self) -> u64 {
        self.preemptions
    }

    /// How many requests wait to have blocks again.
    pub fn preempted(&self) -> usize {
        let preempted = self.sequences.iter().filter(|s| s.is_preempted());
        preempted.count()
    }

    /// Blocks for a new request, with how many it needs at most.
    pub(super) fn admit(
        &mut self,
        request: &Request,
        max_tokens: u32,
    ) -> Result<(Claim, usize), SubmitError> {
        let preempted = self.preempted();
        if preempted > 0 {
            return Err(SubmitError::OthersWait(preempted));
        }
        let prompt = request.prompt.len();
        // Nobody evaluates the last token.
        let most = blocks_for(prompt + max_tokens as usize - 1);
        let blocks = if request.retain {
            most
        } else {
            blocks_for(prompt + 1).min(most)
        };
        let reserve = self.reserve(None);
        let (reusable, kind) = reusable(&request.prompt, request.kv);
        let claim = self.claim(reusable, blocks, reserve, kind);
        let claim = claim.ok_or_else(|| SubmitError::NoRoom {
            needed: blocks * BLOCK_TOKENS,
            free: self.cache.available().saturating_sub(reserve) * BLOCK_TOKENS,
            total: self.cache.len() * BLOCK_TOKENS,
        })?;
        Ok((claim, most))
    }

    fn claim(
        &mut self,
        tokens: &[TokenId],
        blocks: usize,
        reserve: usize,
        kind: Match,
    ) -> Option<Claim> {
        let claim = self.cache.claim(tokens, blocks, reserve, kind)?;
        if let Some(copy) = claim.copy {
            self.pool.copy_block(copy.from, claim.blocks[claim.shared]);
        }
        Some(claim)
    }

    /// Whether a request can do in a step what it is about to. What [`resume`](Self::resume) and
    /// [`make_room`](Self::make_room) change for one request only takes from younger ones, so that where this says yes of
    /// any, a step has something to do.
    pub(super) fn can_go_on(&self, index: usize, action: &Action) -> bool {
        let sequence = &self.sequences[index];
        match action {
            Action::Wait | Action::Done => false,
            Action::Compute => !sequence.is_preempted() || self.can_resume(index),
            Action::Draft { position, .. } => {
                sequence.room() > *position as usize || self.can_spare(index)
            }
            Action::Redraft { position, .. }
            | Action::Verify { position, .. }
            | Action::Decode { position, .. } => {
                sequence.room() > *position as usize
                    || self.cache.available() > 0
                    || self.victim(index).is_some()
            }
        }
    }

    /// Gives blocks to a request that has none. Returns whether it has some.
    pub(super) fn resume(&mut self, index: usize) -> bool {
        if !self.sequences[index].is_preempted() {
            return true;
        }
        if !self.can_resume(index) {
            return false;
        }
        let sequence = &self.sequences[index];
        // The last one is computed in any case, and its row says that all are there.
        let tokens = sequence.known(0..sequence.computed_tokens() - 1);
        let blocks = sequence.blocks_to_go_on();
        let Some(claim) = self.claim(&tokens, blocks, 0, Match::Tokens) else {
            return false;
        };
        self.sequences[index].resume(claim);
        true
    }

    /// Whether it is this request's turn, and there is room for it and for the next block of each. Blocks that it would share
    /// with others are counted as if it needed its own: that is quickly said, and true in the end.
    fn can_resume(&self, index: usize) -> bool {
        let first = self.sequences.iter().position(|s| s.is_preempted());
        let needed = || self.sequences[index].blocks_to_stay() + self.reserve(Some(index));
        first == Some(index) && self.cache.available() >= needed()
    }

    /// How many of a job's tokens have a place, from the first on, once there is what can be had.
    pub(super) fn make_room(
        &mut self,
        index: usize,
        start: u32,
        tokens: usize,
        is_draft: bool,
    ) -> usize {
        let start = start as usize;
        loop {
            let room = self.sequences[index].room();
            if start + tokens <= room {
                return tokens;
            }
            // More than one token is an attempt.
            let can_wait = is_draft || room > start;
            let block = if can_wait {
                self.spare(index)
            } else {
                self.needed(index)
            };
            match block {
                Some(block) => self.sequences[index].claim.blocks.push(block),
                None => return room.saturating_sub(start),
            }
        }
    }

    fn spare(&mut self, index: usize) -> Option<BlockId> {
        self.can_spare(index)
            .then(|| self.cache.allocate())
            .flatten()
    }

    fn can_spare(&self, index: usize) -> bool {
        self.cache.available() > self.reserve(Some(index))
    }

    /// A block at a younger one's cost, if need be.
    fn needed(&mut self, index: usize) -> Option<BlockId> {
        while self.cache.available() == 0 {
            // It may have only blocks that others use too.
            let victim = self.victim(index)?;
            self.preempt(victim);
        }
        self.cache.allocate()
    }

    /// The youngest request after this one that can be preempted.
    fn victim(&self, index: usize) -> Option<usize> {
        let after = index + 1;
        let victim = self.sequences[after..]
            .iter()
            .rposition(|s| s.is_preemptible());
        victim.map(|place| after + place)
    }

    fn preempt(&mut self, index: usize) {
        let sequence = &mut self.sequences[index];
        let request = sequence.id;
        let blocks = sequence.preempt(&mut self.cache);
        self.cache.release(&blocks);
        self.preemptions += 1;
        self.events.push(EngineEvent::Preempted { request });
    }

    /// A block for each other request that may grow.
    fn reserve(&self, except: Option<usize>) -> usize {
        let all = self.sequences.iter().enumerate();
        let growing = all.filter(|(index, s)| Some(*index) != except && s.grows());
        growing.count()
    }
}

/// The tokens of a prompt whose KV can be reused, and how finely. The last token is evaluated in any case, for its logits;
/// transfers work in whole blocks.
pub(super) fn reusable(prompt: &[TokenId], kv: KvSource) -> (&[TokenId], Match) {
    let before_last = &prompt[..prompt.len().saturating_sub(1)];
    match kv {
        KvSource::Compute => (before_last, Match::Tokens),
        KvSource::Transfer => (before_last, Match::Blocks),
    }
}
