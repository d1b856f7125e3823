//! Whether this agent has a certificate to work with, and for how long.

use std::time::Duration;

use lynx_tls::{LoadError, PeerIdentity, UnixTime};

use super::Finding;
use crate::config::{Tls, TlsMode};
use crate::security::Security;

const SUBJECT: &str = "TLS";
/// An end that somebody should know of.
const SOON: Duration = Duration::from_secs(7 * DAY);
const DAY: u64 = 24 * 3600;

/// What became of the files at `now`, as an agent of this configuration finds them.
pub(super) fn examine(
    tls: &Tls,
    opened: &Result<Security, LoadError>,
    now: UnixTime,
) -> Vec<Finding> {
    let security = match opened {
        Ok(security) => security,
        Err(error) => return vec![unusable(error)],
    };
    let Some(credentials) = security.control() else {
        return vec![Finding::note(
            SUBJECT,
            "peer control and links are in clear (tls.mode is off)",
            "nothing, on a network that nobody else is on; otherwise set tls.mode to all and tls.directory, on all agents of the deployment",
        )];
    };
    let current = credentials.current();
    let mut findings = vec![
        encrypted(tls.mode, current.identity()),
        lasts(current.not_after(), now),
    ];
    let wanted = tls.peer_name.as_deref();
    findings.extend(wanted.and_then(|wanted| misnamed(wanted, current.identity())));
    findings
}

/// The files, or what is in them, are of no use.
fn unusable(error: &LoadError) -> Finding {
    let remedy = match error {
        LoadError::Unreadable { .. } | LoadError::NotAFile { .. } => {
            "let tls.directory be where the Secret is mounted, with tls.crt, tls.key and ca.crt, in the agent's container"
        }
        LoadError::Pem { .. } => {
            "put PEM into each file: the certificate before its intermediates, its key, the authorities"
        }
        LoadError::Key(_) => {
            "take tls.crt and tls.key from one issue: one of them was renewed alone"
        }
        LoadError::Refused(_) => {
            "issue a certificate that is valid now, for server auth and client auth, by an authority in ca.crt: peers look at the same"
        }
        LoadError::Nameless => {
            "issue it with the deployment's name as a URI or DNS name (docs/security.md has the commands)"
        }
        LoadError::Other(_) => "issue another certificate; see docs/security.md for one that works",
    };
    Finding::problem(SUBJECT, error.to_string(), remedy)
}

fn encrypted(mode: TlsMode, identity: &PeerIdentity) -> Finding {
    let what = match mode {
        TlsMode::All => "peer control and links are encrypted",
        TlsMode::Control | TlsMode::Off => "peer control is encrypted, links are in clear",
    };
    Finding::good(SUBJECT, format!("{what}; this agent is {identity}"))
}

fn lasts(end: UnixTime, now: UnixTime) -> Finding {
    let left = Duration::from_secs(end.as_secs().saturating_sub(now.as_secs()));
    let (days, hours) = (left.as_secs() / DAY, left.as_secs() % DAY / 3600);
    let found = format!("the certificate ends in {days} days and {hours} hours");
    if left < SOON {
        Finding::note(
            SUBJECT,
            found,
            "nothing, where something renews it in time (cert-manager does after two thirds of its life); otherwise issue a new one: the agent takes it up by itself",
        )
    } else {
        Finding::good(SUBJECT, found)
    }
}

/// Agents of one configuration look for one name: also in this one's certificate.
fn misnamed(wanted: &str, identity: &PeerIdentity) -> Option<Finding> {
    (!identity.has(wanted)).then(|| {
        Finding::problem(
            SUBJECT,
            format!("tls.peerName is {wanted}, and the certificate names {identity}: peers of the same configuration refuse it"),
            "issue the certificate with this name too, or let tls.peerName be one that all agents' certificates carry",
        )
    })
}

#[cfg(test)]
mod tests;
