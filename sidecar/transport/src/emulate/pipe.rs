//! One direction of the link: the queue in front of it and the pacer behind.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use lynx_units::{BitRate, Bytes, Timestamp};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};

use super::options::LinkOptions;
use super::room::Room;
use super::timer::Timer;
use super::token::TokenClock;
use crate::Clock;

/// A packet takes the link about this long, so that the streams of two connections interleave finely, and a fast link
/// isn't spent on system calls.
const PACKET_TIME: Duration = Duration::from_micros(125);

/// Bounds of a packet: some Ethernet frames, and a quarter of the largest segment that the kernel handles at once.
const SHORTEST: u32 = 4 << 10;
pub(super) const LONGEST: u32 = 16 << 10;

/// What a link can be told while it runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Knobs {
    pub(super) rate: BitRate,
    /// One bit of the byte that many bytes from now will be flipped; `None` once done.
    pub(super) corrupt_after: Option<Bytes>,
}

/// Bytes of one connection on their way. None at all means that the connection's sender has closed its side.
pub(super) struct Packet {
    pub(super) bytes: Vec<u8>,
    pub(super) arrival: Timestamp,
    /// The room that the packet takes in the queue; given back when it departs.
    pub(super) queued: OwnedSemaphorePermit,
    /// The room that it takes in its connection's window; given back when it is written.
    pub(super) window: OwnedSemaphorePermit,
    pub(super) to: mpsc::UnboundedSender<Delivery>,
}

/// A packet that has left the link and reaches the far end at `due`.
pub(super) struct Delivery {
    pub(super) bytes: Vec<u8>,
    pub(super) due: Timestamp,
    /// Held for its drop, which gives the room back.
    pub(super) _window: OwnedSemaphorePermit,
}

/// The entrance of a pipe. Clones lead into the same pipe.
#[derive(Clone)]
pub(super) struct Pipe {
    /// Room of the queue, in bytes.
    pub(super) room: Arc<Semaphore>,
    pub(super) entrance: mpsc::UnboundedSender<Packet>,
    knobs: watch::Receiver<Knobs>,
}

impl Pipe {
    /// How long a packet may be at the present rate, in bytes.
    pub(super) fn packet(&self) -> u32 {
        let bytes = self.knobs.borrow().rate.bytes_in(PACKET_TIME).get();
        u32::try_from(bytes)
            .unwrap_or(LONGEST)
            .clamp(SHORTEST, LONGEST)
    }
}

/// The link behind the queue. Runs until every entrance is dropped.
pub(super) struct Pacer {
    queue: mpsc::UnboundedReceiver<Packet>,
    room: Room,
    knobs: watch::Sender<Knobs>,
    changes: watch::Receiver<Knobs>,
    options: LinkOptions,
    clock: Clock,
    timer: Timer,
    tokens: TokenClock,
}

/// A pipe and the pacer that must be run for it.
pub(super) fn pipe(
    options: LinkOptions,
    clock: Clock,
    knobs: watch::Sender<Knobs>,
) -> io::Result<(Pipe, Pacer)> {
    let (entrance, queue) = mpsc::unbounded_channel();
    let room = Room::new(room_of(options.queue));
    let pipe = Pipe {
        room: room.semaphore(),
        entrance,
        knobs: knobs.subscribe(),
    };
    let pacer = Pacer {
        queue,
        room,
        changes: knobs.subscribe(),
        knobs,
        options,
        clock,
        timer: Timer::new(clock)?,
        tokens: TokenClock::default(),
    };
    Ok((pipe, pacer))
}

/// A queue that holds less than a packet would hold none.
fn room_of(queue: Bytes) -> usize {
    usize::try_from(queue.get())
        .unwrap_or(usize::MAX)
        .max(LONGEST as usize)
}

impl Pacer {
    pub(super) async fn run(mut self) -> io::Result<()> {
        loop {
            tokio::select! {
                packet = self.queue.recv() => match packet {
                    Some(packet) => self.pass(packet).await?,
                    None => return Ok(()),
                },
                Ok(()) = self.changes.changed() => {
                    self.rate();
                }
            }
        }
    }

    /// Lets one packet over the link.
    async fn pass(&mut self, mut packet: Packet) -> io::Result<()> {
        let length = Bytes::of_slice(&packet.bytes);
        let departure = self.departure(packet.arrival, length).await;
        self.timer.sleep_until(departure).await?;
        self.room.give_back(packet.queued);
        self.corrupt(&mut packet.bytes);
        let delivery = Delivery {
            bytes: packet.bytes,
            due: departure + self.options.one_way_delay,
            _window: packet.window,
        };
        // A connection that is gone takes no more deliveries; its packets have used the link all the same.
        drop(packet.to.send(delivery));
        Ok(())
    }

    /// When the packet will have left; waits for a rate where there is none.
    async fn departure(&mut self, arrival: Timestamp, length: Bytes) -> Timestamp {
        let mut arrival = arrival;
        loop {
            let rate = self.rate();
            if let Some(departure) = self.tokens.depart(arrival, length, rate) {
                return departure;
            }
            // Never an error: the pacer has a sender of its own.
            self.changes.changed().await.ok();
            arrival = arrival.max(self.clock.now());
        }
    }

    /// The present rate, with a queue that fits it.
    fn rate(&mut self) -> BitRate {
        let rate = self.changes.borrow_and_update().rate;
        self.room.resize(room_of(self.options.queue_at(rate)));
        rate
    }

    /// Flips a bit where the knob says so.
    fn corrupt(&self, bytes: &mut [u8]) {
        let Some(after) = self.knobs.borrow().corrupt_after else {
            return;
        };
        let left = after.saturating_sub(Bytes::of_slice(bytes));
        let hit = usize::try_from(after.get())
            .ok()
            .and_then(|index| bytes.get_mut(index));
        let rest = match hit {
            Some(byte) => {
                *byte ^= 1;
                None
            }
            None => Some(left),
        };
        self.knobs.send_if_modified(|knobs| {
            knobs.corrupt_after = rest;
            false
        });
    }
}
