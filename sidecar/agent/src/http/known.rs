//! Which fields of OpenAI's requests are acted on, which change nothing, and which are refused.
//!
//! A field that changes the answer is never ignored: an answer that looks like what was asked for and is not is worse than
//! none. That holds for fields that nobody knows, too: `temprature` is a mistake that its author wants to hear of.

use serde_json::{Map, Value};

use super::answer::Form;
use super::error::ApiError;

/// What both interfaces have.
const BOTH: [&str; 14] = [
    "frequency_penalty",
    "logit_bias",
    "logprobs",
    "lynx",
    "max_tokens",
    "model",
    "n",
    "presence_penalty",
    "seed",
    "stop",
    "stream",
    "temperature",
    "top_k",
    "top_p",
];

/// What tells who asks, what is kept, or how fast an answer might come: nothing that an answer depends on.
const IGNORED: [&str; 9] = [
    "metadata",
    "parallel_tool_calls",
    "prediction",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "store",
    "user",
];

/// A value with which a field that is not supported changes nothing.
#[derive(Clone, Copy, Debug)]
enum Harmless {
    /// There is none.
    None,
    False,
    True,
    /// `[]`, `{}` or `""`.
    Empty,
    Number(f64),
    /// One of these words.
    Word(&'static [&'static str]),
    /// An object of this type.
    Type(&'static str),
    /// A list of this word alone.
    Only(&'static str),
}

/// What is not supported.
const REFUSED: [(&str, Harmless); 23] = [
    ("audio", Harmless::None),
    ("echo", Harmless::False),
    ("function_call", Harmless::Word(&["none", "auto"])),
    ("functions", Harmless::Empty),
    ("guided_json", Harmless::None),
    ("ignore_eos", Harmless::False),
    ("include_stop_str_in_output", Harmless::False),
    ("min_p", Harmless::Number(0.0)),
    ("min_tokens", Harmless::Number(0.0)),
    ("modalities", Harmless::Only("text")),
    ("moderation", Harmless::None),
    ("prompt_embeds", Harmless::None),
    ("prompt_logprobs", Harmless::None),
    ("reasoning_effort", Harmless::Word(&["none"])),
    ("repetition_penalty", Harmless::Number(1.0)),
    ("response_format", Harmless::Type("text")),
    ("skip_special_tokens", Harmless::True),
    ("stop_token_ids", Harmless::Empty),
    ("suffix", Harmless::Empty),
    ("tool_choice", Harmless::Word(&["none", "auto"])),
    ("tools", Harmless::Empty),
    ("verbosity", Harmless::Word(&["medium"])),
    ("web_search_options", Harmless::None),
];

impl Harmless {
    fn is(self, value: &Value) -> bool {
        match (self, value) {
            (Self::False, Value::Bool(truth)) => !truth,
            (Self::True, Value::Bool(truth)) => *truth,
            (Self::Empty, Value::Array(items)) => items.is_empty(),
            (Self::Empty, Value::Object(fields)) => fields.is_empty(),
            (Self::Empty, Value::String(text)) => text.is_empty(),
            (Self::Number(number), value) => value.as_f64() == Some(number),
            (Self::Word(words), Value::String(text)) => words.contains(&text.as_str()),
            (Self::Type(kind), Value::Object(fields)) => {
                fields.get("type").and_then(Value::as_str) == Some(kind)
            }
            (Self::Only(word), Value::Array(items)) => *items == [Value::from(word)],
            _ => false,
        }
    }
}

/// What only this interface has.
const fn own(form: Form) -> &'static [&'static str] {
    match form {
        Form::Chat => &[
            "max_completion_tokens",
            "messages",
            "stream_options",
            "top_logprobs",
        ],
        Form::Completion => &["best_of", "prompt", "stream_options"],
    }
}

/// Refuses what would change the answer and is not supported.
///
/// # Errors
/// The first such field, by name.
pub(super) fn check(form: Form, object: &Map<String, Value>) -> Result<(), ApiError> {
    for (name, value) in object.iter().filter(|(_, value)| !value.is_null()) {
        let name = name.as_str();
        if BOTH.contains(&name) || own(form).contains(&name) || IGNORED.contains(&name) {
            continue;
        }
        let other = match form {
            Form::Chat => Form::Completion,
            Form::Completion => Form::Chat,
        };
        if own(other).contains(&name) {
            return Err(ApiError::elsewhere(name, other.route()));
        }
        let refused = REFUSED.iter().find(|(refused, _)| *refused == name);
        let Some((_, harmless)) = refused else {
            return Err(ApiError::unknown(name));
        };
        if !harmless.is(value) {
            let message = format!("{name} is not supported by this server");
            return Err(ApiError::unsupported(name, message));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn checked(form: Form, name: &str, value: &Value) -> Result<(), ApiError> {
        check(form, json!({name: value}).as_object().unwrap())
    }

    #[test]
    fn every_field_is_told_of_in_the_documentation() {
        let page = include_str!("../../../../docs/agents.md");
        let refused = REFUSED.map(|(name, _)| name);
        let own = [own(Form::Chat), own(Form::Completion)].concat();
        let all = BOTH.iter().chain(&IGNORED).chain(&refused).chain(&own);
        let missing: Vec<_> = all
            .filter(|name| !page.contains(&format!("`{name}`")))
            .collect();
        assert!(missing.is_empty(), "docs/agents.md lacks {missing:?}");
    }

    #[test]
    fn values_that_change_nothing_are_taken() {
        for (name, value) in [
            ("echo", json!(false)),
            ("tools", json!([])),
            ("suffix", json!("")),
            ("response_format", json!({"type": "text"})),
            ("modalities", json!(["text"])),
            ("tool_choice", json!("auto")),
            ("repetition_penalty", json!(1)),
            ("skip_special_tokens", json!(true)),
            ("user", json!("somebody")),
            ("audio", json!(null)),
        ] {
            assert_eq!(checked(Form::Completion, name, &value), Ok(()), "{name}");
        }
    }

    #[test]
    fn what_one_interface_has_the_other_refuses() {
        for (form, name) in [
            (Form::Chat, "prompt"),
            (Form::Chat, "best_of"),
            (Form::Completion, "messages"),
            (Form::Completion, "top_logprobs"),
            (Form::Completion, "max_completion_tokens"),
        ] {
            let error = checked(form, name, &json!(1)).unwrap_err();
            let error = error.body();
            assert_eq!(error["error"]["code"], "unknown_parameter", "{name}");
            let message = error["error"]["message"].as_str().unwrap();
            assert!(message.contains("is for /v1/"), "{message}");
        }
    }
}
