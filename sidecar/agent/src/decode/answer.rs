//! What a client is told of its request: tokens, and the timeline where it wants one.

use lynx_proto::engine::v1::event::Kind;
use lynx_proto::engine::v1::{Checked, Progress};
use tokio::sync::mpsc::UnboundedSender;

use crate::requests::{Generated, Refusal};
use crate::timeline::Event;

/// One client's end of a request.
#[derive(Debug)]
pub(super) struct Answer {
    /// `None` where the engine has a front end of its own.
    client: Option<UnboundedSender<Generated>>,
    timeline: bool,
    /// When the request arrived, in nanoseconds since the Unix epoch.
    start_ns: u64,
    verified: u32,
    /// Drafted and not verified.
    drafts: u32,
    /// Whether drafts were compared with a finer KV: then what stands at the end says little about the anchor.
    redrafted: bool,
    /// The prefill's last chunk: its first token, and how many came before.
    chunk: Option<(u32, u32)>,
}

/// What a step tells about drafts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Comparison {
    /// How many there were.
    pub(super) drafted: u32,
    /// How many stand.
    pub(super) kept: u32,
    /// The step, in nanoseconds since the Unix epoch.
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
    /// Whether it was the one on the full KV.
    pub(super) is_last: bool,
    /// Whether it says how good the anchor was.
    pub(super) is_of_anchor: bool,
}

impl Answer {
    /// To this client; to nobody where there is none.
    pub(super) fn new(
        client: Option<UnboundedSender<Generated>>,
        timeline: bool,
        start_ns: u64,
    ) -> Self {
        Self {
            client,
            timeline,
            start_ns,
            verified: 0,
            drafts: 0,
            redrafted: false,
            chunk: None,
        }
    }

    /// Which chunk of the prefill begins at this token: chunks come one after the other.
    pub(super) fn chunk(&mut self, first_token: u32) -> u32 {
        let index = match self.chunk {
            Some((first, index)) if first == first_token => index,
            Some((_, index)) => index + 1,
            None => 0,
        };
        self.chunk = Some((first_token, index));
        index
    }

    /// Whether anybody looks at the timeline.
    pub(super) const fn has_timeline(&self) -> bool {
        self.timeline
    }

    /// Verified tokens so far.
    pub(super) const fn verified(&self) -> u32 {
        self.verified
    }

    /// Tokens drafted and not verified yet.
    pub(super) const fn drafted(&self) -> u32 {
        self.drafts
    }

    /// Seconds from the request's arrival to this moment; zero where another machine's clock puts it before.
    pub(super) fn seconds(&self, unix_ns: u64) -> f64 {
        std::time::Duration::from_nanos(unix_ns.saturating_sub(self.start_ns)).as_secs_f64()
    }

    /// Whether its client is gone.
    pub(super) fn is_unheard(&self) -> bool {
        let client = self.client.as_ref();
        client.is_some_and(UnboundedSender::is_closed)
    }

    /// Tells something. A client that is gone is noticed elsewhere.
    pub(super) fn tell(&self, generated: Generated) {
        if let Some(client) = &self.client {
            drop(client.send(generated));
        }
    }

    /// Adds to the timeline, where it is wanted.
    pub(super) fn happened(&self, event: impl FnOnce(&Self) -> Event) {
        if self.timeline {
            self.tell(Generated::Happened(event(self)));
        }
    }

    /// There is no answer.
    pub(super) fn refuse(&self, refusal: Refusal) {
        self.tell(Generated::Failed(refusal));
    }

    /// Passes on what a step did; the comparisons of drafts in it.
    pub(super) fn progress(&mut self, progress: Progress) -> Vec<Comparison> {
        let all_at_once = progress
            .events
            .iter()
            .any(|event| matches!(event.kind, Some(Kind::Verified(_) | Kind::Redrafted(_))));
        let mut comparisons = Vec::new();
        for event in progress.events {
            let (start_ns, end_ns) = (event.start_unix_ns, event.end_unix_ns);
            let (start, end) = (self.seconds(start_ns), self.seconds(end_ns));
            let compared = |Checked { drafted, kept }, is_last, is_of_anchor| Comparison {
                drafted,
                kept,
                start_ns,
                end_ns,
                is_last,
                is_of_anchor,
            };
            match event.kind {
                Some(Kind::Prompted(prompted)) => self.tell(Generated::Accepted {
                    prompt_tokens: prompted.prompt_tokens,
                    cached_tokens: prompted.cached_tokens,
                }),
                Some(Kind::Token(token)) => {
                    let index = token.index;
                    if token.provisional && !all_at_once {
                        self.happened(|_| Event::Draft { index, start, end });
                    } else if !all_at_once && index > 0 {
                        self.happened(|_| Event::Decode { index, start, end });
                    }
                    self.token(token, end);
                }
                Some(Kind::Retracted(retracted)) => self.retract(retracted.from_index, end),
                Some(Kind::Redrafted(checked)) => {
                    self.redrafted = true;
                    comparisons.push(compared(checked, false, true));
                    self.happened(|_| Event::Redraft {
                        tokens: checked.drafted,
                        kept: checked.kept,
                        start,
                        end,
                    });
                }
                Some(Kind::Verified(checked)) => {
                    comparisons.push(compared(checked, true, !self.redrafted));
                    self.happened(|_| Event::Verify {
                        tokens: checked.drafted,
                        accepted: checked.kept,
                        start,
                        end,
                    });
                }
                Some(Kind::Recomputing(recomputing)) => self.happened(|_| Event::Recompute {
                    reason: recomputing.reason,
                    t: start,
                }),
                None => {}
            }
        }
        comparisons
    }

    fn token(&mut self, token: lynx_proto::engine::v1::Token, t: f64) {
        let lynx_proto::engine::v1::Token {
            index,
            token,
            text,
            provisional,
            logprobs,
        } = token;
        if provisional {
            self.drafts += 1;
        } else {
            self.verified += 1;
            // A draft of this place, if there is one, is this token: wrong ones are retracted before.
            self.drafts = self.drafts.saturating_sub(1);
        }
        self.happened(|_| Event::Token {
            index,
            token,
            text: text.clone(),
            t,
            provisional,
        });
        self.tell(Generated::Token {
            index,
            token,
            text,
            provisional,
            logprobs,
        });
    }

    fn retract(&mut self, from_index: u32, t: f64) {
        self.drafts = self.drafts.min(from_index.saturating_sub(self.verified));
        self.happened(|_| Event::Retracted { from_index, t });
        self.tell(Generated::Retracted { from_index });
    }
}

#[cfg(test)]
mod tests {
    use lynx_proto::engine::v1::{Event as Step, Prompted, Retracted, Token};
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

    use super::*;

    fn step(kinds: impl IntoIterator<Item = Kind>) -> Progress {
        let event = |kind| Step {
            start_unix_ns: 2_000_000_000,
            end_unix_ns: 2_500_000_000,
            kind: Some(kind),
        };
        Progress {
            request: 1,
            events: kinds.into_iter().map(event).collect(),
        }
    }

    fn token(index: u32, provisional: bool) -> Kind {
        Kind::Token(Token {
            index,
            token: 70 + index,
            text: format!("t{index}"),
            provisional,
            logprobs: Vec::new(),
        })
    }

    fn checked(drafted: u32, kept: u32) -> Checked {
        Checked { drafted, kept }
    }

    fn told(receiver: &mut UnboundedReceiver<Generated>) -> Vec<Generated> {
        std::iter::from_fn(|| receiver.try_recv().ok()).collect()
    }

    #[test]
    fn drafts_are_counted_until_they_are_verified_or_retracted() {
        let (client, mut receiver) = unbounded_channel();
        let mut answer = Answer::new(Some(client), true, 1_000_000_000);
        answer.progress(step([Kind::Prompted(Prompted {
            prompt_tokens: 9,
            cached_tokens: 4,
        })]));
        answer.progress(step([token(0, false)]));
        for index in 1..5 {
            assert_eq!(answer.progress(step([token(index, true)])), []);
        }
        assert_eq!((answer.verified(), answer.drafted()), (1, 4));
        let compared = answer.progress(step([
            Kind::Verified(checked(4, 2)),
            Kind::Retracted(Retracted { from_index: 3 }),
            token(1, false),
            token(2, false),
            token(3, false),
        ]));
        assert_eq!((answer.verified(), answer.drafted()), (4, 0));
        let [comparison] = compared[..] else { panic!() };
        assert!(comparison.is_last && comparison.is_of_anchor);
        assert_eq!((comparison.drafted, comparison.kept), (4, 2));
        let told = told(&mut receiver);
        assert_eq!(
            told[0],
            Generated::Accepted {
                prompt_tokens: 9,
                cached_tokens: 4,
            }
        );
        let draft = Event::Draft {
            index: 1,
            start: 1.0,
            end: 1.5,
        };
        assert!(told.contains(&Generated::Happened(draft)));
        let decodes = |told: &&Generated| matches!(told, Generated::Happened(Event::Decode { .. }));
        assert_eq!(told.iter().filter(decodes).count(), 0);
    }

    #[test]
    fn after_a_comparison_on_a_finer_kv_the_last_one_says_nothing_of_the_anchor() {
        let mut answer = Answer::new(None, false, 0);
        answer.progress(step([token(0, false), token(1, true)]));
        let first = answer.progress(step([Kind::Redrafted(checked(1, 1))]));
        assert!(first[0].is_of_anchor && !first[0].is_last);
        let last = answer.progress(step([Kind::Verified(checked(1, 1))]));
        assert!(!last[0].is_of_anchor && last[0].is_last);
    }

    #[test]
    fn who_wants_no_timeline_gets_none() {
        let (client, mut receiver) = unbounded_channel();
        let mut answer = Answer::new(Some(client), false, 0);
        answer.progress(step([token(0, false)]));
        let told = told(&mut receiver);
        assert!(matches!(&told[..], [Generated::Token { index: 0, .. }]));
    }
}
