//! Draft and verify: what one request does next, and what of its output is committed.
//!
//! A pure state machine. The engine tells it what happened (the anchor is there, the residual is there, the transfer
//! failed, these tokens were sampled), asks [`next`](Speculation::next), and passes on the [`Output`]s. It knows no
//! model, no logits and no clock, so that every schedule of a transfer can be replayed in a test.
//!
//! ```text
//!            anchor_ready: drafts, provisionally
//!              ┌────┐
//!           ┌──┴────▼─┐ full_ready   ┌──────┐ the ending rule   ┌──────┐
//! transfer ─► Loading ├──────────────► Full ├───────────────────► Done │
//!           └────┬────┘              └──▲───┘                   └──▲───┘
//!         failed │   ┌───────────┐      │ verifies, then decodes   │
//!                └───► Computing ├──────┘         abort, anywhere ─┘
//!    local ──────────►           │ the last row is sampled
//!                    └────▲──────┘
//!                         └ preempted, from Full
//! ```
//!
//! The committed output is what plain decoding on the full KV gives, whatever the schedule: a token is committed only
//! in `Full`, where it is the full-precision sample of its row, or as the first token, which the prefill engine sampled
//! on its own full KV. Everything drafted before is provisional, and its KV rows are written again by the verifying
//! forward, which starts at the end of the prompt.
//!
//! Not a rejection sampler (Leviathan et al. 2023): that keeps the distribution of the output, and this keeps the output.

#[cfg(test)]
mod matrix;
#[cfg(test)]
mod tests;

use core::fmt::Debug;
use core::time::Duration;

use lynx_units::Timestamp;

use crate::TokenId;

/// Why a request's output ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// A stop token, which is the output's last token.
    StopToken,
    /// A stop string, which ends in the output's last token.
    StopString,
    /// As many tokens as were asked for, or as the context holds.
    Length,
    /// The caller gave it up.
    Aborted,
}

/// Where an output ends: a function of the output alone, so that drafted and verified tokens are judged alike.
pub trait Ending: Debug + Send {
    /// Whether `output` ends with its last token, given that it did not end before.
    fn reached(&self, output: &[TokenId]) -> Option<FinishReason>;
}

/// What the caller knows when the anchor is in place. Given again, it replaces what was known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnchorInfo {
    /// When the residual is expected; `None` where nobody can tell.
    pub residual_due: Option<Timestamp>,
    /// How many tokens may be drafted at most: the policy's word.
    pub depth_limit: u32,
}

/// How many rows a comparison of drafts evaluates together. A forward over this many costs little more a row than one over
/// all drafts, and it commits the first of them sooner; where one is wrong, those after it are not evaluated in vain.
pub const CHECKED_TOGETHER: usize = 16;

/// What a request does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing until the caller says more.
    Wait,
    /// Compute the prompt's KV here, and sample its last row.
    Compute,
    /// Evaluate one token on the anchor, and sample its row.
    Draft {
        /// The last known token.
        token: TokenId,
        /// Where it stands.
        position: u32,
    },
    /// Evaluate the last token that is known to stand and drafted ones on what the KV is now, in one forward, and sample every
    /// row.
    Redraft {
        /// The token that stands, then the drafted ones: at most [`CHECKED_TOGETHER`].
        tokens: Vec<TokenId>,
        /// Where the first of them stands.
        position: u32,
    },
    /// Evaluate the last committed token and drafted ones on the full KV, in one forward, and sample every row.
    Verify {
        /// The last committed token, then the drafted ones: at most [`CHECKED_TOGETHER`].
        tokens: Vec<TokenId>,
        /// Where the first of them stands.
        position: u32,
    },
    /// Evaluate one committed token on the full KV, and sample its row.
    Decode {
        /// The last committed token.
        token: TokenId,
        /// Where it stands.
        position: u32,
    },
    /// Nothing any more.
    Done,
}

/// What changed in the output. Indices count output tokens: the first token after the prompt has index 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// A token. A committed one replaces a provisional one of its index.
    Token {
        /// Which token of the output.
        index: u32,
        /// The token.
        token: TokenId,
        /// Drafted, and not verified yet: it may be retracted.
        provisional: bool,
    },
    /// The provisional tokens from this index on are void.
    Retracted {
        /// The first void index.
        from_index: u32,
    },
    /// Drafted tokens were compared with what a finer KV gives.
    Redrafted {
        /// How many were.
        drafted: u32,
        /// How many of them, from the first on, the finer KV gives too. They are as provisional as before.
        kept: u32,
    },
    /// Drafted tokens were verified.
    Verified {
        /// How many were.
        drafted: u32,
        /// How many of them, from the first on, the full KV gives too.
        accepted: u32,
    },
    /// The output is complete: nothing follows.
    Finished(FinishReason),
}

/// What the prompt's KV is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// On its way; `Some` once it can be drafted on.
    Loading(Option<AnchorInfo>),
    /// Being computed here, for the first time or anew.
    Computing,
    /// All there.
    Full,
    /// Of no interest any more.
    Done,
}

/// The draft/verify state of one request.
#[derive(Debug)]
pub struct Speculation {
    prompt: u32,
    max_draft: u32,
    ending: Box<dyn Ending>,
    phase: Phase,
    /// Committed tokens, then drafted ones.
    output: Vec<TokenId>,
    committed: usize,
    /// Where the drafts are being compared with what the KV gives by now: how many of them stand so far.
    redraft: Option<usize>,
    changes: Vec<Output>,
}

impl Speculation {
    /// A request whose KV of `prompt` tokens (at least one) comes by transfer. At most `max_draft` tokens are drafted.
    pub fn transferred(prompt: u32, max_draft: u32, ending: Box<dyn Ending>) -> Self {
        Self {
            prompt,
            max_draft,
            ending,
            phase: Phase::Loading(None),
            output: Vec::new(),
            committed: 0,
            redraft: None,
            changes: Vec::new(),
        }
    }

    /// A request whose KV of `prompt` tokens (at least one) is computed here: nothing is ever drafted.
    pub fn local(prompt: u32, ending: Box<dyn Ending>) -> Self {
        Self {
            phase: Phase::Computing,
            ..Self::transferred(prompt, 0, ending)
        }
    }

    /// The output's first token, sampled by the prefill engine on its own full KV: committed at once. A second first
    /// token is ignored.
    pub fn first_token(&mut self, token: TokenId) {
        if self.phase != Phase::Done && self.output.is_empty() {
            self.commit(token);
        }
    }

    /// The anchor is in place, or what is known about it changed.
    pub fn anchor_ready(&mut self, anchor: AnchorInfo) {
        if matches!(self.phase, Phase::Loading(_)) {
            self.phase = Phase::Loading(Some(anchor));
        }
    }

    /// The KV is finer than when the drafts were made, and there is time to compare them with what it gives now: those that
    /// stand are kept, the first that doesn't is replaced, and drafting goes on from there. What a coarse anchor got wrong early is then not verified in vain at the end.
    pub fn redraft(&mut self) {
        let possible = matches!(self.phase, Phase::Loading(Some(_))) && !self.drafts().is_empty();
        self.redraft = possible.then_some(0);
    }

    /// The prompt's KV is complete.
    pub fn full_ready(&mut self) {
        if matches!(self.phase, Phase::Loading(_)) {
            self.phase = Phase::Full;
        }
    }

    /// The prompt's KV won't come. Returns whether the prompt is computed here instead: not where the KV was complete,
    /// and not twice.
    pub fn failed(&mut self) -> bool {
        let lost = match self.phase {
            Phase::Loading(_) => true,
            // Complete, but nobody has sampled its last row, and now nobody else will.
            Phase::Full => self.output.is_empty(),
            Phase::Computing | Phase::Done => false,
        };
        if lost {
            self.phase = Phase::Computing;
        }
        lost
    }

    /// The KV was given up when it was complete: the caller computes it anew, of the prompt and all committed tokens but
    /// the last. Drafts stay, to be verified then.
    pub fn preempted(&mut self) {
        if self.phase == Phase::Full {
            self.phase = Phase::Computing;
        }
    }

    /// The caller gave the request up.
    pub fn abort(&mut self) {
        if self.phase != Phase::Done {
            self.finish(FinishReason::Aborted);
        }
    }

    /// What to do at `now`, where a token takes about `token_time` to evaluate.
    pub fn next(&self, now: Timestamp, token_time: Duration) -> Action {
        if let (Phase::Loading(_), Some(standing)) = (self.phase, self.redraft) {
            let (tokens, position) = self.pending(standing);
            let tokens = tokens.to_vec();
            return Action::Redraft { tokens, position };
        }
        match self.phase {
            Phase::Done => Action::Done,
            Phase::Computing => Action::Compute,
            Phase::Full => self.next_on_full(),
            Phase::Loading(Some(anchor)) if self.may_draft(anchor, now, token_time) => {
                match self.output.last() {
                    Some(&token) => Action::Draft {
                        token,
                        position: self.position(self.output.len() - 1),
                    },
                    None => Action::Wait,
                }
            }
            Phase::Loading(_) => Action::Wait,
        }
    }

    /// When to ask again, where nothing is to be done now and nobody says anything: when a residual that was due is
    /// overdue, and drafting may go on.
    pub fn wakes_at(&self, token_time: Duration) -> Option<Timestamp> {
        match self.phase {
            Phase::Loading(Some(anchor)) => anchor.residual_due.map(|due| due + near(token_time)),
            _ => None,
        }
    }

    /// The samples of the rows that [`next`](Self::next) asked for, in order: one for each token of a verification, one
    /// for everything else.
    pub fn evaluated(&mut self, samples: &[TokenId]) {
        match self.phase {
            Phase::Done => {}
            Phase::Loading(_) => match (self.redraft, samples) {
                (Some(standing), _) => self.redrafted(standing, samples),
                (None, &[token]) => self.draft(token),
                (None, _) => {}
            },
            Phase::Computing => {
                self.phase = Phase::Full;
                if let (&[token], true) = (samples, self.output.is_empty()) {
                    self.commit(token);
                }
            }
            Phase::Full => self.verified(samples),
        }
    }

    /// What changed since this was last called.
    pub fn changes(&mut self) -> impl Iterator<Item = Output> {
        self.changes.drain(..)
    }

    /// The committed tokens.
    pub fn committed(&self) -> &[TokenId] {
        &self.output[..self.committed]
    }

    /// The committed tokens, then the drafted ones.
    pub fn output(&self) -> &[TokenId] {
        &self.output
    }

    /// Whether the prompt's KV is on its way.
    pub fn is_loading(&self) -> bool {
        matches!(self.phase, Phase::Loading(_))
    }

    /// Whether the output is complete.
    pub fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }

    fn drafts(&self) -> &[TokenId] {
        &self.output[self.committed..]
    }

    /// Where the output token of this index stands in the sequence.
    fn position(&self, index: usize) -> u32 {
        self.prompt.saturating_add(count(index))
    }

    fn next_on_full(&self) -> Action {
        if self.committed == 0 {
            return Action::Wait;
        }
        let (tokens, position) = self.pending(0);
        match tokens {
            &[token] if self.drafts().is_empty() => Action::Decode { token, position },
            tokens => Action::Verify {
                tokens: tokens.to_vec(),
                position,
            },
        }
    }

    /// The next tokens to compare, where the first `standing` drafts stand: the last one that stands and those after it, as
    /// far as their rows are of use, and where the first of them stands. There must be a committed token.
    fn pending(&self, standing: usize) -> (&[TokenId], u32) {
        let last = self.committed - 1 + standing;
        // The row after a token that ends the output is of no use.
        let rows = if self.draft_ended() {
            self.output.len() - 1
        } else {
            self.output.len()
        };
        let rows = rows.min(last + CHECKED_TOGETHER);
        (&self.output[last..rows], self.position(last))
    }

    /// Whether the last drafted token ends the output, as far as drafts can tell.
    fn draft_ended(&self) -> bool {
        !self.drafts().is_empty() && self.ending.reached(&self.output).is_some()
    }

    fn may_draft(&self, anchor: AnchorInfo, now: Timestamp, token_time: Duration) -> bool {
        let depth = self.max_draft.min(anchor.depth_limit);
        let room = count(self.drafts().len()) < depth;
        // Drafting in the last moments costs more than it gains. A residual that is overdue by as much was mistaken
        // for near: nothing is known about when it comes.
        let soon = anchor.residual_due.is_some_and(|due| {
            let near = near(token_time);
            due - now < near && now - due < near
        });
        room && !soon && !self.draft_ended()
    }

    fn draft(&mut self, token: TokenId) {
        self.changes.push(Output::Token {
            index: count(self.output.len()),
            token,
            provisional: true,
        });
        self.output.push(token);
    }

    /// Keeps the drafts as far as the samples agree with them, and goes on with the first that doesn't. The first `standing`
    /// drafts were kept before.
    fn redrafted(&mut self, standing: usize, samples: &[TokenId]) {
        let drafts = &self.drafts()[standing..];
        let compared = drafts.len().min(samples.len());
        let kept = agreeing(drafts, samples);
        let all = drafts.len();
        self.changes.push(Output::Redrafted {
            drafted: count(compared),
            kept: count(kept),
        });
        let stand = standing + kept;
        if kept == compared && kept < all {
            self.redraft = Some(stand);
            return;
        }
        self.redraft = None;
        self.retract(stand);
        let room = stand < self.max_draft as usize;
        if let (Some(&sample), true) = (samples.get(kept), room) {
            self.draft(sample);
        }
    }

    /// Commits drafts as far as the samples agree with them, and the first sample that doesn't.
    fn verified(&mut self, samples: &[TokenId]) {
        let drafts = self.drafts();
        let compared = drafts.len().min(samples.len());
        let accepted = agreeing(drafts, samples);
        if compared > 0 {
            self.changes.push(Output::Verified {
                drafted: count(compared),
                accepted: count(accepted),
            });
        }
        if accepted < compared {
            self.retract(accepted);
        }
        for &sample in samples.iter().take(accepted + 1) {
            if self.phase != Phase::Done {
                self.commit(sample);
            }
        }
    }

    /// Drops all but the first `kept` drafts.
    fn retract(&mut self, kept: usize) {
        let kept = self.committed + kept;
        if kept < self.output.len() {
            self.output.truncate(kept);
            self.changes.push(Output::Retracted {
                from_index: count(kept),
            });
        }
    }

    /// Only where no draft is pending, or the draft of this index is this token.
    fn commit(&mut self, token: TokenId) {
        self.changes.push(Output::Token {
            index: count(self.committed),
            token,
            provisional: false,
        });
        if self.drafts().is_empty() {
            self.output.push(token);
        }
        self.committed += 1;
        if let Some(reason) = self.ending.reached(self.committed()) {
            self.finish(reason);
        }
    }

    fn finish(&mut self, reason: FinishReason) {
        self.retract(0);
        self.phase = Phase::Done;
        self.changes.push(Output::Finished(reason));
    }
}

/// How many of the drafts, from the first on, are what was sampled.
fn agreeing(drafts: &[TokenId], samples: &[TokenId]) -> usize {
    let pairs = drafts.iter().zip(samples);
    pairs.take_while(|(draft, sample)| draft == sample).count()
}

/// How close to a moment counts as about to come.
fn near(token_time: Duration) -> Duration {
    token_time * 2
}

/// A number of tokens as the `u32` that positions have; no context is longer.
fn count(tokens: usize) -> u32 {
    u32::try_from(tokens).unwrap_or(u32::MAX)
}
