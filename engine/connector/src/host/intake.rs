//! New requests.

use lynx_engine::{
    Adjust, BLOCK_TOKENS, BlockId, KvSource, Longest, PromptError, Request as Ask, RequestId,
    Sampling, SamplingError, Stop, SubmitError, TemplateError, TokenId,
};
use lynx_proto::engine::v1::{self as api, from_engine};
use lynx_telemetry as telemetry;

use super::Host;
use crate::Role;
use crate::clock::Moment;
use crate::encoder::{self, Encoded, Ticket};
use crate::phases::Phases;
use crate::request::{Answer, Blocks, Request, Task};
use crate::text::Text;

/// Why a request is not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("request {0} is running already: give each request a number of its own")]
    Number(u64),
    #[error("this is a {} engine: send what it is not for to another", .0.name())]
    Role(Role),
    #[error("the request has no input: give a text, a conversation or tokens")]
    NoInput,
    #[error(
        "from_token is {from_token}: give a multiple of {BLOCK_TOKENS} below the prompt's {tokens} tokens"
    )]
    FromToken { from_token: u32, tokens: usize },
    #[error(
        "the engine is making tokens of {0} bytes of other prompts: wait for an answer before you send more long ones"
    )]
    TextsWait(usize),
    #[error("the prompt has at least {at_least} tokens, and {longest}")]
    TooLong { at_least: usize, longest: Longest },
    #[error(transparent)]
    Encode(PromptError),
    #[error(transparent)]
    Template(#[from] TemplateError),
    #[error(transparent)]
    Sampling(#[from] SamplingError),
    #[error(transparent)]
    Submit(#[from] SubmitError),
}

impl Refusal {
    /// Why a text is no prompt, where there is room for so much.
    pub(crate) fn prompt(error: PromptError, longest: Longest) -> Self {
        match error {
            PromptError::TooLong { at_least, .. } => Self::TooLong { at_least, longest },
            other => Self::Encode(other),
        }
    }

    const fn is_retryable(&self) -> bool {
        match self {
            Self::Submit(error) => error.is_retryable(),
            Self::TextsWait(_) => true,
            _ => false,
        }
    }

    const fn is_too_long(&self) -> bool {
        matches!(
            self,
            Self::TooLong { .. } | Self::Submit(SubmitError::PromptTooLong { .. })
        )
    }
}

impl Host {
    pub(super) fn submit(&mut self, submit: api::Submit) {
        let number = submit.request;
        let taken = self.check(number, Role::Decode).and_then(|()| {
            if encoder::is_long(submit.input.as_ref()) {
                let ticket = self.encoder.encode(submit)?;
                self.encoding.insert(number, ticket);
                return Ok(());
            }
            let mut submit = submit;
            let longest = self.engine.longest();
            let prompt = self.opened.prompt(submit.input.take(), longest, &|| true)?;
            self.take_submit(submit, prompt)
        });
        if let Err(refusal) = taken {
            self.refuse(number, &refusal);
        }
    }

    /// A long prompt is tokens now, unless its request was given up meanwhile.
    pub(super) fn encoded(&mut self, encoded: Encoded) {
        let Encoded {
            ticket,
            submit,
            prompt,
        } = encoded;
        let number = submit.request;
        if self.encoding.get(&number).map(Ticket::number) != Some(ticket) {
            return;
        }
        self.encoding.remove(&number);
        let taken = prompt.and_then(|prompt| self.take_submit(submit, prompt));
        if let Err(refusal) = taken {
            self.refuse(number, &refusal);
        }
    }

    pub(super) fn prefill(&mut self, prefill: api::Prefill) {
        let (number, now) = (prefill.request, self.clock.now());
        if let Err(refusal) = self.take_prefill(prefill, now) {
            self.refuse(number, &refusal);
        }
    }

    fn refuse(&self, request: u64, refusal: &Refusal) {
        tracing::debug!(request, %refusal, "refused");
        self.tell(from_engine::Kind::Refused(api::Refused {
            request,
            reason: refusal.to_string(),
            retryable: refusal.is_retryable(),
            too_long: refusal.is_too_long(),
        }));
    }

    fn take_submit(&mut self, submit: api::Submit, prompt: Vec<TokenId>) -> Result<(), Refusal> {
        let now = self.clock.now();
        let kv = if submit.transfer {
            KvSource::Transfer
        } else {
            KvSource::Compute
        };
        let id = self.engine.submit(Ask {
            prompt: prompt.clone(),
            max_tokens: submit.max_tokens,
            sampling: sampling(submit.sampling.as_ref())?,
            adjust: adjust(submit.sampling.as_ref()),
            top_logprobs: top_logprobs(submit.sampling.as_ref()),
            stop: Stop {
                tokens: Vec::new(),
                strings: submit.stop.clone(),
                ignore_eos: submit.ignore_eos,
            },
            kv,
            retain: false,
        })?;
        let blocks = if submit.transfer {
            self.engine.hold(id, now.engine).ok();
            Blocks::Expected
        } else {
            Blocks::Own
        };
        let task = Task::Answer(Box::new(Answer {
            text: Some(Text::new(self.opened.tokenizer.clone(), submit.stop)),
            tokenizer: self.opened.tokenizer.clone(),
            wants_logprobs: top_logprobs(submit.sampling.as_ref()).is_some(),
            blocks,
            spoilt: None,
        }));
        let phases = Phases::new(parent(submit.trace.as_ref()), now);
        let request = self.enter(submit.request, id, &prompt, phases, task);
        let (prompt_tokens, cached_tokens) = (request.prompt_tokens, request.cached_tokens);
        if submit.transfer {
            let blocks = self.blocks(id, prompt.len());
            self.tell(from_engine::Kind::Expect(api::Expect {
                request: submit.request,
                tokens: prompt,
                blocks,
                from_token: cached_tokens,
                sampling: submit.sampling,
                trace: submit.trace,
                client: 0,
            }));
        }
        self.tell(from_engine::Kind::Progress(api::Progress {
            request: submit.request,
            events: vec![api::Event {
                start_unix_ns: now.unix_ns,
                end_unix_ns: now.unix_ns,
                kind: Some(api::event::Kind::Prompted(api::Prompted {
                    prompt_tokens,
                    cached_tokens,
                })),
            }],
        }));
        Ok(())
    }

    fn take_prefill(&mut self, prefill: api::Prefill, now: Moment) -> Result<(), Refusal> {
        self.check(prefill.request, Role::Prefill)?;
        let (from_token, tokens) = (prefill.from_token, prefill.tokens.len());
        // A prompt without tokens is the engine's to refuse.
        let from = from_token as usize;
        if !from.is_multiple_of(BLOCK_TOKENS) || from >= tokens.max(1) {
            return Err(Refusal::FromToken { from_token, tokens });
        }
        let id = self.engine.submit(Ask {
            prompt: prefill.tokens.clone(),
            max_tokens: 1,
            sampling: sampling(prefill.sampling.as_ref())?,
            adjust: adjust(prefill.sampling.as_ref()),
            top_logprobs: top_logprobs(prefill.sampling.as_ref()),
            stop: Stop {
                ignore_eos: true,
                ..Stop::default()
            },
            kv: KvSource::Compute,
            retain: true,
        })?;
        let task = Task::Prefill {
            from_token,
            released: false,
        };
        let phases = Phases::new(parent(prefill.trace.as_ref()), now);
        let request = self.enter(prefill.request, id, &prefill.tokens, phases, task);
        let cached_tokens = request.cached_tokens;
        let blocks = self.blocks(id, tokens);
        self.tell(from_engine::Kind::PrefillStarted(api::PrefillStarted {
            request: prefill.request,
            blocks,
            cached_tokens,
            start_unix_ns: now.unix_ns,
        }));
        Ok(())
    }

    fn check(&mut self, number: u64, role: Role) -> Result<(), Refusal> {
        if self.role != role {
            return Err(Refusal::Role(self.role));
        }
        if self.find(number).is_some() || self.encoding.contains_key(&number) {
            return Err(Refusal::Number(number));
        }
        Ok(())
    }

    fn enter(
        &mut self,
        number: u64,
        id: RequestId,
        prompt: &[TokenId],
        phases: Phases,
        task: Task,
    ) -> &Request {
        self.requests.push(Request {
            number,
            id,
            prompt_tokens: u32::try_from(prompt.len()).unwrap_or(u32::MAX),
            cached_tokens: self.engine.cached_tokens(id).unwrap_or(0),
            phases,
            ended: false,
            task,
        });
        &self.requests[self.requests.len() - 1]
    }

    /// The blocks of a request's prompt.
    fn blocks(&self, id: RequestId, tokens: usize) -> Vec<u32> {
        let blocks = self.engine.blocks(id).unwrap_or_default();
        let prompt = blocks.iter().take(tokens.div_ceil(BLOCK_TOKENS));
        prompt.map(|&BlockId(block)| block).collect()
    }
}

/// The span that a request is part of.
fn parent(trace: Option<&api::TraceContext>) -> telemetry::Context {
    trace.map_or_else(telemetry::Context::new, |trace| {
        telemetry::context_from(&trace.traceparent, &trace.tracestate)
    })
}

/// The engine's words for how tokens are chosen. A nucleus of 0 is none, as gRPC has it where nothing is given.
fn sampling(chosen: Option<&api::Sampling>) -> Result<Sampling, SamplingError> {
    let Some(chosen) = chosen else {
        return Ok(Sampling::GREEDY);
    };
    let top_p = if chosen.top_p == 0.0 {
        1.0
    } else {
        chosen.top_p
    };
    Sampling::new(chosen.temperature, chosen.top_k, top_p, chosen.seed)
}

/// What is done to logits before a token is chosen.
fn adjust(chosen: Option<&api::Sampling>) -> Adjust {
    chosen.map_or_else(Adjust::default, |chosen| Adjust {
        bias: chosen.logit_bias.iter().map(|(&t, &b)| (t, b)).collect(),
        presence: chosen.presence_penalty,
        frequency: chosen.frequency_penalty,
    })
}

fn top_logprobs(chosen: Option<&api::Sampling>) -> Option<u32> {
    chosen.and_then(|chosen| chosen.top_logprobs)
}
