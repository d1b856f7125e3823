//! A client's request on its way to the engine's own server.

use std::fmt::Write as _;

use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::super::error::ApiError;
use super::super::extension::{self, Extension};
use super::super::fields::Fields;
use super::members::Members;

/// What says whose request it is, and where the engine's connector finds it.
const TRANSFER: &str = "kv_transfer_params";
/// What keeps requests' prefix caches apart.
const SALT: &str = "cache_salt";
/// What this agent understands itself.
const LYNX: &str = "lynx";
/// What an engine goes on past its end-of-text token by.
const IGNORE_EOS: &str = "ignore_eos";

/// A request that can be handed on.
#[derive(Debug)]
pub(super) struct Question<'a> {
    members: Members<'a>,
    /// The client's own salt.
    salt: String,
    pub(super) extension: Extension,
    /// How many answers it wants.
    pub(super) choices: usize,
}

impl<'a> Question<'a> {
    /// Reads what is the agent's affair.
    ///
    /// # Errors
    /// What the client is told.
    pub(super) fn read(body: &'a [u8]) -> Result<Self, ApiError> {
        let mut members = Members::read(body).map_err(|error| {
            ApiError::request(format!("the request's body is no JSON object: {error}"))
        })?;
        if members.get(TRANSFER).is_some() {
            let why = "kv_transfer_params are the agent's own here: leave them out";
            return Err(ApiError::unsupported(TRANSFER, why));
        }
        let salt = match members.get(SALT) {
            None => String::new(),
            Some(value) => text(value).filter(|salt| !salt.is_empty()).ok_or_else(|| {
                ApiError::param(SALT, "cache_salt must be a string, and not empty")
            })?,
        };
        let extension = extension(members.get(LYNX))?;
        let choices = choices(&members)?;
        members.without(&[TRANSFER, SALT, LYNX]);
        if extension.ignore_eos {
            members.without(&[IGNORE_EOS]);
        }
        Ok(Self {
            members,
            salt,
            extension,
            choices,
        })
    }

    /// The body that the engine gets, for the client of this number. `unique` has never been used before.
    pub(super) fn write(&self, client: u64, unique: u128) -> String {
        let transfer = format!(r#"{{"lynx":{{"client":"{client}"}}}}"#);
        let mut salt = self.salt.clone();
        // Writing to a String can't fail.
        write!(salt, "{unique:032x}").ok();
        let salt = Value::from(salt).to_string();
        let mut more = vec![(TRANSFER, transfer.as_str()), (SALT, &salt)];
        if self.extension.ignore_eos {
            more.push((IGNORE_EOS, "true"));
        }
        self.members.write(&more)
    }
}

fn text(value: &RawValue) -> Option<String> {
    serde_json::from_str(value.get()).ok()
}

/// What the client wants beyond OpenAI's interface, as far as it can be had where another one answers.
fn extension(value: Option<&RawValue>) -> Result<Extension, ApiError> {
    let Some(value) = value else {
        return Ok(Extension::default());
    };
    let value = serde_json::from_str(value.get()).unwrap_or(Value::Null);
    let request = Map::from_iter([(LYNX.to_owned(), value)]);
    let extension = extension::read(Fields::new(&request, ""))?;
    let refused = [
        ("lynx.provisional", extension.provisional),
        ("lynx.timeline", extension.timeline),
    ];
    match refused.into_iter().find(|(_, wanted)| *wanted) {
        None => Ok(extension),
        Some((name, _)) => Err(ApiError::unsupported(
            name,
            format!(
                "{name} can't be had here: the engine answers by itself, and tells verified tokens only"
            ),
        )),
    }
}

/// `n`, times the prompts. What is wrong with either is the engine's to say.
fn choices(members: &Members<'_>) -> Result<usize, ApiError> {
    let count = members.get("n").map_or(Some(1), |n| {
        serde_json::from_str(n.get()).ok().filter(|n| *n > 0)
    });
    let count: usize =
        count.ok_or_else(|| ApiError::param("n", "n must be a whole number above 0"))?;
    let prompts = members.get("prompt").map_or(1, prompts);
    Ok(count.saturating_mul(prompts))
}

/// How many a `prompt` has: a list of texts or of lists is one of prompts, a list of numbers is one.
fn prompts(prompt: &RawValue) -> usize {
    let inside = prompt.get().strip_prefix('[').map(str::trim_start);
    if inside.is_some_and(|inside| inside.starts_with(['"', '[', '{'])) {
        // Nothing of them is kept.
        let items: Vec<IgnoredAny> = serde_json::from_str(prompt.get()).unwrap_or_default();
        items.len().max(1)
    } else {
        1
    }
}

#[cfg(test)]
mod tests {
    use lynx_units::Width;
    use serde_json::json;

    use super::*;
    use crate::method::Method;

    fn refused(body: &Value) -> String {
        let body = body.to_string();
        let error = Question::read(body.as_bytes()).unwrap_err();
        error.message().to_owned()
    }

    fn written(body: &Value) -> Value {
        let body = body.to_string();
        let question = Question::read(body.as_bytes()).unwrap();
        serde_json::from_str(&question.write(7, 0xabc)).unwrap()
    }

    #[test]
    fn the_engine_learns_whose_request_it_is_and_gets_the_rest_as_it_was() {
        let sent = json!({
            "model": "m", "prompt": "a", "seed": 3, "kv_transfer_params": null, "cache_salt": null,
            "lynx": {"method": "bf16", "anchor_bits": 4},
        });
        let body = sent.to_string();
        let question = Question::read(body.as_bytes()).unwrap();
        assert_eq!(question.extension.method, Some(Method::Bf16));
        assert_eq!(question.extension.anchor, Width::from_bits(4));
        assert_eq!(
            written(&sent),
            json!({
                "model": "m", "prompt": "a", "seed": 3,
                "kv_transfer_params": {"lynx": {"client": "7"}},
                "cache_salt": "00000000000000000000000000000abc",
            })
        );
    }

    #[test]
    fn a_clients_own_salt_stays_in_front_and_what_it_wants_of_the_end_is_handed_on() {
        let told = written(
            &json!({"cache_salt": "mine", "ignore_eos": false, "lynx": {"ignore_eos": true}}),
        );
        assert_eq!(told["cache_salt"], "mine00000000000000000000000000000abc");
        assert_eq!(told["ignore_eos"], true);
    }

    #[test]
    fn what_is_the_agents_own_or_can_not_be_had_is_refused() {
        let mine = json!({"lynx": {"client": "1"}});
        assert!(refused(&json!({"kv_transfer_params": mine})).contains("the agent's own"));
        assert!(refused(&json!({"cache_salt": 7})).contains("a string"));
        assert!(refused(&json!({"cache_salt": ""})).contains("not empty"));
        assert!(refused(&json!({"lynx": {"timeline": true}})).contains("lynx.timeline"));
        assert!(refused(&json!({"lynx": {"provisional": true}})).contains("lynx.provisional"));
        assert!(refused(&json!({"lynx": {"speed": 9}})).contains("no lynx.speed"));
        assert!(refused(&json!({"n": 0})).contains("above 0"));
        assert!(refused(&json!([])).contains("no JSON object"));
        let escaped = br#"{"kv_transfer\u005fparams": {"lynx": {"client": "1"}}}"#;
        assert!(Question::read(escaped).is_err());
        let twice = br#"{"cache_salt": "a", "cache\u005fsalt": "b"}"#;
        assert!(Question::read(twice).is_err());
    }

    #[test]
    fn every_choice_of_every_prompt_counts() {
        for (body, choices) in [
            (json!({}), 1),
            (json!({"n": 3}), 3),
            (json!({"prompt": [1, 2, 3], "n": 2}), 2),
            (json!({"prompt": ["a", "b"], "n": 2}), 4),
            (json!({"prompt": [[1, 2], [3]]}), 2),
            (json!({"prompt": []}), 1),
            (
                json!({"n": 18_446_744_073_709_551_615_u64, "prompt": ["a", "b"]}),
                usize::MAX,
            ),
        ] {
            let body = body.to_string();
            assert_eq!(Question::read(body.as_bytes()).unwrap().choices, choices);
        }
    }
}
