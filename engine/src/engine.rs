//! The engine: several requests at once over one model and one KV pool.
//!
//! The caller submits requests, steps the engine while it is not idle, and passes on the [`EngineEvent`]s. A step is one
//! forward pass over whatever every request does next: a chunk of its prompt, a draft, a verification, a token. Nothing
//! happens between steps, which is when the caller reads and writes KV and gives signals.
//!
//! A request begins with blocks for its prompt and the step after it, and gets another each time that its output has filled
//! them. Where there are none, the youngest request gives its up to an older one and waits, before all that
//! [`Engine::submit`] has not taken yet; see `blocks`. There is no other queue in here: a caller that wants one keeps what
//! is turned away.
//!
//! What a token is does not depend on the company its request is in: the model is batch-invariant, and a sample is a
//! function of logits, seed and position. Of requests whose KV comes by transfer, [`crate::speculate`] says what is drafted
//! and what is committed.

mod blocks;
mod evaluate;
mod event;
mod pace;
mod prefixes;
mod request;
mod sequence;
mod step;
#[cfg(test)]
mod tests;
mod view;

use std::sync::Arc;

use core::time::Duration;

use lynx_units::Timestamp;

use crate::prefix::PrefixCache;
use crate::speculate::{AnchorInfo, Speculation};
use crate::stop::StopRule;
use crate::{BlockId, Config, KvPool, Logprobs, Model, TokenId, Tokenizer, Workers, WorkersError};
use blocks::reusable;
use evaluate::{Evaluate, RealModel};
use pace::Pace;
use sequence::Sequence;
use view::blocks_for;

pub use event::{EngineEvent, StepObserver};
pub use request::{
    Bound, EngineOptions, Exactness, KvSource, Longest, Request, RequestId, StartError,
    SubmitError, UnknownRequest,
};
pub use step::StepError;
pub use view::{SequenceKv, SequenceKvMut};

/// A model at work.
#[derive(Debug)]
pub struct Engine {
    evaluator: Box<dyn Evaluate>,
    tokenizer: Arc<Tokenizer>,
    options: EngineOptions,
    pool: KvPool,
    cache: PrefixCache,
    /// In the order of submission.
    sequences: Vec<Sequence>,
    /// Requests that ended and whose blocks somebody still reads, or writes.
    retained: Vec<Sequence>,
    submitted: u64,
    events: Vec<EngineEvent>,
    pace: Pace,
    preemptions: u64,
}

impl Engine {
    /// An engine without requests. Its KV pool is allocated here, and is all the memory that grows with its use.
    ///
    /// # Errors
    /// Where the threads can't be started.
    pub fn new(
        model: Arc<Model>,
        tokenizer: Arc<Tokenizer>,
        options: EngineOptions,
    ) -> Result<Self, WorkersError> {
        let workers = Workers::new(options.threads)?;
        let pool = KvPool::new(model.config(), options.blocks as usize);
        let evaluator = Box::new(RealModel::new(model, workers));
        Ok(Self::with_evaluator(evaluator, tokenizer, options, pool))
    }

    /// An engine without requests over a pool that is there already, such as one that another process maps too.
    ///
    /// # Errors
    /// Where the threads can't be started, or the pool is not one of this model and these options.
    pub fn with_pool(
        model: Arc<Model>,
        tokenizer: Arc<Tokenizer>,
        options: EngineOptions,
        pool: KvPool,
    ) -> Result<Self, StartError> {
        if !pool.fits(model.config()) || pool.blocks() != options.blocks as usize {
            return Err(StartError::Pool {
                blocks: pool.blocks(),
                wanted: options.blocks,
            });
        }
        let workers = Workers::new(options.threads)?;
        let evaluator = Box::new(RealModel::new(model, workers));
        Ok(Self::with_evaluator(evaluator, tokenizer, options, pool))
    }

    fn with_evaluator(
        evaluator: Box<dyn Evaluate>,
        tokenizer: Arc<Tokenizer>,
        options: EngineOptions,
        pool: KvPool,
    ) -> Self {
        Self {
            pool,
            cache: PrefixCache::new(options.blocks),
            evaluator,
            tokenizer,
            options,
            sequences: Vec::new(),
            retained: Vec::new(),
            submitted: 0,
            events: Vec::new(),
            pace: Pace::default(),
            preemptions: 0,
        }
    }

    /// The model's numbers.
    pub fn config(&self) -> &Config {
        self.evaluator.config()
    }

    /// The model's tokenizer.
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.tokenizer
    }

    /// How large the engine is.
    pub fn options(&self) -> &EngineOptions {
        &self.options
    }

    /// The memory of all KV.
    pub fn pool(&self) -> &KvPool {
        &self.pool
    }

    /// How many blocks a new request could have.
    pub fn free_blocks(&self) -> usize {
        self.cache.available()
    }

    /// How long a step takes that evaluates a token of each request; zero before the first was measured.
    pub fn token_time(&self) -> Duration {
        self.pace.token_time()
    }

    /// How many of the prompt's first tokens have their KV here, for a request that would come now.
    pub fn probe(&self, prompt: &[TokenId], kv: KvSource) -> usize {
        let (reusable, kind) = reusable(prompt, kv);
        self.cache.probe(reusable, kind)
    }

    /// The longest sequence that it takes.
    pub fn longest(&self) -> Longest {
        Longest::new(self.config().context, &self.options)
    }

    /// Takes a request, with blocks for its prompt and the step after it.
    ///
    /// # Errors
    /// Where the request makes no sense to this model, or there are not enough blocks; nothing has changed then.
    pub fn submit(&mut self, request: Request) -> Result<RequestId, SubmitError> {
        let max_tokens = self.check(&request)?;
        let claim = self.admit(&request, max_tokens)?;
        let ending = StopRule::new(self.tokenizer.clone(), request.stop.clone(), max_tokens);
        let prompt = u32::try_from(request.prompt.len()).unwrap_or(u32::MAX);
        let machine = match request.kv {
            KvSource::Compute => Speculation::local(prompt, Box::new(ending)),
            KvSource::Transfer => {
                Speculation::transferred(prompt, self.options.max_draft, Box::new(ending))
            }
        };
        self.submitted += 1;
        let id = RequestId(self.submitted);
        self.sequences
            .push(Sequence::new(id, request, machine, claim));
        Ok(id)
    }

    /// How many tokens the output may have.
    fn check(&self, request: &Request) -> Result<u32, SubmitError> {
        let vocab = self.config().vocab;
        let longest = self.longest();
        let prompt = request.prompt.len();
        if prompt == 0 {
            return Err(SubmitError::EmptyPrompt);
        }
        if request.max_tokens == 0 {
            return Err(SubmitError::NoTokens);
        }
        if prompt > longest.prompt() {
            return Err(SubmitError::PromptTooLong { prompt, longest });
        }
        let strange = |token: &TokenId| *token as usize >= vocab;
        if let Some(position) = request.prompt.iter().position(strange) {
            return Err(SubmitError::UnknownToken {
                token: request.prompt[position],
                position,
                vocabulary: vocab,
            });
        }
        if let Some((&token, _)) = request.adjust.bias.iter().find(|(token, _)| strange(token)) {
            return Err(SubmitError::UnknownBias {
                token,
                vocabulary: vocab,
            });
        }
        if !request.adjust.is_finite() {
            return Err(SubmitError::Adjust);
        }
        let room = u32::try_from(longest.tokens - prompt).unwrap_or(u32::MAX);
        Ok(request.max_tokens.min(room))
    }

    /// How many of the prompt's first tokens had their KV here when the request came: what a transfer need not send.
    /// A multiple of 64 for a request whose KV comes by transfer. The KV of these tokens can be read at once, and
    /// [`StepObserver::layer_ready`] won't speak of them.
    ///
    /// # Errors
    /// Where the request is not running here.
    pub fn cached_tokens(&self, id: RequestId) -> Result<u32, UnknownRequest> {
        let cached = self.any(id)?.cached;
        Ok(u32::try_from(cached).unwrap_or(u32::MAX))
    }

    /// The blocks of a request, also of one that ended and was to be retained: those of its prompt, then those of its
    /// output so far, which begins in the prompt's last block if that is not full. Those of the prompt stay the same ones
    /// while it is restored, and as long as the request lives if it is to be retained. A request that was preempted has
    /// none.
    ///
    /// # Errors
    /// Where the request is neither running nor retained here.
    pub fn blocks(&self, id: RequestId) -> Result<&[BlockId], UnknownRequest> {
        Ok(&self.any(id)?.claim.blocks)
    }

    /// Somebody outside of this process's Rust, who has the pool mapped too, writes the blocks of a request from now on:
    /// no step reads or writes them, and they are not freed, even if the request ends meanwhile, until
    /// [`unhold`](Self::unhold). Blocks before [`cached_tokens`](Self::cached_tokens) are shared, and not to be written.
    ///
    /// # Errors
    /// Where the request is not running here.
    pub fn hold(&mut self, id: RequestId, now: Timestamp) -> Result<(), UnknownRequest> {
        let mut sequences = self.sequences.iter_mut();
        let sequence = sequences.find(|sequence| sequence.id == id);
        sequence.ok_or(UnknownRequest(id))?.held = true;
        // How long the writer takes says nothing about a token.
        self.pace.begin(now);
        Ok(())
    }

    /// Nobody outside writes the request's blocks any more. Says nothing about what they hold: that is for
    /// [`anchor_ready`](Self::anchor_ready) and its like.
    ///
    /// # Errors
    /// Where the request is neither running nor held here.
    pub fn unhold(&mut self, id: RequestId) -> Result<(), UnknownRequest> {
        let all = self.sequences.iter_mut().chain(&mut self.retained);
        let sequence = all.into_iter().find(|sequence| sequence.id == id);
        let sequence = sequence.ok_or(UnknownRequest(id))?;
        sequence.held = false;
        let is_over = sequence.machine.is_done() && !sequence.retain;
        if is_over { self.release(id) } else { Ok(()) }
    }

    /// The KV of a request, also of one that ended and was to be retained.
    ///
    /// # Errors
    /// Where the request is neither running nor retained here, or was preempted and has none at the moment.
    pub fn kv(&self, id: RequestId) -> Result<SequenceKv<'_>, UnknownRequest> {
        let sequence = self.any(id)?;
        if sequence.is_preempted() {
            return Err(UnknownRequest(id));
        }
        Ok(sequence.view(&self.pool))
    }

    /// The KV of a request that waits for its prompt, to be written.
    ///
    /// # Errors
    /// Where the request is not running here, or does not wait for its prompt (any more).
    pub fn kv_mut(&mut self, id: RequestId) -> Result<SequenceKvMut<'_>, UnknownRequest> {
        let sequence = self
            .sequences
            .iter()
            .find(|sequence| sequence.id == id && sequence.is_loading())
            .ok_or(UnknownRequest(id))?;
        Ok(SequenceKvMut {
            pool: &mut self.pool,
            blocks: &sequence.claim.blocks[..blocks_for(sequence.prompt.len())],
            shared: sequence.claim.shared,
            tokens: u32::try_from(sequence.prompt.len()).unwrap_or(u32::MAX),
        })
    }

    /// The first token of a request whose KV comes by transfer, sampled by the prefill engine, with what that says of its
    /// probability where the request asks for it.
    ///
    /// # Errors
    /// Where the request is not running here.
    pub fn first_token(
        &mut self,
        id: RequestId,
        token: TokenId,
        logprobs: Option<Logprobs>,
    ) -> Result<(), UnknownRequest> {
        self.signal(id, |sequence| {
            if sequence.source == KvSource::Transfer {
                sequence.first_token(token, logprobs);
            }
        })
    }

    /// The anchor of a request is written: it may draft.
    ///
    /// # Errors
    /// Where the request is not running here.
    pub fn anchor_ready(
        &mut self,
        id: RequestId,
        anchor: AnchorInfo,
    ) -> Result<(), UnknownRequest> {
        self.signal(id, |sequence| sequence.machine.anchor_ready(anchor))
    }

    /// More of a request's KV is written than when its drafts were made: they are compared with what it gives now, in the
    /// next step. Whether that is worth a step is the caller's to say.
    ///
    /// # Errors
    /// Where the request is not running here.
    pub fn redraft(&mut self, id: RequestId) -> Result<(), UnknownRequest> {
        self.signal(id, |sequence| sequence.machine.redraft())
    }

    /// All of a request's KV is written: it verifies what it drafted, and decodes.
    ///
    /// # Errors
    /// Where the request is not running here.
    pub fn full_ready(
        &mut self,
        id: RequestId,
        exactness: Exactness,
    ) -> Result<(), UnknownRequest> {
        self.signal(id, |sequence| {
            if sequence.is_loading() {
                sequence.restored(exactness);
            }
        })
    }

    /// The rest of a request's KV won't come: its prompt is computed here.
    ///
    /// # Errors
    /// Where the request is not running here.
    pub fn kv_failed(&mut self, id: RequestId, reason: String) -> Result<(), UnknownRequest> {
        let mut recomputes = false;
        self.signal(id, |sequence| recomputes = sequence.fail())?;
        if recomputes {
            let request = id;
            self.events
                .push(EngineEvent::Recomputing { request, reason });
        }
        Ok(())
    }

    /// Ends a request. Its KV is not retained.
    ///
    /// # Errors
    /// Where the request is not running here.
    pub fn abort(&mut self, id: RequestId) -> Result<(), UnknownRequest> {
        self.signal(id, |sequence| {
            sequence.retain = false;
            sequence.machine.abort();
        })
    }

    /// Gives up the KV of a request that ended and was retained.
    ///
    /// # Errors
    /// Where no such request is retained here.
    pub fn release(&mut self, id: RequestId) -> Result<(), UnknownRequest> {
        let index = self.retained.iter().position(|sequence| sequence.id == id);
        let sequence = self.retained.swap_remove(index.ok_or(UnknownRequest(id))?);
        self.cache.release(&sequence.claim.blocks);
        Ok(())
    }

    /// What happened since this or [`step`](Self::step) was last called: signals cause events of their own, such as the
    /// first token, that need not wait for a step.
    pub fn take_events(&mut self) -> Vec<EngineEvent> {
        core::mem::take(&mut self.events)
    }

    /// Ends every request, without an event, and empties the prefix cache: the engine is as new, in the same memory, which
    /// is what the measurement of a cold one needs.
    pub fn forget(&mut self) {
        self.sequences.clear();
        self.retained.clear();
        self.events.clear();
        self.cache = self.cache.emptied();
    }

    fn any(&self, id: RequestId) -> Result<&Sequence, UnknownRequest> {
        let mut all = self.sequences.iter().chain(&self.retained);
        all.find(|sequence| sequence.id == id)
            .ok_or(UnknownRequest(id))
    }

    fn signal(
        &mut self,
        id: RequestId,
        act: impl FnOnce(&mut Sequence),
    ) -> Result<(), UnknownRequest> {
        let sequence = self
            .sequences
            .iter_mut()
            .find(|sequence| sequence.id == id)
            .ok_or(UnknownRequest(id))?;
        act(sequence);
        sequence.publish(&mut self.cache);
        sequence.report(&mut self.events);
        self.end_finished();
        Ok(())
    }

    /// Takes the requests that ended out of the batch.
    fn end_finished(&mut self) {
        let ended = self.sequences.extract_if(.., |s| s.machine.is_done());
        for mut sequence in ended {
            sequence.publish_tail(&mut self.cache);
            if sequence.retain || sequence.held {
                self.retained.push(sequence);
            } else {
                self.cache.release(&sequence.claim.blocks);
            }
        }
    }
}
