//! The sending node: a driver and an application around a [`Sender`].

use std::borrow::Cow;
use std::collections::BTreeMap;

use lynx_protocol::Code;
use lynx_protocol::Reason;
use lynx_protocol::sender::{Event, OpenTransfer, Sender, Transmit};
use lynx_protocol::wire::{Decoded, decode};
use lynx_units::{Epoch, Priority, SegmentIndex, Timestamp, TransferId, UnitIndex};

use super::network::Direction;
use super::work::{Job, LEVELS, describe};

#[derive(Debug)]
pub(crate) struct Sending {
    pub(crate) sender: Sender,
    /// Number of its first stream on the wire.
    pub(crate) link: usize,
    jobs: Vec<Job>,
    /// Next unit of each job; `None` before it is open.
    next_unit: Vec<Option<u32>>,
    payloads: BTreeMap<(TransferId, UnitIndex, SegmentIndex), Vec<u8>>,
    inbox: [Vec<u8>; 2],
    /// Bytes of a transmit that the socket has not taken yet.
    outbox: [Vec<u8>; 2],
    /// How each transfer ended, and when.
    pub(crate) ended: BTreeMap<TransferId, (Event, Timestamp)>,
    pub(crate) opened: BTreeMap<TransferId, Timestamp>,
    pub(crate) broken: Option<(Reason, Timestamp)>,
}

impl Sending {
    pub(crate) fn new(epoch: Epoch, jobs: Vec<Job>, now: Timestamp) -> Self {
        Self {
            sender: Sender::new(epoch, now),
            link: 0,
            next_unit: vec![None; jobs.len()],
            jobs,
            payloads: BTreeMap::new(),
            inbox: Default::default(),
            outbox: Default::default(),
            ended: BTreeMap::new(),
            opened: BTreeMap::new(),
            broken: None,
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.ended.len() == self.jobs.len() || self.broken.is_some()
    }

    /// When the application does something next.
    pub(crate) fn next_work(&self) -> Option<Timestamp> {
        let job = |(job, next): (&Job, &Option<u32>)| {
            if self.ended.contains_key(&job.transfer) {
                return None;
            }
            let publish = match *next {
                None => Some(job.open_at),
                Some(unit) if unit < job.units => Some(job.open_at + job.pace * unit),
                Some(_) => None,
            };
            let work = publish.into_iter().chain(job.cancel_at).min()?;
            Some(Timestamp::from_origin(work))
        };
        self.jobs.iter().zip(&self.next_unit).filter_map(job).min()
    }

    /// The application's turn.
    pub(crate) fn work(&mut self, now: Timestamp) {
        if self.broken.is_some() {
            return;
        }
        for (job, next) in self.jobs.iter().zip(&mut self.next_unit) {
            let due = |after| Timestamp::from_origin(after) <= now;
            if next.is_none() && due(job.open_at) {
                let open = OpenTransfer {
                    transfer: job.transfer,
                    descriptor: Cow::Owned(job.descriptor()),
                    plan: job.plan(),
                    deadline: now + job.lifetime,
                };
                self.sender.open(open, now).unwrap();
                self.opened.insert(job.transfer, now);
                *next = Some(0);
            }
            while let Some(unit) = *next
                && unit < job.units
                && due(job.open_at + job.pace * unit)
            {
                publish(&mut self.sender, &mut self.payloads, job, UnitIndex(unit));
                *next = Some(unit + 1);
            }
            if job.cancel_at.is_some_and(due) {
                self.sender.cancel(job.transfer, "the client went away");
            }
        }
    }

    /// The driver's turn; `true` where it did anything.
    pub(crate) fn drive(
        &mut self,
        input: &mut Direction,
        output: &mut Direction,
        now: Timestamp,
    ) -> bool {
        let mut busy = false;
        for on in Priority::ALL {
            if input.read(self.link + on.index(), &mut self.inbox[on.index()]) {
                busy = true;
                self.sender.handle_activity(on, now);
                self.parse(on, now);
            }
        }
        if self.sender.poll_timeout().is_some_and(|at| at <= now) {
            busy = true;
            self.sender.handle_timeout(now);
        }
        self.events(now);
        for on in Priority::ALL {
            busy |= self.write(on, output, now);
        }
        self.events(now);
        busy
    }

    pub(crate) fn disconnect(&mut self, reason: &str, now: Timestamp) {
        self.sender
            .handle_disconnected(Reason::new(Code::Disconnected, reason));
        self.events(now);
    }

    fn parse(&mut self, on: Priority, now: Timestamp) {
        let inbox = std::mem::take(&mut self.inbox[on.index()]);
        let mut rest = inbox.as_slice();
        loop {
            match decode(rest) {
                Ok(Decoded::Incomplete { .. }) => break,
                Ok(Decoded::Packet { packet, len }) => {
                    self.sender.handle_frame(on, &packet, now);
                    rest = &rest[len..];
                }
                Err(error) => {
                    let reason = Reason::new(Code::Corrupt, &error.to_string());
                    self.sender.handle_disconnected(reason);
                    return;
                }
            }
        }
        self.inbox[on.index()] = rest.to_vec();
    }

    fn write(&mut self, on: Priority, output: &mut Direction, now: Timestamp) -> bool {
        let mut busy = false;
        loop {
            let outbox = &mut self.outbox[on.index()];
            if outbox.is_empty() {
                match self.sender.poll_transmit(on, now) {
                    None => return busy,
                    Some(Transmit::Frame(packet)) => packet.encode(outbox).unwrap(),
                    Some(Transmit::Chunk(header)) => {
                        let extent = header.extent;
                        let name = (extent.transfer, extent.unit, extent.segment);
                        let (start, end) = (
                            extent.offset as usize,
                            (extent.offset + extent.len) as usize,
                        );
                        let payload = &self.payloads[&name][start..end];
                        outbox.extend(header.encode(crc32c::crc32c(payload)));
                        outbox.extend(payload);
                    }
                }
            }
            let taken = outbox.len().min(output.room(self.link + on.index()));
            if taken == 0 {
                return busy;
            }
            output.write(self.link + on.index(), &outbox[..taken]);
            outbox.drain(..taken);
            busy = true;
        }
    }

    fn events(&mut self, now: Timestamp) {
        while let Some(event) = self.sender.poll_event() {
            match &event {
                Event::Accepted(_) => {}
                Event::Complete(name) | Event::Failed(name, _) | Event::Cancelled(name, _) => {
                    let again = self.ended.insert(*name, (event.clone(), now));
                    assert!(
                        again.is_none(),
                        "transfer {name} ended twice on the sending side"
                    );
                }
                Event::Broken(reason) => self.broken = Some((reason.clone(), now)),
            }
        }
    }
}

fn publish(
    sender: &mut Sender,
    payloads: &mut BTreeMap<(TransferId, UnitIndex, SegmentIndex), Vec<u8>>,
    job: &Job,
    unit: UnitIndex,
) {
    let mut segments = Vec::new();
    for number in (0u16..).take(LEVELS.len()).map(SegmentIndex) {
        let payload = job.payload(unit, number);
        segments.push(describe(&payload));
        payloads.insert((job.transfer, unit, number), payload);
    }
    // A transfer that is over takes no units; that is no mistake of this application.
    let published = sender.publish(job.transfer, unit, &segments);
    assert!(matches!(
        published,
        Ok(_) | Err(lynx_protocol::sender::PublishError::Unknown(_))
    ));
}
