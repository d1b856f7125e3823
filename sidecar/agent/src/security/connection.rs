//! Peer control's connections: accepted, shaken hands with, and handed to the server.
//!
//! Handshakes run beside each other, so that a slow one holds up nobody, each within a deadline, and no more than
//! [`MOST_SHAKING`] of them.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Stream;
use lynx_tls::{Credentials, PeerIdentity, Plane};
use lynx_transport::Tally;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;

use super::Security;

/// How long a handshake may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// How many may be under way; more wait to be accepted.
const MOST_SHAKING: usize = 128;
/// How long to leave the listener alone after an accept has failed, for want of descriptors say.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);
/// How long one that is turned away is given to read why.
const LAST_WORD: Duration = Duration::from_millis(250);

/// HTTP/2's first byte in clear: of its preface, `PRI * HTTP/2.0`.
const IN_CLEAR: u8 = b'P';
/// What is told there: an empty SETTINGS, and a GOAWAY of INADEQUATE_SECURITY.
const TURNED_AWAY: [u8; 26] = [
    0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12,
];

/// Who is at the other end of a connection, as far as its certificate says.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    /// Nobody without TLS.
    pub identity: Option<PeerIdentity>,
}

/// One connection.
#[derive(Debug)]
pub enum Connection {
    /// As it is.
    Plain(TcpStream),
    /// By TLS.
    Tls(Box<TlsStream<TcpStream>>, Caller),
}

/// The connections that come, by TLS where `security` says so, until the stream is dropped. Call it within a Tokio
/// runtime.
pub fn incoming(
    listener: TcpListener,
    security: &Security,
) -> impl Stream<Item = io::Result<Connection>> + use<> {
    let (ready, connections) = mpsc::channel(16);
    let credentials = security.control().cloned();
    let failures = security.control_failures().clone();
    tokio::spawn(accept(listener, credentials, failures, ready));
    ReceiverStream::new(connections)
}

async fn accept(
    listener: TcpListener,
    credentials: Option<Credentials>,
    failures: Tally,
    ready: mpsc::Sender<io::Result<Connection>>,
) {
    let mut shaking = JoinSet::new();
    loop {
        tokio::select! {
            () = ready.closed() => return,
            accepted = listener.accept(), if shaking.len() < MOST_SHAKING => match accepted {
                Ok((tcp, _)) => {
                    shaking.spawn(shake(tcp, credentials.clone()));
                }
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
            Some(shaken) = shaking.join_next() => match shaken {
                Ok(Ok(connection)) => {
                    if ready.send(Ok(connection)).await.is_err() {
                        return;
                    }
                }
                // Strangers must not fill the log; the one that dialled tells its own people.
                Ok(Err(error)) => {
                    if is_distrust(&error) {
                        failures.count();
                    }
                    tracing::debug!("a connection to peer control was refused: {error}");
                }
                Err(_) => {}
            },
        }
    }
}

/// The other side speaks no TLS.
#[derive(Debug, thiserror::Error)]
#[error("it came without TLS")]
struct InClear;

/// Whether trying again can't help: a connection that is lost, or silent, is none of these.
fn is_distrust(error: &io::Error) -> bool {
    let cause = error.get_ref();
    cause.is_some_and(|cause| cause.is::<InClear>() || cause.is::<rustls::Error>())
}

async fn shake(tcp: TcpStream, credentials: Option<Credentials>) -> io::Result<Connection> {
    tcp.set_nodelay(true)?;
    let Some(credentials) = credentials else {
        return Ok(Connection::Plain(tcp));
    };
    let shaken = tokio::time::timeout(PATIENCE, secure(tcp, &credentials)).await;
    shaken.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

async fn secure(tcp: TcpStream, credentials: &Credentials) -> io::Result<Connection> {
    let mut first = [0];
    tcp.peek(&mut first).await?;
    if first == [IN_CLEAR] {
        drop(tokio::time::timeout(LAST_WORD, turn_away(tcp)).await);
        return Err(io::Error::other(InClear));
    }
    let config = credentials.current().server(Plane::Control);
    let stream = TlsAcceptor::from(config).accept(tcp).await?;
    let leaf = stream.get_ref().1.peer_certificates();
    let identity = leaf.and_then(<[_]>::first).and_then(PeerIdentity::of);
    Ok(Connection::Tls(Box::new(stream), Caller { identity }))
}

async fn turn_away(mut tcp: TcpStream) -> io::Result<()> {
    tcp.write_all(&TURNED_AWAY).await?;
    tcp.shutdown().await?;
    let mut unread = [0; 1024];
    while tcp.read(&mut unread).await? > 0 {}
    Ok(())
}

impl Connected for Connection {
    type ConnectInfo = Caller;

    fn connect_info(&self) -> Caller {
        match self {
            Self::Plain(_) => Caller::default(),
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
            Self::Plain(tcp) => Pin::new(tcp).poll_read(context, into),
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
            Self::Plain(tcp) => Pin::new(tcp).poll_write(context, from),
            Self::Tls(tls, _) => Pin::new(tls).poll_write(context, from),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_flush(context),
            Self::Tls(tls, _) => Pin::new(tls).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_shutdown(context),
            Self::Tls(tls, _) => Pin::new(tls).poll_shutdown(context),
        }
    }
}
