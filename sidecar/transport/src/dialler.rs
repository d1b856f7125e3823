//! The side that opens the connections.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use lynx_protocol::wire::Frame;
use lynx_protocol::{Reason, handshake};
use lynx_units::{Epoch, Priority};
use tokio::net::TcpStream;

use crate::backoff::Backoff;
use crate::handshake::{Connected, HandshakeError, LinkConfig, PATIENCE, hear, say};
use crate::listener::ONLY_ENCRYPTED;
use crate::peer::Besides;
use crate::rdma::{Adapter, NO_CARD, NOT_OFFERED, Prepared};
use crate::stream::{Carrier, Stream};
use crate::{PeerInfo, Ticket, secure, socket};

/// Dials one peer, again and again, each time in a new epoch.
#[derive(Debug)]
pub struct Dialler {
    address: SocketAddr,
    config: LinkConfig,
    link: u64,
    epoch: Epoch,
}

/// Why a peer could not be reached.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// It does not answer, or not as a peer does. Trying again can help.
    #[error(
        "can't reach the peer at {address}: {source}; is it running, is this its data port, and has it descriptors and room for connections left?"
    )]
    Unreachable {
        /// Where it should be.
        address: SocketAddr,
        /// What happened.
        source: HandshakeError,
    },
    /// It is there, and the two don't trust each other, or only one of them speaks TLS.
    #[error("no secure link with the peer at {address}: {source}")]
    Insecure {
        /// Where it is.
        address: SocketAddr,
        /// What happened.
        source: HandshakeError,
    },
    /// It answers, and refuses this side.
    #[error("the peer at {address} refuses the link: {reason}")]
    Refused {
        /// Where it is.
        address: SocketAddr,
        /// What it says.
        reason: Reason,
    },
    /// It can't be reached by RDMA, and nothing else is wanted. Trying again can help: a card comes back, or memory does.
    #[error("no link by RDMA with the peer at {address}: {why}")]
    NoRdma {
        /// Where it is.
        address: SocketAddr,
        /// What is missing.
        why: String,
    },
    /// It takes this side, but this side doesn't take it.
    #[error(
        "the peer at {address} doesn't fit: {difference}; run the same release and configuration on both"
    )]
    Incompatible {
        /// Where it is.
        address: SocketAddr,
        /// What differs.
        difference: String,
    },
}

impl DialError {
    /// Whether dialling again, with nothing changed, can help.
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::NoRdma { .. })
    }
}

impl Dialler {
    /// A dialler for the peer that listens at `address`.
    pub fn new(address: SocketAddr, config: LinkConfig) -> Self {
        Self {
            address,
            config,
            link: random(),
            epoch: Epoch(0),
        }
    }

    /// The epoch of the last attempt; zero before the first.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Tries once, in a new epoch; where RDMA turns out not to work, and isn't required, once more by TCP.
    ///
    /// # Errors
    /// The peer can't be reached within some seconds, or the two sides don't fit.
    pub async fn try_connect(&mut self) -> Result<Connected, DialError> {
        let Some(adapter) = self.config.adapter.clone() else {
            return match self.config.only_rdma {
                true => Err(self.no_rdma(NO_CARD)),
                false => self.attempt(None, None).await,
            };
        };
        let why = match self.attempt(Some(&adapter), None).await {
            Err(DialError::NoRdma { why, .. }) if !self.config.only_rdma => why,
            other => return other,
        };
        match self.attempt(None, Some(&why)).await {
            Ok(connected) => Ok(Connected {
                without_rdma: Some(why),
                ..connected
            }),
            // What is wrong here may be all that it refuses.
            Err(DialError::Refused { reason, .. }) => {
                Err(self.no_rdma(&format!("{why}; and by TCP it refuses: {reason}")))
            }
            Err(error) => Err(error),
        }
    }

    /// Tries once, by RDMA where there is an adapter and the peer has one too; where there is none, the peer is told why.
    async fn attempt(
        &mut self,
        adapter: Option<&Arc<dyn Adapter>>,
        why: Option<&str>,
    ) -> Result<Connected, DialError> {
        self.epoch = Epoch(self.epoch.0.saturating_add(1));
        let failed = |source| self.failed(source);
        let ticket = Ticket::draw().map_err(|error| failed(error.into()))?;
        let besides = Besides {
            ticket: Some(ticket.clone()),
            endpoints: Vec::new(),
            without_rdma: why.map(str::to_owned),
        };
        let ((anchor, peer, why), (residual, ..)) = tokio::try_join!(
            self.open(Priority::Anchor, besides.clone(), adapter),
            self.open(Priority::Residual, besides, adapter),
        )?;
        if anchor.identity() != residual.identity() {
            return Err(failed(HandshakeError::Mixed));
        }
        if let Some(difference) = self.config.info.difference(&peer) {
            let address = self.address;
            return Err(DialError::Incompatible {
                address,
                difference,
            });
        }
        let without_rdma = match (anchor.carrier(), residual.carrier()) {
            (Carrier::Rdma, Carrier::Rdma) => None,
            (Carrier::Tcp, Carrier::Tcp) if adapter.is_none() => None,
            (Carrier::Tcp, Carrier::Tcp) => {
                let why = why.map_or(NOT_OFFERED.to_owned(), |why| format!("of the peer: {why}"));
                match self.config.only_rdma {
                    true => return Err(self.no_rdma(&why)),
                    false => Some(why),
                }
            }
            _ => return Err(self.no_rdma("the peer has room for one of two queue pairs")),
        };
        Ok(Connected {
            streams: [anchor, residual],
            epoch: self.epoch,
            info: peer,
            ticket,
            address: self.address,
            clock: self.config.clock,
            without_rdma,
        })
    }

    fn no_rdma(&self, why: &str) -> DialError {
        let address = self.address;
        let why = why.to_owned();
        DialError::NoRdma { address, why }
    }

    /// Tries until it succeeds, with growing pauses, for as long as `patience`.
    ///
    /// # Errors
    /// The two sides don't fit, or `patience` has run out: then with what went wrong last.
    pub async fn connect(&mut self, patience: Duration) -> Result<Connected, DialError> {
        let give_up = self.config.clock.now() + patience;
        let mut backoff = Backoff::new();
        loop {
            let error = match self.try_connect().await {
                Ok(connected) => return Ok(connected),
                Err(error) => error,
            };
            let [.., a, b, c, d] = random().to_le_bytes();
            let pause = backoff.next(u32::from_le_bytes([a, b, c, d]));
            if !error.is_retryable() || self.config.clock.now() + pause >= give_up {
                return Err(error);
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Opens one connection and says Hello on it; goes on by RDMA where both sides have it. With who the peer is, and why it has none,
    /// where it says so.
    async fn open(
        &self,
        priority: Priority,
        besides: Besides,
        adapter: Option<&Arc<dyn Adapter>>,
    ) -> Result<(Stream, PeerInfo, Option<String>), DialError> {
        let address = self.address;
        let failed = |source| self.failed(source);
        let no_rdma = |error: io::Error| self.no_rdma(&error.to_string());
        let mut stream = self.reach(priority).await.map_err(failed)?;
        let prepared = match adapter {
            Some(adapter) => {
                let prepared = Prepared::new(adapter, stream.tcp(), priority).await;
                Some(prepared.map_err(no_rdma)?)
            }
            None => None,
        };
        let info = self.config.info.encode(&Besides {
            endpoints: prepared.as_ref().map_or(Vec::new(), Prepared::endpoints),
            ..besides
        });
        let hello = handshake::hello(self.epoch, priority, self.link, &info);
        let said = say(&mut stream, &hello).await;
        let mut buffer = Vec::new();
        // Also where it could not be said: a peer that refuses says why before it hangs up.
        let answer = match hear(&mut stream, &mut buffer).await {
            Ok(answer) => said.map(|()| answer).map_err(failed)?,
            Err(error) => return Err(failed(error)),
        };
        match answer.frame {
            Frame::HelloAck(peer) => {
                let (info, besides) = PeerInfo::decode(&peer);
                let stream = match prepared.filter(|_| !besides.endpoints.is_empty()) {
                    None => stream,
                    Some(here) => {
                        let paired = here.connect(&besides.endpoints).map_err(no_rdma)?;
                        stream.upgrade(paired, true).await.map_err(no_rdma)?
                    }
                };
                Ok((stream, info, besides.without_rdma))
            }
            Frame::Refuse(reason) => {
                if reason.text() == ONLY_ENCRYPTED {
                    self.config.insecure.count();
                }
                Err(DialError::Refused { address, reason })
            }
            _ => Err(failed(HandshakeError::Unexpected)),
        }
    }

    fn failed(&self, source: HandshakeError) -> DialError {
        let address = self.address;
        if source.is_hopeless() {
            self.config.insecure.count();
            DialError::Insecure { address, source }
        } else {
            DialError::Unreachable { address, source }
        }
    }

    async fn reach(&self, priority: Priority) -> Result<Stream, HandshakeError> {
        let stream = tokio::time::timeout(PATIENCE, TcpStream::connect(self.address))
            .await
            .map_err(|_| HandshakeError::Silent)??;
        socket::configure(&stream, priority)?;
        match &self.config.credentials {
            None => Ok(Stream::Plain(stream)),
            Some(credentials) => secure::dialled(stream, credentials).await,
        }
    }
}

/// A random number that nobody has to be unable to guess: each hasher of the standard library is keyed at random.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
