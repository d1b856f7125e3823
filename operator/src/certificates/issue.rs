//! Keys and certificates, drawn.

use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};

use super::{Lives, Pair};

/// Valid a little before it is made: clocks differ.
const EARLY: i64 = 300;

/// No certificate can be made.
#[derive(Debug, thiserror::Error)]
#[error("no certificate can be made: {0}; delete the Secret that ends in -authority to begin anew")]
pub struct IssueError(#[from] rcgen::Error);

/// An authority for the deployment of this name.
pub(super) fn authority(name: &str, now: i64, lives: Lives) -> Result<Pair, IssueError> {
    let until = now + i64::from(lives.authority_seconds);
    let key = KeyPair::generate()?;
    let certificate = authority_params(name, now, until).self_signed(&key)?;
    Ok(Pair {
        certificate: certificate.pem(),
        key: key.serialize_pem(),
        from: now,
        until,
    })
}

fn authority_params(name: &str, from: i64, until: i64) -> CertificateParams {
    let mut params = params(from, until);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    // Authorities that follow each other have names of their own, by which chains are found.
    params
        .distinguished_name
        .push(DnType::CommonName, format!("{name} since {from}"));
    params
}

/// A certificate for both ends of a link.
pub(super) fn leaf(
    authority: &Pair,
    name: &str,
    now: i64,
    lives: Lives,
) -> Result<Pair, IssueError> {
    signed(authority, name, SanType::URI(name.try_into()?), now, lives)
}

/// The operator's own, for agents of the deployment that `authority` is of: it carries a host name, and not theirs.
pub(crate) fn service(
    authority: &Pair,
    deployment: &str,
    host: &str,
    now: i64,
    lives: Lives,
) -> Result<Pair, IssueError> {
    let host = SanType::DnsName(host.try_into()?);
    signed(authority, deployment, host, now, lives)
}

fn signed(
    authority: &Pair,
    deployment: &str,
    name: SanType,
    now: i64,
    lives: Lives,
) -> Result<Pair, IssueError> {
    // It doesn't outlive what it is trusted by.
    let until = (now + i64::from(lives.leaf_seconds)).min(authority.until);
    let signing = KeyPair::from_pem(&authority.key)?;
    let signing = Issuer::new(
        authority_params(deployment, authority.from, authority.until),
        signing,
    );
    let mut params = params(now, until);
    params.subject_alt_names.push(name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, &signing)?;
    Ok(Pair {
        certificate: certificate.pem(),
        key: key.serialize_pem(),
        from: now,
        until,
    })
}

fn params(from: i64, until: i64) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.not_before = at(from - EARLY).into();
    params.not_after = at(until).into();
    params
}

fn at(seconds: i64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}
