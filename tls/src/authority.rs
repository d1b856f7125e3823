//! A certificate authority that lives in memory: for tests, demonstrations and measurements.
//!
//! Not for deployments: nothing keeps its key, and nothing renews what it issues.

use std::path::Path;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::pki_types::{CertificateDer, UnixTime};

use crate::{CA_FILE, CERTIFICATE_FILE, Credentials, Files, KEY_FILE};

/// Why nothing was issued.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// The certificate can't be made.
    #[error("the certificate can't be made: {0}")]
    Make(#[from] rcgen::Error),
    /// The files can't be written.
    #[error("the files can't be written: {0}")]
    Write(#[from] std::io::Error),
    /// They were made and are refused.
    #[error("{0}")]
    Load(#[from] crate::LoadError),
}

/// An authority.
#[derive(Debug)]
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// What a certificate is to be like.
#[derive(Clone, Debug)]
pub struct Request {
    /// URIs and DNS names.
    pub names: Vec<String>,
    /// From when, relative to now.
    pub starts: Starts,
    /// For how long from then.
    pub lasts: Duration,
    /// For which ends.
    pub server: bool,
    /// For which ends.
    pub client: bool,
}

/// When validity begins.
#[derive(Clone, Copy, Debug)]
pub enum Starts {
    /// So long ago.
    Ago(Duration),
    /// In so long.
    In(Duration),
}

impl Request {
    /// A certificate for both ends, valid from an hour ago for a day.
    pub fn new(name: &str) -> Self {
        Self {
            names: vec![name.to_owned()],
            starts: Starts::Ago(Duration::from_secs(3600)),
            lasts: Duration::from_secs(25 * 3600),
            server: true,
            client: true,
        }
    }

    /// The same, expired.
    #[must_use]
    pub fn expired(self) -> Self {
        Self {
            starts: Starts::Ago(Duration::from_secs(7200)),
            lasts: Duration::from_secs(3600),
            ..self
        }
    }
}

impl Authority {
    /// A new one.
    ///
    /// # Errors
    /// No key can be made.
    pub fn new() -> Result<Self, IssueError> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let name = rcgen::DnType::CommonName;
        params.distinguished_name.push(name, "A CA of the moment");
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        Ok(Self { issuer })
    }

    /// This authority's own certificate.
    pub fn certificate(&self) -> CertificateDer<'static> {
        self.issuer.der().clone()
    }

    /// The same in PEM.
    pub fn certificate_pem(&self) -> String {
        self.issuer.pem()
    }

    /// Issues a certificate, and gives it with its key and this authority's own certificate.
    ///
    /// # Errors
    /// A name is neither a URI nor a DNS name.
    pub fn issue(&self, request: &Request) -> Result<Files, IssueError> {
        let mut params = CertificateParams::default();
        for name in &request.names {
            let text = name.as_str().try_into()?;
            params.subject_alt_names.push(if name.contains("://") {
                SanType::URI(text)
            } else {
                SanType::DnsName(text)
            });
        }
        let starts = match request.starts {
            Starts::Ago(time) => now() - time,
            Starts::In(time) => now() + time,
        };
        params.not_before = starts.into();
        params.not_after = (starts + request.lasts).into();
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        for (wanted, purpose) in [
            (request.server, ExtendedKeyUsagePurpose::ServerAuth),
            (request.client, ExtendedKeyUsagePurpose::ClientAuth),
        ] {
            if wanted {
                params.extended_key_usages.push(purpose);
            }
        }
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Files::new(
            certificate.pem().as_bytes(),
            key.serialize_pem().as_bytes(),
            self.issuer.pem().as_bytes(),
        ))
    }

    /// Credentials of this name, by way of a directory that is gone afterwards.
    ///
    /// # Errors
    /// They can't be made.
    pub fn credentials(&self, name: &str) -> Result<Credentials, IssueError> {
        self.credentials_of(&Request::new(name), UnixTime::now())
    }

    /// The same of any certificate that is good at `now`.
    ///
    /// # Errors
    /// They can't be made, or aren't good then.
    pub fn credentials_of(
        &self,
        request: &Request,
        now: UnixTime,
    ) -> Result<Credentials, IssueError> {
        let directory = tempfile::tempdir()?;
        write(directory.path(), &self.issue(request)?)?;
        Ok(Credentials::open(directory.path(), None, now)?)
    }
}

impl Files {
    /// The same with one more authority whose peers are trusted.
    #[must_use]
    pub fn with_authority(mut self, pem: &str) -> Self {
        self.ca.extend_from_slice(pem.as_bytes());
        self
    }
}

/// Writes the three files, each new one over the old one.
///
/// # Errors
/// They can't be written.
pub fn write(directory: &Path, files: &Files) -> std::io::Result<()> {
    for (name, bytes) in [
        (CERTIFICATE_FILE, &files.chain),
        (KEY_FILE, &files.key),
        (CA_FILE, &files.ca),
    ] {
        std::fs::write(directory.join(name), bytes)?;
    }
    Ok(())
}

#[expect(
    clippy::disallowed_methods,
    reason = "what is issued here is valid around the moment of its issue"
)]
fn now() -> SystemTime {
    SystemTime::now()
}
