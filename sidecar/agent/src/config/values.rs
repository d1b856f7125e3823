//! Texts made into values.

use std::time::Duration;

use lynx_units::{Bytes, Width};

/// A time as [`duration`] takes it, or none at all: `0s`.
pub(crate) fn duration_or_none(text: &str) -> Option<Duration> {
    if text == "0s" {
        Some(Duration::ZERO)
    } else {
        duration(text)
    }
}

/// `30s`, `250ms`, `2m`, `1h30m`: above zero, and at most a week, so that a sum of times stays a time.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);
    let mut millis = 0_u64;
    let mut rest = text;
    while !rest.is_empty() {
        let (number, after) = number_and_unit(rest)?;
        let end = after
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(after.len());
        let (unit, tail) = after.split_at(end);
        let scale = match unit {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return None,
        };
        millis = millis.checked_add(number.checked_mul(scale)?)?;
        rest = tail;
    }
    let duration = Duration::from_millis(millis);
    (!duration.is_zero() && duration <= WEEK).then_some(duration)
}

/// `1048576`, `64Ki`, `64Mi`, `1Gi`: above zero.
pub(super) fn bytes(text: &str) -> Option<Bytes> {
    bytes_or_none(text).filter(|bytes| *bytes > Bytes::ZERO)
}

/// The same, or zero.
pub(super) fn bytes_or_none(text: &str) -> Option<Bytes> {
    let (number, unit) = number_and_unit(text)?;
    let bytes = number.checked_mul(match unit {
        "" => 1,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        _ => return None,
    })?;
    Some(Bytes::new(bytes))
}

/// A width that an anchor can have.
pub(super) fn anchor_width(text: &str) -> Option<Width> {
    let width: Width = text.parse().ok()?;
    (width.eighths() >= 8).then_some(width)
}

/// A URL of a gRPC service. A path would be ignored, so it is refused.
pub(super) fn url(text: &str) -> Option<String> {
    let uri: http::Uri = text.parse().ok()?;
    let fits = matches!(uri.scheme_str(), Some("http" | "https"))
        && uri.authority().is_some()
        && matches!(uri.path(), "" | "/")
        && uri.query().is_none();
    fits.then(|| text.trim_end_matches('/').to_owned())
}

/// The same of an HTTP server on this machine or in this pod: without TLS.
pub(super) fn plain_url(text: &str) -> Option<http::uri::Authority> {
    let rest = url(text)?.strip_prefix("http://")?.to_owned();
    rest.parse().ok().filter(|_| !rest.contains('@'))
}

/// `host:port`, an IPv6 host in brackets.
pub(super) fn host_and_port(text: &str) -> Option<String> {
    let authority: http::uri::Authority = text.parse().ok()?;
    let fits = authority.port_u16().is_some_and(|port| port > 0)
        && !authority.host().is_empty()
        && !text.contains('@');
    fits.then(|| text.to_owned())
}

fn number_and_unit(text: &str) -> Option<(u64, &str)> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    Some((number.parse().ok()?, unit.trim()))
}
