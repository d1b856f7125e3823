//! Whether a certificate belongs to an agent of this deployment.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, RootCertStore,
    SignatureScheme,
};

use crate::PeerIdentity;

/// The certificate is good, and somebody else's.
#[derive(Debug, thiserror::Error)]
#[error(
    "it names {found}, and {wanted} is wanted: it is another deployment's, or tls.peerName has to say what peers are called"
)]
struct OtherDeployment {
    found: String,
    wanted: String,
}

/// Takes a certificate, of either end, that a trusted authority signed, that is valid now, is meant for that end, and
/// carries the deployment's name. The address or host name by which a peer was dialled is not looked at.
pub(crate) struct PeerVerifier {
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
    clients: Arc<dyn ClientCertVerifier>,
    name: String,
}

impl PeerVerifier {
    pub(crate) fn new(
        roots: Arc<RootCertStore>,
        provider: Arc<CryptoProvider>,
        name: String,
    ) -> Result<Self, Error> {
        let clients =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider));
        let clients = clients
            .build()
            .map_err(|error| Error::General(error.to_string()))?;
        Ok(Self {
            roots,
            provider,
            clients,
            name,
        })
    }

    /// Whether the chain is good for a server.
    pub(crate) fn server_chain(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        let leaf = ParsedCertificate::try_from(leaf)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(
            &leaf,
            &self.roots,
            intermediates,
            now,
            algorithms,
        )
    }

    fn named(&self, leaf: &CertificateDer<'_>) -> Result<(), Error> {
        let found = PeerIdentity::of(leaf);
        if found.as_ref().is_some_and(|found| found.has(&self.name)) {
            return Ok(());
        }
        let other = OtherDeployment {
            found: found.map_or_else(|| "nobody".to_owned(), |found| found.to_string()),
            wanted: self.name.clone(),
        };
        let other = CertificateError::Other(OtherError(Arc::new(other)));
        Err(Error::InvalidCertificate(other))
    }
}

impl ServerCertVerifier for PeerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.server_chain(end_entity, intermediates, now)?;
        self.named(end_entity)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}

impl ClientCertVerifier for PeerVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.clients.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self
            .clients
            .verify_client_cert(end_entity, intermediates, now)?;
        self.named(end_entity)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.clients.verify_tls12_signature(message, cert, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.clients.verify_tls13_signature(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.clients.supported_verify_schemes()
    }
}

impl fmt::Debug for PeerVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerVerifier")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
