//! What a request's engine did when, as spans: one a phase, and not one a token.

use lynx_engine::EngineEvent;
use lynx_telemetry as telemetry;
use telemetry::{Context, KeyValue, Kind, attributes, names};

use crate::clock::Moment;

/// The phases of one request.
#[derive(Debug)]
pub(crate) struct Phases {
    parent: Context,
    begun: Moment,
    /// Since when a prompt that was to come from elsewhere, or whose blocks went to another request, is computed here.
    recomputing: Option<Moment>,
    draft: Phase,
    verify: Phase,
    decode: Phase,
}

/// From the first of its steps to the last.
#[derive(Debug, Default)]
struct Phase {
    times: Option<(Moment, Moment)>,
    tokens: u32,
    kept: u32,
}

impl Phase {
    fn step(&mut self, start: Moment, end: Moment, tokens: u32, kept: u32) {
        let first = self.times.map_or(start, |(first, _)| first);
        self.times = Some((first, end));
        self.tokens += tokens;
        self.kept += kept;
    }
}

impl Phases {
    pub(crate) fn new(parent: Context, begun: Moment) -> Self {
        Self {
            parent,
            begun,
            recomputing: None,
            draft: Phase::default(),
            verify: Phase::default(),
            decode: Phase::default(),
        }
    }

    /// Takes what a step did for the request.
    pub(crate) fn see(&mut self, events: &[EngineEvent], start: Moment, end: Moment) {
        let verifies = events
            .iter()
            .any(|event| matches!(event, EngineEvent::Verified { .. }));
        for event in events {
            match *event {
                EngineEvent::Token {
                    provisional: true, ..
                } => self.draft.step(start, end, 1, 0),
                // The first token is the prompt's.
                EngineEvent::Token { index, .. } if index > 0 && !verifies => {
                    self.decode.step(start, end, 1, 0);
                }
                EngineEvent::Redrafted { .. } => self.draft.step(start, end, 0, 0),
                EngineEvent::Verified {
                    drafted, accepted, ..
                } => self.verify.step(start, end, drafted, accepted),
                EngineEvent::Recomputing { .. } | EngineEvent::Preempted { .. } => {
                    self.recomputing = Some(start);
                }
                _ => {}
            }
        }
    }

    /// The prompt was computed here.
    pub(crate) fn prompted(&self, tokens: u32, cached: u32, end: Moment) {
        let (name, start) = match self.recomputing {
            None => (names::PREFILL, self.begun),
            Some(start) => (names::RECOMPUTE, start),
        };
        self.span(
            name,
            (start, end),
            [
                number(attributes::INPUT_TOKENS, tokens),
                number(attributes::CACHED_TOKENS, cached),
            ],
        );
    }

    /// The request has ended.
    pub(crate) fn finish(&self) {
        if let Some(times) = self.draft.times {
            let drafted = number(attributes::DRAFTED, self.draft.tokens);
            self.span(names::DRAFT, times, [drafted]);
        }
        if let Some(times) = self.verify.times {
            let counts = [
                number(attributes::DRAFTED, self.verify.tokens),
                number(attributes::ACCEPTED, self.verify.kept),
            ];
            self.span(names::VERIFY, times, counts);
        }
        if let Some(times) = self.decode.times {
            let tokens = number(attributes::OUTPUT_TOKENS, self.decode.tokens);
            self.span(names::DECODE, times, [tokens]);
        }
    }

    fn span<const N: usize>(
        &self,
        name: &'static str,
        (start, end): (Moment, Moment),
        attributes: [KeyValue; N],
    ) {
        // A request without a trace is none's part.
        if telemetry::trace_id(&self.parent).is_none() {
            return;
        }
        let (start, end) = (start.system(), end.system());
        telemetry::span_at(name, Kind::Internal, &self.parent, start, end, attributes);
    }
}

fn number(name: &'static str, value: u32) -> KeyValue {
    KeyValue::new(name, i64::from(value))
}

#[cfg(test)]
mod tests {
    use lynx_engine::RequestId;
    use lynx_units::Timestamp;

    use super::*;

    const REQUEST: RequestId = RequestId(1);

    fn at(unix_ns: u64) -> Moment {
        Moment {
            engine: Timestamp::ORIGIN,
            unix_ns,
        }
    }

    fn token(index: u32, provisional: bool) -> EngineEvent {
        EngineEvent::Token {
            request: REQUEST,
            index,
            token: 5,
            provisional,
            logprobs: None,
        }
    }

    fn between(phase: &Phase) -> Option<(u64, u64)> {
        phase.times.map(|(from, to)| (from.unix_ns, to.unix_ns))
    }

    #[test]
    fn a_phase_lasts_from_its_first_step_to_its_last() {
        let mut phases = Phases::new(Context::new(), at(0));
        phases.see(&[token(0, false)], at(5), at(5));
        phases.see(&[token(1, true)], at(10), at(20));
        phases.see(&[token(2, true)], at(20), at(30));
        let verified = EngineEvent::Verified {
            request: REQUEST,
            drafted: 2,
            accepted: 1,
        };
        let events = [token(1, false), verified, token(2, false)];
        phases.see(&events, at(40), at(60));
        phases.see(&[token(3, false)], at(60), at(70));
        phases.see(&[token(4, false)], at(70), at(80));
        let Phases {
            draft,
            verify,
            decode,
            ..
        } = phases;
        assert_eq!((between(&draft), draft.tokens), (Some((10, 30)), 2));
        assert_eq!(between(&verify), Some((40, 60)));
        assert_eq!((verify.tokens, verify.kept), (2, 1));
        assert_eq!((between(&decode), decode.tokens), (Some((60, 80)), 2));
    }
}
