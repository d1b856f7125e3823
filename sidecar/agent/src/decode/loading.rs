//! From a request whose KV is on its way to blocks that hold it.

use lynx_policy::Fidelity;
use lynx_proto::engine::v1::{
    AnchorReady, FullReady, GrantReturned, KvFailed, WantGrant, from_agent,
};
use lynx_protocol::{Code, Reason};
use lynx_units::{Bytes, Width};

use super::Decoder;
use super::blocks::{Action, End};
use super::request::{Kv, Loading};
use crate::clock::unix_ns;
use crate::config;
use crate::counters::KvFailure;
use crate::drafting::Wanted;
use crate::method::Method;
use crate::peers::Chosen;
use crate::timeline::Event;

impl Decoder {
    /// The anchor's mean width where the request doesn't fix one.
    pub(super) fn width(&self, method: Method, kv: Bytes, chosen: &Chosen) -> Width {
        match self.terms.anchor(chosen.distance.class()) {
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
        let redraft = self.drafting.is_time_to_redraft(due, drafted, now);
        let now_ns = unix_ns();
        let residual_due_unix_ns = due.all.map_or(0, |due_in| {
            now_ns.saturating_add(u64::try_from(due_in.as_nanos()).unwrap_or(u64::MAX))
        });
        let is_first = !std::mem::replace(&mut loading.is_anchored, true);
        if is_first {
            let time = loading.age(now);
            self.counters.time_to_anchor.observe_time(time);
            let rate = loading.rate(now).bits_per_second();
            let bytes = loading.received[0].get();
            request.spans.anchor_ready(depth_limit, rate, bytes);
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
        self.peers.release(loading.transfer);
        let bytes = loading.received.map(Bytes::get);
        self.counters.anchor_bytes.add(bytes[0]);
        self.counters.residual_bytes.add(bytes[1]);
        let failure = match &end {
            End::Full => None,
            End::Failed(why) => Some(why.as_str()),
            End::Abort => Some("the request is not wanted any more"),
        };
        // FP16 arrives as its BF16, which isn't what the prefill engine has.
        let session = self.session.as_ref();
        let is_half = session.is_some_and(|it| it.engine.pool().layout().is_half());
        let exact = loading.coding.is_exact() && !is_half;
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
            request.shares = exact;
        } else {
            self.transfers.remove(&loading.transfer);
            if let Some(anchor) = request.anchor {
                let tokens = request.answer.drafted();
                self.counters.drafts.wasted(anchor.mean(), tokens);
            }
        }
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

    pub(super) fn tell_failed(&mut self, number: u64, reason: String) {
        let request = self.requests.get_mut(&number);
        let log = request.as_ref().map(|request| request.spans.log());
        log.unwrap_or_else(tracing::Span::none).in_scope(|| {
            tracing::warn!(request = number, "the engine computes the prompt: {reason}");
        });
        if let Some(request) = request {
            request.local = true;
            request.shares = true;
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
        loading.attempt = None;
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
