//! A queue pair as a stream of bytes.

use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;

use lynx_tls::PeerIdentity;
use lynx_units::Priority;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::task::spawn_blocking;

use super::incoming::{Immediate, Incoming, Violation};
use super::outgoing::{MOST_UNTAKEN, MOST_WORDS, Outgoing, Pieces};
use super::{Adapter, Completion, Endpoint, Queue, Route, Sizes};
use crate::wire::Wire;

/// What of a stream may be between the peer's writing it and this side's taking it out: some milliseconds of the fastest cards.
const RING: u32 = 8 << 20;

/// What each queue pair has: more receives than there can be messages and words under way.
fn sizes() -> Sizes {
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    Sizes {
        ring: RING,
        staging: count(Outgoing::STAGING),
        sends: count(Outgoing::SENDS),
        receives: count(MOST_UNTAKEN + 2 * MOST_WORDS + 4),
    }
}

/// A queue pair that this side has offered its peer, or is about to.
#[derive(Debug)]
pub(crate) struct Prepared {
    queue: Box<dyn Queue>,
}

impl Prepared {
    /// One on the card that reaches the other end of `tcp`.
    pub(crate) async fn new(
        adapter: &Arc<dyn Adapter>,
        tcp: &TcpStream,
        on: Priority,
    ) -> io::Result<Self> {
        let route = Route {
            peer: tcp.peer_addr()?.ip().to_canonical(),
            own: tcp.local_addr()?.ip().to_canonical(),
        };
        let adapter = Arc::clone(adapter);
        // Registering memory takes its time, and all of the process's links wait for this thread.
        let made = spawn_blocking(move || adapter.queue(route, on, sizes()));
        let queue = made.await.map_err(io::Error::other)??;
        Ok(Self { queue })
    }

    pub(crate) fn endpoint(&self) -> Endpoint {
        self.queue.endpoint()
    }

    /// Connects it with what the peer has offered.
    pub(crate) fn connect(mut self, there: &Endpoint) -> io::Result<Paired> {
        if there.ring == 0 {
            return Err(io::Error::other("the peer's ring has no bytes"));
        }
        let packet = u32::from(self.queue.endpoint().mtu.min(there.mtu));
        self.queue.connect(there)?;
        Ok(Paired {
            queue: self.queue,
            ring: there.ring,
            packet: packet.min(there.ring),
        })
    }
}

/// A queue pair that can be written to.
#[derive(Debug)]
pub(crate) struct Paired {
    queue: Box<dyn Queue>,
    /// The length of the peer's ring.
    ring: u32,
    /// The payload of the longest packet, or the ring where that is shorter.
    packet: u32,
}

/// A stream whose bytes travel by RDMA.
#[derive(Debug)]
pub(crate) struct Remote {
    /// Nothing is said here any more. Its end is the peer's.
    tcp: TcpStream,
    peer: Option<PeerIdentity>,
    queue: Box<dyn Queue>,
    outgoing: Outgoing,
    incoming: Incoming,
    /// How long a packet can be.
    packet: usize,
    /// Whether the peer has written anything.
    is_heard: bool,
    /// Why the queue pair can't be used any more.
    failure: Option<String>,
}

impl Remote {
    /// `tcp` is the connection over which the two sides have found each other, and `peer` who is at its other end.
    pub(crate) fn new(by: Paired, tcp: TcpStream, peer: Option<PeerIdentity>) -> Self {
        Self {
            tcp,
            peer,
            queue: by.queue,
            outgoing: Outgoing::new(by.ring),
            incoming: Incoming::new(RING),
            packet: by.packet as usize,
            is_heard: false,
            failure: None,
        }
    }

    pub(crate) fn tcp(&self) -> &TcpStream {
        &self.tcp
    }

    pub(crate) fn tcp_mut(&mut self) -> &mut TcpStream {
        &mut self.tcp
    }

    pub(crate) fn identity(&self) -> Option<&PeerIdentity> {
        self.peer.as_ref()
    }

    /// Waits until the card has done something, or the peer is gone.
    pub(crate) async fn ready(&self) {
        tokio::select! {
            () = poll_fn(|context| self.queue.poll_ready(context)) => {}
            // What is wrong with it, the next read tells.
            _ = self.tcp.ready(Interest::READABLE) => {}
        }
    }

    /// Waits until all that was written is in the peer's memory.
    pub(crate) async fn drain(&mut self) -> io::Result<()> {
        loop {
            self.hear()?;
            if self.outgoing.is_idle() {
                return Ok(());
            }
            if self.outgoing.is_untold() {
                self.say(0)?;
            }
            self.ready().await;
        }
    }

    /// Shows, before anything else is written, that packets of full length come through both ways. The side that is `first` has
    /// a peer whose card is ready; the other side answers, and so finds the first one's ready.
    pub(crate) async fn greet(&mut self, first: bool) -> io::Result<()> {
        if !first {
            self.wait_for(|remote| remote.is_heard).await?;
        }
        // Where the stream's first bytes will be, which come later.
        self.queue.write(0..self.packet, 0)?;
        self.say(0)?;
        self.wait_for(|remote| remote.is_heard && remote.outgoing.is_idle())
            .await
    }

    async fn wait_for(&mut self, is_so: impl Fn(&Self) -> bool) -> io::Result<()> {
        loop {
            // In this order, as with reading.
            let closed = self.is_closed();
            self.hear()?;
            if is_so(self) {
                return Ok(());
            }
            if closed {
                return Err(io::Error::other("the peer hung up"));
            }
            self.ready().await;
        }
    }

    /// Takes what the card has done.
    fn hear(&mut self) -> io::Result<()> {
        while self.failure.is_none()
            && let Some(completion) = self.queue.poll()
        {
            if let Err(violation) = self.note(completion) {
                self.failure = Some(violation.to_string());
            }
        }
        match &self.failure {
            Some(why) => Err(io::Error::other(why.clone())),
            None => Ok(()),
        }
    }

    fn note(&mut self, completion: Completion) -> Result<(), Violation> {
        match completion {
            Completion::Sent => self.outgoing.sent(),
            Completion::Received(immediate) => {
                self.is_heard = true;
                match Immediate::decode(immediate) {
                    Immediate::Message(bytes) => self.incoming.arrived(bytes),
                    Immediate::Taken(messages) => self.outgoing.taken(messages),
                }
            }
            Completion::Failed(why) => {
                self.failure = Some(why);
                Ok(())
            }
        }
    }

    /// Tells the peer what is taken out, where it may need the room.
    fn tell(&mut self) -> io::Result<()> {
        if let Some(messages) = self.incoming.to_tell()
            && self.outgoing.may_say()
        {
            self.say(messages)?;
            self.incoming.told();
        }
        Ok(())
    }

    fn say(&mut self, messages: u32) -> io::Result<()> {
        self.outgoing.said();
        let word = Immediate::Taken(messages).encode();
        self.queue.write_with(0..0, 0, word, true)
    }

    /// Whether the peer's process, or the path to it, is gone.
    fn is_closed(&self) -> bool {
        let mut unexpected = [0];
        let read = self.tcp.try_read(&mut unexpected);
        !read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }
}

impl Wire for Remote {
    fn read(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        // In this order: what the peer wrote before it closed is here once the end is.
        let closed = self.is_closed();
        let heard = self.hear();
        let mut read = 0;
        for part in into.iter_mut() {
            let mut filled = 0;
            while let Some(next) = self.incoming.next(part.len() - filled) {
                let bytes = next.len();
                let place = part.get_mut(filled..filled + bytes).unwrap_or_default();
                self.queue.copy_out(next.start, place);
                self.incoming.take(bytes);
                filled += bytes;
            }
            read += filled;
            if filled < part.len() {
                break;
            }
        }
        if read == 0 {
            if closed {
                return Ok(0);
            }
            heard?;
            self.tell()?;
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if heard.is_ok() {
            self.tell()?;
        }
        Ok(read)
    }

    fn write(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        self.hear()?;
        let wanted: usize = from.iter().map(|part| part.len()).sum();
        let room = self.outgoing.room(wanted);
        if room == 0 && wanted > 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let place = self.outgoing.place(room);
        let staging = self.queue.staging(place..place + room);
        let mut length = 0;
        for part in from {
            let count = part.len().min(staging.len() - length);
            let (source, sink) = (part.get(..count), staging.get_mut(length..length + count));
            if let (Some(source), Some(sink)) = (source, sink) {
                sink.copy_from_slice(source);
            }
            length += count;
        }
        // No longer than a message, which a u32 counts.
        let bytes = u32::try_from(length).unwrap_or(0);
        if bytes == 0 {
            return Ok(0);
        }
        let Pieces { first, last, told } = self.outgoing.post(bytes);
        if let Some(first) = first {
            self.queue.write(first.from, first.to)?;
        }
        let immediate = Immediate::Message(bytes).encode();
        self.queue.write_with(last.from, last.to, immediate, told)?;
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
