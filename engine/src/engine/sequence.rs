//! One request inside the engine: its tokens, its blocks, and how much of them is right.

use core::ops::Range;
use core::time::Duration;
use std::collections::VecDeque;

use lynx_units::Timestamp;

use super::event::EngineEvent;
use super::request::{Exactness, KvSource, RequestId};
use super::view::{SequenceKv, blocks_for};
use crate::prefix::{Claim, Node, PrefixCache};
use crate::speculate::{Action, Output, Speculation};
use crate::{Adjust, BLOCK_TOKENS, BlockId, KvPool, Logprobs, Sampling, TokenId};

/// A request and its KV.
#[derive(Debug)]
pub(super) struct Sequence {
    pub(super) id: RequestId,
    pub(super) prompt: Vec<TokenId>,
    sampling: Sampling,
    adjust: Adjust,
    top_logprobs: Option<u32>,
    /// Of tokens that are committed and not reported.
    logprobs: VecDeque<Logprobs>,
    pub(super) source: KvSource,
    pub(super) retain: bool,
    /// Whether its blocks are somebody else's to write: no step touches them.
    pub(super) held: bool,
    pub(super) machine: Speculation,
    /// Without blocks where it was preempted.
    pub(super) claim: Claim,
    /// How many blocks the longest output takes.
    most_blocks: usize,
    /// How many tokens had their KV here when the request came.
    pub(super) cached: usize,
    /// How many tokens, from the first on, have their full KV in the blocks.
    pub(super) valid: usize,
    /// How many whole blocks are in the prefix cache.
    published: usize,
    /// Whether `valid` rests on KV that is not that of a computation, so that it is of no use to others.
    tainted: bool,
    /// Whether it goes on in blocks that the prefix cache has from another request, and keeps its own.
    apart: bool,
}

impl Sequence {
    pub(super) fn new(
        id: RequestId,
        request: super::Request,
        machine: Speculation,
        (claim, most_blocks): (Claim, usize),
    ) -> Self {
        let cached = claim.cached();
        Self {
            id,
            prompt: request.prompt,
            sampling: request.sampling,
            adjust: request.adjust,
            top_logprobs: request.top_logprobs,
            logprobs: VecDeque::new(),
            source: request.kv,
            retain: request.retain,
            held: false,
            machine,
            cached,
            valid: cached,
            published: claim.shared,
            claim,
            most_blocks,
            tainted: false,
            apart: false,
        }
    }

    /// The output's first token, from elsewhere.
    pub(super) fn first_token(&mut self, token: TokenId, logprobs: Option<Logprobs>) {
        let before = self.machine.committed().len();
        self.machine.first_token(token);
        if self.top_logprobs.is_some() && self.machine.committed().len() > before {
            self.logprobs.extend(logprobs);
        }
    }

    /// The token that a row gives at this place of the output.
    pub(super) fn sample(&self, logits: &[f32], index: usize) -> TokenId {
        let place = self.prompt.len() + index;
        let place = u32::try_from(place).unwrap_or(u32::MAX);
        if self.adjust.is_nothing() {
            return self.sampling.sample(logits, place);
        }
        let mut logits = logits.to_vec();
        let output = self.machine.output();
        self.adjust
            .apply(&mut logits, &output[..index.min(output.len())]);
        self.sampling.sample(&logits, place)
    }

    /// Takes the samples of the rows that give the output from this place on.
    pub(super) fn sampled<'a>(
        &mut self,
        samples: &[TokenId],
        index: usize,
        row: impl Fn(usize) -> &'a [f32],
    ) {
        let before = self.machine.committed().len();
        self.machine.evaluated(samples);
        let Some(top) = self.top_logprobs else {
            return;
        };
        let committed = self.machine.committed().iter().enumerate().skip(before);
        for (place, &token) in committed {
            let logits = row(place.saturating_sub(index));
            self.logprobs.push_back(Logprobs::new(logits, token, top));
        }
    }

    /// What the last row said of the token that it gave, where that is committed and is to be told.
    pub(super) fn last_logprobs(&self) -> Option<Box<Logprobs>> {
        self.logprobs.back().cloned().map(Box::new)
    }

    /// The prompt's KV was restored.
    pub(super) fn restored(&mut self, exactness: Exactness) {
        self.machine.full_ready();
        self.valid = self.prompt.len();
        self.tainted = exactness == Exactness::Quantised;
    }

    /// The prompt's KV won't be restored. Returns whether it is computed here instead.
    pub(super) fn fail(&mut self) -> bool {
        let recomputes = self.machine.failed();
        if recomputes {
            if self.tainted {
                self.valid = self.cached;
                self.tainted = false;
            }
            // The last token is evaluated in any case: its logits are the first sample.
            self.valid = self.valid.min(self.prompt.len() - 1);
        }
        recomputes
    }

    /// Whether the prompt's blocks are the caller's to write.
    pub(super) fn is_loading(&self) -> bool {
        self.machine.is_loading()
    }

    pub(super) fn view<'a>(&'a self, pool: &'a KvPool) -> SequenceKv<'a> {
        SequenceKv {
            pool,
            blocks: &self.claim.blocks,
            tokens: u32::try_from(self.prompt.len()).unwrap_or(u32::MAX),
        }
    }

    /// What an evaluation on full KV has added: prompt tokens up to `end`, or, once the prompt is whole, all committed
    /// tokens but the last, which nobody has evaluated yet.
    pub(super) fn evaluated(&mut self, action: &Action, end: usize) {
        self.valid = match action {
            Action::Compute => end,
            Action::Verify { .. } | Action::Decode { .. } => {
                self.prompt.len() + self.machine.committed().len() - 1
            }
            Action::Draft { .. } | Action::Redraft { .. } | Action::Wait | Action::Done => return,
        };
    }

    /// What to do at `now`.
    pub(super) fn next(&self, now: Timestamp, token_time: Duration) -> Action {
        if self.held {
            Action::Wait
        } else {
            self.machine.next(now, token_time)
        }
    }

    /// When to ask again, where nobody says anything.
    pub(super) fn wakes_at(&self, token_time: Duration) -> Option<Timestamp> {
        let wakes = || self.machine.wakes_at(token_time);
        (!self.held).then(wakes).flatten()
    }

    /// Enters whole blocks into the prefix cache; where it has them already, those are used from here on.
    pub(super) fn publish(&mut self, cache: &mut PrefixCache) {
        while self.is_of_use() && (self.published + 1) * BLOCK_TOKENS <= self.valid {
            let start = self.published * BLOCK_TOKENS;
            self.enter(cache, start, start + BLOCK_TOKENS);
            self.published += 1;
        }
    }

    /// Enters the last, partial block into the prefix cache. The sequence must not be evaluated any more.
    pub(super) fn publish_tail(&mut self, cache: &mut PrefixCache) {
        let start = self.published * BLOCK_TOKENS;
        if self.is_of_use() && start < self.valid {
            self.enter(cache, start, self.valid);
        }
    }

    fn is_of_use(&self) -> bool {
        !self.tainted && !self.apart
    }

    /// The tokens from `start` to `end` lie in one block, the first that is not in the cache.
    fn enter(&mut self, cache: &mut PrefixCache, start: usize, end: usize) {
        let tokens = self.known(start..end);
        let block = &mut self.claim.blocks[self.published];
        if self.retain && cache.has(self.claim.node, &tokens) {
            // Somebody may be reading its block: it can't be exchanged for the cache's, and what follows stays out too.
            self.apart = true;
            return;
        }
        (self.claim.node, *block) = cache.publish(self.claim.node, &tokens, *block);
    }

    /// Whether it has given its blocks to an older one.
    pub(super) fn is_preempted(&self) -> bool {
        self.claim.blocks.is_empty()
    }

    /// Whether nobody but the engine reads or writes its blocks.
    pub(super) fn is_preemptible(&self) -> bool {
        let is_others = self.held || self.retain || self.is_loading();
        !is_others && !self.machine.is_done() && !self.is_preempted()
    }

    /// Whether it may need more blocks than it has.
    pub(super) fn grows(&self) -> bool {
        !self.is_preempted()
            && !self.machine.is_done()
            && self.claim.blocks.len() < self.most_blocks
    }

    /// How many tokens its blocks hold.
    pub(super) fn room(&self) -> usize {
        self.claim.blocks.len() * BLOCK_TOKENS
    }

    /// How many tokens are computed before the output goes on: the prompt, and of an output that is known already all but
    /// the last token, which is evaluated for its logits.
    pub(super) fn computed_tokens(&self) -> usize {
        self.prompt.len() + self.machine.committed().len().saturating_sub(1)
    }

    /// How many blocks these and the step after them take.
    pub(super) fn blocks_to_go_on(&self) -> usize {
        blocks_for(self.computed_tokens() + 1).min(self.most_blocks)
    }

    /// The same with the next block that its output takes: with less, it would soon be in the way again.
    pub(super) fn blocks_to_stay(&self) -> usize {
        (self.blocks_to_go_on() + 1).min(self.most_blocks)
    }

    /// These tokens of the prompt and of what is committed.
    pub(super) fn known(&self, range: Range<usize>) -> Vec<TokenId> {
        let all = self.prompt.iter().chain(self.machine.committed());
        all.skip(range.start).take(range.len()).copied().collect()
    }

    /// Gives up its blocks, to be released; what the prefix cache can use is in it.
    pub(super) fn preempt(&mut self, cache: &mut PrefixCache) -> Vec<BlockId> {
        self.publish_tail(cache);
        self.machine.preempted();
        (self.valid, self.published) = (0, 0);
        let nothing = Claim {
            blocks: Vec::new(),
            shared: 0,
            node: Node::ROOT,
            copy: None,
        };
        core::mem::replace(&mut self.claim, nothing).blocks
    }

    /// Goes on in other blocks, with what they hold.
    pub(super) fn resume(&mut self, claim: Claim) {
        self.valid = claim.cached();
        self.published = claim.shared;
        self.claim = claim;
        self.tainted = false;
        self.apart = false;
    }

    /// Passes on what changed in the output.
    pub(super) fn report(&mut self, events: &mut Vec<EngineEvent>) {
        let request = self.id;
        let known = &mut self.logprobs;
        events.extend(self.machine.changes().map(|change| {
            match change {
                Output::Token {
                    index,
                    token,
                    provisional,
                } => EngineEvent::Token {
                    request,
                    index,
                    token,
                    provisional,
                    logprobs: (!provisional)
                        .then(|| known.pop_front().map(Box::new))
                        .flatten(),
                },
                Output::Retracted { from_index } => EngineEvent::Retracted {
                    request,
                    from_index,
                },
                Output::Redrafted { drafted, kept } => EngineEvent::Redrafted {
                    request,
                    drafted,
                    kept,
                },
                Output::Verified { drafted, accepted } => EngineEvent::Verified {
                    request,
                    drafted,
                    accepted,
                },
                Output::Finished(reason) => EngineEvent::Finished { request, reason },
            }
        }));
    }
}
