//! What an engine may say when.
//!
//! A pure state machine for each request, told of every message in both directions. Whatever an engine says, it either
//! comes out as a [`Message`] that can be used without another look, or ends the session with a sentence.
//!
//! ```text
//!  prefill:  Prefill ──► PrefillStarted ──► Published* ──► PrefillDone ──► Finished, and the agent's Release in between or after
//!  decode:   Submit ───► Expect ──► (WriteGrant, where it was asked for)* ──► Finished
//! ```

use std::collections::HashMap;
use std::sync::Arc;

use lynx_kernels::BLOCK_TOKENS;
use lynx_proto::engine::v1::{
    CachedBlock, CachedBlocks, Expect, Finished, PrefillDone, PrefillStarted, Published, Refused,
    from_agent, from_engine,
};

use super::message::{Expected, Message};
use super::state::{Decoding, Granted, Prefilling, State};
use crate::pool::{Grant, Pool, Readable, TableError, Unasked, Writable};

/// The bit that is set in the numbers that an engine chooses, and in none of an agent's.
pub(super) const ENGINES: u64 = 1 << 63;

/// How an engine broke the rules.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Broken {
    #[error("the engine sent a message without content, or of a later version")]
    Empty,
    #[error("the engine attached a second time on one stream")]
    SecondAttach,
    #[error("the engine sent {what}, and there is no request {request}")]
    Unknown { what: &'static str, request: u64 },
    #[error("the engine sent {what} for request {request}, {why}")]
    OutOfTurn {
        what: &'static str,
        request: u64,
        why: &'static str,
    },
    #[error("the engine's blocks for request {request} can't be used: {source}")]
    Blocks { request: u64, source: TableError },
    #[error("the engine published layer {layer} of request {request}, and has {layers} layers")]
    Layer {
        request: u64,
        layer: u32,
        layers: usize,
    },
    #[error(
        "the engine published tokens {first} to {end} of layer {layer} of request {request}, which has {tokens} tokens and is published up to {published}"
    )]
    Tokens {
        request: u64,
        layer: u32,
        first: u32,
        end: u32,
        published: u32,
        tokens: u32,
    },
    #[error(
        "the engine sent a prompt of {tokens} tokens in request {request}, and said that it takes {most}"
    )]
    PromptLength {
        request: u64,
        tokens: usize,
        most: u32,
    },
    #[error(
        "the engine began request {request}, whose number is one of the agent's: set bit 63 in those that the engine chooses"
    )]
    Number { request: u64 },
    #[error("the engine sent Forgotten, and nobody asked it to forget")]
    Forgotten,
    #[error("the engine sent Coded for job {job}, {why}")]
    Coded { job: u64, why: Unasked },
    #[error(
        "the engine told of the cached block {block} with {tokens} tokens: tell of whole blocks of {BLOCK_TOKENS}, by numbers from 1 on"
    )]
    Cached { block: u64, tokens: usize },
}

/// The rules of one session.
#[derive(Debug)]
pub(super) struct Rules {
    pool: Arc<Pool>,
    context_tokens: u32,
    /// Whether the engine may start requests itself.
    own_front: bool,
    requests: HashMap<u64, State>,
    /// Of requests that the engine ended while their blocks were the agent's: until the agent's next word about them.
    left: HashMap<u64, Grant>,
    /// Questions to forget that are not answered yet.
    forgets: u32,
}

impl Rules {
    pub(super) fn new(pool: Arc<Pool>, context_tokens: u32, own_front: bool) -> Self {
        Self {
            pool,
            context_tokens,
            own_front,
            requests: HashMap::new(),
            left: HashMap::new(),
            forgets: 0,
        }
    }

    /// Notes what this agent is about to say, before it is said.
    pub(super) fn said(&mut self, kind: &from_agent::Kind) {
        use from_agent::Kind;
        match kind {
            Kind::Submit(submit) => {
                let state = State::Submitted {
                    transfer: submit.transfer,
                    aborted: false,
                };
                self.requests.insert(submit.request, state);
            }
            Kind::Prefill(prefill) => {
                let tokens = u32::try_from(prefill.tokens.len()).unwrap_or(u32::MAX);
                let state = Prefilling::new(tokens, prefill.from_token);
                self.requests
                    .insert(prefill.request, State::Prefilling(state));
            }
            Kind::Release(release) => self.released(release.request),
            Kind::WantGrant(want) => self.decoding(want.request, Decoding::want),
            Kind::AnchorReady(ready) => self.given_back(ready.request, Decoding::give_back),
            Kind::GrantReturned(grant) => self.given_back(grant.request, Decoding::give_back),
            Kind::FullReady(ready) => self.given_back(ready.request, Decoding::end),
            Kind::KvFailed(failed) => self.given_back(failed.request, Decoding::end),
            Kind::Abort(abort) => self.aborted(abort.request),
            Kind::Forget(_) => self.forget(),
            Kind::Attached(_) | Kind::FirstToken(_) => {}
            // What they ask for, the pool knows.
            Kind::CodeWith(_) | Kind::Split(_) | Kind::Merge(_) => {}
        }
    }

    /// What the engine said; `None` for what no longer matters.
    pub(super) fn heard(&mut self, kind: from_engine::Kind) -> Result<Option<Message>, Broken> {
        use from_engine::Kind;
        match kind {
            Kind::Attach(_) => Err(Broken::SecondAttach),
            Kind::PrefillStarted(started) => self.started(started).map(Some),
            Kind::Published(published) => self.published(&published).map(Some),
            Kind::PrefillDone(done) => self.prefill_done(done).map(Some),
            Kind::Expect(expect) => self.expect(expect),
            Kind::WriteGrant(grant) => self.granted(grant.request),
            Kind::Progress(progress) => {
                self.known(progress.request, "Progress")?;
                Ok(Some(Message::Progress(progress)))
            }
            Kind::Finished(finished) => self.finished(finished).map(Some),
            Kind::Refused(refused) => self.refused(refused).map(Some),
            Kind::Report(report) => Ok(Some(Message::Report(report))),
            Kind::CachedBlocks(cached) => cached_blocks(cached).map(Some),
            Kind::Coded(coded) => {
                let job = coded.job;
                let answered = self.pool.answered(coded);
                answered.map_err(|why| Broken::Coded { job, why })?;
                Ok(None)
            }
            Kind::Forgotten(_) => {
                self.forgets = self.forgets.checked_sub(1).ok_or(Broken::Forgotten)?;
                Ok(Some(Message::Forgotten))
            }
        }
    }

    fn started(&mut self, started: PrefillStarted) -> Result<Message, Broken> {
        const WHAT: &str = "PrefillStarted";
        let request = started.request;
        let prefilling = self.prefilling(request, WHAT)?;
        // Released, it is done and has no blocks.
        if prefilling.blocks.is_some() || prefilling.done || prefilling.finished {
            return Err(out_of_turn(WHAT, request, "which has started before"));
        }
        let (tokens, cached) = (prefilling.tokens, started.cached_tokens);
        if cached > tokens {
            return Err(out_of_turn(
                WHAT,
                request,
                "with more cached tokens than its prompt has",
            ));
        }
        let blocks = Readable::new(&self.pool, started.blocks, tokens, cached)
            .map_err(|source| Broken::Blocks { request, source })?;
        let blocks = Arc::new(blocks);
        self.prefilling(request, WHAT)?.blocks = Some(Arc::clone(&blocks));
        Ok(Message::PrefillStarted {
            request,
            blocks,
            cached_tokens: cached,
            start_unix_ns: started.start_unix_ns,
        })
    }

    fn published(&mut self, published: &Published) -> Result<Message, Broken> {
        const WHAT: &str = "Published";
        let layers = self.pool.layout().shape().layers;
        let Published {
            request,
            layer,
            first_token: first,
            end_token: end,
            ..
        } = *published;
        let prefilling = self.prefilling(request, WHAT)?;
        let (tokens, from_token) = (prefilling.tokens, prefilling.from_token);
        let Some(blocks) = &prefilling.blocks else {
            return Err(out_of_turn(
                WHAT,
                request,
                "which has not started, or is released",
            ));
        };
        if layer as usize >= layers {
            return Err(Broken::Layer {
                request,
                layer,
                layers,
            });
        }
        let before = blocks.published(layer as usize);
        // What nobody asked for may be left out.
        let follows = first == before || (before < first && first <= from_token);
        if !follows || end <= first || end > tokens {
            return Err(Broken::Tokens {
                request,
                layer,
                first,
                end,
                published: before,
                tokens,
            });
        }
        blocks.publish(layer as usize, end);
        Ok(Message::Published {
            request,
            layer,
            tokens: first..end,
            start_unix_ns: published.start_unix_ns,
            end_unix_ns: published.end_unix_ns,
        })
    }

    fn prefill_done(&mut self, done: PrefillDone) -> Result<Message, Broken> {
        const WHAT: &str = "PrefillDone";
        let request = done.request;
        let layers = self.pool.layout().shape().layers;
        let prefilling = self.prefilling(request, WHAT)?;
        if prefilling.done || prefilling.finished {
            return Err(out_of_turn(WHAT, request, "which is done already"));
        }
        let tokens = prefilling.tokens;
        let all = |blocks: &Arc<Readable>| (0..layers).all(|l| blocks.published(l) == tokens);
        if !prefilling.blocks.as_ref().is_some_and(all) {
            return Err(out_of_turn(WHAT, request, "which is not all published"));
        }
        prefilling.done = true;
        Ok(Message::PrefillDone {
            request,
            first_token: done.first_token,
            logprobs: done.logprobs,
        })
    }

    fn expect(&mut self, expect: Expect) -> Result<Option<Message>, Broken> {
        const WHAT: &str = "Expect";
        let request = expect.request;
        let is_new = !self.requests.contains_key(&request);
        if self.own_front && is_new && request & ENGINES == 0 {
            return Err(Broken::Number { request });
        }
        match self.requests.get(&request) {
            // The two have crossed, and the blocks may be somebody else's by now.
            Some(State::Submitted {
                transfer: true,
                aborted: true,
            }) => return Ok(None),
            Some(State::Submitted { transfer: true, .. }) => {}
            // It has crossed the question to forget: all that comes of it is its end.
            None if self.own_front && self.forgets > 0 => {
                let state = State::Submitted {
                    transfer: true,
                    aborted: true,
                };
                self.requests.insert(request, state);
                return Ok(None);
            }
            None if self.own_front => {}
            None => {
                return Err(Broken::Unknown {
                    what: WHAT,
                    request,
                });
            }
            Some(_) => {
                let why = "which waits for no KV, or had it announced before";
                return Err(out_of_turn(WHAT, request, why));
            }
        }
        let tokens = u32::try_from(expect.tokens.len())
            .ok()
            .filter(|tokens| *tokens <= self.context_tokens)
            .ok_or(Broken::PromptLength {
                request,
                tokens: expect.tokens.len(),
                most: self.context_tokens,
            })?;
        let blocks = Writable::new(&self.pool, expect.blocks, tokens, expect.from_token)
            .map_err(|source| Broken::Blocks { request, source })?;
        let decoding = Decoding::new(blocks.grant());
        self.requests.insert(request, State::Decoding(decoding));
        Ok(Some(Message::Expect(Box::new(Expected {
            request,
            tokens: expect.tokens,
            blocks,
            from_token: expect.from_token,
            sampling: expect.sampling.unwrap_or_default(),
            trace: expect.trace.unwrap_or_default(),
            client: expect.client,
        }))))
    }

    fn granted(&mut self, request: u64) -> Result<Option<Message>, Broken> {
        const WHAT: &str = "WriteGrant";
        match self.requests.get_mut(&request) {
            Some(State::Decoding(decoding)) => match decoding.grant() {
                Granted::Given => Ok(Some(Message::WriteGrant { request })),
                Granted::TooLate => Ok(None),
                Granted::Unasked => Err(out_of_turn(WHAT, request, "and was not asked for it")),
            },
            Some(_) => Err(out_of_turn(WHAT, request, "which waits for no KV")),
            None => Err(Broken::Unknown {
                what: WHAT,
                request,
            }),
        }
    }

    fn finished(&mut self, finished: Finished) -> Result<Message, Broken> {
        const WHAT: &str = "Finished";
        let request = finished.request;
        match self.requests.get_mut(&request) {
            Some(State::Prefilling(prefilling)) if prefilling.finished => {
                return Err(out_of_turn(WHAT, request, "which has finished before"));
            }
            // Its blocks are the agent's until Release.
            Some(State::Prefilling(prefilling)) if prefilling.blocks.is_some() => {
                prefilling.finished = true;
            }
            Some(_) => {
                if let Some(State::Decoding(decoding)) = self.requests.remove(&request) {
                    let left = decoding.finish().map(|grant| (request, grant));
                    self.left.extend(left);
                }
            }
            None => {
                return Err(Broken::Unknown {
                    what: WHAT,
                    request,
                });
            }
        }
        Ok(Message::Finished(finished))
    }

    fn refused(&mut self, refused: Refused) -> Result<Message, Broken> {
        const WHAT: &str = "Refused";
        let request = refused.request;
        let refusable = match self.requests.get(&request) {
            Some(State::Submitted { .. }) => true,
            Some(State::Prefilling(prefilling)) => prefilling.blocks.is_none() && !prefilling.done,
            Some(State::Decoding(_)) => false,
            None => {
                return Err(Broken::Unknown {
                    what: WHAT,
                    request,
                });
            }
        };
        if !refusable {
            return Err(out_of_turn(WHAT, request, "which it has taken"));
        }
        self.requests.remove(&request);
        Ok(Message::Refused(refused))
    }

    fn released(&mut self, request: u64) {
        match self.requests.get_mut(&request) {
            Some(State::Prefilling(prefilling)) if !prefilling.finished => {
                prefilling.blocks = None;
                // What comes of it now is only its end.
                prefilling.done = true;
            }
            _ => drop(self.requests.remove(&request)),
        }
    }

    /// The agent touches this request's blocks no more. It may not even have seen them: an Expect may be on its way to the
    /// role.
    fn aborted(&mut self, request: u64) {
        self.given_back(request, Decoding::end);
        if let Some(State::Submitted { aborted, .. }) = self.requests.get_mut(&request) {
            *aborted = true;
        }
    }

    /// The same of every request.
    fn forget(&mut self) {
        self.forgets += 1;
        let requests: Vec<u64> = self
            .requests
            .keys()
            .chain(self.left.keys())
            .copied()
            .collect();
        requests
            .into_iter()
            .for_each(|request| self.aborted(request));
    }

    /// The agent gives a request's blocks back: for good where the engine has ended it.
    fn given_back(&mut self, request: u64, note: fn(&mut Decoding)) {
        self.decoding(request, note);
        if let Some(left) = self.left.remove(&request) {
            left.end();
        }
    }

    fn known(&self, request: u64, what: &'static str) -> Result<(), Broken> {
        let known = self.requests.contains_key(&request);
        known.then_some(()).ok_or(Broken::Unknown { what, request })
    }

    fn prefilling(&mut self, request: u64, what: &'static str) -> Result<&mut Prefilling, Broken> {
        match self.requests.get_mut(&request) {
            Some(State::Prefilling(prefilling)) => Ok(prefilling),
            Some(_) => Err(out_of_turn(what, request, "which is no prefill")),
            None => Err(Broken::Unknown { what, request }),
        }
    }

    fn decoding(&mut self, request: u64, note: fn(&mut Decoding)) {
        if let Some(State::Decoding(decoding)) = self.requests.get_mut(&request) {
            note(decoding);
        }
    }
}

impl Drop for Rules {
    /// The engine is gone: nothing is the agent's any more.
    fn drop(&mut self) {
        for state in self.requests.values_mut() {
            if let State::Decoding(decoding) = state {
                decoding.end();
            }
        }
        self.left.values().for_each(Grant::end);
        self.pool.end();
    }
}

fn cached_blocks(cached: CachedBlocks) -> Result<Message, Broken> {
    let is_wrong = |block: &&CachedBlock| block.block == 0 || block.tokens.len() != BLOCK_TOKENS;
    match cached.added.iter().find(is_wrong) {
        Some(block) => Err(Broken::Cached {
            block: block.block,
            tokens: block.tokens.len(),
        }),
        None => Ok(Message::CachedBlocks(cached)),
    }
}

fn out_of_turn(what: &'static str, request: u64, why: &'static str) -> Broken {
    Broken::OutOfTurn { what, request, why }
}

#[cfg(test)]
mod crossings;
#[cfg(test)]
mod matrix;
#[cfg(test)]
mod tests;
