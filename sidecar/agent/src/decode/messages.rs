//! What the engine says.

use std::sync::Arc;
use std::time::Duration;

use lynx_proto::engine::v1::{
    FinishReason, Finished, KvFailed, Progress, Refused, Report, from_agent,
};

use super::blocks::End;
use super::commands::{engine_gone, foreign};
use super::request::{Kv, Request};
use super::{Decoder, Session};
use crate::identity::Identity;
use crate::requests::{Finish, Generated, Refusal};
use crate::run::chain;
use crate::session::{Engine, Expected, Message};
use crate::timeline::Event;
use crate::{memory, profile};

impl Decoder {
    /// An engine is attached: from now on there are requests for it, and peers that fit it.
    pub(super) fn attach(&mut self, engine: Engine) {
        let layout = engine.pool().layout();
        let shape = layout.shape();
        let model = profile::named_by(engine.info());
        match profile::choose(self.settings.profile.as_deref(), model, shape) {
            Ok(profile) => {
                let (name, generation) = (&self.settings.name, &self.settings.generation);
                let identity = Identity::new(name, engine.info(), layout, &profile, generation);
                self.peers.set_identity(Some(identity));
                self.unfit = None;
                engine.code_with(&profile);
                self.session = Some(Session {
                    profile: Arc::new(profile),
                    shape,
                    report: Report::default(),
                    engine,
                });
            }
            Err(error) => {
                let why = chain(&error);
                if self.unfit.as_ref() != Some(&why) {
                    tracing::error!("the engine can't be used: {why}");
                }
                engine.refuse(&why);
                self.peers.set_identity(None);
                self.unfit = Some(why);
            }
        }
        self.tell_status();
    }

    pub(super) fn message(&mut self, message: Message) {
        match message {
            Message::Expect(expected) => self.expect(*expected),
            Message::WriteGrant { request } => {
                if let Some(loading) = self.loading(request) {
                    loading.blocks.handle_grant();
                }
                self.drive(request);
            }
            Message::Progress(progress) => self.progress(progress),
            Message::Finished(finished) => self.finished(finished),
            Message::Refused(refused) => self.refused(refused),
            Message::Report(report) => self.reported(report),
            Message::Forgotten => {
                for answer in self.forgotten.pop_front().unwrap_or_default() {
                    drop(answer.send(Ok(())));
                }
            }
            Message::Detached(why) => self.detached(&why),
            Message::CachedBlocks(_)
            | Message::PrefillStarted { .. }
            | Message::Published { .. }
            | Message::PrefillDone { .. } => {
                tracing::warn!("a decode engine speaks of prefill: ignored");
            }
        }
    }

    fn expect(&mut self, expected: Expected) {
        let number = expected.request;
        if !expected.blocks.is_granted() {
            // Aborted or forgotten in the meantime: the engine has been told that nothing of it is touched any more.
            return;
        }
        if !self.requests.contains_key(&number) {
            let client = self.clients.get(expected.client);
            if client.is_none() && expected.client != 0 {
                return self.decline(expected);
            }
            let key = self.numbers.key();
            self.counters.requests.add(1);
            let mut request = foreign(&expected.trace, key, client.as_ref());
            if client.is_none() {
                // Others are counted where they came in.
                request.in_flight = self.drain.enter();
            }
            self.requests.insert(number, request);
        }
        self.load(expected);
    }

    /// Brings nothing for a client who has gone: the engine is about to hear of it.
    fn decline(&self, expected: Expected) {
        let request = expected.request;
        drop(expected);
        self.say(from_agent::Kind::KvFailed(KvFailed {
            request,
            reason: "its client is gone".to_owned(),
        }));
    }

    fn refused(&mut self, refused: Refused) {
        let Some(request) = self.requests.remove(&refused.request) else {
            return;
        };
        if request.aborted {
            return;
        }
        if refused.retryable {
            return self.wait(request);
        }
        let refusal = if refused.too_long {
            Refusal::TooLong(refused.reason)
        } else {
            Refusal::Invalid(refused.reason)
        };
        self.refuse(&request, &refusal);
        // The other choices of a prompt that can't be taken can't either: nobody copies it for the engine once more.
        let group = request.group();
        let is_other = |other: &mut Request| group != 0 && other.group() == group;
        let others: Vec<Request> = self.followers.extract_if(.., is_other).collect();
        for other in others {
            self.refuse(&other, &refusal);
        }
        self.submit_next();
    }

    fn refuse(&self, request: &Request, refusal: &Refusal) {
        self.counters.requests_failed.add(1);
        request.answer.refuse(refusal.clone());
    }

    fn reported(&mut self, report: Report) {
        self.drafting
            .set_token_time(Duration::from_nanos(report.token_time_ns));
        if let Some(session) = &mut self.session {
            session.report = report;
        }
        self.submit_next();
    }

    fn progress(&mut self, progress: Progress) {
        let now = self.clock.now();
        let Some(request) = self.requests.get_mut(&progress.request) else {
            return;
        };
        if request.aborted {
            return;
        }
        request.spans.taken();
        request.pace.progress(&progress, &self.counters.pace);
        request.spans.progress(&progress);
        for comparison in request.answer.progress(progress) {
            let anchor = request.anchor;
            let bits = anchor.map_or(0.0, |anchor| anchor.mean().bits());
            request.spans.compared(&comparison, bits);
            self.counters.compared(&comparison, anchor);
            if let Some(anchor) = anchor.filter(|_| comparison.is_of_anchor) {
                let time = comparison.end_ns.saturating_sub(comparison.start_ns);
                self.drafting.learn(
                    anchor.mean(),
                    (comparison.drafted, comparison.kept),
                    Duration::from_nanos(time),
                    now,
                );
            }
        }
        self.submit_followers();
    }

    fn finished(&mut self, finished: Finished) {
        let engine_memory = self.session.as_ref();
        let engine_memory = engine_memory
            .map(|session| session.report.memory_bytes)
            .filter(|bytes| *bytes > 0);
        let Some(request) = self.requests.get_mut(&finished.request) else {
            return;
        };
        self.counters
            .verified_tokens
            .add(request.answer.verified().into());
        // First: who is told of the end may look at the counts.
        if std::mem::take(&mut request.local) {
            self.counters.requests_local.add(1);
        }
        if !request.aborted {
            let count = match finished.reason() {
                FinishReason::Stop | FinishReason::Length => &self.counters.requests_finished,
                _ => &self.counters.requests_failed,
            };
            count.add(1);
            tell_end(request, &finished, engine_memory);
        }
        request.spans.finished();
        if let Kv::Loading(loading) = &mut request.kv {
            // Its first token was its last: the engine keeps the blocks until the agent has let go of them.
            request.aborted = true;
            request.finished = true;
            request.client = None;
            loading.cancel("the request has ended");
            loading.blocks.end(End::Abort);
            self.drive(finished.request);
        } else {
            self.take_request(finished.request, "the request has ended");
        }
        self.submit_next();
        self.forget_if_quiet();
    }

    fn detached(&mut self, why: &str) {
        self.session = None;
        tracing::warn!(requests = self.requests.len(), "the engine is gone: {why}");
        let numbers: Vec<u64> = self.requests.keys().copied().collect();
        let lost = numbers
            .into_iter()
            .filter_map(|number| self.take_request(number, "the engine is gone"))
            .collect::<Vec<Request>>();
        let waiting = self.waiting.drain(..).chain(self.followers.drain(..));
        for request in lost.into_iter().chain(waiting) {
            if !request.aborted {
                self.counters.requests_failed.add(1);
                request.answer.refuse(engine_gone());
            }
        }
        let forgotten = self.forgotten.drain(..).flatten();
        for answer in forgotten.chain(self.forgetting.drain(..)) {
            drop(answer.send(Err(engine_gone())));
        }
        self.tell_status();
    }

    /// Takes a request out, with its transfer ended. The engine has nothing to be told: it has ended it.
    pub(super) fn take_request(&mut self, number: u64, why: &str) -> Option<Request> {
        let mut request = self.requests.remove(&number)?;
        if request.local {
            self.counters.requests_local.add(1);
        }
        if let Some(transfer) = request.transfer {
            self.transfers.remove(&transfer);
        }
        if let Kv::Loading(loading) = &mut request.kv {
            loading.cancel(why);
            loading.blocks.forget();
            self.merging.close(loading.transfer);
            self.peers.release(loading.transfer);
        }
        Some(request)
    }
}

/// Tells the client how its request has ended.
fn tell_end(request: &Request, finished: &Finished, engine_memory: Option<u64>) {
    let answer = &request.answer;
    let reason = match finished.reason() {
        FinishReason::Stop => Finish::Stop,
        FinishReason::Length => Finish::Length,
        FinishReason::Aborted => {
            let why = "the engine ended the request: try again";
            return answer.refuse(Refusal::Unavailable(why.to_owned()));
        }
        FinishReason::Failed | FinishReason::Unspecified => {
            let why = "the engine failed: its log says more";
            return answer.refuse(Refusal::Failed(why.to_owned()));
        }
    };
    answer.happened(|answer| Event::Finished {
        t: answer.seconds(finished.end_unix_ns),
    });
    let own = memory::peak_bytes();
    let decode_memory = match (own, engine_memory) {
        (Some(agent), Some(engine)) => Some(agent + engine),
        (one, other) => one.or(other),
    };
    answer.tell(Generated::Finished {
        reason,
        rest: finished.rest.clone(),
        logprobs: finished.logprobs.clone(),
        completion_tokens: answer.verified(),
        anchor: request.anchor.map(|anchor| anchor.widths()),
        memory_bytes: [request.prefill_memory, decode_memory],
    });
}
