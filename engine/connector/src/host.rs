//! The engine's thread: what the agent says, then a step, then what the step did.

mod cached;
mod grants;
mod intake;
mod load;
mod publishing;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::Duration;

use lynx_engine::{Engine, EngineEvent, FinishReason, RequestId};
use lynx_proto::engine::v1::from_agent::Kind as Said;
use lynx_proto::engine::v1::{
    FinishReason as FinishedFor, Finished, Forgotten, FromEngine, from_engine,
};

use crate::clock::{Clock, Moment};
use crate::encoder::{Encoder, Ticket};
use crate::opened::Opened;
use crate::request::{Request, Task};
use crate::session::{Outbox, Signal};
use crate::{ConnectorError, Role};
use load::Load;
use publishing::Watch;

pub(crate) use intake::Refusal;

/// An engine, and the agent that it works for.
#[derive(Debug)]
pub(crate) struct Host {
    engine: Engine,
    opened: Arc<Opened>,
    role: Role,
    clock: Clock,
    /// `None` while there is none.
    agent: Option<Outbox>,
    requests: Vec<Request>,
    encoder: Encoder,
    /// Requests whose prompts are being made tokens, by number.
    encoding: HashMap<u64, Ticket>,
    load: Load,
}

impl Host {
    pub(crate) fn new(
        engine: Engine,
        opened: Arc<Opened>,
        role: Role,
        clock: Clock,
        encoder: Encoder,
    ) -> Self {
        Self {
            engine,
            opened,
            role,
            clock,
            agent: None,
            requests: Vec::new(),
            encoder,
            encoding: HashMap::new(),
            load: Load::default(),
        }
    }

    /// Works until told to stop.
    ///
    /// # Errors
    /// Where the engine can't go on.
    pub(crate) fn run(&mut self, inbox: &Receiver<Signal>) -> Result<(), ConnectorError> {
        loop {
            let now = self.clock.now();
            self.report(now);
            self.tell_cached();
            match self.next(inbox, now) {
                Next::Signal(Signal::Stop) | Next::Ended => return Ok(()),
                Next::Signal(Signal::Attached(outbox)) => self.attached(outbox),
                Next::Signal(Signal::Lost) => self.abandon(),
                Next::Signal(Signal::Agent(said)) => self.hear(*said),
                Next::Signal(Signal::Encoded(encoded)) => self.encoded(*encoded),
                Next::Nothing => {}
                Next::Step => self.step()?,
            }
        }
    }

    fn next(&self, inbox: &Receiver<Signal>, now: Moment) -> Next {
        if !self.engine.is_idle(now.engine) {
            return match inbox.try_recv() {
                Ok(signal) => Next::Signal(signal),
                Err(TryRecvError::Empty) => Next::Step,
                Err(TryRecvError::Disconnected) => Next::Ended,
            };
        }
        match inbox.recv_timeout(self.patience(now)) {
            Ok(signal) => Next::Signal(signal),
            Err(RecvTimeoutError::Timeout) => Next::Nothing,
            Err(RecvTimeoutError::Disconnected) => Next::Ended,
        }
    }

    /// How long an idle engine waits for a word.
    fn patience(&self, now: Moment) -> Duration {
        let wakes = self.engine.wakes_at(now.engine);
        let wakes = wakes.map_or(Duration::MAX, |at| at - now.engine);
        wakes.min(self.load.next_report(now.engine))
    }

    fn attached(&mut self, outbox: Outbox) {
        self.agent = Some(outbox);
        self.load = Load::default();
        // A decode engine says in Expect what it has of a prompt; nobody chooses it by that.
        self.engine.watch_prefixes(self.role == Role::Prefill);
    }

    /// The agent is gone: nobody hears what its requests give, nobody reads or writes their blocks, and nobody will say
    /// more about them.
    fn abandon(&mut self) {
        self.agent = None;
        self.encoding.clear();
        self.engine.watch_prefixes(false);
        for request in self.requests.drain(..) {
            if !request.ended {
                request.phases.finish();
            }
            give_up(&mut self.engine, request.id);
        }
        drop(self.engine.take_events());
    }

    fn hear(&mut self, said: Said) {
        match said {
            Said::Submit(submit) => self.submit(submit),
            Said::Prefill(prefill) => self.prefill(prefill),
            Said::Release(release) => self.released(release.request),
            Said::FirstToken(first) => self.first_token(first),
            Said::WantGrant(want) => self.want_grant(want.request),
            Said::GrantReturned(returned) => self.grant_returned(returned.request),
            Said::AnchorReady(anchor) => self.anchor_ready(anchor),
            Said::FullReady(full) => self.full_ready(full.request, full.exact),
            Said::KvFailed(failed) => self.kv_failed(failed.request, failed.reason),
            Said::Abort(abort) => self.abort(abort.request),
            Said::Forget(_) => self.forget(),
            Said::Attached(_) => tracing::warn!("the agent says twice that it takes the engine"),
            Said::CodeWith(_) | Said::Split(_) | Said::Merge(_) => {
                tracing::warn!("the agent wants KV coded that it has in memory itself");
            }
        }
        // Signals have effects of their own, such as the first token, that need not wait for a step.
        let now = self.clock.now();
        let events = self.engine.take_events();
        self.pass_on(&events, now, now);
    }

    fn step(&mut self) -> Result<(), ConnectorError> {
        let start = self.clock.now();
        let mut watch = Watch::new(self.clock, start, self.agent.as_ref(), &self.requests);
        let events = self.engine.step(start.engine, &mut watch)?;
        let end = start.and(self.clock.monotonic());
        self.pass_on(&events, start, end);
        Ok(())
    }

    /// Tells the agent, request by request.
    fn pass_on(&mut self, events: &[EngineEvent], start: Moment, end: Moment) {
        let is_end = |event: &EngineEvent| {
            matches!(
                event,
                EngineEvent::Finished { .. } | EngineEvent::PrefillDone { .. }
            )
        };
        if events.iter().any(is_end) {
            // Who asks what a request took asks at its end.
            self.load = Load::default();
            self.report(end);
        }
        let mut rest = events;
        while let Some(first) = rest.first().map(EngineEvent::request) {
            // A request's events stand together, since the engine goes from one request to the next.
            let length = rest.iter().take_while(|e| e.request() == first).count();
            let (own, others) = rest.split_at(length);
            rest = others;
            if let Some(request) = self.requests.iter_mut().find(|r| r.id == first) {
                for kind in request.tell(own, start, end) {
                    tell(self.agent.as_ref(), kind);
                }
            }
        }
        let engine = &mut self.engine;
        let over = self.requests.extract_if(.., |request| request.is_over());
        for request in over.filter(|request| matches!(request.task, Task::Prefill { .. })) {
            // It was released before it ended.
            engine.release(request.id).ok();
        }
    }

    fn tell(&self, kind: from_engine::Kind) {
        tell(self.agent.as_ref(), kind);
    }

    fn find(&mut self, number: u64) -> Option<&mut Request> {
        self.requests
            .iter_mut()
            .find(|request| request.number == number)
    }

    /// The agent does not read this prompt's KV any more.
    fn released(&mut self, number: u64) {
        if let Some(request) = self.find(number)
            && let Task::Prefill { released, .. } = &mut request.task
        {
            *released = true;
        }
    }

    /// The agent gives a request up, and touches its blocks no more.
    fn abort(&mut self, number: u64) {
        let now = self.clock.now();
        if self.encoding.remove(&number).is_some() {
            return self.tell(aborted(number, now));
        }
        let Some(index) = self.requests.iter().position(|r| r.number == number) else {
            return;
        };
        let mut request = self.requests.swap_remove(index);
        give_up(&mut self.engine, request.id);
        drop(self.engine.take_events());
        if !request.ended {
            self.tell(request.finish(FinishReason::Aborted, now));
        }
    }

    /// Ends everything, as [`Engine::forget`] does.
    fn forget(&mut self) {
        let now = self.clock.now();
        let requests = core::mem::take(&mut self.requests);
        for mut request in requests.into_iter().filter(|request| !request.ended) {
            self.tell(request.finish(FinishReason::Aborted, now));
        }
        for (number, _) in core::mem::take(&mut self.encoding) {
            self.tell(aborted(number, now));
        }
        self.engine.forget();
        self.tell(from_engine::Kind::Forgotten(Forgotten {}));
    }
}

/// The last word about a request that never began.
fn aborted(request: u64, now: Moment) -> from_engine::Kind {
    from_engine::Kind::Finished(Finished {
        request,
        reason: FinishedFor::Aborted.into(),
        rest: String::new(),
        logprobs: Vec::new(),
        end_unix_ns: now.unix_ns,
    })
}

/// Frees a request's blocks, whatever became of it: what does not apply meets a request that is not there, and means
/// nothing.
fn give_up(engine: &mut Engine, id: RequestId) {
    engine.unhold(id).ok();
    engine.abort(id).ok();
    engine.release(id).ok();
}

/// An agent that does not hear any more is about to be lost.
fn tell(agent: Option<&Outbox>, kind: from_engine::Kind) {
    if let Some(agent) = agent {
        drop(agent.send(FromEngine { kind: Some(kind) }));
    }
}

/// What the loop does next.
enum Next {
    Signal(Signal),
    Step,
    Nothing,
    Ended,
}
