//! The `lynx` object of a request: what OpenAI's interface has no words for.

use lynx_units::Width;

use super::error::ApiError;
use super::fields::Fields;
use crate::method::Method;

/// What a client asks for beyond OpenAI's interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Extension {
    /// How the KV travels.
    pub(super) method: Option<Method>,
    /// The anchor's mean width.
    pub(super) anchor: Option<Width>,
    /// Tokens that are not verified yet, and their retractions, as events.
    pub(super) provisional: bool,
    /// What happens, as events.
    pub(super) timeline: bool,
    /// Whether to go on past the model's end-of-text token.
    pub(super) ignore_eos: bool,
}

const NAMES: [&str; 5] = [
    "method",
    "anchor_bits",
    "provisional",
    "timeline",
    "ignore_eos",
];

/// Reads the object. Unlike OpenAI's fields its unknown ones are refused: there is nobody else whose they could be.
pub(super) fn read(request: Fields<'_>) -> Result<Extension, ApiError> {
    let Some(object) = request.object("lynx")? else {
        return Ok(Extension::default());
    };
    let fields = Fields::new(object, "lynx.");
    if let Some(unknown) = fields.names().find(|name| !NAMES.contains(name)) {
        let name = fields.name(unknown);
        return Err(ApiError::unknown_among(&name, &NAMES));
    }
    Ok(Extension {
        method: fields
            .text("method")?
            .map(|id| method(&fields, id))
            .transpose()?,
        anchor: anchor(&fields)?,
        provisional: fields.truth("provisional")?,
        timeline: fields.truth("timeline")?,
        ignore_eos: fields.truth("ignore_eos")?,
    })
}

fn method(fields: &Fields<'_>, id: &str) -> Result<Method, ApiError> {
    let found = Method::ALL.into_iter().find(|method| method.id() == id);
    found.ok_or_else(|| {
        let name = fields.name("method");
        let ids = Method::ALL.map(Method::id).join(", ");
        ApiError::param(&name, format!("{name} must be one of {ids}"))
    })
}

fn anchor(fields: &Fields<'_>) -> Result<Option<Width>, ApiError> {
    let Some(bits) = fields.number("anchor_bits", 1.0, 8.0)? else {
        return Ok(None);
    };
    let width = bits.to_string().parse();
    width.map(Some).map_err(|_| {
        let name = fields.name("anchor_bits");
        ApiError::param(&name, format!("{name} must be a multiple of 0.125"))
    })
}
