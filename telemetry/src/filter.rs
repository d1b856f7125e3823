//! What is logged, as a text.
//!
//! The notation is `tracing`'s, less one thing: there a word alone that is no level is the name of a target, so that `inof`
//! logs all of a target that nobody has, and nothing else. Here it is a mistake. And whatever a filter says of targets,
//! errors of all others are logged, unless it says of those too.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

/// What a word alone may be.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
/// The exporter's own voice is `SaysOnce`; the spans that carry trace ids are always there.
const OURS: &str =
    "opentelemetry=off,opentelemetry_sdk=off,opentelemetry_otlp=off,lynx_telemetry=info";

/// Why a text is no log filter.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    /// A word alone.
    #[error(
        "{0:?} is no level: off, error, warn, info, debug or trace; a target takes one, as in lynx_agent=debug"
    )]
    Word(String),
    /// Anything else.
    #[error("it is not in the notation of RUST_LOG, as info or lynx_agent=debug")]
    Notation(#[from] ParseError),
}

/// Whether this text says what is to be logged, as `info` or `info,lynx_agent=debug` do.
///
/// # Errors
/// What is wrong with it.
pub fn check_filter(text: &str) -> Result<(), FilterError> {
    parse(text).map(drop)
}

pub(crate) fn parse(text: &str) -> Result<EnvFilter, FilterError> {
    let words: Vec<&str> = text.split(',').map(str::trim).collect();
    for &word in &words {
        let is_alone = !word.contains(['=', '[', ']', '{', '}']);
        let is_level = LEVELS.iter().any(|level| level.eq_ignore_ascii_case(word));
        if is_alone && !is_level {
            return Err(FilterError::Word(word.to_owned()));
        }
    }
    // The later of two words about the same wins.
    Ok(EnvFilter::try_new(format!(
        "error,{},{OURS}",
        words.join(",")
    ))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_would_mute_a_process_by_mistake_is_refused() {
        for bad in [
            "inof",
            "",
            "info,",
            "lynx_agent",
            "lynx=loudly",
            "info,debgu",
            "5 ",
            "info;debug",
        ] {
            let error = check_filter(bad).expect_err(bad);
            assert!(!error.to_string().is_empty());
        }
        for good in [
            "info",
            "INFO",
            "off",
            "lynx_agent=debug",
            "info,lynx_agent=debug",
            "warn, hyper=trace",
            "info,lynx_agent[trace{trace_id=1}]=debug",
        ] {
            check_filter(good).expect(good);
        }
    }

    #[test]
    fn errors_are_logged_whatever_is_said_of_targets() {
        let said = |text: &str| parse(text).unwrap().to_string();
        let has = |text: &str, level: &str| said(text).split(',').any(|part| part == level);
        assert!(
            has("lnyx_agent=debug", "error"),
            "{}",
            said("lnyx_agent=debug")
        );
        assert!(has("lynx_agent=debug,warn", "warn"));
        assert!(has("off", "off") && !has("off", "error"));
    }
}
