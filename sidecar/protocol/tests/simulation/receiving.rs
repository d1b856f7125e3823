//! The receiving node: a driver and an application around a [`Receiver`]. It checks that what is delivered is what was
//! sent, once, in time, and only for transfers that are not over.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use lynx_protocol::receiver::{Event, Receiver, ReceiverConfig};
use lynx_protocol::wire::{ChunkHeader, Decoded, Frame, decode};
use lynx_protocol::{Code, CreditBook, Extent, Reason};
use lynx_units::{Bytes, Epoch, Priority, SegmentIndex, Timestamp, TransferId, UnitIndex};

use super::buffer::Buffer;
use super::network::Direction;
use super::old::{OldFrames, Outbox};
use super::process::Process;
use super::work::{Job, LEVELS, describe, parse};

type Name = (TransferId, UnitIndex, SegmentIndex);

/// What the application knows about a transfer that is not over.
#[derive(Debug, Default)]
struct Progress {
    segments: usize,
    levels: Vec<(u8, Timestamp)>,
}

#[derive(Debug)]
pub(crate) struct Receiving {
    pub(crate) receiver: Receiver,
    config: ReceiverConfig,
    /// Number of its first stream on the wire.
    pub(crate) link: usize,
    jobs: Vec<Job>,
    /// How long the application holds a complete segment.
    pub(crate) hold: Duration,
    buffers: BTreeMap<Name, Vec<u8>>,
    held: VecDeque<(Timestamp, Priority, u64)>,
    inbox: [Buffer; 2],
    /// A header whose payload is being read; `None` inside where it is discarded.
    reading: [Option<(ChunkHeader, Option<Extent>)>; 2],
    outbox: [Outbox; 2],
    pub(crate) process: Process,
    pub(crate) old: OldFrames,
    /// How far its clock is ahead of the sending node's. What is recorded is in the latter's time.
    pub(crate) ahead: Duration,
    /// What the sender was last told that it may send.
    pub(crate) granted: [Bytes; 2],
    live: BTreeMap<TransferId, Progress>,
    /// How each transfer that was offered ended, and when.
    pub(crate) ended: BTreeMap<TransferId, (Event, Timestamp)>,
    pub(crate) deadlines: BTreeMap<TransferId, Timestamp>,
    pub(crate) anchors: BTreeMap<TransferId, Timestamp>,
    pub(crate) broken: Option<(Reason, Timestamp)>,
    pub(crate) most_memory: u64,
}

impl Receiving {
    pub(crate) fn new(
        epoch: Epoch,
        config: ReceiverConfig,
        book: &Arc<CreditBook>,
        jobs: Vec<Job>,
        (start, ahead): (Timestamp, Duration),
    ) -> Self {
        Self {
            receiver: Receiver::new(epoch, config, book, start + ahead).unwrap(),
            config,
            link: 0,
            jobs,
            hold: Duration::ZERO,
            buffers: BTreeMap::new(),
            held: VecDeque::new(),
            inbox: Default::default(),
            reading: [None; 2],
            outbox: Default::default(),
            process: Process::default(),
            old: OldFrames::default(),
            ahead,
            granted: [Bytes::ZERO; 2],
            live: BTreeMap::new(),
            ended: BTreeMap::new(),
            deadlines: BTreeMap::new(),
            anchors: BTreeMap::new(),
            broken: None,
            most_memory: 0,
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.live.is_empty() && self.held.is_empty()
    }

    /// When the application or the driver does something next.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        let work = self.held.front().map(|&(at, ..)| at);
        let next = [work, self.receiver.poll_timeout()];
        next.into_iter().flatten().min().map(|at| self.common(at))
    }

    /// A moment of its own clock in the common time.
    fn common(&self, own: Timestamp) -> Timestamp {
        Timestamp::from_origin(own.since_origin().saturating_sub(self.ahead))
    }

    /// The turn of application and driver; `true` where they did anything.
    pub(crate) fn drive(
        &mut self,
        input: &mut Direction,
        output: &mut Direction,
        now: Timestamp,
    ) -> bool {
        let now = now + self.ahead;
        self.consume(now);
        let mut busy = false;
        for on in Priority::ALL {
            if input.read(self.link + on.index(), &mut self.inbox[on.index()]) {
                busy = true;
                self.receiver.handle_activity(on, now);
                self.parse(on, now);
            }
        }
        if self.receiver.poll_timeout().is_some_and(|at| at <= now) {
            busy = true;
            self.receiver.handle_timeout(now);
        }
        self.events(now);
        for on in Priority::ALL {
            busy |= self.write(on, output, now);
        }
        self.check_memory();
        busy
    }

    /// The application consumes what it has held for long enough.
    fn consume(&mut self, now: Timestamp) {
        while let Some(&(at, priority, bytes)) = self.held.front()
            && at <= now
        {
            self.held.pop_front();
            self.receiver.release(priority, Bytes::new(bytes), now);
        }
    }

    pub(crate) fn disconnect(&mut self, reason: &str, now: Timestamp) {
        let now = now + self.ahead;
        let reason = Reason::new(Code::Disconnected, reason);
        self.receiver.handle_disconnected(reason, now);
        self.events(now);
    }

    fn parse(&mut self, on: Priority, now: Timestamp) {
        let mut inbox = std::mem::take(&mut self.inbox[on.index()]);
        while self.parse_one(on, &mut inbox, now) {
            self.events(now);
        }
        self.inbox[on.index()] = inbox;
    }

    /// Takes a frame or a payload, where there is a whole one.
    fn parse_one(&mut self, on: Priority, inbox: &mut Buffer, now: Timestamp) -> bool {
        if let Some((header, place)) = self.reading[on.index()] {
            let len = header.extent.len as usize;
            let Some(payload) = inbox.all().get(..len) else {
                return false;
            };
            self.reading[on.index()] = None;
            self.payload(on, &header, place, payload, now);
            inbox.take(len);
            return true;
        }
        match decode(inbox.all()) {
            Ok(Decoded::Incomplete { .. }) => false,
            Ok(Decoded::Packet { packet, len }) => {
                match packet.frame {
                    Frame::Chunk(header) => self.header(on, &header, now),
                    _ => self.receiver.handle_frame(on, &packet, now),
                }
                inbox.take(len);
                true
            }
            Err(error) => {
                let reason = Reason::new(Code::Corrupt, &error.to_string());
                self.receiver.handle_disconnected(reason, now);
                inbox.take(inbox.len());
                false
            }
        }
    }

    fn header(&mut self, on: Priority, header: &ChunkHeader, now: Timestamp) {
        let place = self.receiver.handle_chunk_header(on, header, now).ok();
        if let Some(place) = place {
            let name = (
                place.extent.transfer,
                place.extent.unit,
                place.extent.segment,
            );
            assert_eq!(place.first, !self.buffers.contains_key(&name));
            self.buffers
                .entry(name)
                .or_insert_with(|| vec![0; place.segment_len as usize]);
        }
        self.reading[on.index()] = Some((*header, place.map(|place| place.extent)));
    }

    fn payload(
        &mut self,
        on: Priority,
        header: &ChunkHeader,
        place: Option<Extent>,
        payload: &[u8],
        now: Timestamp,
    ) {
        let Some(extent) = place else {
            return;
        };
        let name = (extent.transfer, extent.unit, extent.segment);
        if let Some(buffer) = self.buffers.get_mut(&name) {
            buffer[extent.offset as usize..(extent.offset + extent.len) as usize]
                .copy_from_slice(payload);
        }
        let intact = crc32c::crc32c(payload) == header.payload_crc;
        self.receiver.handle_chunk_done(on, header, intact, now);
        self.events(now);
    }

    fn write(&mut self, on: Priority, output: &mut Direction, now: Timestamp) -> bool {
        let mut busy = false;
        loop {
            let outbox = &mut self.outbox[on.index()];
            if outbox.is_empty() {
                let Some(mut packet) = self.receiver.poll_transmit(on, now) else {
                    return busy;
                };
                if let Frame::Credit(credit) = packet.frame {
                    self.granted = credit.limit;
                }
                let now = packet.epoch;
                if let Some(epoch) = self.old.before(now) {
                    packet.epoch = epoch;
                    outbox.frame(&packet);
                    packet.epoch = now;
                }
                outbox.frame(&packet);
            }
            if !outbox.flush(self.link + on.index(), output) {
                return busy;
            }
            busy = true;
        }
    }

    fn events(&mut self, now: Timestamp) {
        while let Some(event) = self.receiver.poll_event() {
            match event {
                Event::Offered {
                    transfer,
                    descriptor,
                    deadline,
                } => {
                    self.deadlines.insert(transfer, self.common(deadline));
                    let (plan, wanted) = parse(&descriptor);
                    if wanted {
                        self.live.insert(transfer, Progress::default());
                        self.receiver.accept(transfer, plan, now).unwrap();
                    } else {
                        self.receiver.reject(transfer, "not wanted", now);
                    }
                }
                Event::SegmentComplete {
                    transfer,
                    unit,
                    segment,
                    len,
                    checksum,
                } => {
                    self.segment((transfer, unit, segment), len, checksum, now);
                }
                Event::LevelComplete { transfer, level } => {
                    let progress = self
                        .live
                        .get_mut(&transfer)
                        .expect("a level of a live transfer");
                    assert_eq!(usize::from(level), progress.levels.len());
                    progress.levels.push((level, now));
                    if level == 0 {
                        let at = self.common(now);
                        self.anchors.insert(transfer, at);
                    }
                }
                Event::Complete(transfer) => {
                    let progress = &self.live[&transfer];
                    let job = self
                        .jobs
                        .iter()
                        .find(|job| job.transfer == transfer)
                        .unwrap();
                    assert_eq!(progress.segments, job.units as usize * LEVELS.len());
                    assert_eq!(progress.levels.len(), 4);
                    self.end(transfer, Event::Complete(transfer), now);
                }
                Event::Failed(transfer, _) | Event::Cancelled(transfer, _) => {
                    self.end(transfer, event, now);
                }
                Event::Broken(reason) => {
                    assert!(
                        self.live.is_empty(),
                        "the link is over, and transfers are not"
                    );
                    self.broken = Some((reason, self.common(now)));
                }
            }
        }
    }

    fn segment(&mut self, name: Name, len: u32, checksum: u64, now: Timestamp) {
        let (transfer, unit, segment) = name;
        let progress = self
            .live
            .get_mut(&transfer)
            .expect("a segment of a live transfer");
        progress.segments += 1;
        let buffer = self
            .buffers
            .remove(&name)
            .expect("a segment completes once");
        let job = self
            .jobs
            .iter()
            .find(|job| job.transfer == transfer)
            .unwrap();
        assert_eq!(len as usize, buffer.len());
        assert_eq!(checksum, describe(&buffer).checksum);
        assert!(
            buffer == job.payload(unit, segment),
            "bytes of {name:?} are not those sent"
        );
        let priority = match LEVELS[usize::from(segment.0)] {
            0 => Priority::Anchor,
            _ => Priority::Residual,
        };
        self.held
            .push_back((now + self.hold, priority, u64::from(len)));
        self.consume(now);
    }

    fn end(&mut self, transfer: TransferId, event: Event, now: Timestamp) {
        self.live.remove(&transfer);
        self.buffers.retain(|name, _| name.0 != transfer);
        let at = self.common(now);
        let again = self.ended.insert(transfer, (event, at));
        assert!(
            again.is_none(),
            "transfer {transfer} ended twice on the receiving side"
        );
    }

    /// Back-pressure is explicit: what is buffered and held stays below the windows and the segments being begun.
    fn check_memory(&mut self) {
        let buffered: usize = self.buffers.values().map(Vec::len).sum();
        let held: u64 = self.held.iter().map(|&(_, _, bytes)| bytes).sum();
        let memory = buffered as u64 + held;
        self.most_memory = self.most_memory.max(memory);
        let begun: u64 = self
            .jobs
            .iter()
            .map(|job| u64::from(job.bound))
            .max()
            .unwrap_or(0);
        let windows: Bytes = self.config.window.into_iter().sum();
        // Each transfer that was preempted may have left one begun segment.
        let limit = windows.get() + 2 * begun;
        assert!(
            memory <= limit,
            "{memory} bytes are held, more than {limit}"
        );
    }
}
