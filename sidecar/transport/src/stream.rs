//! One connection's bytes, in clear, by TLS or by RDMA.
//!
//! An enum and not a trait object: the link's loop reads and writes tens of thousands of times a second, and there are
//! three kinds. Neither waits inside the loop; the waiting methods are for the first words, before there is a loop, and for the
//! last.

use std::io::{self, IoSlice, IoSliceMut};

use bytes::Bytes;
use lynx_tls::{Decrypted, PeerIdentity, Session};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::handshake::PATIENCE;
use crate::rdma::{Paired, Remote};
use crate::wire::Wire;

/// A connection.
#[derive(Debug)]
pub(crate) enum Stream {
    /// As it is.
    Plain(TcpStream),
    /// Its handshake is over.
    Tls(Box<Secured>),
    /// The first words were said, and the rest goes by a queue pair.
    Rdma(Box<Remote>),
}

/// A connection under TLS.
#[derive(Debug)]
pub(crate) struct Secured {
    tcp: TcpStream,
    session: Session,
    peer: PeerIdentity,
}

/// What a link's bytes travel by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// TCP, with TLS where that is configured.
    Tcp,
    /// RDMA. In clear, also where the first words were said by TLS.
    Rdma,
}

impl Secured {
    pub(crate) fn new(tcp: TcpStream, session: Session, peer: PeerIdentity) -> Self {
        Self { tcp, session, peer }
    }
}

impl Stream {
    /// The socket underneath.
    pub(crate) fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(tcp) => tcp,
            Self::Tls(secured) => &secured.tcp,
            Self::Rdma(remote) => remote.tcp(),
        }
    }

    /// The same connection, going on by RDMA: its first words are said, and nothing is half read. The side that dialled is
    /// `first` to write. Only once packets have come through both ways.
    pub(crate) async fn upgrade(self, by: Paired, first: bool) -> io::Result<Self> {
        let (tcp, peer) = match self {
            Self::Plain(tcp) => (tcp, None),
            Self::Tls(secured) => (secured.tcp, Some(secured.peer)),
            Self::Rdma(_) => return Err(io::ErrorKind::AlreadyExists.into()),
        };
        let mut remote = Box::new(Remote::new(by, tcp, peer));
        match timeout(PATIENCE, remote.greet(first)).await {
            Ok(greeted) => greeted.map(|()| Self::Rdma(remote)),
            Err(_) => Err(io::Error::other(
                "packets don't come through: look at the addresses, the MTU and the traffic classes of both sides (lynx doctor rdma)",
            )),
        }
    }

    /// Who the peer's certificate says that it is; nobody without TLS.
    pub(crate) fn identity(&self) -> Option<&PeerIdentity> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(secured) => Some(&secured.peer),
            Self::Rdma(remote) => remote.identity(),
        }
    }

    /// By how many cards it began; none without RDMA.
    pub(crate) fn cards(&self) -> usize {
        match self {
            Self::Plain(_) | Self::Tls(_) => 0,
            Self::Rdma(remote) => remote.cards(),
        }
    }

    /// What the bytes travel by.
    pub(crate) const fn carrier(&self) -> Carrier {
        match self {
            Self::Plain(_) | Self::Tls(_) => Carrier::Tcp,
            Self::Rdma(_) => Carrier::Rdma,
        }
    }

    /// Waits until there are bytes, or, where `full`, until the socket takes some again.
    pub(crate) async fn ready(&self, full: bool) {
        if let Self::Rdma(remote) = self {
            return remote.ready().await;
        }
        let mut unwritten = full;
        if let Self::Tls(secured) = self {
            if secured.session.has_plaintext() {
                return;
            }
            unwritten |= !secured.session.outgoing().is_empty();
        }
        let interest = if unwritten {
            Interest::READABLE | Interest::WRITABLE
        } else {
            Interest::READABLE
        };
        // An error will be met again, and handled, by the next read or write.
        drop(self.tcp().ready(interest).await);
    }

    /// Writes all of it.
    pub(crate) async fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.write(&[IoSlice::new(bytes)]) {
                Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
                Err(error) => self.writable_after(error).await?,
            }
        }
        while let Err(error) = self.flush() {
            self.writable_after(error).await?;
        }
        Ok(())
    }

    /// Waits until it may take bytes again.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Plain(_) | Self::Tls(_) => self.tcp().writable().await,
            Self::Rdma(remote) => {
                remote.ready().await;
                Ok(())
            }
        }
    }

    async fn writable_after(&self, error: io::Error) -> io::Result<()> {
        match error.kind() {
            io::ErrorKind::WouldBlock => self.writable().await,
            io::ErrorKind::Interrupted => Ok(()),
            _ => Err(error),
        }
    }

    /// Fills all of it.
    pub(crate) async fn read_exact(&mut self, mut into: &mut [u8]) -> io::Result<()> {
        while !into.is_empty() {
            match self.read(&mut [IoSliceMut::new(into)]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => into = into.get_mut(read..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.ready(false).await;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Closes the writing direction, and reads to the end of the other: closing with unread bytes would reset the connection
    /// under what is on the way to the peer.
    pub(crate) async fn finish(&mut self) {
        if let Self::Tls(secured) = self {
            secured.session.close();
            if self.write_all(&[]).await.is_err() {
                return;
            }
        }
        if let Self::Rdma(remote) = self
            && remote.drain().await.is_err()
        {
            return;
        }
        linger(match self {
            Self::Plain(tcp) => tcp,
            Self::Tls(secured) => &mut secured.tcp,
            Self::Rdma(remote) => remote.tcp_mut(),
        })
        .await;
    }
}

/// Ends the writing direction of a socket, and reads to the end of the other.
pub(crate) async fn linger(tcp: &mut TcpStream) {
    if tcp.shutdown().await.is_err() {
        return;
    }
    let mut unread = vec![0; 64 << 10];
    while let Ok(1..) = tcp.read(&mut unread).await {}
}

impl Wire for Stream {
    fn read(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.try_read_vectored(into),
            Self::Tls(secured) => secured.read(into),
            Self::Rdma(remote) => remote.read(into),
        }
    }

    fn write(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.try_write_vectored(from),
            Self::Tls(secured) => secured.write(from),
            Self::Rdma(remote) => remote.write(from),
        }
    }

    fn write_chunk(&mut self, before: [IoSlice<'_>; 2], payload: &Bytes) -> io::Result<usize> {
        match self {
            Self::Rdma(remote) => remote.write_chunk(before, payload),
            Self::Plain(_) | Self::Tls(_) => {
                let [control, header] = before;
                self.write(&[control, header, IoSlice::new(payload)])
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Tls(secured) => secured.flush(),
            Self::Rdma(remote) => remote.flush(),
        }
    }
}

impl Wire for Secured {
    fn read(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        loop {
            let decrypted = self.session.decrypt(into);
            if decrypted.is_err() {
                // The alert that tells the peer why, as far as it goes.
                drop(self.flush());
            }
            match decrypted.map_err(io::Error::other)? {
                Decrypted::Bytes(count) => return Ok(count),
                Decrypted::End => return Ok(0),
                Decrypted::NeedsMore => {}
            }
            let count = self.tcp.try_read(self.session.room())?;
            if count == 0 {
                return Ok(0);
            }
            self.session.received(count);
        }
    }

    fn write(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        self.flush()?;
        let taken = self.session.encrypt(from).map_err(io::Error::other)?;
        match self.flush() {
            // It is taken, and the next call goes on with it.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(taken),
            flushed => flushed.map(|()| taken),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        while !self.session.outgoing().is_empty() {
            let count = self.tcp.try_write(self.session.outgoing())?;
            self.session.sent(count);
        }
        Ok(())
    }
}
