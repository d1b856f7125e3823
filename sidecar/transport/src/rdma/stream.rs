//! Queue pairs as a stream of bytes.

use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::sync::Arc;

use bytes::Bytes;
use lynx_tls::PeerIdentity;
use lynx_units::Priority;
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::task::spawn_blocking;

use super::outgoing::{MOST_UNTAKEN, MOST_WORDS, Outgoing};
use super::rail::Rail;
use super::rails::Rails;
use super::{Adapter, Endpoint, Loss, Queue, Route, Sizes};
use crate::wire::Wire;

/// What of a stream may be between the peer's writing it and this side's taking it out: some milliseconds of the fastest cards.
const RING: u32 = 8 << 20;

/// Most rails of a stream.
pub(crate) const MOST_RAILS: usize = 4;

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

/// Queue pairs that this side has offered its peer, or is about to: a rail each, the first of which has to work.
#[derive(Debug)]
pub(crate) struct Prepared {
    adapter: Arc<dyn Adapter>,
    queues: Vec<Box<dyn Queue>>,
}

/// Where both sides' queue pairs are, and a stream's rails between them; those that one side has not are left out.
#[derive(Debug)]
pub(crate) struct Paired {
    adapter: Arc<dyn Adapter>,
    /// As the peer is told them.
    endpoints: Vec<Option<Endpoint>>,
    rails: Vec<Rail>,
}

impl Prepared {
    /// One on the card that reaches the other end of `tcp`, and one on each other card that links may use.
    pub(crate) async fn new(
        adapter: &Arc<dyn Adapter>,
        tcp: &TcpStream,
        on: Priority,
    ) -> io::Result<Self> {
        let route = route(tcp)?;
        made(adapter, move |adapter| {
            let mut queues = vec![adapter.queue(route, on, sizes())?];
            for route in adapter.others(&queues[0].endpoint()) {
                // Without it there is a rail less.
                queues.extend(adapter.rail(route, on, sizes()).ok());
            }
            queues.truncate(MOST_RAILS);
            Ok(Self {
                adapter: Arc::clone(adapter),
                queues,
            })
        })
        .await
    }

    pub(crate) fn endpoints(&self) -> Vec<Option<Endpoint>> {
        let endpoints = self.queues.iter().map(|queue| Some(queue.endpoint()));
        endpoints.collect()
    }

    /// Connects them with what the peer has answered, each with its own.
    pub(crate) fn connect(self, there: &[Option<Endpoint>]) -> io::Result<Paired> {
        let endpoints = self.endpoints();
        let mut rails = Vec::new();
        for (queue, there) in self.queues.into_iter().zip(there) {
            match there {
                Some(there) if rails.is_empty() => rails.push(rail(queue, there)?),
                // The peer counts it: one that can't be used has its place too.
                Some(there) => rails.push(rail_or_none(queue, there)),
                None if rails.is_empty() => return Err(io::Error::other("the peer has no card")),
                None => {}
            }
        }
        Ok(Paired {
            adapter: self.adapter,
            endpoints,
            rails,
        })
    }
}

impl Paired {
    /// One rail on the card that reaches the other end of `tcp`, and one for each other that the peer offers and a card here reaches.
    pub(crate) async fn facing(
        adapter: &Arc<dyn Adapter>,
        tcp: &TcpStream,
        on: Priority,
        there: &[Option<Endpoint>],
    ) -> io::Result<Self> {
        let route = route(tcp)?;
        let there = there.to_vec();
        made(adapter, move |adapter| {
            let mut paired = Self {
                adapter: Arc::clone(adapter),
                endpoints: Vec::new(),
                rails: Vec::new(),
            };
            for there in there.into_iter().take(MOST_RAILS) {
                let made = match there {
                    Some(there) if paired.rails.is_empty() => {
                        let queue = adapter.queue(route, on, sizes())?;
                        Some((queue.endpoint(), rail(queue, &there)?))
                    }
                    Some(there) => paired.beside(on, &there),
                    None => None,
                };
                let (endpoint, rail) = made.unzip();
                paired.endpoints.push(endpoint);
                paired.rails.extend(rail);
            }
            let is_empty = paired.rails.is_empty();
            let none = || io::Error::other("what the peer says of its queue pair can't be read");
            Some(paired).filter(|_| !is_empty).ok_or_else(none)
        })
        .await
    }

    /// One more, on another card than the others; none where there is none.
    fn beside(&self, on: Priority, there: &Endpoint) -> Option<(Endpoint, Rail)> {
        let route = self.adapter.towards(there)?;
        let queue = self.adapter.rail(route, on, sizes()).ok()?;
        let endpoint = queue.endpoint();
        let mut others = self.endpoints.iter().flatten();
        if others.any(|other| other.gid == endpoint.gid) {
            return None;
        }
        Some((endpoint, rail(queue, there).ok()?))
    }

    pub(crate) fn endpoints(&self) -> &[Option<Endpoint>] {
        &self.endpoints
    }
}

fn route(tcp: &TcpStream) -> io::Result<Route> {
    Ok(Route {
        peer: tcp.peer_addr()?.ip().to_canonical(),
        own: tcp.local_addr()?.ip().to_canonical(),
    })
}

/// Registering memory takes its time, and all of the process's links wait for this thread: another one does it.
async fn made<T: Send + 'static>(
    adapter: &Arc<dyn Adapter>,
    make: impl FnOnce(&Arc<dyn Adapter>) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let adapter = Arc::clone(adapter);
    let made = spawn_blocking(move || make(&adapter));
    made.await.map_err(io::Error::other)?
}

/// A queue pair, connected with the peer's.
fn rail(mut queue: Box<dyn Queue>, there: &Endpoint) -> io::Result<Rail> {
    if there.ring == 0 {
        return Err(io::Error::other("the peer's ring has no bytes"));
    }
    let packet = queue.endpoint().mtu.min(there.mtu);
    queue.connect(there)?;
    let packet = u32::from(packet).min(there.ring);
    Ok(Rail::new(queue, there.ring, RING, packet))
}

/// The same; where it can't be had, one that has failed.
fn rail_or_none(mut queue: Box<dyn Queue>, there: &Endpoint) -> Rail {
    let connected = queue.connect(there);
    let packet = queue.endpoint().mtu.min(there.mtu);
    let ring = there.ring.max(1);
    let mut rail = Rail::new(queue, ring, RING, u32::from(packet).min(ring));
    if let Err(error) = connected {
        rail.fail(&error.to_string());
    }
    rail
}

/// A stream whose bytes travel by RDMA.
#[derive(Debug)]
pub(crate) struct Remote {
    /// Nothing is said here any more. Its end is the peer's, and comes before that of the rails.
    tcp: TcpStream,
    peer: Option<PeerIdentity>,
    /// Is told of cards that are lost.
    adapter: Arc<dyn Adapter>,
    rails: Rails,
    /// Why none can be used any more.
    failure: Option<String>,
}

impl Remote {
    /// `tcp` is the connection over which the two sides have found each other, and `peer` who is at its other end.
    pub(crate) fn new(by: Paired, tcp: TcpStream, peer: Option<PeerIdentity>) -> Self {
        Self {
            tcp,
            peer,
            adapter: by.adapter,
            rails: Rails::new(by.rails),
            failure: None,
        }
    }

    pub(crate) fn tcp(&self) -> &TcpStream {
        &self.tcp
    }

    pub(crate) fn tcp_mut(&mut self) -> &mut TcpStream {
        &mut self.tcp
    }

    /// By how many cards it began.
    pub(crate) fn cards(&self) -> usize {
        self.rails.count()
    }

    pub(crate) fn identity(&self) -> Option<&PeerIdentity> {
        self.peer.as_ref()
    }

    /// Waits until a card has done something, or the peer is gone.
    pub(crate) async fn ready(&self) {
        tokio::select! {
            () = poll_fn(|context| self.rails.poll_ready(context)) => {}
            // What is wrong with it, the next read tells.
            _ = self.tcp.ready(Interest::READABLE) => {}
        }
    }

    /// Waits until all that was written is in the peer's memory. Who is gone isn't waited for: a card may try for seconds.
    pub(crate) async fn drain(&mut self) -> io::Result<()> {
        loop {
            let closed = self.is_closed();
            self.hear()?;
            if self.rails.is_done() {
                return Ok(());
            }
            if closed {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            self.ready().await;
        }
    }

    /// Shows, before anything else is written, that packets of full length come through both ways on the first rail; others may be
    /// shown later. The side that is `first` has a peer whose cards are ready; the other side answers, and so finds the first
    /// one's ready.
    pub(crate) async fn greet(&mut self, first: bool) -> io::Result<()> {
        if first {
            self.rails.greet();
        }
        loop {
            // In this order, as with reading.
            let closed = self.is_closed();
            self.hear()?;
            if self.rails.is_up() {
                return Ok(());
            }
            if closed {
                return Err(io::Error::other("the peer hung up"));
            }
            self.ready().await;
        }
    }

    /// How many rails can be used.
    #[cfg(test)]
    pub(super) fn usable(&self) -> usize {
        self.rails.usable()
    }

    /// Takes what the cards have done.
    fn hear(&mut self) -> io::Result<()> {
        if self.failure.is_none()
            && let Err(error) = self.rails.hear()
        {
            self.failure = Some(error.to_string());
        }
        self.tell_losses();
        match &self.failure {
            Some(why) => Err(io::Error::other(why.clone())),
            None => Ok(()),
        }
    }

    /// Says which cards were lost. Where the peer has ended the connection it ends its queue pairs too, which is no loss: its socket is
    /// closed before them, and the kernel asked, since the runtime may not know yet.
    fn tell_losses(&mut self) {
        let losses: Vec<Loss> = self.rails.losses().collect();
        if losses.is_empty() {
            return;
        }
        let mut unexpected = [MaybeUninit::uninit()];
        let peeked = SockRef::from(&self.tcp).peek(&mut unexpected);
        if peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            losses.iter().for_each(|loss| self.adapter.lost(loss));
        }
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
            let filled = self.rails.read(part);
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
            self.rails.tell();
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if heard.is_ok() {
            self.rails.tell();
        }
        Ok(read)
    }

    fn write(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        self.write_before(from, &Bytes::new())
    }

    fn write_chunk(&mut self, before: [IoSlice<'_>; 2], payload: &Bytes) -> io::Result<usize> {
        self.write_before(&before, payload)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Remote {
    /// Writes some of these bytes and of the payload behind them.
    fn write_before(&mut self, from: &[IoSlice<'_>], payload: &Bytes) -> io::Result<usize> {
        self.hear()?;
        let written = self.rails.write(from, payload);
        // Where the peer is gone there will be no room, and being ready says no more than that.
        let closed = written.is_none() && self.is_closed();
        let full = match closed {
            true => io::ErrorKind::BrokenPipe,
            false => io::ErrorKind::WouldBlock,
        };
        written.ok_or_else(|| full.into())
    }
}

#[cfg(test)]
pub(super) mod tests;
