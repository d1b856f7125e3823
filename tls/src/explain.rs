//! What went wrong between two sides, and what to do about it.

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage, PeerIncompatible};

/// A sentence for whoever runs the agents. It names no secret: certificates are public, keys never come up.
pub fn explain(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(error) => format!("the peer's certificate is refused: {}", certificate(error)),
        Error::AlertReceived(alert) => said(*alert).to_owned(),
        Error::NoCertificatesPresented => {
            "the peer shows no certificate: set tls.mode and tls.directory on it too".to_owned()
        }
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "what comes is not TLS: set the same tls.mode on both sides, and check the port".to_owned()
        }
        Error::PeerIncompatible(
            PeerIncompatible::Tls13RequiredForQuic
            | PeerIncompatible::SupportedVersionsExtensionRequired
            | PeerIncompatible::Tls12NotOffered
            | PeerIncompatible::Tls12NotOfferedOrEnabled,
        ) => "the peer does not offer TLS 1.3: nothing older is taken".to_owned(),
        Error::NoApplicationProtocol => {
            "the peer wants another protocol: is this the control port where the data port was meant, or the reverse?"
                .to_owned()
        }
        other => other.to_string(),
    }
}

/// What is wrong with a certificate.
pub(crate) fn certificate(error: &CertificateError) -> String {
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "it has expired: renew it (cert-manager does before that), or check both machines' clocks".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it isn't valid yet: check both machines' clocks".to_owned()
        }
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "it isn't signed by an authority in ca.crt: give all agents of a deployment certificates of one CA".to_owned()
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "it isn't meant for this end: issue it for both server auth and client auth".to_owned()
        }
        CertificateError::Other(other) => other.to_string(),
        other => other.to_string(),
    }
}

/// What a peer means by an alert.
fn said(alert: AlertDescription) -> &'static str {
    match alert {
        AlertDescription::UnknownCA | AlertDescription::DecryptError => {
            "the peer does not trust this side's certificate: its ca.crt must hold the CA that signed it"
        }
        AlertDescription::CertificateExpired => {
            "the peer says that this side's certificate isn't valid now: renew it, or check both machines' clocks"
        }
        AlertDescription::CertificateRequired => {
            "the peer wants a certificate, and this side showed none: set tls.directory"
        }
        AlertDescription::UnsupportedCertificate => {
            "the peer says that this side's certificate isn't meant for this end: issue it for both server auth and client auth"
        }
        AlertDescription::CertificateUnknown => {
            "the peer says that this side's certificate isn't one of its deployment: see tls.peerName on it"
        }
        AlertDescription::ProtocolVersion => {
            "the peer takes no TLS version that this side offers: TLS 1.3 is wanted"
        }
        AlertDescription::NoApplicationProtocol => {
            "the peer speaks another protocol there: is this the control port where the data port was meant, or the reverse?"
        }
        _ => "the peer refuses TLS: its log says why",
    }
}
