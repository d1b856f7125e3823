//! How tokens are chosen, and what is told of the choice.

use std::collections::HashMap;

use lynx_proto::engine::v1::Sampling;
use serde_json::Value;

use super::answer::Form;
use super::error::ApiError;
use super::fields::Fields;

/// The most likely tokens that a completion lists with each token.
const MOST_COMPLETION: u32 = 5;
/// The same of a chat.
const MOST_CHAT: u32 = 20;
/// How far a bias and a penalty go.
const BIAS: f64 = 100.0;
const PENALTY: f64 = 2.0;

/// `seed` is for those who don't bring one.
///
/// # Errors
/// Where a field is not what it must be.
pub(super) fn sampling(form: Form, fields: Fields<'_>, seed: u64) -> Result<Sampling, ApiError> {
    // -1 is what other servers call no limit.
    let unlimited = fields
        .get("top_k")
        .is_some_and(|k| matches!(k.as_i64(), Some(-1 | 0)));
    let top_k = if unlimited {
        None
    } else {
        fields.count("top_k")?
    };
    let penalty = |name| -> Result<f32, ApiError> {
        let number = fields.number(name, -PENALTY, PENALTY)?;
        Ok(narrow(number.unwrap_or_default()))
    };
    let top_p = fields.number("top_p", 0.0, 1.0)?.unwrap_or(1.0);
    Ok(Sampling {
        temperature: narrow(fields.number("temperature", 0.0, 2.0)?.unwrap_or(1.0)),
        top_k: top_k.unwrap_or_default(),
        // 0 keeps the likeliest token alone, as the smallest number does; to the engine it is no limit.
        top_p: narrow(top_p).max(f32::MIN_POSITIVE),
        seed: fields.seed("seed")?.unwrap_or(seed),
        logit_bias: bias(fields)?,
        presence_penalty: penalty("presence_penalty")?,
        frequency_penalty: penalty("frequency_penalty")?,
        top_logprobs: top_logprobs(form, fields)?,
    })
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "small numbers that the engine keeps as f32"
)]
const fn narrow(number: f64) -> f32 {
    number as f32
}

/// Tokens by their numbers, as keys of an object.
fn bias(fields: Fields<'_>) -> Result<HashMap<u32, f32>, ApiError> {
    let Some(object) = fields.object("logit_bias")? else {
        return Ok(HashMap::new());
    };
    let biases = Fields::new(object, "logit_bias.");
    let bias = |token: &str| {
        let name = biases.name(token);
        let wrong = || {
            let message = format!("{name}: logit_bias is by tokens, which are whole numbers");
            ApiError::param(&name, message)
        };
        let number = token.parse().map_err(|_| wrong())?;
        let bias = biases.number(token, -BIAS, BIAS)?;
        Ok((number, narrow(bias.unwrap_or_default())))
    };
    biases.names().map(bias).collect()
}

/// How many of the likeliest tokens are told with each; `None` where nothing is told.
fn top_logprobs(form: Form, fields: Fields<'_>) -> Result<Option<u32>, ApiError> {
    match form {
        Form::Completion => match fields.get("logprobs") {
            // Some clients have one field for both interfaces.
            Some(Value::Bool(false)) => Ok(None),
            _ => fields.whole("logprobs", 0, MOST_COMPLETION),
        },
        Form::Chat => {
            let wanted = fields.truth("logprobs")?;
            let top = fields.whole("top_logprobs", 0, MOST_CHAT)?;
            if top.is_some_and(|top| top > 0) && !wanted {
                let message = "top_logprobs is told with logprobs: set logprobs to true";
                return Err(ApiError::param("top_logprobs", message));
            }
            Ok(wanted.then_some(top.unwrap_or_default()))
        }
    }
}
