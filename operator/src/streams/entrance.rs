//! Agents' connections: those in clear as they are, those by TLS once both sides have shown who they are.
//!
//! One port for both. A connection's first byte says which it is: TLS begins with a handshake record, HTTP/2 in clear with a
//! letter. Whether a deployment's agents may come in clear is not decided here, but when they say whose they are.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{sleep, timeout};
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::rustls::server::Acceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::server::Connected;

use super::Key;
use super::doors::Doors;

/// How long a connection may take to begin.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many may be about to.
const AT_ONCE: usize = 256;
/// How long to leave the listener alone after an accept has failed, for want of descriptors say.
const PAUSE: Duration = Duration::from_millis(20);
/// The first byte of a TLS handshake.
const HANDSHAKE: u8 = 22;

/// Who is at the other end, as far as its certificate says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The deployment that it is an agent of; `None` in clear.
    pub key: Option<Key>,
}

/// One connection.
#[derive(Debug)]
pub enum Connection {
    /// As it is.
    Clear(TcpStream),
    /// By TLS.
    Tls(Box<TlsStream<TcpStream>>, Caller),
}

/// The connections that come, until `shutdown`.
pub fn incoming(
    listener: TcpListener,
    doors: Arc<Doors>,
    shutdown: CancellationToken,
) -> ReceiverStream<io::Result<Connection>> {
    let (ready, connections) = mpsc::channel(16);
    tokio::spawn(accept(listener, doors, ready, shutdown));
    ReceiverStream::new(connections)
}

async fn accept(
    listener: TcpListener,
    doors: Arc<Doors>,
    ready: mpsc::Sender<io::Result<Connection>>,
    shutdown: CancellationToken,
) {
    let places = Arc::new(Semaphore::new(AT_ONCE));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        let accepted = tokio::select! {
            () = shutdown.cancelled() => return,
            () = ready.closed() => return,
            accepted = listener.accept() => accepted,
        };
        let (tcp, from) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "no connection of an agent can be taken");
                sleep(PAUSE).await;
                continue;
            }
        };
        let (doors, ready) = (Arc::clone(&doors), ready.clone());
        tokio::spawn(async move {
            let begun = timeout(PATIENCE, begin(tcp, &doors)).await;
            drop(place);
            match begun {
                // Nobody takes it at the end.
                Ok(Ok(connection)) => drop(ready.send(Ok(connection)).await),
                // Strangers must not fill the log: an agent tells its own people.
                Ok(Err(error)) => tracing::debug!(%from, %error, "an agent didn't come in"),
                Err(_) => tracing::debug!(%from, "a connection was silent"),
            }
        });
    }
}

async fn begin(tcp: TcpStream, doors: &Doors) -> io::Result<Connection> {
    tcp.set_nodelay(true)?;
    let mut first = [0];
    tcp.peek(&mut first).await?;
    if first != [HANDSHAKE] {
        return Ok(Connection::Clear(tcp));
    }
    let shaking = LazyConfigAcceptor::new(Acceptor::default(), tcp).await?;
    let hello = shaking.client_hello();
    let name = hello.server_name().unwrap_or_default().to_owned();
    let Some((key, config)) = doors.of(&name) else {
        let why = format!("there is no door of the name `{name}` (yet)");
        return Err(io::Error::other(why));
    };
    let stream = shaking.into_stream(config).await?;
    Ok(Connection::Tls(Box::new(stream), Caller { key: Some(key) }))
}

impl Connected for Connection {
    type ConnectInfo = Caller;

    fn connect_info(&self) -> Caller {
        match self {
            Self::Clear(_) => Caller::default(),
            Self::Tls(_, caller) => caller.clone(),
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Clear(tcp) => Pin::new(tcp).poll_read(context, into),
            Self::Tls(tls, _) => Pin::new(tls).poll_read(context, into),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Clear(tcp) => Pin::new(tcp).poll_write(context, from),
            Self::Tls(tls, _) => Pin::new(tls).poll_write(context, from),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Clear(tcp) => Pin::new(tcp).poll_flush(context),
            Self::Tls(tls, _) => Pin::new(tls).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Clear(tcp) => Pin::new(tcp).poll_shutdown(context),
            Self::Tls(tls, _) => Pin::new(tls).poll_shutdown(context),
        }
    }
}

#[cfg(test)]
mod tests;
