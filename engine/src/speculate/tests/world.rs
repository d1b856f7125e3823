//! One request with a model that is a hash function, and the client that watches it.

use super::*;

pub(super) const TOKEN_TIME: Duration = Duration::from_millis(10);
pub(super) const STOP: TokenId = 0;

/// Ends at the stop token, at the token pair (1, 2) as a stand-in for a stop string, and at a length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    pub(super) max_tokens: usize,
}

impl Ending for Rule {
    fn reached(&self, output: &[TokenId]) -> Option<FinishReason> {
        if output.last() == Some(&STOP) {
            Some(FinishReason::StopToken)
        } else if output.ends_with(&[1, 2]) {
            Some(FinishReason::StopString)
        } else if output.len() >= self.max_tokens {
            Some(FinishReason::Length)
        } else {
            None
        }
    }
}

pub(super) fn hash(values: impl IntoIterator<Item = u64>) -> u64 {
    values
        .into_iter()
        .fold(0x51_7cc1_b727_220a, |state, value| {
            let x = (state ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            x ^ (x >> 29)
        })
}

/// A model whose next token is a hash of the output so far; on the anchor it errs now and then.
#[derive(Clone, Copy, Debug)]
pub(super) struct FakeModel {
    pub(super) seed: u64,
    pub(super) vocabulary: u64,
    /// How many of 16 anchor samples may differ.
    pub(super) error: u64,
}

impl FakeModel {
    pub(super) fn full(self, output: &[TokenId]) -> TokenId {
        let mixed = hash(
            [self.seed]
                .into_iter()
                .chain(output.iter().map(|t| u64::from(*t))),
        );
        u32::try_from((mixed >> 16) % self.vocabulary).unwrap()
    }

    pub(super) fn anchor(self, output: &[TokenId]) -> TokenId {
        let right = self.full(output);
        let mixed = hash([self.seed, 77, u64::from(right), output.len() as u64]);
        if (mixed >> 20) % 16 < self.error {
            u32::try_from((u64::from(right) + 1) % self.vocabulary).unwrap()
        } else {
            right
        }
    }

    /// Errs half as often as the anchor.
    pub(super) fn finer(self, output: &[TokenId]) -> TokenId {
        Self {
            error: self.error / 2,
            ..self
        }
        .anchor(output)
    }

    /// The oracle.
    pub(super) fn plain(self, rule: Rule) -> (Vec<TokenId>, FinishReason) {
        let mut output = Vec::new();
        loop {
            output.push(self.full(&output));
            if let Some(reason) = rule.reached(&output) {
                return (output, reason);
            }
        }
    }
}

/// What a client that asked for provisional tokens sees.
#[derive(Debug, Default)]
pub(super) struct Client {
    pub(super) committed: Vec<TokenId>,
    pub(super) provisional: Vec<TokenId>,
    pub(super) finished: Option<FinishReason>,
    pub(super) longest_draft: usize,
}

impl Client {
    fn see(&mut self, change: Output) {
        assert_eq!(self.finished, None, "{change:?} after the end");
        let known = self.committed.len() + self.provisional.len();
        match change {
            Output::Token {
                index,
                token,
                provisional: true,
            } => {
                assert_eq!(index as usize, known, "drafts are in order");
                self.provisional.push(token);
                self.longest_draft = self.longest_draft.max(self.provisional.len());
            }
            Output::Token { index, token, .. } => {
                assert_eq!(index as usize, self.committed.len(), "commits are in order");
                if !self.provisional.is_empty() {
                    assert_eq!(
                        self.provisional.remove(0),
                        token,
                        "a wrong draft was not retracted"
                    );
                }
                self.committed.push(token);
            }
            Output::Retracted { from_index } => {
                let kept = from_index as usize - self.committed.len();
                assert!(kept < self.provisional.len(), "only drafts are retracted");
                self.provisional.truncate(kept);
            }
            Output::Redrafted { drafted, kept } => {
                assert!(kept <= drafted && drafted as usize <= self.provisional.len());
            }
            Output::Verified { drafted, accepted } => {
                assert!(accepted <= drafted && drafted as usize <= self.provisional.len());
            }
            Output::Finished(reason) => {
                assert!(self.provisional.is_empty(), "a draft outlived the request");
                self.finished = Some(reason);
            }
        }
    }
}

/// One request in a world of its own.
pub(super) struct World {
    pub(super) model: FakeModel,
    pub(super) request: Speculation,
    pub(super) client: Client,
    prompt: u32,
    pub(super) now: Timestamp,
}

impl World {
    pub(super) fn new(model: FakeModel, rule: Rule, max_draft: u32) -> Self {
        let prompt = 100;
        Self {
            model,
            request: Speculation::transferred(prompt, max_draft, Box::new(rule)),
            client: Client::default(),
            prompt,
            now: Timestamp::ORIGIN,
        }
    }

    /// Does what the request asks for next.
    pub(super) fn step(&mut self) -> Action {
        let action = self.request.next(self.now, TOKEN_TIME);
        let output = |w: &Self| [&w.client.committed[..], &w.client.provisional].concat();
        match &action {
            Action::Wait | Action::Done => {}
            Action::Compute => self.request.evaluated(&[self.model.full(&[])]),
            Action::Draft { token, position } => {
                let output = output(self);
                assert_eq!(output.last(), Some(token));
                assert_eq!(*position as usize + 1, self.prompt as usize + output.len());
                self.request.evaluated(&[self.model.anchor(&output)]);
            }
            Action::Decode { token, position } => {
                self.evaluate(&[*token], *position, FakeModel::full);
            }
            Action::Redraft { tokens, position } => {
                self.evaluate(tokens, *position, FakeModel::finer);
            }
            Action::Verify { tokens, position } => {
                self.evaluate(tokens, *position, FakeModel::full);
            }
        }
        self.now += TOKEN_TIME;
        self.look();
        action
    }

    fn evaluate(
        &mut self,
        tokens: &[TokenId],
        position: u32,
        sample: fn(FakeModel, &[TokenId]) -> TokenId,
    ) {
        let known = [&self.client.committed[..], &self.client.provisional].concat();
        let start = (position - self.prompt) as usize;
        assert!(tokens.len() <= CHECKED_TOGETHER);
        assert!(
            start + 1 >= self.client.committed.len(),
            "committed tokens are not evaluated again"
        );
        assert_eq!(&known[start..start + tokens.len()], tokens);
        let samples: Vec<_> = (start..start + tokens.len())
            .map(|i| sample(self.model, &known[..=i]))
            .collect();
        self.request.evaluated(&samples);
    }

    pub(super) fn look(&mut self) {
        for change in self.request.changes().collect::<Vec<_>>() {
            self.client.see(change);
        }
        assert_eq!(self.request.committed(), self.client.committed);
    }
}
