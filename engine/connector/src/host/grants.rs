//! KV on its way: whose the blocks are, and what they hold.
//!
//! The agent's words are taken as they come, and words that no longer apply, because they crossed a request's end, mean
//! nothing. What must not happen, whatever the agent says, is that the engine touches blocks that the agent may write.

use lynx_engine::{AnchorInfo, Exactness, Logprob, Logprobs, RequestId};
use lynx_proto::engine::v1::{self as api, AnchorReady, FirstToken, WriteGrant, from_engine};

use super::Host;
use crate::request::Blocks;

impl Host {
    pub(super) fn first_token(&mut self, first: FirstToken) {
        let FirstToken {
            request: number,
            token,
            logprobs,
        } = first;
        let vocabulary = self.engine.config().vocab;
        let Some(request) = self.find(number) else {
            return;
        };
        let id = request.id;
        let logprobs = logprobs.and_then(|known| checked(&known, token, vocabulary));
        let lacks_logprobs =
            logprobs.is_none() && request.answer().is_some_and(|answer| answer.wants_logprobs);
        if token as usize >= vocabulary || lacks_logprobs {
            let why = if lacks_logprobs {
                "the first token came without its log probabilities".to_owned()
            } else {
                format!("the first token is {token}, and this model has {vocabulary}")
            };
            if let Some(answer) = request.answer() {
                answer.spoilt = Some(why);
            }
            // Where the blocks are the agent's, the prompt is computed when it gives them back.
            if !request.is_the_agents() {
                self.lose_spoilt(number);
            }
            return;
        }
        self.engine.first_token(id, token, logprobs).ok();
    }

    pub(super) fn want_grant(&mut self, number: u64) {
        let now = self.clock.now();
        let Some(request) = self.find(number) else {
            return;
        };
        let id = request.id;
        let Some(answer) = request.answer() else {
            return;
        };
        match answer.blocks {
            Blocks::Lent => answer.blocks = Blocks::Granted,
            Blocks::Expected => {}
            Blocks::Granted | Blocks::Own => {
                tracing::warn!(request = number, "a grant that makes no sense is asked for");
                return;
            }
        }
        self.engine.hold(id, now.engine).ok();
        let grant = WriteGrant { request: number };
        self.tell(from_engine::Kind::WriteGrant(grant));
    }

    pub(super) fn grant_returned(&mut self, number: u64) {
        let granted = self
            .find(number)
            .and_then(|request| request.answer())
            .is_some_and(|answer| answer.blocks == Blocks::Granted);
        // The blocks that are awaited at first are the agent's without a grant.
        if granted {
            self.take_back(number, Blocks::Lent);
        }
    }

    pub(super) fn anchor_ready(&mut self, anchor: AnchorReady) {
        let now = self.clock.now();
        let due = anchor.residual_due_unix_ns;
        let info = AnchorInfo {
            residual_due: (due > 0).then(|| now.engine_at(due)),
            depth_limit: anchor.depth_limit,
        };
        let Some(back) = self.take_back(anchor.request, Blocks::Lent) else {
            return;
        };
        if self.lose_spoilt(anchor.request) {
            return;
        }
        self.engine.anchor_ready(back, info).ok();
        if anchor.redraft {
            self.engine.redraft(back).ok();
        }
    }

    pub(super) fn full_ready(&mut self, number: u64, exact: bool) {
        let exactness = if exact {
            Exactness::Exact
        } else {
            Exactness::Quantised
        };
        let Some(back) = self.take_back(number, Blocks::Own) else {
            return;
        };
        if !self.lose_spoilt(number) {
            self.engine.full_ready(back, exactness).ok();
        }
    }

    pub(super) fn kv_failed(&mut self, number: u64, reason: String) {
        let Some(request) = self.find(number) else {
            return;
        };
        let id = request.id;
        self.take_back(number, Blocks::Own);
        // Also where the KV was complete: the first token may be what did not come.
        self.engine.kv_failed(id, reason).ok();
    }

    /// The agent writes no more for now. `None` where the request has nothing to await any more.
    fn take_back(&mut self, number: u64, blocks: Blocks) -> Option<RequestId> {
        let request = self.find(number)?;
        let id = request.id;
        let answer = request.answer()?;
        if !answer.blocks.are_awaited() {
            return None;
        }
        let were = core::mem::replace(&mut answer.blocks, blocks);
        if were.are_the_agents() {
            self.engine.unhold(id).ok();
        }
        Some(id)
    }

    /// Computes the prompt of a request whose KV is of no use. Returns whether it is one.
    fn lose_spoilt(&mut self, number: u64) -> bool {
        let Some(request) = self.find(number) else {
            return false;
        };
        let id = request.id;
        let Some(answer) = request.answer() else {
            return false;
        };
        let Some(why) = answer.spoilt.take() else {
            return false;
        };
        answer.blocks = Blocks::Own;
        self.engine.kv_failed(id, why).ok();
        true
    }
}

/// What the prefill engine says of the first token; `None` where it is of another, or of tokens that this model lacks.
fn checked(told: &api::TokenLogprobs, token: u32, vocabulary: usize) -> Option<Logprobs> {
    let known = |told: &api::Logprob| {
        let is_one = (told.token as usize) < vocabulary && told.logprob.is_finite();
        is_one.then_some(Logprob {
            token: told.token,
            logprob: told.logprob,
        })
    };
    let chosen = told.chosen.as_ref().and_then(known)?;
    let top = told.top.iter().map(known).collect::<Option<_>>()?;
    (chosen.token == token).then_some(Logprobs { chosen, top })
}
