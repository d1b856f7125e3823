//! What arrives on the link, on its way into the engine's blocks.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use lynx_engine::Exactness;
use lynx_kernels::checksum;
use lynx_protocol::{Code, Reason};
use lynx_transport::ReceiverEvent;
use lynx_units::{BitRate, Bytes, Priority, Timestamp, TransferId};

use super::Node;
use crate::clock::{self, seconds_between};
use crate::node::TRANSFER_TIME;
use crate::node::coding::Descriptor;
use crate::node::request::Running;
use crate::run::Event;

impl Node {
    pub(super) fn on_link(&mut self, event: ReceiverEvent) -> Result<()> {
        match event {
            ReceiverEvent::Offered {
                transfer,
                descriptor,
                ..
            } => self.on_offer(transfer, &descriptor),
            ReceiverEvent::SegmentComplete {
                transfer,
                unit,
                segment,
                bytes,
                checksum: expected,
            } => {
                let Some(index) = self.loading(transfer) else {
                    return Ok(());
                };
                let running = &mut self.running[index];
                let taken = if checksum(&bytes) == expected {
                    running.take(unit, usize::from(segment.0), bytes.into_vec())
                } else {
                    Err(anyhow::anyhow!(
                        "segment {segment} of unit {unit} has another checksum than its sender computed"
                    ))
                };
                taken.or_else(|error| self.refuse(transfer, &error))
            }
            ReceiverEvent::LevelComplete { transfer, level } => self.on_level(transfer, level),
            ReceiverEvent::Complete(transfer) => self.on_complete(transfer),
            ReceiverEvent::Failed(transfer, reason)
            | ReceiverEvent::Cancelled(transfer, reason) => {
                self.lose(transfer, &reason.to_string())
            }
            ReceiverEvent::Broken(reason) => self.lose_all(&reason.to_string()),
        }
    }

    fn on_offer(&mut self, transfer: TransferId, descriptor: &[u8]) -> Result<()> {
        let Some(index) = self.loading(transfer) else {
            self.link
                .reject(transfer, "no request waits for this transfer")
                .ok();
            return Ok(());
        };
        let running = &self.running[index];
        let offered = serde_json::from_slice::<Descriptor>(descriptor).ok();
        let same = offered.is_some_and(|offered| offered == *running.coding.descriptor());
        let answered = if same {
            self.link
                .accept(transfer, Arc::new(running.coding.transfer().clone()))
        } else {
            self.link
                .reject(transfer, "the descriptor is not the one that was asked for")
        };
        // A link that is over says so in its events.
        answered.ok();
        Ok(())
    }

    fn on_level(&mut self, transfer: TransferId, level: u8) -> Result<()> {
        self.watch_link();
        self.merge()?;
        let now = clock::now();
        let Some(index) = self.loading(transfer) else {
            return Ok(());
        };
        let running = &self.running[index];
        let t = seconds_between(running.start, now);
        running.happened(Event::LevelComplete {
            level: u32::from(level),
            t,
        });
        let Some(anchor) = running.anchor else {
            return Ok(());
        };
        if level == running.coding.last_level() {
            return Ok(());
        }
        let t = seconds_between(running.start, clock::now());
        let (request, rate) = (running.request, self.rate(running, now));
        let due_in = self.due_in(running, rate);
        let token_time = self.engine.token_time();
        let drafted = running.drafted();
        let info = self
            .drafting
            .anchor_info(anchor, due_in, drafted, token_time, now);
        let refined = u32::from(level);
        running.happened(if level == 0 {
            Event::AnchorReady { t }
        } else {
            Event::Refined { level: refined, t }
        });
        let next = usize::from(level) + 1;
        let due_from_next = (next < usize::from(running.coding.last_level()))
            .then(|| rate.time_for(Bytes::new(running.bytes_from(next + 1))))
            .flatten();
        let redraft = self
            .drafting
            .is_time_to_redraft(due_in, due_from_next, drafted, token_time);
        self.engine.anchor_ready(request, info)?;
        if redraft {
            self.engine.redraft(request)?;
        }
        Ok(())
    }

    /// What this transfer gets of the link: its own mean, once that says something. The link's estimate is what it can carry
    /// at best.
    fn rate(&self, running: &Running, now: Timestamp) -> BitRate {
        /// A mean over less than this is that of a start.
        const ENOUGH: Bytes = Bytes::from_kib(256);
        let received: Bytes = self.received().into_iter().sum();
        if received < ENOUGH {
            return self.link.stats().estimate.rate;
        }
        BitRate::from_delivery(received, running.age(now))
    }

    /// When the rest is due; `None` where nobody can tell.
    fn due_in(&self, running: &Running, rate: BitRate) -> Option<Duration> {
        let received = self.received()[Priority::Residual.index()];
        rate.time_for(Bytes::new(running.bytes_from(1)) - received)
    }

    fn on_complete(&mut self, transfer: TransferId) -> Result<()> {
        self.watch_link();
        self.merge()?;
        let now = clock::now();
        let Some(index) = self.loading(transfer) else {
            return Ok(());
        };
        let running = &mut self.running[index];
        running.end_loading();
        running.happened(Event::FullReady {
            t: seconds_between(running.start, now),
        });
        let exactness = if running.coding.is_exact() {
            Exactness::Exact
        } else {
            Exactness::Quantised
        };
        let request = running.request;
        Ok(self.engine.full_ready(request, exactness)?)
    }

    /// The transfer won't come: the engine computes the prompt itself.
    pub(super) fn lose(&mut self, transfer: TransferId, why: &str) -> Result<()> {
        let Some(index) = self.loading(transfer) else {
            return Ok(());
        };
        let running = &mut self.running[index];
        running.end_loading();
        let request = running.request;
        Ok(self.engine.kv_failed(request, why.to_owned())?)
    }

    /// The link is lost, and with it also the transfers that it had not offered yet: nobody else tells of those.
    fn lose_all(&mut self, why: &str) -> Result<()> {
        self.lose_where(|running: &Running| running.loading, why)
    }

    /// Gives up what should have been here by now, whatever became of it.
    pub(super) fn lose_late(&mut self) -> Result<()> {
        let now = clock::now();
        let late = |running: &Running| running.loading && running.age(now) > TRANSFER_TIME;
        self.lose_where(late, "the KV did not come in time")
    }

    fn lose_where(&mut self, lost: impl Fn(&Running) -> bool, why: &str) -> Result<()> {
        let running = self.running.iter().filter(|running| lost(running));
        let transfers: Vec<TransferId> = running.map(|running| running.transfer).collect();
        for transfer in transfers {
            self.lose(transfer, why)?;
        }
        Ok(())
    }

    /// What came can't be merged: this side ends the transfer.
    fn refuse(&mut self, transfer: TransferId, error: &anyhow::Error) -> Result<()> {
        let why = format!("{error:#}");
        self.link
            .fail(transfer, Reason::new(Code::Application, &why))
            .ok();
        self.lose(transfer, &why)
    }

    pub(super) fn merge(&mut self) -> Result<()> {
        let mut refused = Vec::new();
        for running in self
            .running
            .iter_mut()
            .filter(|running| running.has_fresh())
        {
            let kv = self.engine.kv_mut(running.request)?;
            if let Err(error) = running.merge(&self.setup, kv) {
                refused.push((running.transfer, error));
            }
        }
        for (transfer, error) in refused {
            self.refuse(transfer, &error)?;
        }
        Ok(())
    }

    /// The request that still waits for this transfer.
    fn loading(&self, transfer: TransferId) -> Option<usize> {
        let waits = |running: &Running| running.transfer == transfer && running.loading;
        self.running.iter().position(waits)
    }
}
