//! Files made into configurations of both ends, or into what is wrong with them.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::ClientCertVerifier as _;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::TLS13;
use rustls::{CertificateError, ClientConfig, Error, RootCertStore, ServerConfig};

use crate::explain;
use crate::verify::PeerVerifier;
use crate::{CA_FILE, CERTIFICATE_FILE, Files, KEY_FILE, PeerIdentity};

/// Later than any certificate's end: validity checked at this time fails with the end that was exceeded.
const END_OF_TIME: Duration = Duration::from_secs(253_402_300_799);

/// Why the files are of no use.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file is missing, or not this process's to read.
    #[error("can't read {}: {source}; mount the Secret there, readable by the agent's user", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file is not one, or too large for what it should be.
    #[error("{} is no file of at most 1 MiB", path.display())]
    NotAFile {
        /// The file.
        path: PathBuf,
    },
    /// A file has not what its name says.
    #[error("{file} has no {what} in PEM: it is empty, or has no part that begins with -----BEGIN")]
    Pem {
        /// Which.
        file: &'static str,
        /// What should be there.
        what: &'static str,
    },
    /// The key is another certificate's, or of a kind that is not supported.
    #[error("tls.key doesn't fit tls.crt ({0}): both must be of one issue")]
    Key(String),
    /// Agents with the same files would refuse this certificate.
    #[error("tls.crt is refused by its own ca.crt: {0}")]
    Refused(String),
    /// Nothing says whose it is.
    #[error(
        "tls.crt names nobody: give it a URI or DNS name among its subject alternative names, such as spiffe://cluster.local/ns/NAMESPACE/lynx/DEPLOYMENT"
    )]
    Nameless,
    /// Anything else that the library refuses.
    #[error("the certificates can't be used: {0}")]
    Other(#[from] Error),
}

/// What a connection is for. Each has its protocol name in the handshake, so that a connection of one can't be passed
/// off as the other's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plane {
    /// gRPC.
    Control,
    /// The transfer protocol.
    Data,
}

impl Plane {
    fn protocol(self) -> Vec<u8> {
        match self {
            Self::Control => b"h2".to_vec(),
            Self::Data => b"lynx".to_vec(),
        }
    }
}

/// Configurations of one issue of the files.
pub struct Loaded {
    servers: [Arc<ServerConfig>; 2],
    clients: [Arc<ClientConfig>; 2],
    by_host: Arc<ClientConfig>,
    identity: PeerIdentity,
    not_after: UnixTime,
}

impl Loaded {
    /// Makes them. `peer_name` is the name that peers' certificates must carry; without one, the first that this side's
    /// own carries. At `now` this side's own certificate must be one that it would take from a peer, except for the name.
    ///
    /// # Errors
    /// With what is wrong, and what to do.
    pub fn new(files: &Files, peer_name: Option<&str>, now: UnixTime) -> Result<Self, LoadError> {
        let chain = certificates(&files.chain, CERTIFICATE_FILE)?;
        let authorities = certificates(&files.ca, CA_FILE)?;
        let key = PrivateKeyDer::from_pem_slice(&files.key).map_err(|_| LoadError::Pem {
            file: KEY_FILE,
            what: "private key",
        })?;
        let mut roots = RootCertStore::empty();
        for authority in authorities {
            roots.add(authority).map_err(|error| refused(&error))?;
        }
        let roots = Arc::new(roots);
        let provider = Arc::new(aws_lc_rs::default_provider());
        let key = CertifiedKey::from_der(chain.clone(), key, &provider)
            .map_err(|error| LoadError::Key(error.to_string()))?;
        let (leaf, intermediates) = chain.split_first().ok_or(LoadError::Nameless)?;
        let identity = PeerIdentity::of(leaf).ok_or(LoadError::Nameless)?;
        let name = peer_name.unwrap_or_else(|| identity.primary()).to_owned();
        let verifier = PeerVerifier::new(Arc::clone(&roots), Arc::clone(&provider), name)?;
        let not_after = check(&verifier, leaf, intermediates, now)?;
        let verifier = Arc::new(verifier);
        let key: Arc<SingleCertAndKey> = Arc::new(key.into());
        let planes = [Plane::Control, Plane::Data];
        let server = |plane| server(&provider, &verifier, &key, plane);
        let client = |plane| client(&provider, Arc::clone(&verifier) as _, &key, plane);
        let hosts = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider));
        let hosts = hosts
            .build()
            .map_err(|error| Error::General(error.to_string()))?;
        let [control_server, data_server] = planes.map(server);
        let [control_client, data_client] = planes.map(client);
        Ok(Self {
            servers: [control_server?, data_server?],
            clients: [control_client?, data_client?],
            by_host: self::client(&provider, hosts, &key, Plane::Control)?,
            identity,
            not_after,
        })
    }

    /// For taking peers' connections.
    pub fn server(&self, plane: Plane) -> Arc<ServerConfig> {
        let [control, data] = &self.servers;
        Arc::clone(match plane {
            Plane::Control => control,
            Plane::Data => data,
        })
    }

    /// For dialling peers, whose certificates must carry the deployment's name.
    pub fn client(&self, plane: Plane) -> Arc<ClientConfig> {
        let [control, data] = &self.clients;
        Arc::clone(match plane {
            Plane::Control => control,
            Plane::Data => data,
        })
    }

    /// For dialling a service of another kind by gRPC, whose certificate must carry the host name that was dialled.
    pub fn client_by_host(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.by_host)
    }

    /// Who this side is.
    pub fn identity(&self) -> &PeerIdentity {
        &self.identity
    }

    /// When this side's certificate ends.
    pub fn not_after(&self) -> UnixTime {
        self.not_after
    }
}

impl fmt::Debug for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loaded")
            .field("identity", &self.identity)
            .field("not_after", &self.not_after)
            .finish_non_exhaustive()
    }
}

fn certificates(pem: &[u8], file: &'static str) -> Result<Vec<CertificateDer<'static>>, LoadError> {
    let what = "certificate";
    let parsed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match parsed {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(LoadError::Pem { file, what }),
    }
}

/// Checks this side's own certificate as a peer would; when it ends.
fn check(
    verifier: &PeerVerifier,
    leaf: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
    now: UnixTime,
) -> Result<UnixTime, LoadError> {
    let as_server = verifier.server_chain(leaf, intermediates, now);
    as_server.map_err(|error| refused(&error))?;
    match verifier.verify_client_cert(leaf, intermediates, now) {
        // What peers are called may differ from what this side is.
        Ok(_) | Err(Error::InvalidCertificate(CertificateError::Other(_))) => {}
        Err(error) => return Err(refused(&error)),
    }
    let end = UnixTime::since_unix_epoch(END_OF_TIME);
    Ok(match verifier.server_chain(leaf, intermediates, end) {
        Err(Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) => {
            not_after
        }
        _ => end,
    })
}

fn refused(error: &Error) -> LoadError {
    LoadError::Refused(match error {
        Error::InvalidCertificate(error) => explain::certificate(error),
        other => other.to_string(),
    })
}

/// No tickets, and so no resumption: a resumed session would go on with a certificate that was checked long ago, and links
/// are few and long-lived.
fn server(
    provider: &Arc<CryptoProvider>,
    verifier: &Arc<PeerVerifier>,
    key: &Arc<SingleCertAndKey>,
    plane: Plane,
) -> Result<Arc<ServerConfig>, Error> {
    let builder = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(Arc::clone(verifier) as _);
    let mut config = builder.with_cert_resolver(Arc::clone(key) as _);
    config.alpn_protocols = vec![plane.protocol()];
    config.send_tls13_tickets = 0;
    config.max_early_data_size = 0;
    Ok(Arc::new(config))
}

fn client(
    provider: &Arc<CryptoProvider>,
    verifier: Arc<dyn rustls::client::danger::ServerCertVerifier>,
    key: &Arc<SingleCertAndKey>,
    plane: Plane,
) -> Result<Arc<ClientConfig>, Error> {
    let mut config = ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_client_cert_resolver(Arc::clone(key) as _);
    config.alpn_protocols = vec![plane.protocol()];
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}
