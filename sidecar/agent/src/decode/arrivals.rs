//! What comes from prefill agents, and what becomes of it on the codec's thread.

use std::sync::Arc;

use lynx_proto::peer::v1::{First, Layer, Sent};
use lynx_protocol::Code;
use lynx_transport::ReceiverEvent;
use lynx_units::{Bytes, Epoch, Priority, TransferId};

use super::Decoder;
use super::asking::Told;
use super::merging::{Done, Segment};
use super::request::{Kv, Request};
use crate::clock::unix_ns;
use crate::counters::KvFailure;
use crate::peers::{LinkNews, PeerId};
use crate::timeline::{Class, Event};

impl Decoder {
    /// Something happened on a link.
    pub(super) fn link_news(&mut self, news: LinkNews) {
        let on = news.on;
        let Some(event) = news.event else {
            return self.lose_link(on, "the link is lost");
        };
        match event {
            ReceiverEvent::Offered {
                transfer,
                descriptor,
                ..
            } => self.offered(on, transfer, &descriptor),
            ReceiverEvent::SegmentComplete {
                transfer,
                unit,
                segment,
                bytes,
                checksum,
            } => {
                let segment = Segment {
                    unit,
                    segment,
                    bytes,
                    checksum,
                };
                self.segment(on, transfer, segment);
            }
            ReceiverEvent::LevelComplete { transfer, level } => self.level(on, transfer, level),
            ReceiverEvent::Complete(transfer) => {
                let Some(number) = self.awaited(on, transfer) else {
                    return;
                };
                self.watch_link(number);
                if let Some(loading) = self.loading(number) {
                    loading.blocks.handle_complete();
                }
                self.drive(number);
            }
            ReceiverEvent::Failed(transfer, reason)
            | ReceiverEvent::Cancelled(transfer, reason) => {
                if let Some(number) = self.awaited(on, transfer) {
                    let kind = match reason.code() {
                        Code::Deadline => KvFailure::Deadline,
                        Code::Disconnected | Code::Silent | Code::Shutdown => KvFailure::Link,
                        Code::Corrupt | Code::Rejected | Code::Protocol => KvFailure::Content,
                        Code::Application => KvFailure::Peer,
                    };
                    let why = match kind {
                        KvFailure::Deadline => self.late(number),
                        _ => reason.to_string(),
                    };
                    if kind != KvFailure::Link || !self.retry(number, &why) {
                        self.fail(number, kind, &why);
                    }
                }
            }
            ReceiverEvent::Broken(reason) => self.lose_link(on, &reason.to_string()),
        }
    }

    /// The request that waits for this transfer on this link.
    fn awaited(&mut self, on: (PeerId, Epoch), transfer: TransferId) -> Option<u64> {
        let number = *self.transfers.get(&transfer)?;
        let loading = self.loading(number)?;
        let waits = loading.transfer == transfer && loading.on == on && loading.blocks.is_loading();
        waits.then_some(number)
    }

    fn offered(&mut self, on: (PeerId, Epoch), transfer: TransferId, descriptor: &[u8]) {
        let Some(number) = self.awaited(on, transfer) else {
            // The offer of a client who left before it came. Cancelled, not rejected: nothing is wrong with it.
            if let Some(link) = self.peers.link(on.0) {
                link.cancel(transfer, "no request waits for this transfer")
                    .ok();
            }
            return;
        };
        let Some(loading) = self.loading(number) else {
            return;
        };
        if loading.coding.is_described_by(descriptor) {
            let plan = Arc::new(loading.coding.transfer().clone());
            // A link that is over says so in its events.
            loading.link.accept(transfer, plan).ok();
            return;
        }
        let why = "the offer is not what was asked for: run the same release on both";
        loading.link.reject(transfer, why).ok();
        self.fail(number, KvFailure::Content, why);
    }

    fn segment(&mut self, on: (PeerId, Epoch), transfer: TransferId, segment: Segment) {
        let Some(number) = self.awaited(on, transfer) else {
            return;
        };
        let Some(loading) = self.loading(number) else {
            return;
        };
        let priority = loading.coding.transfer().priority(segment.segment);
        let class = priority.unwrap_or(Priority::Residual).index();
        let bytes = Bytes::of_slice(&segment.bytes);
        loading.received[class] += bytes;
        loading.blocks.handle_arrived();
        loading.attempt = None;
        self.peers.arrived(transfer, bytes);
        self.merging.take(transfer, segment);
        self.drive(number);
    }

    fn level(&mut self, on: (PeerId, Epoch), transfer: TransferId, level: u8) {
        let Some(number) = self.awaited(on, transfer) else {
            return;
        };
        self.watch_link(number);
        let Some(request) = self.requests.get_mut(&number) else {
            return;
        };
        request.answer.happened(|answer| Event::LevelComplete {
            level: level.into(),
            t: answer.seconds(unix_ns()),
        });
        if let Kv::Loading(loading) = &mut request.kv
            && request.anchor.is_some()
            && level < loading.coding.last_level()
        {
            loading.blocks.handle_level(level);
        }
        self.drive(number);
    }

    /// The link is lost, and with it also the transfers that it had not offered yet: nobody else tells of those.
    fn lose_link(&mut self, on: (PeerId, Epoch), why: &str) {
        let lost =
            |request: &Request| matches!(&request.kv, Kv::Loading(loading) if loading.on == on);
        for number in self.numbers_of(lost) {
            if !self.retry(number, why) {
                self.fail(number, KvFailure::Link, why);
            }
        }
    }

    /// Gives up what should have been here by now, whatever became of it, and tells what has arrived meanwhile.
    pub(super) fn tick(&mut self) {
        let now = self.clock.now();
        let late = |request: &Request| matches!(&request.kv, Kv::Loading(loading) if loading.deadline <= now);
        for number in self.numbers_of(late) {
            let why = self.late(number);
            self.fail(number, KvFailure::Deadline, &why);
        }
        let numbers: Vec<u64> = self.requests.keys().copied().collect();
        for number in numbers {
            self.watch_link(number);
        }
    }

    /// Why a request's KV is given up at its deadline: prefill, and what came of it, count.
    fn late(&mut self, number: u64) -> String {
        let limit = self.terms.deadline();
        let come = self.loading(number).map(|loading| loading.received);
        let come: Bytes = come.into_iter().flatten().sum();
        format!(
            "the KV did not come in time: {come} of it were here after {limit:?}, and prefill and transfer together may take so \
             long (transfer.deadline)"
        )
    }

    fn numbers_of(&self, which: impl Fn(&Request) -> bool) -> Vec<u64> {
        let requests = self.requests.iter();
        let numbers = requests.filter_map(|(number, request)| which(request).then_some(*number));
        numbers.collect()
    }

    /// Tells the timeline what has arrived on the link since the request's transfer began.
    fn watch_link(&mut self, number: u64) {
        let Some(request) = self.requests.get_mut(&number) else {
            return;
        };
        let Kv::Loading(loading) = &mut request.kv else {
            return;
        };
        if !request.answer.has_timeline() {
            return;
        }
        let total = loading.link.stats().wire_received;
        for priority in Priority::ALL {
            let index = priority.index();
            if total[index] == loading.told[index] {
                continue;
            }
            loading.told[index] = total[index];
            let bytes = (total[index] - loading.before[index]).get();
            request.answer.happened(|answer| Event::Sent {
                priority: Class::from(priority),
                bytes,
                t: answer.seconds(unix_ns()),
            });
        }
    }

    /// What the prefill agent says about a transfer.
    pub(super) fn told(&mut self, transfer: TransferId, told: Told) {
        let Some(&number) = self.transfers.get(&transfer) else {
            return;
        };
        match told {
            Told::Layer(layer) => self.layer(number, &layer),
            Told::First(first) => self.first_token(number, first),
            Told::Sent(sent) => self.sent(number, transfer, sent),
            Told::Failed { why, elsewhere } => {
                if elsewhere && self.retry(number, &why) {
                    return;
                }
                if elsewhere && let Some(loading) = self.loading(number) {
                    let peer = loading.on.0;
                    self.peers.avoid(peer, self.clock.now());
                }
                self.fail(number, KvFailure::Peer, &why);
            }
        }
    }

    fn layer(&mut self, number: u64, layer: &Layer) {
        let Some(request) = self.requests.get_mut(&number) else {
            return;
        };
        let chunk = request.answer.chunk(layer.first_token);
        request.answer.happened(|answer| Event::PrefillLayer {
            chunk,
            layer: layer.layer,
            start: answer.seconds(layer.start_unix_ns),
            end: answer.seconds(layer.end_unix_ns),
        });
    }

    fn first_token(&mut self, number: u64, first: First) {
        let Some(loading) = self.loading(number) else {
            return;
        };
        if !loading.blocks.is_loading() {
            return;
        }
        loading.blocks.handle_first_token();
        loading.attempt = None;
        let transfer = loading.transfer;
        self.peers.computed(transfer);
        let first = lynx_proto::engine::v1::FirstToken {
            request: number,
            token: first.token,
            logprobs: first.logprobs,
        };
        self.say(lynx_proto::engine::v1::from_agent::Kind::FirstToken(first));
        self.drive(number);
    }

    fn sent(&mut self, number: u64, transfer: TransferId, sent: Sent) {
        let known = |bytes: u64| Some(bytes).filter(|bytes| *bytes > 0);
        let memory = match (
            known(sent.engine_memory_bytes),
            known(sent.agent_memory_bytes),
        ) {
            (Some(engine), Some(agent)) => Some(engine + agent),
            (one, other) => one.or(other),
        };
        if let Some(request) = self.requests.get_mut(&number) {
            request.prefill_memory = memory;
            request.prefill_word = None;
            if let Kv::Loading(loading) = &mut request.kv {
                loading.ask = None;
            } else {
                self.transfers.remove(&transfer);
            }
        }
    }

    /// The codec's thread has done something, or can't go on.
    pub(super) fn merged(&mut self, done: Done) {
        let Done {
            transfer,
            table,
            error,
        } = done;
        let Some(&number) = self.transfers.get(&transfer) else {
            return;
        };
        let Some(loading) = self.loading(number) else {
            return;
        };
        if let Some(table) = table {
            loading.table = Some(table);
            loading.blocks.handle_merged();
        }
        if let Some(error) = error {
            return self.failed_merge(number, &error.to_string());
        }
        self.drive(number);
    }

    fn failed_merge(&mut self, number: u64, why: &str) {
        self.fail(number, KvFailure::Content, why);
        // Where it was about to end anyway.
        self.drive(number);
    }
}
