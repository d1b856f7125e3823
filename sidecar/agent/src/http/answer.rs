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
}

/// What an answer took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) prompt: u32,
    pub(super) completion: u32,
}

impl Usage {
    fn json(self) -> Value {
        json!({
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": u64::from(self.prompt) + u64::from(self.completion),
        })
    }
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
    pub(super) fn whole(&self, text: &str, reason: Finish, usage: Usage) -> Value {
        let reason = finish_reason(reason);
        let (object, choice) = match self.form {
            Form::Completion => (
                "text_completion",
                json!({"index": 0, "text": text, "logprobs": null, "finish_reason": reason}),
            ),
            Form::Chat => (
                "chat.completion",
                json!({
                    "index": 0,
                    "message": {"role": "assistant", "content": text, "refusal": null},
                    "logprobs": null,
                    "finish_reason": reason,
                }),
            ),
        };
        let mut answer = self.with(object, &json!([choice]));
        answer["usage"] = usage.json();
        answer
    }

    /// What a stream begins with, where it begins with something.
    pub(super) fn opening(&self) -> Option<Value> {
        let delta = json!({"role": "assistant", "content": ""});
        (self.form == Form::Chat).then(|| self.chunk(&json!([choice(&delta, None)])))
    }

    /// Text.
    pub(super) fn text(&self, text: &str) -> Value {
        let choice = match self.form {
            Form::Completion => {
                json!({"index": 0, "text": text, "logprobs": null, "finish_reason": null})
            }
            Form::Chat => choice(&json!({"content": text}), None),
        };
        self.chunk(&json!([choice]))
    }

    /// The end.
    pub(super) fn end(&self, reason: Finish) -> Value {
        let reason = finish_reason(reason);
        let choice = match self.form {
            Form::Completion => {
                json!({"index": 0, "text": "", "logprobs": null, "finish_reason": reason})
            }
            Form::Chat => choice(&json!({}), Some(reason)),
        };
        self.chunk(&json!([choice]))
    }

    /// What it took, after the end.
    pub(super) fn usage(&self, usage: Usage) -> Value {
        let mut chunk = self.chunk(&json!([]));
        chunk["usage"] = usage.json();
        chunk
    }

    /// Something that OpenAI's interface has no words for: its clients see a chunk without choices.
    pub(super) fn event(&self, event: &timeline::Event) -> Value {
        let mut chunk = self.chunk(&json!([]));
        chunk["lynx"] = json!(event);
        chunk
    }

    fn chunk(&self, choices: &Value) -> Value {
        let object = match self.form {
            Form::Completion => "text_completion",
            Form::Chat => "chat.completion.chunk",
        };
        self.with(object, choices)
    }

    fn with(&self, object: &str, choices: &Value) -> Value {
        json!({
            "id": self.id,
            "object": object,
            "created": self.created,
            "model": self.model,
            "choices": choices,
        })
    }
}

fn choice(delta: &Value, reason: Option<&str>) -> Value {
    json!({"index": 0, "delta": delta, "logprobs": null, "finish_reason": reason})
}
