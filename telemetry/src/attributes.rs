//! The names of attributes: OpenTelemetry's `gen_ai.*` where they fit, `lynx.*` otherwise.

use opentelemetry::KeyValue;

/// What is done: `chat` or `text_completion`.
pub const OPERATION: &str = "gen_ai.operation.name";
/// Who serves the model: `lynx`.
pub const PROVIDER: &str = "gen_ai.provider.name";
/// The model that was asked for.
pub const REQUEST_MODEL: &str = "gen_ai.request.model";
/// The model that answered.
pub const RESPONSE_MODEL: &str = "gen_ai.response.model";
/// The answer's id.
pub const RESPONSE_ID: &str = "gen_ai.response.id";
/// The most tokens that the answer may have.
pub const MAX_TOKENS: &str = "gen_ai.request.max_tokens";
/// The sampling's temperature.
pub const TEMPERATURE: &str = "gen_ai.request.temperature";
/// The sampling's top-p.
pub const TOP_P: &str = "gen_ai.request.top_p";
/// The sampling's seed.
pub const SEED: &str = "gen_ai.request.seed";
/// Why the answer ended, a list.
pub const FINISH_REASONS: &str = "gen_ai.response.finish_reasons";
/// Tokens of the prompt.
pub const INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
/// Tokens of the answer.
pub const OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
/// What kind of thing went wrong.
pub const ERROR_TYPE: &str = "error.type";
/// The HTTP method.
pub const HTTP_METHOD: &str = "http.request.method";
/// The HTTP route.
pub const HTTP_ROUTE: &str = "http.route";
/// The HTTP status.
pub const HTTP_STATUS: &str = "http.response.status_code";

/// How the KV travels: a method's id.
pub const METHOD: &str = "lynx.method";
/// The anchor's mean width in bits.
pub const ANCHOR_BITS: &str = "lynx.anchor.bits";
/// The transfer's number on its link.
pub const TRANSFER: &str = "lynx.transfer.id";
/// The peer: its address or pod.
pub const PEER: &str = "lynx.peer";
/// Bytes that were moved.
pub const BYTES: &str = "lynx.bytes";
/// Those of them that were the anchor's.
pub const ANCHOR_BYTES: &str = "lynx.bytes.anchor";
/// Those of them that were the residuals'.
pub const RESIDUAL_BYTES: &str = "lynx.bytes.residual";
/// A rate in bits a second: on a transfer its mean, on an anchor what the rest is reckoned with.
pub const RATE: &str = "lynx.link.bps";
/// A level of significance: 0 is the anchor.
pub const LEVEL: &str = "lynx.level";
/// A layer of the model.
pub const LAYER: &str = "lynx.layer";
/// Tokens that were drafted.
pub const DRAFTED: &str = "lynx.tokens.drafted";
/// Drafted tokens that stand.
pub const ACCEPTED: &str = "lynx.tokens.accepted";
/// Tokens that were there already.
pub const CACHED_TOKENS: &str = "lynx.tokens.cached";
/// The deployment's name.
pub const DEPLOYMENT: &str = "lynx.deployment";
/// The deployment's generation.
pub const GENERATION: &str = "lynx.generation";
/// The role: `prefill` or `decode`.
pub const ROLE: &str = "lynx.role";

/// The bytes of a transfer: all, the anchor's, the residuals'.
pub fn bytes_by_priority([anchor, residual]: [u64; 2]) -> [KeyValue; 3] {
    let number = |key, bytes| KeyValue::new(key, i64::try_from(bytes).unwrap_or(i64::MAX));
    [
        number(BYTES, anchor.saturating_add(residual)),
        number(ANCHOR_BYTES, anchor),
        number(RESIDUAL_BYTES, residual),
    ]
}
