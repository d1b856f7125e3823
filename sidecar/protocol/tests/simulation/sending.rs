//! The sending node: a driver and an application around a [`Sender`].

use std::borrow::Cow;
use std::collections::BTreeMap;

use lynx_protocol::Code;
use lynx_protocol::Extent;
use lynx_protocol::Reason;
use lynx_protocol::sender::{Event, OpenTransfer, Segment, Sender, Transmit};
use lynx_protocol::wire::{Decoded, decode};
use lynx_units::{Epoch, Priority, SegmentIndex, Timestamp, TransferId, UnitIndex};

use super::buffer::Buffer;
use super::network::Direction;
use super::old::{OldFrames, Outbox};
use super::process::Process;
use super::work::{Job, LEVELS, describe};

#[derive(Debug)]
pub(crate) struct Sending {
    pub(crate) sender: Sender,
    /// Number of its first stream on the wire.
    pub(crate) link: usize,
    pub(crate) jobs: Vec<Job>,
    /// Numbers of the jobs that are not over and still have something to be done for.
    at_work: Vec<usize>,
    /// Next unit of each job; `None` before it is open.
    next_unit: Vec<Option<u32>>,
    payloads: Payloads,
    inbox: [Buffer; 2],
    /// Bytes of a transmit that the socket has not taken yet.
    outbox: [Outbox; 2],
    pub(crate) process: Process,
    pub(crate) old: OldFrames,
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
            at_work: (0..jobs.len()).collect(),
            next_unit: vec![None; jobs.len()],
            jobs,
            payloads: BTreeMap::new(),
            inbox: Default::default(),
            outbox: Default::default(),
            process: Process::default(),
            old: OldFrames::default(),
            ended: BTreeMap::new(),
            opened: BTreeMap::new(),
            broken: None,
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.ended.len() == self.jobs.len() || self.broken.is_some()
    }

    /// When the application or the driver does something next.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        let work = self.next_work().filter(|_| self.broken.is_none());
        [work, self.sender.poll_timeout()]
            .into_iter()
            .flatten()
            .min()
    }

    fn next_work(&self) -> Option<Timestamp> {
        let work = |&number: &usize| {
            let (job, next) = (&self.jobs[number], self.next_unit[number]);
            if self.ended.contains_key(&job.transfer) {
                return None;
            }
            let publish = match next {
                None => Some(job.open_at),
                Some(unit) if unit < job.units => Some(job.open_at + job.pace * unit),
                Some(_) => None,
            };
            publish.into_iter().chain(job.cancel_at).min()
        };
        let work = self.at_work.iter().filter_map(work).min()?;
        Some(Timestamp::from_origin(work))
    }

    fn work(&mut self, now: Timestamp) {
        if self.broken.is_some() {
            return;
        }
        let due = |after| Timestamp::from_origin(after) <= now;
        for &number in &self.at_work {
            let (job, next) = (&self.jobs[number], &mut self.next_unit[number]);
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
                *next = Some(unit + 1);
                if job.fails_at.is_some_and(|fails| fails <= unit) {
                    give_up(&mut self.sender, job, UnitIndex(unit));
                    continue;
                }
                publish(&mut self.sender, &mut self.payloads, job, UnitIndex(unit));
            }
            if job.cancel_at.is_some_and(due) {
                self.sender.cancel(job.transfer, "the client went away");
            }
        }
        let ended = &self.ended;
        let (jobs, next) = (&self.jobs, &self.next_unit);
        self.at_work.retain(|&number| {
            let job = &jobs[number];
            let published = next[number] == Some(job.units) && job.cancel_at.is_none();
            !published && !ended.contains_key(&job.transfer)
        });
    }

    /// The turn of application and driver; `true` where they did anything.
    pub(crate) fn drive(
        &mut self,
        input: &mut Direction,
        output: &mut Direction,
        now: Timestamp,
    ) -> bool {
        self.work(now);
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
        let inbox = &mut self.inbox[on.index()];
        loop {
            match decode(inbox.all()) {
                Ok(Decoded::Incomplete { .. }) => return,
                Ok(Decoded::Packet { packet, len }) => {
                    self.sender.handle_frame(on, &packet, now);
                    inbox.take(len);
                }
                Err(error) => {
                    let reason = Reason::new(Code::Corrupt, &error.to_string());
                    return self.sender.handle_disconnected(reason);
                }
            }
        }
    }

    fn write(&mut self, on: Priority, output: &mut Direction, now: Timestamp) -> bool {
        let mut busy = false;
        loop {
            let outbox = &mut self.outbox[on.index()];
            if outbox.is_empty() {
                match self.sender.poll_transmit(on, now) {
                    None => return busy,
                    Some(Transmit::Frame(mut packet)) => {
                        let now = packet.epoch;
                        if let Some(epoch) = self.old.before(now) {
                            packet.epoch = epoch;
                            outbox.frame(&packet);
                            packet.epoch = now;
                        }
                        outbox.frame(&packet);
                    }
                    Some(Transmit::Chunk(mut header)) => {
                        let payload = payload(&self.payloads, &header.extent);
                        let now = header.epoch;
                        if let Some(epoch) = self.old.before(now) {
                            header.epoch = epoch;
                            outbox.chunk(&header, payload);
                            header.epoch = now;
                        }
                        outbox.chunk(&header, payload);
                    }
                }
            }
            if !outbox.flush(self.link + on.index(), output) {
                return busy;
            }
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

type Payloads = BTreeMap<(TransferId, UnitIndex, SegmentIndex), Vec<u8>>;

fn payload<'a>(payloads: &'a Payloads, extent: &Extent) -> &'a [u8] {
    let name = (extent.transfer, extent.unit, extent.segment);
    let (start, len) = (extent.offset as usize, extent.len as usize);
    &payloads[&name][start..start + len]
}

/// Publishes what nobody may, and then gives the transfer up.
fn give_up(sender: &mut Sender, job: &Job, unit: UnitIndex) {
    let name = job.transfer;
    let segment = |len| Segment { len, checksum: 0 };
    let wrong = [
        sender.publish(name, UnitIndex(job.units), &[segment(0); LEVELS.len()]),
        sender.publish(name, unit, &[]),
        sender.publish(name, unit, &[segment(0); LEVELS.len() + 1]),
        sender.publish(name, unit, &[segment(job.bound + 1); LEVELS.len()]),
    ];
    assert!(wrong.iter().all(Result::is_err), "{wrong:?}");
    sender.fail(name, Reason::new(Code::Application, "prefill failed"));
}

fn publish(sender: &mut Sender, payloads: &mut Payloads, job: &Job, unit: UnitIndex) {
    let mut segments = Vec::new();
    for number in (0u16..).take(LEVELS.len()).map(SegmentIndex) {
        let payload = job.payload(unit, number);
        segments.push(describe(&payload));
        payloads.insert((job.transfer, unit, number), payload);
    }
    // In two pieces, which lie somewhere else in each unit; or in one.
    let (first, rest) = segments.split_at(unit.0 as usize % LEVELS.len());
    for piece in [first, rest].into_iter().filter(|piece| !piece.is_empty()) {
        // A transfer that is over takes no units; that is no mistake of this application.
        let published = sender.publish(job.transfer, unit, piece);
        assert!(matches!(
            published,
            Ok(_) | Err(lynx_protocol::sender::PublishError::Unknown(_))
        ));
    }
}
