//! The side that takes the connections.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use lynx_protocol::wire::{Frame, Hello};
use lynx_protocol::{Code, Reason, handshake};
use lynx_units::{Epoch, Priority, Timestamp};
use tokio::net::{TcpListener, TcpStream};

use lynx_tls::Credentials;

use crate::anteroom::{Anteroom, Spoken, given_up};
use crate::handshake::{Connected, HandshakeError, LinkConfig, PATIENCE, hear, say};
use crate::peer::Besides;
use crate::rdma::{Endpoint, NO_CARD, NOT_OFFERED, Paired};
use crate::stream::Stream;
use crate::{PeerInfo, Ticket, secure, socket};

/// Most connections that may be between their accept and their Hello, and as many that may wait for their siblings. A
/// newcomer takes the place of another.
const MAX_UNPAIRED: usize = 256;

/// How many dialling processes are remembered with their latest epoch.
const MAX_REMEMBERED: usize = 1024;

/// What a side in clear is told where links are encrypted.
pub const ONLY_ENCRYPTED: &str =
    "this side takes only encrypted links: set tls.mode to all on both sides";

/// How long to leave the listener alone after an accept has failed, for want of descriptors say.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Listens for peers, and pairs their connections to links.
#[derive(Debug)]
pub struct Listener {
    listener: TcpListener,
    address: SocketAddr,
    config: LinkConfig,
    greeting: Anteroom<Result<Greeted, HandshakeError>>,
    waiting: HashMap<u64, Half>,
    /// The newest epoch of each dialling process, the oldest process first.
    latest: VecDeque<(u64, Epoch)>,
}

/// Why an address can't be listened on.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Somebody else listens there.
    #[error(
        "{address} is in use by another process: choose another data port, or port 0 for any free one"
    )]
    InUse {
        /// The address.
        address: SocketAddr,
    },
    /// Anything else.
    #[error(
        "can't listen on {address}: {source}; choose an address of this machine and a port above 1023"
    )]
    Io {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
}

/// A connection whose Hello has been heard.
#[derive(Debug)]
struct Half {
    stream: Stream,
    address: SocketAddr,
    priority: Priority,
    link: u64,
    epoch: Epoch,
    info: PeerInfo,
    ticket: Ticket,
    endpoints: Vec<Option<Endpoint>>,
    /// Why it isn't by RDMA, on a side that has it.
    without_rdma: Option<String>,
    version: u16,
    since: Timestamp,
}

/// How far a connection is.
#[derive(Debug)]
enum Greeted {
    /// It has introduced itself, and waits for an answer.
    Heard(Half),
    /// It has been taken.
    Taken(Half),
    /// It has been refused; whether the refusal could be said makes no difference.
    Refused,
}

impl Listener {
    /// Listens on `address`; port 0 is any free one. Call it within a Tokio runtime.
    ///
    /// # Errors
    /// The address is in use, or can't be had.
    pub fn bind(address: SocketAddr, config: LinkConfig) -> Result<Self, ListenError> {
        let listener = socket::listen(address)
            .and_then(|listener| Ok((listener.local_addr()?, listener)))
            .map_err(|source| match source.kind() {
                io::ErrorKind::AddrInUse => ListenError::InUse { address },
                _ => ListenError::Io { address, source },
            });
        let (address, listener) = listener?;
        Ok(Self {
            listener,
            address,
            config,
            greeting: Anteroom::new(MAX_UNPAIRED),
            waiting: HashMap::new(),
            latest: VecDeque::new(),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next link, once both its connections are up. Connections that don't become one are refused or closed, and do
    /// no harm. May be dropped and called again: nothing is lost.
    pub async fn accept(&mut self) -> Connected {
        loop {
            let expiry = self.expiry();
            tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, address)) => self.greet(stream, address),
                    Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
                },
                Some(greeted) = self.greeting.next() => match greeted {
                    Ok(Ok(Greeted::Heard(half))) => self.answer(half),
                    Ok(Ok(Greeted::Taken(half))) => {
                        if let Some(connected) = self.pair(half) {
                            return connected;
                        }
                    }
                    // One that failed before its link was up is its dialler's to report.
                    Ok(Err(error)) if error.is_hopeless() => self.config.insecure.count(),
                    Ok(Ok(Greeted::Refused) | Err(_)) | Err(_) => {}
                },
                () = tokio::time::sleep_until(expiry.into()), if !self.waiting.is_empty() => {
                    self.drop_single();
                }
            }
        }
    }

    /// When the connection that has waited longest for its sibling has waited too long.
    fn expiry(&self) -> Instant {
        let oldest = self.waiting.values().map(|half| half.since).min();
        let expiry = oldest.map_or(Timestamp::NEVER, |since| since + PATIENCE);
        self.config.clock.instant_of(expiry)
    }

    /// Closes connections whose siblings don't come.
    fn drop_single(&mut self) {
        let now = self.config.clock.now();
        self.waiting.retain(|_, half| now - half.since < PATIENCE);
    }

    /// Starts to listen to a new connection.
    fn greet(&mut self, stream: TcpStream, address: SocketAddr) {
        let now = self.config.clock.now();
        self.drop_single();
        let credentials = self.config.credentials.clone();
        self.greeting.admit(address.ip(), |spoken| {
            introduction(stream, address, now, credentials, spoken)
        });
    }

    /// Takes or refuses a connection that has introduced itself.
    fn answer(&mut self, half: Half) {
        let from = half.address.ip();
        let checked = self.check(&half);
        if checked.is_ok() {
            self.remember(half.link, half.epoch);
        }
        let config = self.config.clone();
        self.greeting.admit(from, |spoken| {
            spoken.note();
            reply(half, config, checked)
        });
    }

    fn check(&self, half: &Half) -> Result<(), Reason> {
        let latest = self.latest.iter().find(|(link, _)| *link == half.link);
        let latest = latest.map(|(_, epoch)| *epoch);
        handshake::check(&half.hello(), half.epoch, latest)?;
        match self.config.info.difference(&half.info) {
            None => Ok(()),
            Some(difference) => Err(Reason::new(Code::Rejected, &difference)),
        }
    }

    fn remember(&mut self, link: u64, epoch: Epoch) {
        self.latest.retain(|(known, _)| *known != link);
        if self.latest.len() >= MAX_REMEMBERED {
            self.latest.pop_front();
        }
        self.latest.push_back((link, epoch));
    }

    /// Keeps a connection until its sibling comes, in the place of another where all are taken.
    fn wait(&mut self, half: Half) {
        if self.waiting.len() >= MAX_UNPAIRED {
            let waiting = self.waiting.iter();
            let waiting = waiting.map(|(link, half)| (*link, half.address.ip(), half.since));
            let mut waiting: Vec<_> = waiting.collect();
            waiting.sort_by_key(|(_, _, since)| *since);
            let guests: Vec<_> = waiting.iter().map(|(_, from, _)| (*from, false)).collect();
            if let Some(index) = given_up(&guests) {
                self.waiting.remove(&waiting[index].0);
            }
        }
        self.waiting.insert(half.link, half);
    }

    /// Joins a connection to its sibling; keeps it where that isn't here yet.
    fn pair(&mut self, half: Half) -> Option<Connected> {
        let other = match self.waiting.remove(&half.link) {
            Some(other) if other.epoch == half.epoch && other.is_sibling(&half) => other,
            // Alone, or what waited is of an epoch that is over; the newer one waits on.
            Some(other) if other.epoch > half.epoch => {
                self.waiting.insert(other.link, other);
                return None;
            }
            _ => {
                self.wait(half);
                return None;
            }
        };
        let (anchor, residual) = match half.priority {
            Priority::Anchor => (half, other),
            Priority::Residual => (other, half),
        };
        Some(Connected {
            streams: [anchor.stream, residual.stream],
            epoch: anchor.epoch,
            info: anchor.info,
            ticket: anchor.ticket,
            address: anchor.address,
            clock: self.config.clock,
            without_rdma: anchor.without_rdma,
        })
    }
}

impl Half {
    /// Whether the two are one link: of one peer that knows one ticket, and by one carrier.
    fn is_sibling(&self, other: &Self) -> bool {
        self.priority != other.priority
            && self.ticket == other.ticket
            && self.stream.carrier() == other.stream.carrier()
            && self.stream.identity() == other.stream.identity()
    }

    /// The Hello as it was said, for the protocol to check.
    fn hello(&self) -> Hello<'static> {
        Hello {
            version: self.version,
            priority: self.priority,
            link: self.link,
            info: self.info.encode(&Besides::default()).into(),
        }
    }
}

/// Hears a connection's Hello, by TLS where there are credentials.
async fn introduction(
    stream: TcpStream,
    address: SocketAddr,
    since: Timestamp,
    credentials: Option<Credentials>,
    spoken: Spoken,
) -> Result<Greeted, HandshakeError> {
    let mut stream = secure::accepted(stream, credentials.as_ref(), &spoken).await?;
    let mut buffer = Vec::new();
    let packet = hear(&mut stream, &mut buffer).await?;
    let Frame::Hello(hello) = packet.frame else {
        return Err(HandshakeError::Unexpected);
    };
    if credentials.is_some() && stream.identity().is_none() {
        let refusal = handshake::refuse(packet.epoch, Reason::new(Code::Rejected, ONLY_ENCRYPTED));
        say(&mut stream, &refusal).await?;
        return Err(HandshakeError::InClear);
    }
    socket::configure(stream.tcp(), hello.priority)?;
    let (info, besides) = PeerInfo::decode(&hello.info);
    Ok(Greeted::Heard(Half {
        address,
        priority: hello.priority,
        link: hello.link,
        epoch: packet.epoch,
        info,
        ticket: besides.ticket.ok_or(HandshakeError::Unexpected)?,
        endpoints: besides.endpoints,
        // Until this side has looked.
        without_rdma: besides.without_rdma,
        version: hello.version,
        since,
        stream,
    }))
}

/// Takes a connection, with who this side is, or refuses it.
async fn reply(
    half: Half,
    config: LinkConfig,
    checked: Result<(), Reason>,
) -> Result<Greeted, HandshakeError> {
    match checked {
        Ok(()) => take(half, &config).await,
        Err(reason) => turn_away(half, reason).await,
    }
}

/// Takes it; by RDMA where both sides have it, from this side's answer on.
async fn take(mut half: Half, config: &LinkConfig) -> Result<Greeted, HandshakeError> {
    let (paired, why) = match pair(&half, config).await {
        Ok(paired) => (paired, None),
        Err(why) if config.only_rdma => {
            return turn_away(half, Reason::new(Code::Rejected, &why)).await;
        }
        Err(why) => (None, Some(why)),
    };
    let endpoints = paired.as_ref().map(Paired::endpoints);
    let besides = Besides {
        ticket: None,
        endpoints: endpoints.unwrap_or_default().to_vec(),
        // Of interest to those who have offered.
        without_rdma: why.clone().filter(|_| !half.endpoints.is_empty()),
    };
    half.without_rdma = why;
    let info = config.info.encode(&besides);
    // The peer may write as soon as it has heard.
    say(&mut half.stream, &handshake::accept(half.epoch, &info)).await?;
    if let Some(paired) = paired {
        half.stream = half.stream.upgrade(paired, false).await?;
    }
    Ok(Greeted::Taken(half))
}

/// Queue pairs that are connected with those that the peer offers, where this side has cards.
async fn pair(half: &Half, config: &LinkConfig) -> Result<Option<Paired>, String> {
    let Some(adapter) = &config.adapter else {
        return match config.only_rdma {
            true => Err(NO_CARD.to_owned()),
            false => Ok(None),
        };
    };
    if half.endpoints.is_empty() {
        let why = half.without_rdma.as_ref();
        return Err(why.map_or(NOT_OFFERED.to_owned(), |why| format!("of the peer: {why}")));
    }
    let paired = Paired::facing(adapter, half.stream.tcp(), half.priority, &half.endpoints);
    let paired = paired.await.map_err(|error| error.to_string())?;
    Ok(Some(paired))
}

async fn turn_away(mut half: Half, reason: Reason) -> Result<Greeted, HandshakeError> {
    say(&mut half.stream, &handshake::refuse(half.epoch, reason)).await?;
    Ok(Greeted::Refused)
}
