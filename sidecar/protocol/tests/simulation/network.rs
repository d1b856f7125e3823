//! One direction of a wire: streams that share it, as TCP connections do, two for each link.

use std::collections::VecDeque;
use std::time::Duration;

use lynx_units::{BitRate, Bytes, Timestamp};

use super::random::Random;

/// What the wire takes at once.
const PACKET: usize = 4096;
/// What a sending socket holds.
const SEND_BUFFER: usize = 128 * 1024;
/// What may be on the way and unread, per stream.
const RECEIVE_BUFFER: usize = 1024 * 1024;

/// The path's properties.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    pub(crate) rate: BitRate,
    pub(crate) delay: Duration,
    /// Up to so much is added to a packet's delay; packets of a stream stay in order.
    pub(crate) jitter: Duration,
    /// From when on, which rate.
    pub(crate) steps: Vec<(Timestamp, BitRate)>,
    /// From when until when nothing moves.
    pub(crate) stall: Option<(Timestamp, Timestamp)>,
    /// Which byte, counted over both streams, has a bit flipped.
    pub(crate) corrupt: Option<u64>,
}

#[derive(Debug, Default)]
struct Stream {
    unsent: VecDeque<u8>,
    in_transit: VecDeque<(Timestamp, Vec<u8>)>,
    in_transit_bytes: usize,
    arrived: Vec<u8>,
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

    /// How many bytes the socket of a stream takes.
    pub(crate) fn room(&self, stream: usize) -> usize {
        SEND_BUFFER - self.streams[stream].unsent.len()
    }

    pub(crate) fn write(&mut self, stream: usize, bytes: &[u8]) {
        assert!(bytes.len() <= self.room(stream));
        self.streams[stream].unsent.extend(bytes);
    }

    /// Everything that has arrived on a stream.
    pub(crate) fn read(&mut self, stream: usize, into: &mut Vec<u8>) -> bool {
        let arrived = std::mem::take(&mut self.streams[stream].arrived);
        into.extend_from_slice(&arrived);
        !arrived.is_empty()
    }

    pub(crate) fn delay(&self) -> Duration {
        self.path.delay
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
        while self.free_at <= now && self.send_packet(now) {}
        for stream in &mut self.streams {
            while stream.in_transit.front().is_some_and(|&(at, _)| at <= now) {
                let (_, packet) = stream.in_transit.pop_front().unwrap();
                stream.in_transit_bytes -= packet.len();
                stream.arrived.extend_from_slice(&packet);
            }
        }
    }

    /// When something can move next.
    pub(crate) fn next(&self, now: Timestamp) -> Option<Timestamp> {
        let arrivals = self
            .streams
            .iter()
            .filter_map(|s| s.in_transit.front())
            .map(|&(at, _)| at);
        let departure = (0..self.streams.len())
            .any(|s| self.can_send(s))
            .then_some(self.free_at);
        let next = arrivals.chain(departure).min()?;
        match self.path.stall {
            Some((from, until)) if from <= now.max(next) && now.max(next) < until => Some(until),
            _ => Some(next),
        }
    }

    fn can_send(&self, stream: usize) -> bool {
        let stream = &self.streams[stream];
        !stream.unsent.is_empty() && stream.in_transit_bytes + stream.arrived.len() < RECEIVE_BUFFER
    }

    fn send_packet(&mut self, now: Timestamp) -> bool {
        let streams = self.streams.len();
        let Some(number) = (0..streams)
            .map(|i| (self.turn + i) % streams)
            .find(|&s| self.can_send(s))
        else {
            return false;
        };
        self.turn = number + 1;
        let stream = &mut self.streams[number];
        let len = stream.unsent.len().min(PACKET);
        let (first, second) = stream.unsent.as_slices();
        let from_first = len.min(first.len());
        let mut packet = first[..from_first].to_vec();
        packet.extend_from_slice(&second[..len - from_first]);
        stream.unsent.drain(..len);
        if let Some(byte) = self.path.corrupt
            && (self.moved..self.moved + len as u64).contains(&byte)
        {
            let place = usize::try_from(byte - self.moved).unwrap();
            packet[place] ^= 1 << (byte % 8);
        }
        self.moved += len as u64;
        let rate = self.path.steps.iter().rev().find(|&&(from, _)| from <= now);
        let rate = rate.map_or(self.path.rate, |&(_, rate)| rate);
        let on_wire = rate.time_for(Bytes::new(len as u64)).unwrap();
        self.free_at = self.free_at.max(now) + on_wire;
        let jitter = u64::try_from(self.path.jitter.as_nanos()).unwrap();
        let jitter = Duration::from_nanos(self.random.within(0, jitter + 1));
        let arrival = self.free_at + self.path.delay + jitter;
        let last = stream.in_transit.back().map_or(arrival, |&(at, _)| at);
        stream.in_transit_bytes += len;
        stream.in_transit.push_back((arrival.max(last), packet));
        true
    }
}
