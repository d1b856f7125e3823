//! From a request that waits for KV to blocks that hold it.

use std::sync::Arc;

use lynx_kernels::Cuts;
use lynx_policy::Fidelity;
use lynx_proto::engine::v1::{
    AnchorReady, FullReady, GrantReturned, KvFailed, WantGrant, from_agent,
};
use lynx_proto::peer::v1::TransferRequest;
use lynx_protocol::{Code, Reason};
use lynx_telemetry::{KeyValue, attributes};
use lynx_units::{Bytes, Width};

use super::asking::ask;
use super::blocks::{Action, Blocks, End};
use super::request::{AbortOnDrop, Anchor, Kv, Loading};
use super::{Decoder, Signal};
use crate::clock::unix_ns;
use crate::coding::{Coding, CodingError, Descriptor};
use crate::config;
use crate::counters::{InUse, KvFailure, Pool};
use crate::drafting::Wanted;
use crate::identity::profile_name;
use crate::integrity;
use crate::method::Method;
use crate::peers::Chosen;
use crate::session::Expected;
use crate::timeline::Event;

/// Why a transfer is not even asked for.
#[derive(Debug, thiserror::Error)]
enum LoadError {
    #[error("no prefill agent is linked, or all are being shut down")]
    NoPeer,
    #[error("no engine is attached")]
    NoEngine,
    #[error("transfers under way have all memory that they may (transfer.mergeBuffer)")]
    Memory,
    #[error(transparent)]
    Coding(#[from] CodingError),
}

impl Decoder {
    /// The engine has blocks: asks a prefill agent for what belongs there, or says that it won't come.
    pub(super) fn load(&mut self, expected: Expected) {
        let number = expected.request;
        if let Some(request) = self.requests.get_mut(&number) {
            request.spans.taken();
            request.pace.taken(&self.counters.pace);
        }
        let Some(chosen) = self.peers.choose() else {
            drop(expected);
            return self.not_asked(number, &LoadError::NoPeer);
        };
        let peer = chosen.peer;
        if let Err(error) = self.begin(expected, chosen) {
            self.peers.release(peer);
            self.not_asked(number, &error);
        }
    }

    fn not_asked(&mut self, number: u64, error: &LoadError) {
        self.count_failure(match error {
            LoadError::Memory => KvFailure::Memory,
            LoadError::NoPeer | LoadError::NoEngine | LoadError::Coding(_) => KvFailure::NoPeer,
        });
        self.tell_failed(number, error.to_string());
    }

    fn begin(&mut self, expected: Expected, chosen: Chosen) -> Result<(), LoadError> {
        let session = self.session.as_ref().ok_or(LoadError::NoEngine)?;
        let (profile, shape) = (Arc::clone(&session.profile), session.shape);
        let now = self.clock.now();
        let request = self.requests.get(&expected.request);
        let wanted = request.and_then(|request| request.wanted.as_deref());
        let method = wanted.and_then(|wanted| wanted.method);
        let method = method.unwrap_or_else(|| self.terms.method());
        let per_token = shape.layers * shape.kv_heads * shape.head_dim * 4;
        let lacking = expected.tokens.len() - expected.from_token as usize;
        let kv = Bytes::new((lacking * per_token) as u64);
        let width = wanted.and_then(|wanted| wanted.anchor);
        let width = width.unwrap_or_else(|| self.width(method, kv, &chosen));
        let cuts = profile.cuts(width);
        let descriptor = Descriptor {
            method: lynx_proto::peer::v1::Method::from(method).into(),
            prompt_tokens: u32::try_from(expected.tokens.len()).unwrap_or(u32::MAX),
            from_token: expected.from_token,
            anchor_k_eighths: cuts.k().eighths().into(),
            anchor_v_bits: cuts.v().into(),
            profile: profile_name(&profile),
        };
        let coding = Arc::new(Coding::new(shape, &descriptor)?);
        let room = InUse::take(&self.counters, Pool::Merge, coding.bf16_bytes());
        let room = room.ok_or(LoadError::Memory)?;
        self.counters.transfers_begun.add(1);
        self.counters.transfer_kv_bytes.add(coding.bf16_bytes());
        let transfer = self.numbers.transfer();
        let deadline = now + self.terms.deadline();
        self.merging
            .open(transfer, Arc::clone(&coding), profile, deadline);
        self.transfers.insert(transfer, expected.request);
        let before = chosen.link.stats().wire_received;
        let mut loading = Loading {
            transfer,
            blocks: Blocks::expected(),
            table: Some(expected.blocks),
            coding,
            _room: room,
            on: (chosen.peer, chosen.link.epoch()),
            link: chosen.link.clone(),
            ask: None,
            began: now,
            deadline,
            received: [Bytes::ZERO; 2],
            before,
            told: before,
            is_anchored: false,
        };
        let checksum = integrity::of_question(&expected.tokens, Some(&expected.sampling));
        let transfer_request = TransferRequest {
            caller: self.peers.identity().map(|identity| identity.to_proto()),
            transfer: transfer.0,
            link: chosen.ticket.secret().to_owned(),
            coding: Some(descriptor),
            tokens: expected.tokens,
            sampling: Some(expected.sampling),
            time_left_ns: u64::try_from(self.terms.deadline().as_nanos()).unwrap_or(u64::MAX),
            timeline: request.is_some_and(|request| request.answer.has_timeline()),
            checksum,
        };
        self.last_width = Some(width);
        let Some(request) = self.requests.get_mut(&expected.request) else {
            return Ok(());
        };
        request.transfer = Some(transfer);
        request.anchor = method.drafts().then(|| anchor(&cuts));
        let trace = request
            .spans
            .transfer_begins(span_attributes(method, width, &chosen, transfer.0));
        let signals = self.signals.clone();
        let tell = move |told| signals.send(Signal::Told(transfer, told)).is_ok();
        let task = tokio::spawn(async move {
            ask(chosen.channel, transfer_request, &trace, tell).await;
        });
        loading.ask = Some(AbortOnDrop(task.abort_handle()));
        request.kv = Kv::Loading(Box::new(loading));
        Ok(())
    }

    /// The anchor's mean width where the request doesn't fix one.
    fn width(&self, method: Method, kv: Bytes, chosen: &Chosen) -> Width {
        match self.terms.anchor() {
            config::Anchor::Fixed(width) => width,
            config::Anchor::Adaptive(bounds) => {
                let fidelity = if method == Method::LynxInt8 {
                    Fidelity::Int8
                } else {
                    Fidelity::Exact
                };
                let what = Wanted {
                    kv,
                    link: chosen.link.stats().estimate.rate,
                    fidelity,
                    objective: self.terms.objective(),
                    bounds,
                };
                self.drafting.width(&what, self.clock.now())
            }
        }
    }

    /// The KV that this request waits for.
    pub(super) fn loading(&mut self, number: u64) -> Option<&mut Loading> {
        match &mut self.requests.get_mut(&number)?.kv {
            Kv::Loading(loading) => Some(loading),
            Kv::Settled => None,
        }
    }

    /// Does what the request's blocks ask for.
    pub(super) fn drive(&mut self, number: u64) {
        while let Some(loading) = self.loading(number)
            && let Some(action) = loading.blocks.poll_action()
        {
            match action {
                Action::Merge => {
                    if let Some(table) = loading.table.take() {
                        let transfer = loading.transfer;
                        self.merging.merge(transfer, table);
                    }
                }
                Action::WantGrant => {
                    self.say(from_agent::Kind::WantGrant(WantGrant { request: number }));
                }
                Action::GrantReturned => {
                    let returned = GrantReturned { request: number };
                    self.say(from_agent::Kind::GrantReturned(returned));
                }
                Action::AnchorReady(level) => self.anchor_ready(number, level),
                Action::End(end) => self.settle(number, end),
            }
        }
    }

    fn anchor_ready(&mut self, number: u64, level: u8) {
        let now = self.clock.now();
        let Some(request) = self.requests.get_mut(&number) else {
            return;
        };
        let (Kv::Loading(loading), Some(anchor)) = (&mut request.kv, request.anchor) else {
            return;
        };
        let drafted = request.answer.drafted();
        let due = loading.due(level, now);
        let depth_limit = self.drafting.depth(anchor.mean(), due, drafted, now);
        let redraft = self.drafting.is_time_to_redraft(due, drafted);
        let now_ns = unix_ns();
        let residual_due_unix_ns = due.all.map_or(0, |due_in| {
            now_ns.saturating_add(u64::try_from(due_in.as_nanos()).unwrap_or(u64::MAX))
        });
        let is_first = !std::mem::replace(&mut loading.is_anchored, true);
        if is_first {
            let time = loading.age(now);
            self.counters.time_to_anchor.observe_time(time);
            let rate = loading.rate(now).bits_per_second();
            request.spans.anchor_ready(depth_limit, rate);
        }
        request.answer.happened(|answer| {
            let t = answer.seconds(now_ns);
            if is_first {
                Event::AnchorReady { t }
            } else {
                let level = u32::from(level);
                Event::Refined { level, t }
            }
        });
        self.say(from_agent::Kind::AnchorReady(AnchorReady {
            request: number,
            level: level.into(),
            depth_limit,
            residual_due_unix_ns,
            redraft,
        }));
    }

    /// The agent is done with the request's blocks, for better or worse: lets go of them, and then tells the engine.
    fn settle(&mut self, number: u64, end: End) {
        let now = self.clock.now();
        let Some(request) = self.requests.get_mut(&number) else {
            return;
        };
        let Kv::Loading(mut loading) = std::mem::replace(&mut request.kv, Kv::Settled) else {
            return;
        };
        loading.table = None;
        self.merging.close(loading.transfer);
        self.peers.release(loading.on.0);
        let bytes = loading.received.map(Bytes::get);
        self.counters.anchor_bytes.add(bytes[0]);
        self.counters.residual_bytes.add(bytes[1]);
        let failure = match &end {
            End::Full => None,
            End::Failed(why) => Some(why.as_str()),
            End::Abort => Some("the request is not wanted any more"),
        };
        let rate = loading.rate(now);
        request.spans.transfer_ended(bytes, rate, failure);
        if end == End::Full {
            self.counters.transfers_complete.add(1);
            self.counters.time_to_full.observe_time(loading.age(now));
            request.answer.happened(|answer| Event::FullReady {
                t: answer.seconds(unix_ns()),
            });
            // The peer's last word is yet to come.
            request.prefill_word = loading.ask.take();
        } else {
            self.transfers.remove(&loading.transfer);
            if let Some(anchor) = request.anchor {
                let tokens = request.answer.drafted();
                self.counters.drafts.wasted(anchor.mean(), tokens);
            }
        }
        let exact = loading.coding.is_exact();
        drop(loading);
        match end {
            End::Full => self.say(from_agent::Kind::FullReady(FullReady {
                request: number,
                exact,
            })),
            End::Failed(why) => self.tell_failed(number, why),
            End::Abort => {
                self.counters.transfers_cancelled.add(1);
                let abort = lynx_proto::engine::v1::Abort { request: number };
                self.say(from_agent::Kind::Abort(abort));
            }
        }
        if self
            .requests
            .get(&number)
            .is_some_and(|request| request.finished)
        {
            self.take_request(number, "the request has ended");
        }
        // There may be memory for the next one.
        self.submit_next();
        self.forget_if_quiet();
    }

    fn tell_failed(&mut self, number: u64, reason: String) {
        tracing::warn!(request = number, "the engine computes the prompt: {reason}");
        if let Some(request) = self.requests.get_mut(&number) {
            request.local = true;
        }
        self.say(from_agent::Kind::KvFailed(KvFailed {
            request: number,
            reason,
        }));
    }

    /// The KV won't come: the transfer ends at once, and the engine is told as soon as nothing writes into its blocks.
    pub(super) fn fail(&mut self, number: u64, kind: KvFailure, why: &str) {
        let Some(loading) = self.loading(number) else {
            return;
        };
        if !loading.blocks.is_loading() {
            return;
        }
        loading.ask = None;
        let reason = Reason::new(Code::Application, why);
        // A link that is over has no transfers.
        loading.link.fail(loading.transfer, reason).ok();
        loading.blocks.end(End::Failed(why.to_owned()));
        self.counters.transfers_failed.add(1);
        self.count_failure(kind);
        if let Some(request) = self.requests.get_mut(&number) {
            request.spans.transfer_fails(kind);
        }
        self.drive(number);
    }

    pub(super) fn count_failure(&self, kind: KvFailure) {
        self.counters.kv_failures.of(kind).add(1);
    }
}

fn anchor(cuts: &Cuts) -> Anchor {
    Anchor {
        k_eighths: cuts.k().eighths(),
        v_bits: cuts.v(),
    }
}

fn span_attributes(method: Method, width: Width, chosen: &Chosen, transfer: u64) -> Vec<KeyValue> {
    let transfer = i64::try_from(transfer).unwrap_or(i64::MAX);
    let mut attributes = vec![
        KeyValue::new(attributes::METHOD, method.id()),
        KeyValue::new(attributes::PEER, chosen.name.clone()),
        KeyValue::new(attributes::TRANSFER, transfer),
    ];
    if method.drafts() {
        attributes.push(KeyValue::new(attributes::ANCHOR_BITS, width.bits()));
    }
    attributes
}
