//! What is counted of a request's steps: when its tokens are known, and what becomes of its drafts.
//!
//! Times are this process's own, from the moment a step is told: an engine's clock may be set meanwhile.

use std::time::Duration;

use lynx_proto::engine::v1::Progress;
use lynx_proto::engine::v1::event::Kind;
use tokio::time::Instant;

use super::answer::Comparison;
use super::request::Anchor;
use crate::counters::{Counters, Paces};

/// When what of one request was known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    arrived: Instant,
    taken: bool,
    /// Tokens that are known in whatever form, and verified ones; no more than two are of interest.
    known: [u32; 2],
    /// When the last verified token was told.
    last: Option<Instant>,
}

impl Pace {
    /// A request has arrived.
    pub(super) fn arrived() -> Self {
        Self::since(Instant::now())
    }

    /// It arrived then.
    pub(super) const fn since(arrived: Instant) -> Self {
        Self {
            arrived,
            taken: false,
            known: [0; 2],
            last: None,
        }
    }

    /// The engine has taken it.
    pub(super) fn taken(&mut self, paces: &Paces) {
        if !std::mem::replace(&mut self.taken, true) {
            paces.queue.observe_time(self.arrived.elapsed());
        }
    }

    /// What a step did.
    pub(super) fn progress(&mut self, progress: &Progress, paces: &Paces) {
        self.taken(paces);
        let now = Instant::now();
        for event in &progress.events {
            if let Some(Kind::Token(token)) = &event.kind {
                self.known(0, token.index + 1, now, paces);
                if !token.provisional {
                    self.known(1, token.index + 1, now, paces);
                    if let Some(last) = self.last.replace(now) {
                        paces.inter_token.observe_time(now - last);
                    }
                }
            }
        }
    }

    fn known(&mut self, form: usize, tokens: u32, now: Instant, paces: &Paces) {
        let time: Duration = now - self.arrived;
        let before = self.known[form];
        self.known[form] = before.max(tokens);
        if before < 1 && tokens >= 1 {
            paces.first_token[form].observe_time(time);
        }
        if before < 2 && tokens >= 2 {
            paces.second_token[form].observe_time(time);
        }
    }
}

impl Counters {
    /// Drafts on an anchor were compared.
    pub(super) fn compared(&self, comparison: &Comparison, anchor: Option<Anchor>) {
        let Comparison {
            drafted,
            kept,
            is_last,
            ..
        } = *comparison;
        let passes = if is_last {
            self.draft_tokens.observe(drafted.into());
            &self.verify_passes
        } else {
            &self.redraft_passes
        };
        passes.add(1);
        match anchor.map(Anchor::mean) {
            Some(width) if is_last => self.drafts.verified(width, drafted, kept),
            Some(width) => self.drafts.wasted(width, drafted.saturating_sub(kept)),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use lynx_proto::engine::v1::{Event, Token};

    use super::*;

    fn step(tokens: &[(u32, bool)]) -> Progress {
        let event = |(index, provisional): &(u32, bool)| Event {
            kind: Some(Kind::Token(Token {
                index: *index,
                provisional: *provisional,
                ..Token::default()
            })),
            ..Event::default()
        };
        Progress {
            request: 1,
            events: tokens.iter().map(event).collect(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_is_timed_when_it_is_known_and_again_when_it_is_verified() {
        let counters = Counters::new();
        let paces = &counters.pace;
        let mut pace = Pace::arrived();
        let steps: [&[(u32, bool)]; 4] = [
            &[(0, false)],
            &[(1, true)],
            &[(2, true)],
            &[(1, false), (2, false), (3, false)],
        ];
        for tokens in steps {
            tokio::time::advance(Duration::from_secs(1)).await;
            pace.progress(&step(tokens), paces);
        }
        let sums = |histograms: &[crate::counters::Histogram; 2]| {
            [0, 1].map(|form: usize| (histograms[form].count(), histograms[form].observed().sum))
        };
        assert_eq!(sums(&paces.first_token), [(1, 1.0), (1, 1.0)]);
        assert_eq!(sums(&paces.second_token), [(1, 2.0), (1, 4.0)]);
        assert_eq!(paces.queue.count(), 1);
        let between = paces.inter_token.observed();
        assert_eq!((between.count, between.sum), (3, 3.0));
    }
}
