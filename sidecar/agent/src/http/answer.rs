//! Answers in OpenAI's shapes.

use serde_json::{Value, json};

use crate::requests::Finish;
use crate::timeline;

/// Which of the two interfaces a request came by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// `/v1/completions`.
    Completion,
    /// `/v1/chat/completions`.
    Chat,
}

impl Form {
    /// OpenTelemetry's name for what is done.
    pub(super) const fn operation(self) -> &'static str {
        match self {
            Self::Completion => "text_completion",
            Self::Chat => "chat",
        }
    }

    /// The field that has the prompt.
    pub(super) const fn prompt(self) -> &'static str {
        match self {
            Self::Completion => "prompt",
            Self::Chat => "messages",
        }
    }

    /// The path.
    pub(super) const fn route(self) -> &'static str {
        match self {
            Self::Completion => "/v1/completions",
            Self::Chat => "/v1/chat/completions",
        }
    }
}

/// What stands at the top of every answer and every chunk of it.
#[derive(Clone, Debug)]
pub(super) struct Head {
    pub(super) form: Form,
    pub(super) id: String,
    /// In seconds since the Unix epoch.
    pub(super) created: u64,
    pub(super) model: String,
    /// Of the weights: answers with a seed are the same as long as it is.
    pub(super) fingerprint: Option<String>,
}

/// What an answer took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    /// Tokens of all prompts, each counted once.
    pub(super) prompt: u32,
    /// How many of them had their KV in the engine.
    pub(super) cached: u32,
    /// Tokens of all choices.
    pub(super) completion: u32,
}

impl Usage {
    fn json(self) -> Value {
        json!({
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": u64::from(self.prompt) + u64::from(self.completion),
            "prompt_tokens_details": {"cached_tokens": self.cached},
        })
    }
}

/// One of the answers.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Choice {
    pub(super) text: String,
    pub(super) reason: Finish,
    /// The value of `logprobs`.
    pub(super) logprobs: Value,
}

/// OpenAI's word for it.
pub(super) const fn finish_reason(reason: Finish) -> &'static str {
    match reason {
        Finish::Stop => "stop",
        Finish::Length => "length",
    }
}

impl Head {
    /// The whole answer.
    pub(super) fn whole(&self, choices: Vec<Choice>, usage: Usage) -> Value {
        let object = match self.form {
            Form::Completion => "text_completion",
            Form::Chat => "chat.completion",
        };
        let choices = choices.into_iter().enumerate();
        let choices = choices.map(|(index, choice)| {
            let mut value = json!({
                "index": index,
                "logprobs": choice.logprobs,
                "finish_reason": finish_reason(choice.reason),
            });
            match self.form {
                Form::Completion => value["text"] = choice.text.into(),
                Form::Chat => {
                    value["message"] =
                        json!({"role": "assistant", "content": choice.text, "refusal": null});
                }
            }
            value
        });
        let mut answer = self.with(object, choices.collect());
        answer["usage"] = usage.json();
        answer
    }

    /// What a choice's stream begins with, where it begins with something.
    pub(super) fn opening(&self, index: usize) -> Option<Value> {
        let delta = json!({"role": "assistant", "content": ""});
        let choice = || self.choice(index, "", Value::Null, None);
        (self.form == Form::Chat).then(|| {
            let mut choice = choice();
            choice["delta"] = delta;
            self.chunk(vec![choice])
        })
    }

    /// Text, with the value of `logprobs`.
    pub(super) fn text(&self, index: usize, text: &str, logprobs: Value) -> Value {
        self.chunk(vec![self.choice(index, text, logprobs, None)])
    }

    /// The end.
    pub(super) fn end(&self, index: usize, reason: Finish) -> Value {
        let mut choice = self.choice(index, "", Value::Null, Some(reason));
        if self.form == Form::Chat {
            choice["delta"] = json!({});
        }
        self.chunk(vec![choice])
    }

    /// What it took, after the end.
    pub(super) fn usage(&self, usage: Usage) -> Value {
        let mut chunk = self.chunk(Vec::new());
        chunk["usage"] = usage.json();
        chunk
    }

    /// Something that OpenAI's interface has no words for: its clients see a chunk without choices.
    pub(super) fn event(&self, event: &timeline::Event) -> Value {
        let mut chunk = self.chunk(Vec::new());
        chunk["lynx"] = json!(event);
        chunk
    }

    fn choice(&self, index: usize, text: &str, logprobs: Value, reason: Option<Finish>) -> Value {
        let mut choice = json!({
            "index": index,
            "logprobs": logprobs,
            "finish_reason": reason.map(finish_reason),
        });
        match self.form {
            Form::Completion => choice["text"] = text.into(),
            Form::Chat => choice["delta"] = json!({"content": text}),
        }
        choice
    }

    fn chunk(&self, choices: Vec<Value>) -> Value {
        let object = match self.form {
            Form::Completion => "text_completion",
            Form::Chat => "chat.completion.chunk",
        };
        self.with(object, choices)
    }

    fn with(&self, object: &str, choices: Vec<Value>) -> Value {
        json!({
            "id": self.id,
            "object": object,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
            "choices": choices,
        })
    }
}
