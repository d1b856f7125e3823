//! gRPC connections that this agent makes: to peers and to the operator.

use std::error::Error;
use std::io;

use http::Uri;
use hyper_util::rt::TokioIo;
use lynx_tls::{Credentials, Plane, explain};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

/// Whom a connection must reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// An agent of this deployment, whatever its address.
    Peer,
    /// The service that has the host name which is dialled.
    Host,
}

/// Connects, by TLS where there are credentials. A connection that is lost is made again with what is current then.
///
/// # Errors
/// Nobody is there, or not who should be.
pub async fn connect(
    endpoint: Endpoint,
    to: To,
    credentials: Option<&Credentials>,
) -> Result<Channel, tonic::transport::Error> {
    let Some(credentials) = credentials.cloned() else {
        return endpoint.connect().await;
    };
    let connector = service_fn(move |uri: Uri| {
        let credentials = credentials.clone();
        async move { Ok::<_, io::Error>(TokioIo::new(secure(&uri, to, &credentials).await?)) }
    });
    endpoint.connect_with_connector(connector).await
}

async fn secure(uri: &Uri, to: To, credentials: &Credentials) -> io::Result<TlsStream<TcpStream>> {
    let no_address = || io::Error::other("the address has no host and port");
    let authority = uri.authority().ok_or_else(no_address)?;
    let port = authority.port_u16().unwrap_or(443);
    let host = authority.host().trim_matches(['[', ']']);
    let tcp = TcpStream::connect((host, port)).await?;
    tcp.set_nodelay(true)?;
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let current = credentials.current();
    let config = match to {
        To::Peer => current.client(Plane::Control),
        To::Host => current.client_by_host(),
    };
    let connected = TlsConnector::from(config).connect(name, tcp).await;
    connected.map_err(|error| match refusal(&error) {
        Some(why) => io::Error::other(why),
        None => error,
    })
}

/// What TLS says about an error, where it has caused it.
fn refusal(error: &(dyn Error + 'static)) -> Option<String> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let inner = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        let inner = inner.map(|inner| inner as &(dyn Error + 'static));
        for error in [Some(error), inner].into_iter().flatten() {
            if let Some(tls) = error.downcast_ref::<rustls::Error>() {
                return Some(explain(tls));
            }
        }
        cause = error.source();
    }
    None
}
