//! The first words on a connection, and a link's two connections brought together.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use lynx_protocol::credit::BookFull;
use lynx_protocol::limits::{MAX_PEER_INFO, SILENCE_LIMIT};
use lynx_protocol::receiver::ReceiverConfig;
use lynx_protocol::wire::{Decoded, EncodeError, HEADER_LEN, Packet, WireError, decode};
use lynx_protocol::{CreditBook, Receiver, Sender};
use lynx_tls::{Credentials, PeerIdentity, SessionError};
use lynx_units::{Epoch, Priority};
use tokio::sync::{mpsc, watch};

use crate::link::{Connection, Link, LinkStats};
use crate::peer::Besides;
use crate::rdma::Adapter;
use crate::receiving::{ReceiverEvents, ReceiverHandle, Receiving};
use crate::sending::{SenderEvents, SenderHandle, Sending};
use crate::stream::Stream;
use crate::{Carrier, Clock, PeerInfo, Tally, Ticket};

/// How long each step of a handshake may take.
pub(crate) const PATIENCE: Duration = SILENCE_LIMIT;

/// What a side brings to its links.
#[derive(Clone, Debug)]
pub struct LinkConfig {
    pub(crate) clock: Clock,
    pub(crate) info: PeerInfo,
    pub(crate) credentials: Option<Credentials>,
    pub(crate) insecure: Tally,
    pub(crate) adapter: Option<Arc<dyn Adapter>>,
    pub(crate) only_rdma: bool,
}

impl LinkConfig {
    /// `clock` is whose timestamps the links' deadlines are: share one per process. `info` is who this side is, and what must
    /// be the same on the other.
    ///
    /// # Errors
    /// The information is longer than a Hello may carry.
    pub fn new(clock: Clock, info: PeerInfo) -> Result<Self, EncodeError> {
        match info.encode(&Besides::default()).len() + Besides::ENCODED {
            0..=MAX_PEER_INFO => Ok(Self {
                clock,
                info,
                credentials: None,
                insecure: Tally::default(),
                adapter: None,
                only_rdma: false,
            }),
            length => Err(EncodeError::PeerInfo(length)),
        }
    }

    /// The same with TLS on every connection, and only with peers that these credentials trust.
    #[must_use]
    pub fn with_credentials(self, credentials: Option<Credentials>) -> Self {
        Self {
            credentials,
            ..self
        }
    }

    /// The same by RDMA, where the peer has it too; by TCP where it hasn't.
    #[must_use]
    pub fn with_adapter(self, adapter: Option<Arc<dyn Adapter>>) -> Self {
        Self { adapter, ..self }
    }

    /// The same, where `only`, with no link but by RDMA.
    #[must_use]
    pub fn requiring_rdma(self, only: bool) -> Self {
        Self {
            only_rdma: only,
            ..self
        }
    }

    /// The same with a number that counts the connections that came to nothing because the two sides don't trust each
    /// other, or only one of them speaks TLS.
    #[must_use]
    pub fn counting_insecure(self, insecure: Tally) -> Self {
        Self { insecure, ..self }
    }
}

/// A link whose two connections are up and whose sides fit. Which side it is, is the application's choice, and independent
/// of who dialled: a decode node dials and receives.
#[derive(Debug)]
pub struct Connected {
    /// By [`Priority::index`].
    pub(crate) streams: [Stream; 2],
    pub(crate) epoch: Epoch,
    pub(crate) info: PeerInfo,
    pub(crate) ticket: Ticket,
    pub(crate) address: SocketAddr,
    pub(crate) clock: Clock,
    pub(crate) without_rdma: Option<String>,
}

impl Connected {
    /// Who the peer says it is.
    pub fn peer(&self) -> &PeerInfo {
        &self.info
    }

    /// What only the two sides of this link know: whoever names it over peer control is the side that dialled.
    pub fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    /// Who the peer's certificate says that it is, the same on both connections; nobody without TLS.
    pub fn identity(&self) -> Option<&PeerIdentity> {
        let [anchor, _] = &self.streams;
        anchor.identity()
    }

    /// What its bytes travel by: both connections by the same.
    pub fn carrier(&self) -> Carrier {
        let [anchor, _] = &self.streams;
        anchor.carrier()
    }

    /// By how many cards it begins: each of its connections by as many at least. None by TCP.
    pub fn cards(&self) -> usize {
        let [anchor, residual] = &self.streams;
        anchor.cards().min(residual.cards())
    }

    /// Why that is TCP, on a side that would have had RDMA.
    pub fn without_rdma(&self) -> Option<&str> {
        self.without_rdma.as_deref()
    }

    /// Where the peer's anchor connection comes from or goes to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The life of the link.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Starts the link's task with this side sending. Call it within a Tokio runtime.
    pub fn into_sender(self) -> (SenderHandle, SenderEvents) {
        let machine = Sender::new(self.epoch, self.clock.now());
        let (commands, command_queue) = mpsc::unbounded_channel();
        let (event_queue, events) = mpsc::unbounded_channel();
        let (stats, latest) = watch::channel(LinkStats::default());
        let handle = SenderHandle {
            commands,
            stats: latest,
            epoch: self.epoch,
        };
        let link = Link {
            side: Sending::new(machine, event_queue),
            clock: self.clock,
            peer: self.address,
            connections: self.connections(),
            commands: command_queue,
            stats,
        };
        tokio::spawn(link.run());
        (handle, SenderEvents { events })
    }

    /// Starts the link's task with this side receiving, with windows out of the process's credit book. Call it within a
    /// Tokio runtime.
    ///
    /// # Errors
    /// The book has no room for the windows; the connections are closed.
    pub fn into_receiver(
        self,
        config: ReceiverConfig,
        book: &Arc<CreditBook>,
    ) -> Result<(ReceiverHandle, ReceiverEvents), BookFull> {
        let epoch = self.epoch;
        let machine = Receiver::new(epoch, config, book, self.clock.now())?;
        let (commands, command_queue) = mpsc::unbounded_channel();
        let (event_queue, events) = mpsc::unbounded_channel();
        let (stats, latest) = watch::channel(LinkStats::default());
        let link = Link {
            side: Receiving::new(machine, event_queue, commands.downgrade()),
            clock: self.clock,
            peer: self.address,
            commands: command_queue,
            stats,
            connections: self.connections(),
        };
        let handle = ReceiverHandle {
            commands,
            stats: latest,
            epoch,
        };
        tokio::spawn(link.run());
        Ok((handle, ReceiverEvents { events }))
    }

    fn connections(self) -> [Connection; 2] {
        let [anchor, residual] = self.streams;
        [
            Connection::new(Priority::Anchor, anchor),
            Connection::new(Priority::Residual, residual),
        ]
    }
}

/// Why first words could not be exchanged.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// The connection failed.
    #[error("{0}")]
    Io(io::Error),
    /// The two sides don't trust each other.
    #[error("{0}")]
    Tls(#[from] SessionError),
    /// The peer speaks in clear, and this side doesn't.
    #[error("the peer speaks without TLS: set the same tls.mode on both sides")]
    InClear,
    /// The peer speaks TLS, and this side doesn't.
    #[error("the peer speaks TLS, and this side doesn't: set the same tls.mode on both sides")]
    Encrypted,
    /// The two connections of one link are not of one peer.
    #[error(
        "the two connections are with different peers: something between the two mixes them up"
    )]
    Mixed,
    /// What came is no frame.
    #[error("{0}")]
    Wire(#[from] WireError),
    /// Nothing came for too long.
    #[error("no answer within {PATIENCE:?}")]
    Silent,
    /// A frame came that isn't the one that should come first.
    #[error("the first frame is not the one that opens a link")]
    Unexpected,
}

impl HandshakeError {
    /// Whether somebody has to change something before it can succeed.
    pub(crate) fn is_hopeless(&self) -> bool {
        matches!(self, Self::Tls(_) | Self::InClear | Self::Encrypted)
    }
}

impl From<io::Error> for HandshakeError {
    fn from(error: io::Error) -> Self {
        // An alert may come as late as with the first read.
        match error.downcast() {
            Ok(tls) => Self::Tls(tls),
            Err(error) => Self::Io(error),
        }
    }
}

/// Writes one packet.
pub(crate) async fn say(stream: &mut Stream, packet: &Packet<'_>) -> Result<(), HandshakeError> {
    let mut bytes = Vec::new();
    packet.encode(&mut bytes).map_err(io::Error::other)?;
    patiently(stream.write_all(&bytes)).await
}

/// Reads one packet into `buffer`, and not a byte more.
pub(crate) async fn hear<'a>(
    stream: &mut Stream,
    buffer: &'a mut Vec<u8>,
) -> Result<Packet<'a>, HandshakeError> {
    buffer.clear();
    let mut wanted = HEADER_LEN;
    loop {
        let filled = buffer.len();
        buffer.resize(wanted, 0);
        let rest = buffer.get_mut(filled..).unwrap_or_default();
        patiently(stream.read_exact(rest)).await?;
        // Decoded twice, because a borrow that is returned from a loop lasts for the whole function.
        match decode(buffer)? {
            Decoded::Incomplete { at_least } => wanted = at_least,
            Decoded::Packet { .. } => break,
        }
    }
    match decode(buffer)? {
        Decoded::Packet { packet, .. } => Ok(packet),
        Decoded::Incomplete { .. } => Err(HandshakeError::Unexpected),
    }
}

async fn patiently(step: impl Future<Output = io::Result<()>>) -> Result<(), HandshakeError> {
    match tokio::time::timeout(PATIENCE, step).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(HandshakeError::Silent),
    }
}
