//! gRPC connections that this agent makes: to peers and to the operator.

use std::error::Error;
use std::io;

use http::Uri;
use hyper_util::rt::TokioIo;
use lynx_tls::{Credentials, Plane, explain};
use lynx_transport::Tally;
use rustls::pki_types::ServerName;
use tokio::io::AsyncBufReadExt as _;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

use super::Security;

/// Whom a connection must reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum To {
    /// An agent of this deployment, whatever its address.
    Peer,
    /// The service that has the host name which is dialled.
    Host,
    /// The service that has this name, wherever it is dialled.
    Named(ServerName<'static>),
}

/// Connects, by TLS where `security` says so. A connection that is lost is made again with what is current then.
///
/// # Errors
/// Nobody is there, or not who should be.
pub async fn connect(
    endpoint: Endpoint,
    to: To,
    security: &Security,
) -> Result<Channel, tonic::transport::Error> {
    let Some(credentials) = security.control().cloned() else {
        return endpoint.connect().await;
    };
    let failures = security.control_failures().clone();
    let connector = service_fn(move |uri: Uri| {
        let (credentials, failures) = (credentials.clone(), failures.clone());
        let to = to.clone();
        async move {
            let connected = secure(&uri, &to, &credentials).await;
            let stream = connected.map_err(|error| explained(error, &failures))?;
            Ok::<_, io::Error>(TokioIo::new(stream))
        }
    });
    endpoint.connect_with_connector(connector).await
}

async fn secure(uri: &Uri, to: &To, credentials: &Credentials) -> io::Result<TlsStream<TcpStream>> {
    let no_address = || io::Error::other("the address has no host and port");
    let authority = uri.authority().ok_or_else(no_address)?;
    let port = authority.port_u16().unwrap_or(443);
    let host = authority.host().trim_matches(['[', ']']);
    let tcp = TcpStream::connect((host, port)).await?;
    tcp.set_nodelay(true)?;
    let current = credentials.current();
    let config = match to {
        To::Peer => current.client(Plane::Control),
        To::Host | To::Named(_) => current.client_by_host(),
    };
    let name = match to {
        To::Named(name) => name.clone(),
        To::Peer | To::Host => ServerName::try_from(host.to_owned()).map_err(io::Error::other)?,
    };
    let mut stream = TlsConnector::from(config).connect(name, tcp).await?;
    if *to == To::Peer {
        // By TLS 1.3 this side is done before the other has judged its certificate. A peer that takes it begins to speak by
        // itself, so that one that doesn't can be told from one that is lost.
        stream.fill_buf().await?;
    }
    Ok(stream)
}

/// The same error in words, and counted, where it is about trust.
fn explained(error: io::Error, failures: &Tally) -> io::Error {
    match refusal(&error) {
        Some(why) => {
            failures.count();
            io::Error::other(Distrust(why))
        }
        None => error,
    }
}

/// One side does not take the other's certificate, or does not speak TLS.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Distrust(String);

impl Distrust {
    /// What has made a connection fail, where it is this.
    pub fn behind(error: &(dyn Error + 'static)) -> Option<Self> {
        found_in(error, |error| error.downcast_ref().cloned())
    }
}

/// Whether what answers speaks another protocol than peer control, or has broken off.
pub fn is_no_peer(status: &tonic::Status) -> bool {
    // What the transport reports has a source; what a peer says has none.
    status.source().is_some() || status.code() == tonic::Code::Unimplemented
}

/// Whether a peer has turned the caller away for coming without TLS.
pub fn is_turned_away(status: &tonic::Status) -> bool {
    let mut cause = status.source();
    while let Some(error) = cause {
        let http = error.downcast_ref::<h2::Error>();
        if http.and_then(h2::Error::reason) == Some(h2::Reason::INADEQUATE_SECURITY) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// What TLS says about an error, where it has caused it.
fn refusal(error: &(dyn Error + 'static)) -> Option<String> {
    found_in(error, |error| error.downcast_ref().map(explain))
}

/// What `look` finds in an error or what is behind it; an I/O error's own cause is not among its sources.
fn found_in<T>(
    error: &(dyn Error + 'static),
    look: impl Fn(&(dyn Error + 'static)) -> Option<T>,
) -> Option<T> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let inner = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        let inner = inner.map(|inner| inner as &(dyn Error + 'static));
        for error in [Some(error), inner].into_iter().flatten() {
            if let Some(found) = look(error) {
                return Some(found);
            }
        }
        cause = error.source();
    }
    None
}
