//! Peer control's connections: accepted, shaken hands with, and handed to the server.
//!
//! Handshakes run beside each other, so that a slow one holds up nobody, each within a deadline, and no more than
//! [`MOST_SHAKING`] of them. In clear the handshake is HTTP/2's preface. Only who has shaken hands takes a place.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Stream;
use lynx_tls::{Credentials, PeerIdentity, Plane};
use lynx_transport::{Anteroom, Spoken, Tally};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;

use super::Security;
use super::places::{Place, Places};
use crate::seldom::{Seldom, more};

/// How long a handshake may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// How many may be under way; more take the place of others.
const MOST_SHAKING: usize = 128;
/// How long to leave the listener alone after an accept has failed, for want of descriptors say.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);
/// How long one that is turned away is given to read why.
const LAST_WORD: Duration = Duration::from_millis(250);

/// How often the log says that there are no places or no descriptors.
const SAY_PAUSE: Duration = Duration::from_secs(60);

/// What a client of HTTP/2 says first.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// HTTP/2's first byte in clear.
const IN_CLEAR: u8 = PREFACE[0];
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
    Plain(Clear, Place),
    /// By TLS.
    Tls(Box<TlsStream<TcpStream>>, Caller, Place),
}

/// A connection in clear whose preface has been heard.
#[derive(Debug)]
pub struct Clear {
    tcp: TcpStream,
    /// What of the preface is still to be told to the server.
    unread: &'static [u8],
}

/// The connections that come, by TLS where `security` says so, until the stream is dropped; `most` of them at a time, and
/// half as many from one address. Call it within a Tokio runtime.
pub fn incoming(
    listener: TcpListener,
    security: &Security,
    most: usize,
) -> impl Stream<Item = io::Result<Connection>> + use<> {
    let (ready, connections) = mpsc::channel(16);
    let credentials = security.control().cloned();
    let failures = security.control_failures().clone();
    let places = Places::new(most);
    tokio::spawn(accept(listener, credentials, failures, places, ready));
    ReceiverStream::new(connections)
}

async fn accept(
    listener: TcpListener,
    credentials: Option<Credentials>,
    failures: Tally,
    places: Places,
    ready: mpsc::Sender<io::Result<Connection>>,
) {
    let mut shaking = Anteroom::new(MOST_SHAKING);
    let mut lines = [Seldom::new(SAY_PAUSE), Seldom::new(SAY_PAUSE)];
    loop {
        tokio::select! {
            () = ready.closed() => return,
            accepted = listener.accept() => match accepted {
                Ok((tcp, address)) => {
                    let (credentials, places, from) = (credentials.clone(), places.clone(), address.ip());
                    shaking.admit(from, |spoken| shake(tcp, credentials, from, places, spoken));
                }
                Err(error) => {
                    if lines[0].happened(Instant::now()).is_some() {
                        tracing::warn!("no connection to peer control can be taken: {error}");
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(shaken) = shaking.next() => match shaken {
                Ok(Ok(connection)) => {
                    if ready.send(Ok(connection)).await.is_err() {
                        return;
                    }
                }
                Ok(Err(error)) => tell(&error, &failures, &mut lines[1]),
                Err(_) => {}
            },
        }
    }
}

/// Strangers must not fill the log; the one that dialled tells its own people.
fn tell(error: &io::Error, failures: &Tally, full: &mut Seldom) {
    if is_distrust(error) {
        failures.count();
    }
    if error.get_ref().is_some_and(|cause| cause.is::<Full>())
        && let Some(unsaid) = full.happened(Instant::now())
    {
        tracing::warn!(
            unsaid = more(unsaid),
            "a connection to peer control was refused: {error}"
        );
    }
    tracing::debug!("a connection to peer control was refused: {error}");
}

/// There are as many connections as may be.
#[derive(Debug, thiserror::Error)]
#[error(
    "peer control has as many connections as it takes, or half of them from {0}: raise transfer.maxPeers"
)]
struct Full(IpAddr);

/// The other side speaks no TLS.
#[derive(Debug, thiserror::Error)]
#[error("it came without TLS")]
struct InClear;

/// Whether trying again can't help: a connection that is lost, or silent, is none of these.
fn is_distrust(error: &io::Error) -> bool {
    let cause = error.get_ref();
    cause.is_some_and(|cause| cause.is::<InClear>() || cause.is::<rustls::Error>())
}

async fn shake(
    tcp: TcpStream,
    credentials: Option<Credentials>,
    from: IpAddr,
    places: Places,
    spoken: Spoken,
) -> io::Result<Connection> {
    tcp.set_nodelay(true)?;
    let place = || {
        places
            .take(from)
            .ok_or_else(|| io::Error::other(Full(from)))
    };
    let shaking = async {
        let mut first = [0];
        tcp.peek(&mut first).await?;
        spoken.note();
        match credentials {
            Some(credentials) => secure(tcp, first, &credentials, place).await,
            None => clear(tcp, first, place).await,
        }
    };
    let shaken = tokio::time::timeout(PATIENCE, shaking).await;
    shaken.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

async fn secure(
    tcp: TcpStream,
    first: [u8; 1],
    credentials: &Credentials,
    place: impl Fn() -> io::Result<Place>,
) -> io::Result<Connection> {
    if first == [IN_CLEAR] {
        drop(tokio::time::timeout(LAST_WORD, turn_away(tcp)).await);
        return Err(io::Error::other(InClear));
    }
    let config = credentials.current().server(Plane::Control);
    let stream = TlsAcceptor::from(config).accept(tcp).await?;
    let leaf = stream.get_ref().1.peer_certificates();
    let identity = leaf.and_then(<[_]>::first).and_then(PeerIdentity::of);
    Ok(Connection::Tls(
        Box::new(stream),
        Caller { identity },
        place()?,
    ))
}

/// Hears HTTP/2's preface. One that speaks something else, TLS say, is told HTTP/2's first words, by which it knows.
async fn clear(
    mut tcp: TcpStream,
    first: [u8; 1],
    place: impl Fn() -> io::Result<Place>,
) -> io::Result<Connection> {
    let mut heard = [0; PREFACE.len()];
    if first == [IN_CLEAR] {
        tcp.read_exact(&mut heard).await?;
    }
    if heard != *PREFACE {
        drop(tokio::time::timeout(LAST_WORD, turn_away(tcp)).await);
        return Err(io::ErrorKind::InvalidData.into());
    }
    let clear = Clear {
        tcp,
        unread: PREFACE,
    };
    Ok(Connection::Plain(clear, place()?))
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
            Self::Plain(..) => Caller::default(),
            Self::Tls(_, caller, _) => caller.clone(),
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
            Self::Plain(clear, _) if !clear.unread.is_empty() => {
                let (now, later) = clear
                    .unread
                    .split_at(clear.unread.len().min(into.remaining()));
                into.put_slice(now);
                clear.unread = later;
                Poll::Ready(Ok(()))
            }
            Self::Plain(clear, _) => Pin::new(&mut clear.tcp).poll_read(context, into),
            Self::Tls(tls, ..) => Pin::new(tls).poll_read(context, into),
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
            Self::Plain(clear, _) => Pin::new(&mut clear.tcp).poll_write(context, from),
            Self::Tls(tls, ..) => Pin::new(tls).poll_write(context, from),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(clear, _) => Pin::new(&mut clear.tcp).poll_flush(context),
            Self::Tls(tls, ..) => Pin::new(tls).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(clear, _) => Pin::new(&mut clear.tcp).poll_shutdown(context),
            Self::Tls(tls, ..) => Pin::new(tls).poll_shutdown(context),
        }
    }
}
