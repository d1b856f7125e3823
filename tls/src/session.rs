//! One connection's records: bytes of a socket in, bytes for a socket out, and no socket.
//!
//! Memory is bounded by construction. What has come and isn't decrypted is in one buffer of fixed size; what is decrypted
//! and not taken is at most that much; what is encrypted and not given to the socket is at most one [`BATCH`] and some
//! handshake messages, since [`Session::encrypt`] takes nothing while there is any.

mod buffer;
mod step;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::server::UnbufferedServerConnection;
use rustls::{ClientConfig, CommonState, Error, ServerConfig};

use self::buffer::{Buffer, Placing};
use self::step::{Step, Wish, settle};
use crate::{PeerIdentity, explain};

/// The plaintext of one record.
const RECORD: usize = 16 << 10;

/// The most plaintext that is encrypted before it is written: more would be a queue in front of the socket, less would be
/// more system calls.
pub const BATCH: usize = 8 * RECORD;

/// Room for what has come and isn't decrypted: a batch of records, and the largest handshake message that is taken.
const INCOMING: usize = BATCH + 2 * RECORD;

/// What a record adds to its plaintext at most, with room to spare.
const OVERHEAD: usize = 64;

/// Why a session can't go on.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The two sides don't come together, or what comes was tampered with.
    #[error("TLS: {}", explain(.0))]
    Tls(#[from] Error),
    /// The peer's messages are too long, or don't end.
    #[error("TLS: the peer's handshake message is too long")]
    TooLong,
    /// The peer shows a certificate without a name, which the verifier should have refused.
    #[error("TLS: the peer's certificate names nobody")]
    Nameless,
}

/// What became of a wish to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decrypted {
    /// So many bytes, at least one.
    Bytes(usize),
    /// More must come first.
    NeedsMore,
    /// The peer has said that it writes no more.
    End,
}

enum Side {
    Client(Box<UnbufferedClientConnection>),
    Server(Box<UnbufferedServerConnection>),
}

/// One side of a connection.
pub struct Session {
    side: Side,
    /// Ciphertext that has come.
    incoming: Buffer,
    /// Plaintext that nobody has taken yet.
    plain: Buffer,
    /// Ciphertext that is to be written.
    outgoing: Buffer,
    /// For records whose plaintext is in pieces.
    gathered: Vec<u8>,
    /// Whether the peer writes no more.
    ended: bool,
    /// Why it is over. The library isn't asked again then: it would judge, and report, the same bytes once more.
    failed: Option<Error>,
}

impl Session {
    /// The side that dials. `name` is whom it thinks to reach.
    ///
    /// # Errors
    /// The configuration is of no use.
    pub fn client(
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> Result<Self, SessionError> {
        let client = UnbufferedClientConnection::new(config, name)?;
        Ok(Self::new(Side::Client(Box::new(client))))
    }

    /// The side that is dialled.
    ///
    /// # Errors
    /// The configuration is of no use.
    pub fn server(config: Arc<ServerConfig>) -> Result<Self, SessionError> {
        let server = UnbufferedServerConnection::new(config)?;
        Ok(Self::new(Side::Server(Box::new(server))))
    }

    fn new(side: Side) -> Self {
        Self {
            side,
            incoming: Buffer::with_room(INCOMING),
            plain: Buffer::default(),
            outgoing: Buffer::default(),
            gathered: Vec::with_capacity(RECORD),
            ended: false,
            failed: None,
        }
    }

    /// Where to read ciphertext into; never empty where [`decrypt`](Self::decrypt) or [`shake`](Self::shake) needs more.
    pub fn room(&mut self) -> &mut [u8] {
        self.incoming.room()
    }

    /// So many bytes were read into [`room`](Self::room).
    pub fn received(&mut self, count: usize) {
        self.incoming.added(count);
    }

    /// What is to be written next.
    pub fn outgoing(&self) -> &[u8] {
        self.outgoing.bytes()
    }

    /// So many bytes of it were written.
    pub fn sent(&mut self, count: usize) {
        self.outgoing.taken(count);
    }

    /// Whether plaintext waits to be taken, so that waiting for the socket would be wrong.
    pub fn has_plaintext(&self) -> bool {
        !self.plain.bytes().is_empty()
    }

    /// Goes on with the handshake; whether it is over. Then, and on an error too, [`outgoing`](Self::outgoing) is still to
    /// be written: the last message, or the alert that tells the peer why not.
    ///
    /// # Errors
    /// The two sides don't come together.
    pub fn shake(&mut self) -> Result<bool, SessionError> {
        loop {
            match self.step(&Wish::Nothing, &mut Placing::nowhere())? {
                Step::Again => {}
                Step::Blocked | Step::Idle if !self.common().is_handshaking() => return Ok(true),
                Step::Blocked | Step::Idle if self.incoming.is_full() => {
                    return Err(SessionError::TooLong);
                }
                Step::Blocked | Step::Idle => return Ok(false),
                Step::Ended => return Err(SessionError::Tls(Error::HandshakeNotComplete)),
            }
        }
    }

    /// Who the peer is.
    ///
    /// # Errors
    /// Its certificate has no name.
    pub fn peer(&self) -> Result<PeerIdentity, SessionError> {
        let leaf = self.common().peer_certificates().and_then(<[_]>::first);
        leaf.and_then(PeerIdentity::of)
            .ok_or(SessionError::Nameless)
    }

    /// Puts plaintext that has come into `into`, as much as there is.
    ///
    /// # Errors
    /// What came is not what the peer sent.
    pub fn decrypt(&mut self, into: &mut [IoSliceMut<'_>]) -> Result<Decrypted, SessionError> {
        let mut placing = Placing::into(into);
        let placed = placing.place(self.plain.bytes());
        self.plain.taken(placed);
        while placing.has_room() {
            match self.step(&Wish::Nothing, &mut placing)? {
                Step::Again => {}
                Step::Blocked | Step::Idle | Step::Ended => break,
            }
        }
        match placing.placed() {
            0 if self.ended => Ok(Decrypted::End),
            0 if self.incoming.is_full() => Err(SessionError::TooLong),
            0 => Ok(Decrypted::NeedsMore),
            placed => Ok(Decrypted::Bytes(placed)),
        }
    }

    /// Encrypts what is at the front of `from`, at most a [`BATCH`], and says how much that is. Nothing while something
    /// is still to be written, and before the handshake is over.
    ///
    /// # Errors
    /// The session is over.
    pub fn encrypt(&mut self, from: &[IoSlice<'_>]) -> Result<usize, SessionError> {
        let mut taken = 0;
        if !self.outgoing.bytes().is_empty() {
            return Ok(0);
        }
        while taken < BATCH {
            let part = part_at(from, taken);
            let count = if part.len() >= RECORD {
                let most = part.len().min(BATCH - taken);
                let part = part.get(..most).unwrap_or(part);
                self.wish(&Wish::Seal(part))?;
                part.len()
            } else {
                let mut gathered = std::mem::take(&mut self.gathered);
                gather(from, taken, &mut gathered);
                let (sealed, count) = (self.wish(&Wish::Seal(&gathered)), gathered.len());
                self.gathered = gathered;
                sealed?;
                count
            };
            if count == 0 {
                break;
            }
            taken += count;
        }
        Ok(taken)
    }

    /// Tells the peer that nothing more comes.
    pub fn close(&mut self) {
        // A goodbye that can't be said any more isn't: the connection's end says it too.
        drop(self.wish(&Wish::Goodbye));
    }

    fn wish(&mut self, wish: &Wish<'_>) -> Result<(), SessionError> {
        if matches!(wish, Wish::Seal([])) {
            return Ok(());
        }
        loop {
            match self.step(wish, &mut Placing::nowhere())? {
                Step::Again => {}
                Step::Idle => return Ok(()),
                Step::Blocked | Step::Ended => return Err(Error::HandshakeNotComplete.into()),
            }
        }
    }

    fn step(&mut self, wish: &Wish<'_>, placing: &mut Placing<'_, '_>) -> Result<Step, Error> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let step = self.step_once(wish, placing);
        if let Err(error) = &step {
            self.failed = Some(error.clone());
            // The alert that tells the peer why.
            drop(self.step_once(&Wish::Nothing, placing));
        }
        if matches!(step, Ok(Step::Ended)) {
            self.ended = true;
        }
        step
    }

    fn step_once(&mut self, wish: &Wish<'_>, placing: &mut Placing<'_, '_>) -> Result<Step, Error> {
        let ciphertext = self.incoming.bytes_mut();
        let (plain, outgoing) = (&mut self.plain, &mut self.outgoing);
        let (discard, step) = match &mut self.side {
            Side::Client(client) => {
                let status = client.process_tls_records(ciphertext);
                settle(status, wish, placing, (plain, outgoing))
            }
            Side::Server(server) => {
                let status = server.process_tls_records(ciphertext);
                settle(status, wish, placing, (plain, outgoing))
            }
        };
        self.incoming.taken(discard);
        step
    }

    fn common(&self) -> &CommonState {
        match &self.side {
            Side::Client(client) => client,
            Side::Server(server) => server,
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = match self.side {
            Side::Client(_) => "client",
            Side::Server(_) => "server",
        };
        f.debug_struct("Session")
            .field("side", &side)
            .finish_non_exhaustive()
    }
}

/// What is left of the part that the byte at `skip` is in.
fn part_at<'a>(from: &'a [IoSlice<'_>], mut skip: usize) -> &'a [u8] {
    for part in from {
        if skip < part.len() {
            return part.get(skip..).unwrap_or_default();
        }
        skip -= part.len();
    }
    &[]
}

/// One record's plaintext from `skip` on, across parts.
fn gather(from: &[IoSlice<'_>], mut skip: usize, gathered: &mut Vec<u8>) {
    gathered.clear();
    for part in from {
        let skipped = skip.min(part.len());
        skip -= skipped;
        let part = part.get(skipped..).unwrap_or_default();
        let room = RECORD - gathered.len();
        gathered.extend_from_slice(part.get(..room.min(part.len())).unwrap_or_default());
    }
}
