//! One direction of a wire: streams that share it, as TCP connections do, two for each link.

use std::collections::VecDeque;
use std::time::Duration;

use lynx_units::{BitRate, Bytes, Priority, Timestamp};

use super::buffer::Buffer;
use super::random::Random;

/// What the wire takes at once.
const PACKET: usize = 8 * 1024;
/// What a sending socket holds.
const SEND_BUFFER: usize = 128 * 1024;
/// What may be on the way and unread, per stream.
const RECEIVE_BUFFER: usize = 1024 * 1024;

/// The path's properties.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    pub(crate) rate: BitRate,
    pub(crate) delay: Duration,
    /// How much of the wire's time waits in a queue in front of it, in the order in which it came, as in a switch. Without
    /// one, the streams take turns at the wire, as in a sending host.
    pub(crate) queue: Duration,
    /// Up to so much is added to a packet's delay; packets of a stream stay in order.
    pub(crate) jitter: Duration,
    /// What is added to the delay of each of a link's two streams, so that what was sent first on one comes after what was
    /// sent later on the other.
    pub(crate) skew: [Duration; 2],
    /// From when on, which rate.
    pub(crate) steps: Vec<(Timestamp, BitRate)>,
    /// From when until when nothing moves.
    pub(crate) stall: Option<(Timestamp, Timestamp)>,
    /// From when on nothing comes out of the streams of one priority.
    pub(crate) dead: Option<(Timestamp, Priority)>,
    /// Which byte, counted over all streams, has a bit flipped.
    pub(crate) corrupt: Option<u64>,
}

impl Path {
    /// A path of this rate with this delay, on which nothing happens.
    pub(crate) fn new(rate: BitRate, delay: Duration) -> Self {
        Self {
            rate,
            delay,
            queue: Duration::ZERO,
            jitter: Duration::ZERO,
            skew: [Duration::ZERO; 2],
            steps: Vec::new(),
            stall: None,
            dead: None,
            corrupt: None,
        }
    }
}

#[derive(Debug, Default)]
struct Stream {
    unsent: Buffer,
    on_the_way: Buffer,
    /// When so many bytes of them arrive.
    arrivals: VecDeque<(Timestamp, usize)>,
    arrived: Buffer,
}

impl Stream {
    fn can_send(&self) -> bool {
        !self.unsent.is_empty() && self.on_the_way.len() + self.arrived.len() < RECEIVE_BUFFER
    }

    /// Puts `len` bytes on the way.
    fn send(&mut self, len: usize, arrival: Timestamp) {
        self.on_the_way.push(&self.unsent.all()[..len]);
        self.unsent.take(len);
        let last = self.arrivals.back().map_or(arrival, |&(at, _)| at);
        self.arrivals.push_back((arrival.max(last), len));
    }

    fn arrive(&mut self, now: Timestamp) {
        while let Some(&(at, len)) = self.arrivals.front()
            && at <= now
        {
            self.arrivals.pop_front();
            self.arrived.push(&self.on_the_way.all()[..len]);
            self.on_the_way.take(len);
        }
    }
}

#[derive(Debug)]
pub(crate) struct Direction {
    path: Path,
    random: Random,
    streams: Vec<Stream>,
    /// When the wire can take the next packet.
    free_at: Timestamp,
    turn: usize,
    moved: u64,
}

impl Direction {
    /// A wire for so many links.
    pub(crate) fn new(path: Path, links: usize, seed: u64) -> Self {
        Self {
            path,
            random: Random::new(seed),
            streams: (0..2 * links).map(|_| Stream::default()).collect(),
            free_at: Timestamp::ORIGIN,
            turn: 0,
            moved: 0,
        }
    }

    /// From `cut` on nothing moves, and nobody is told.
    pub(crate) fn stall_for_ever(&mut self, cut: Timestamp) {
        self.path.stall = Some((cut, Timestamp::NEVER));
    }

    /// From `cut` on nothing comes out of one of a link's two streams, and nobody is told.
    pub(crate) fn kill(&mut self, cut: Timestamp, on: Priority) {
        self.path.dead = Some((cut, on));
    }

    /// The connections of a link are closed: what was on them is lost.
    pub(crate) fn close(&mut self, link: usize) {
        for stream in &mut self.streams[link..link + 2] {
            *stream = Stream::default();
        }
    }

    /// How many bytes the socket of a stream takes.
    pub(crate) fn room(&self, stream: usize) -> usize {
        SEND_BUFFER - self.streams[stream].unsent.len()
    }

    pub(crate) fn write(&mut self, stream: usize, bytes: &[u8]) {
        assert!(bytes.len() <= self.room(stream));
        self.streams[stream].unsent.push(bytes);
    }

    /// Everything that has arrived on a stream.
    pub(crate) fn read(&mut self, stream: usize, into: &mut Buffer) -> bool {
        let arrived = &mut self.streams[stream].arrived;
        let any = !arrived.is_empty();
        into.push(arrived.all());
        arrived.take(arrived.len());
        any
    }

    /// When the peer sees that this side closed its connections.
    pub(crate) fn delay(&self) -> Duration {
        let [first, second] = self.path.skew;
        self.path.delay + self.path.jitter + first.max(second)
    }

    pub(crate) fn is_stalled(&self, now: Timestamp) -> bool {
        self.path
            .stall
            .is_some_and(|(from, until)| from <= now && now < until)
    }

    /// Moves what can move at `now`.
    pub(crate) fn advance(&mut self, now: Timestamp) {
        if self.is_stalled(now) {
            return;
        }
        while self.free_at <= now + self.path.queue && self.send_packet(now) {}
        for number in 0..self.streams.len() {
            if !self.is_dead(number, now) {
                self.streams[number].arrive(now);
            }
        }
    }

    /// When something can move next.
    pub(crate) fn next(&self, now: Timestamp) -> Option<Timestamp> {
        let alive = || (0..self.streams.len()).filter(|&stream| !self.is_dead(stream, now));
        let arrivals = alive().filter_map(|stream| self.streams[stream].arrivals.front());
        let departure = alive()
            .any(|stream| self.streams[stream].can_send())
            .then_some(Timestamp::from_origin(
                self.free_at.since_origin().saturating_sub(self.path.queue),
            ));
        let next = arrivals.map(|&(at, _)| at).chain(departure).min()?;
        match self.path.stall {
            Some((from, until)) if from <= now.max(next) && now.max(next) < until => Some(until),
            _ => Some(next),
        }
    }

    fn is_dead(&self, stream: usize, now: Timestamp) -> bool {
        self.path
            .dead
            .is_some_and(|(from, on)| from <= now && stream % 2 == on.index())
    }

    fn send_packet(&mut self, now: Timestamp) -> bool {
        let streams = self.streams.len();
        let Some(number) = (0..streams)
            .map(|i| (self.turn + i) % streams)
            .find(|&s| self.streams[s].can_send() && !self.is_dead(s, now))
        else {
            return false;
        };
        self.turn = number + 1;
        let rate = self.path.steps.iter().rev().find(|&&(from, _)| from <= now);
        let rate = rate.map_or(self.path.rate, |&(_, rate)| rate);
        let jitter = u64::try_from(self.path.jitter.as_nanos()).unwrap();
        let jitter = Duration::from_nanos(self.random.within(0, jitter + 1));
        let stream = &mut self.streams[number];
        let len = stream.unsent.len().min(PACKET);
        let moved = self.moved..self.moved + len as u64;
        if let Some(byte) = self.path.corrupt
            && moved.contains(&byte)
        {
            let place = usize::try_from(byte - moved.start).unwrap();
            stream.unsent.all_mut()[place] ^= 1 << (byte % 8);
        }
        self.moved = moved.end;
        let on_wire = rate.time_for(Bytes::new(len as u64)).unwrap();
        self.free_at = self.free_at.max(now) + on_wire;
        let delay = self.path.delay + jitter + self.path.skew[number % 2];
        stream.send(len, self.free_at + delay);
        true
    }
}
