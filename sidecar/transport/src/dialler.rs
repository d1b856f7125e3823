//! The side that opens the connections.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::net::SocketAddr;
use std::time::Duration;

use lynx_protocol::wire::Frame;
use lynx_protocol::{Reason, handshake};
use lynx_units::{Epoch, Priority};
use tokio::net::TcpStream;

use crate::backoff::Backoff;
use crate::handshake::{Connected, HandshakeError, LinkConfig, PATIENCE, hear, say};
use crate::listener::ONLY_ENCRYPTED;
use crate::peer::Besides;
use crate::rdma::Prepared;
use crate::stream::Stream;
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
        matches!(self, Self::Unreachable { .. })
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

    /// Tries once, in a new epoch.
    ///
    /// # Errors
    /// The peer can't be reached within some seconds, or the two sides don't fit.
    pub async fn try_connect(&mut self) -> Result<Connected, DialError> {
        self.epoch = Epoch(self.epoch.0.saturating_add(1));
        let failed = |source| self.failed(source);
        let ticket = Ticket::draw().map_err(|error| failed(error.into()))?;
        let ((anchor, peer), (residual, _)) = tokio::try_join!(
            self.open(Priority::Anchor, &ticket),
            self.open(Priority::Residual, &ticket),
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
        Ok(Connected {
            streams: [anchor, residual],
            epoch: self.epoch,
            info: peer,
            ticket,
            address: self.address,
            clock: self.config.clock,
        })
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

    /// Opens one connection and says Hello on it; goes on by RDMA where both sides have it.
    async fn open(
        &self,
        priority: Priority,
        ticket: &Ticket,
    ) -> Result<(Stream, PeerInfo), DialError> {
        let address = self.address;
        let failed = |source| self.failed(source);
        let mut stream = self.reach(priority).await.map_err(failed)?;
        let adapter = self.config.adapter.as_ref();
        let prepared = adapter.map(|adapter| Prepared::new(adapter, priority));
        let prepared = prepared.transpose().map_err(|error| failed(error.into()))?;
        let info = self.config.info.encode(&Besides {
            ticket: Some(ticket.clone()),
            endpoint: prepared.as_ref().map(Prepared::endpoint),
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
                let stream = match prepared.zip(besides.endpoint) {
                    None => stream,
                    Some((here, there)) => here
                        .connect(&there)
                        .and_then(|connected| stream.upgrade(connected))
                        .map_err(|error| failed(error.into()))?,
                };
                Ok((stream, info))
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
