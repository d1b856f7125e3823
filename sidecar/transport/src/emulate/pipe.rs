//! One direction of the link: the queue in front of it and the pacer behind.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use lynx_units::{BitRate, Bytes, Timestamp};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};

use super::options::LinkOptions;
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
    pub(super) queued: Option<OwnedSemaphorePermit>,
    /// The room that it takes in its connection's window; given back when it is written.
    pub(super) window: Option<OwnedSemaphorePermit>,
    pub(super) to: mpsc::UnboundedSender<Delivery>,
}

/// A packet that has left the link and reaches the far end at `due`.
pub(super) struct Delivery {
    pub(super) bytes: Vec<u8>,
    pub(super) due: Timestamp,
    /// Held for its drop, which gives the room back.
    pub(super) _window: Option<OwnedSemaphorePermit>,
}

/// The entrance of a pipe. Clones lead into the same pipe.
#[derive(Clone)]
pub(super) struct Pipe {
    /// Room of the queue, in bytes. Waiters are served in order, so busy connections take turns packet by packet.
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
    knobs: watch::Sender<Knobs>,
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
    let bytes = usize::try_from(options.queue.get()).unwrap_or(usize::MAX);
    let room = bytes.clamp(LONGEST as usize, Semaphore::MAX_PERMITS);
    let pipe = Pipe {
        room: Arc::new(Semaphore::new(room)),
        entrance,
        knobs: knobs.subscribe(),
    };
    let pacer = Pacer {
        queue,
        knobs,
        options,
        clock,
        timer: Timer::new(clock)?,
        tokens: TokenClock::default(),
    };
    Ok((pipe, pacer))
}

impl Pacer {
    pub(super) async fn run(mut self) -> io::Result<()> {
        while let Some(packet) = self.queue.recv().await {
            self.pass(packet).await?;
        }
        Ok(())
    }

    /// Lets one packet over the link.
    async fn pass(&mut self, mut packet: Packet) -> io::Result<()> {
        let length = Bytes::of_slice(&packet.bytes);
        let departure = self.departure(packet.arrival, length).await;
        self.timer.sleep_until(departure).await?;
        drop(packet.queued);
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
        let mut knobs = self.knobs.subscribe();
        let mut arrival = arrival;
        loop {
            let rate = knobs.borrow_and_update().rate;
            if let Some(departure) = self.tokens.depart(arrival, length, rate) {
                return departure;
            }
            if knobs.changed().await.is_err() {
                // The relay's handle is gone, and with it every way to start the link again.
                return Timestamp::NEVER;
            }
            arrival = arrival.max(self.clock.now());
        }
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
