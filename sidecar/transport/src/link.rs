//! One link in one epoch: a task that moves bytes between two sockets and one side of the protocol.

use std::net::SocketAddr;
use std::time::Duration;

use lynx_protocol::{Code, LinkEstimate, Reason};
use lynx_units::{Bytes, Priority, Timestamp};
use tokio::sync::{mpsc, watch};
use tokio::task::yield_now;

use crate::Clock;
use crate::inbound::{Inbound, ReadError};
use crate::outbound::{Outbound, Wrote};
use crate::side::Side;
use crate::stream::Stream;

/// How often a busy link publishes its figures.
const STATS_INTERVAL: Duration = Duration::from_millis(20);

/// How long a link that is over may still write its last words.
const LAST_WORDS: Duration = Duration::from_millis(250);

/// How many chunks may be read from a connection before its sibling, the application and the writers get their turn.
const READS_PER_TURN: usize = 16;

/// The figures of one link in one epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStats<C> {
    /// Rate and round trip, as far as this side knows them.
    pub estimate: LinkEstimate,
    /// Bytes written, headers included but not what encryption adds (about 0.15 %), by [`Priority::index`].
    pub wire_sent: [Bytes; 2],
    /// Bytes read, headers included but not what encryption adds, by [`Priority::index`].
    pub wire_received: [Bytes; 2],
    /// What the protocol counts: [`SenderStats`](lynx_protocol::sender::SenderStats) or
    /// [`ReceiverStats`](lynx_protocol::receiver::ReceiverStats).
    pub protocol: C,
}

/// A link's figures, without a say in how long it lives: after its end, the last.
#[derive(Clone, Debug)]
pub struct Watched<C>(pub(crate) watch::Receiver<LinkStats<C>>);

impl<C: Copy> Watched<C> {
    /// The figures, some hundredths of a second old at most while the link is busy.
    pub fn get(&self) -> LinkStats<C> {
        *self.0.borrow()
    }
}

/// One connection with what is half read and half written.
#[derive(Debug)]
pub(crate) struct Connection {
    on: Priority,
    stream: Stream,
    inbound: Inbound,
    outbound: Outbound,
    full: bool,
}

impl Connection {
    pub(crate) fn new(on: Priority, stream: Stream) -> Self {
        Self {
            on,
            stream,
            inbound: Inbound::new(on),
            outbound: Outbound::new(on),
            full: false,
        }
    }

    /// Reads a while; whether anything came.
    fn read(&mut self, side: &mut impl Side, clock: Clock) -> Result<bool, ReadError> {
        for turn in 0..READS_PER_TURN {
            if !self.inbound.read(&mut self.stream, side, clock)? {
                return Ok(turn > 0);
            }
        }
        Ok(true)
    }

    /// Makes one write; whether there may be more.
    fn write(&mut self, side: &mut impl Side, clock: Clock) -> std::io::Result<bool> {
        let wrote = self.outbound.write(&mut self.stream, side, clock)?;
        self.full = wrote == Wrote::Full;
        Ok(wrote == Wrote::Some)
    }

    /// Writes all that the side still has to say, or up to an error.
    async fn write_all(&mut self, side: &mut impl Side, clock: Clock) {
        loop {
            match self.outbound.write(&mut self.stream, side, clock) {
                Ok(Wrote::Some) => {}
                Ok(Wrote::Full) => drop(self.stream.writable().await),
                Ok(Wrote::Idle) | Err(_) => return,
            }
        }
    }

    /// Waits until the socket has bytes, or can take some where it could not.
    async fn ready(&self) {
        self.stream.ready(self.full).await;
    }
}

/// The task's state.
pub(crate) struct Link<S: Side> {
    pub(crate) side: S,
    /// By [`Priority::index`].
    pub(crate) connections: [Connection; 2],
    pub(crate) commands: mpsc::UnboundedReceiver<S::Command>,
    pub(crate) stats: watch::Sender<LinkStats<S::Counts>>,
    pub(crate) clock: Clock,
    pub(crate) peer: SocketAddr,
}

impl<S: Side> Link<S> {
    /// Runs until the link is over.
    pub(crate) async fn run(mut self) {
        let mut next_stats = Timestamp::ORIGIN;
        while !self.side.is_over() {
            let busy = self.turn();
            if self.side.is_over() {
                break;
            }
            let now = self.clock.now();
            if self.side.gather_events() || now >= next_stats {
                self.publish_stats();
                next_stats = now + STATS_INTERVAL;
            }
            self.side.send_events();
            if busy {
                // A turn at loopback rates takes some hundred microseconds: other tasks of this thread come in between.
                yield_now().await;
            } else {
                self.wait().await;
            }
        }
        self.refuse_commands();
        self.side.gather_events();
        self.publish_stats();
        self.side.send_events();
        // The peer may be gone, or not reading: nothing more can be done about it.
        drop(tokio::time::timeout(LAST_WORDS, self.last_words()).await);
        self.publish_stats();
    }

    /// Does once all that can be done without waiting; whether there may be more.
    fn turn(&mut self) -> bool {
        self.take_commands();
        let now = self.clock.now();
        if self.side.poll_timeout().is_some_and(|due| due <= now) {
            self.side.handle_timeout(now);
        }
        let mut busy = false;
        for connection in &mut self.connections {
            match connection.read(&mut self.side, self.clock) {
                Ok(read) => busy |= read,
                Err(error) => {
                    let code = match error {
                        ReadError::Closed | ReadError::Io(_) => Code::Disconnected,
                        ReadError::Wire(_) => Code::Protocol,
                    };
                    let reason = broken(self.peer, connection.on, code, &error);
                    self.side.handle_disconnected(reason, now);
                }
            }
        }
        for connection in &mut self.connections {
            match connection.write(&mut self.side, self.clock) {
                Ok(wrote) => busy |= wrote,
                Err(error) => {
                    let reason = broken(self.peer, connection.on, Code::Disconnected, &error);
                    self.side.handle_disconnected(reason, now);
                }
            }
        }
        busy
    }

    fn take_commands(&mut self) {
        loop {
            let now = self.clock.now();
            match self.commands.try_recv() {
                Ok(command) => self.side.command(command, now),
                Err(mpsc::error::TryRecvError::Empty) => return,
                Err(mpsc::error::TryRecvError::Disconnected) => return self.side.shut_down(now),
            }
        }
    }

    /// Takes no more commands, and the ones that are on their way. Before the link's last events are sent: who has seen one
    /// of those gets an error, and who has not gets an event.
    fn refuse_commands(&mut self) {
        self.commands.close();
        self.take_commands();
    }

    /// Waits for whatever comes first: a socket, a command, or the protocol's next moment.
    async fn wait(&mut self) {
        let due = self.side.poll_timeout().unwrap_or(Timestamp::NEVER);
        let due = self.clock.instant_of(due);
        let [anchor, residual] = &self.connections;
        tokio::select! {
            () = anchor.ready() => {}
            () = residual.ready() => {}
            command = self.commands.recv() => {
                let now = self.clock.now();
                match command {
                    Some(command) => self.side.command(command, now),
                    None => self.side.shut_down(now),
                }
            }
            () = tokio::time::sleep_until(due.into()) => {}
        }
    }

    /// Writes what the protocol still wants to say, and waits until the peer has read it: closing earlier would reset the
    /// connection under bytes that are on the way. Returns when both connections have ended.
    async fn last_words(&mut self) {
        for connection in &mut self.connections {
            connection.write_all(&mut self.side, self.clock).await;
        }
        for connection in &mut self.connections {
            connection.stream.finish().await;
        }
    }

    fn publish_stats(&self) {
        let each = |of: fn(&Connection) -> Bytes| {
            let [anchor, residual] = &self.connections;
            [of(anchor), of(residual)]
        };
        self.stats.send_replace(LinkStats {
            estimate: self.side.estimate(),
            wire_sent: each(|connection| connection.outbound.sent()),
            wire_received: each(|connection| connection.inbound.received()),
            protocol: self.side.counts(),
        });
    }
}

/// Why a connection can't be used any more, with the peer's name in it.
fn broken(peer: SocketAddr, on: Priority, code: Code, error: &dyn std::error::Error) -> Reason {
    let which = match on {
        Priority::Anchor => "anchor",
        Priority::Residual => "residual",
    };
    Reason::new(code, &format!("{which} connection with {peer}: {error}"))
}
