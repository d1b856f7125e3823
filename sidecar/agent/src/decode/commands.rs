//! What the endpoint asks for.

use lynx_proto::engine::v1::{Abort, Forget, Submit, TraceContext, from_agent, submit};
use tokio::sync::{mpsc, oneshot};

use super::answer::Answer;
use super::blocks::End;
use super::pace::Pace;
use super::request::{AbortOnDrop, Kv, Request};
use super::spans::Spans;
use super::{Decoder, Signal};
use crate::clients::Client;
use crate::clock::unix_ns;
use crate::counters::{KvFailure, Pool};
use crate::drain::InFlight;
use crate::requests::{Command, Generate, Generated, Input, Refusal};

impl Decoder {
    pub(super) fn command(&mut self, command: Command) {
        match command {
            Command::Generate(wanted, client) => self.generate(wanted, client),
            Command::Warm(_, answer) => {
                let why = "a decode agent computes no prompts ahead: ask a prefill agent";
                drop(answer.send(Err(Refusal::Invalid(why.to_owned()))));
            }
            Command::Forget(answer) => self.forget(answer),
        }
    }

    fn generate(&mut self, wanted: Box<Generate>, client: mpsc::UnboundedSender<Generated>) {
        self.counters.requests.add(1);
        let in_flight = match self.place() {
            Ok(in_flight) => in_flight,
            Err(refusal) => {
                self.counters.requests_failed.add(1);
                return drop(client.send(Generated::Failed(refusal)));
            }
        };
        let start_ns = unix_ns();
        let key = self.numbers.key();
        let (gone, signals) = (client.clone(), self.signals.clone());
        let watch = tokio::spawn(async move {
            gone.closed().await;
            drop(signals.send(Signal::ClientGone(key)));
        });
        let answer = Answer::new(Some(client), wanted.timeline, start_ns);
        let spans = Spans::arrived(&wanted.trace, start_ns);
        let mut request = Request::new(key, Some(wanted), answer, spans);
        request.client = Some(AbortOnDrop(watch.abort_handle()));
        request.in_flight = Some(in_flight);
        if self.is_bringing_prompt(request.group()) {
            self.followers.push(request);
        } else if self.waiting.is_empty() && self.has_memory() {
            // Nobody overtakes those who wait.
            self.submit(request);
        } else {
            self.waiting.push_back(request);
        }
    }

    /// Whether there is room for one more request.
    fn place(&self) -> Result<InFlight, Refusal> {
        let unavailable = |why: String| Err(Refusal::Unavailable(why));
        let Some(in_flight) = self.drain.enter() else {
            return unavailable("this replica is being shut down: try again".to_owned());
        };
        if self.session.is_none() {
            return unavailable(match &self.unfit {
                Some(why) => why.clone(),
                None => "no engine is attached: try again".to_owned(),
            });
        }
        let most = self.settings.queue;
        let in_flight_now = self.requests.len() + self.waiting.len() + self.followers.len();
        if in_flight_now >= most {
            let why = format!("{most} requests are in flight (engine.queue): try again later");
            return Err(Refusal::Busy(why));
        }
        Ok(in_flight)
    }

    /// Hands a request to the engine.
    fn submit(&mut self, mut request: Request) {
        if request.answer.is_unheard() {
            // The word that its client has gone is on its way: choices of one client go together, and are told one by one.
            return self.counters.requests_aborted.add(1);
        }
        let (Some(session), Some(wanted)) = (&self.session, &request.wanted) else {
            return request.answer.refuse(engine_gone());
        };
        let number = self.numbers.request();
        let submit = Submit {
            request: number,
            input: Some(match Input::clone(&wanted.input) {
                Input::Text(text) => submit::Input::Text(text),
                Input::Chat(chat) => submit::Input::Chat(chat),
                Input::Tokens(tokens) => submit::Input::Tokens(tokens),
            }),
            max_tokens: wanted.max_tokens,
            sampling: Some(wanted.sampling.clone()),
            stop: wanted.stop.clone(),
            ignore_eos: wanted.ignore_eos,
            transfer: self.peers.any(self.clock.now()) && !request.follows,
            trace: Some(wanted.trace.clone()),
        };
        request.local = !submit.transfer && !request.follows;
        request.shares = !submit.transfer;
        if request.local {
            tracing::warn!(
                request = number,
                "the engine computes the prompt: no prefill agent is linked"
            );
            self.count_failure(KvFailure::NoPeer);
        }
        // An engine that is gone says so in its last message, and then this request is refused with the others.
        session.engine.send(from_agent::Kind::Submit(submit)).ok();
        self.requests.insert(number, request);
    }

    /// Whether a choice of this group is bringing the KV that all of them go on from.
    fn is_bringing_prompt(&self, group: u64) -> bool {
        let is_one = |request: &Request| request.group() == group && request.brings_prompt();
        group != 0 && self.requests.values().chain(&self.waiting).any(is_one)
    }

    /// Hands in the choices whose prompt is in the engine by now, or won't be: its prefix cache gives them what it has, and
    /// computes the few tokens after the last whole block.
    pub(super) fn submit_followers(&mut self) {
        let followers = std::mem::take(&mut self.followers);
        let (wait, go): (Vec<_>, Vec<_>) = followers
            .into_iter()
            .partition(|request| self.is_bringing_prompt(request.group()));
        self.followers = wait;
        for mut request in go {
            let group = request.group();
            let mut others = self.requests.values();
            request.follows = others.any(|other| other.group() == group && other.shares);
            if self.waiting.is_empty() {
                self.submit(request);
            } else {
                self.waiting.push_back(request);
            }
        }
    }

    /// Puts a request that the engine has no room for back to where it was in the queue.
    pub(super) fn wait(&mut self, request: Request) {
        let later = |other: &Request| other.key > request.key;
        let place = self.waiting.iter().position(later);
        let place = place.unwrap_or(self.waiting.len());
        self.waiting.insert(place, request);
    }

    /// Something has ended, or a while has passed: the engine may have room for the one that has waited longest.
    pub(super) fn submit_next(&mut self) {
        if self.has_memory()
            && let Some(request) = self.waiting.pop_front()
        {
            self.submit(request);
        }
        self.submit_followers();
    }

    /// Whether transfers under way leave memory for another one, of whatever length.
    fn has_memory(&self) -> bool {
        let usage = self.counters.memory.of(Pool::Merge);
        usage.taken() < usage.limit()
    }

    pub(super) fn client_gone(&mut self, key: u64) {
        if let Some(place) = self.waiting.iter().position(|waits| waits.key == key) {
            self.waiting.remove(place);
            return self.counters.requests_aborted.add(1);
        }
        if let Some(place) = self.followers.iter().position(|waits| waits.key == key) {
            self.followers.remove(place);
            return self.counters.requests_aborted.add(1);
        }
        let with_engine = self.requests.iter().find(|(_, request)| request.key == key);
        if let Some((&number, _)) = with_engine {
            self.counters.requests_aborted.add(1);
            self.abort(number, "the client is gone");
        }
    }

    /// Nobody wants this request any more: first its transfer ends, then the engine is told.
    fn abort(&mut self, number: u64, why: &str) {
        let Some(request) = self.requests.get_mut(&number) else {
            return;
        };
        if std::mem::replace(&mut request.aborted, true) {
            return;
        }
        match &mut request.kv {
            Kv::Loading(loading) => {
                loading.cancel(why);
                loading.blocks.end(End::Abort);
                self.drive(number);
            }
            Kv::Settled => self.say(from_agent::Kind::Abort(Abort { request: number })),
        }
    }

    fn forget(&mut self, answer: oneshot::Sender<Result<(), Refusal>>) {
        if self.session.is_none() {
            return drop(answer.send(Err(engine_gone())));
        }
        let why = "the engine was told to forget every request";
        let forgotten = || Refusal::Failed(why.to_owned());
        for request in self.waiting.drain(..).chain(self.followers.drain(..)) {
            request.answer.refuse(forgotten());
        }
        let numbers: Vec<u64> = self.requests.keys().copied().collect();
        for number in numbers {
            if let Some(request) = self.requests.get(&number)
                && !request.aborted
            {
                request.answer.refuse(forgotten());
                self.abort(number, why);
            }
        }
        self.forgetting.push(answer);
        self.forget_if_quiet();
    }

    /// Tells the engine to forget, once nothing is written into its blocks any more.
    pub(super) fn forget_if_quiet(&mut self) {
        if !self.forgetting.is_empty() && !self.is_loading() {
            self.forgotten
                .push_back(std::mem::take(&mut self.forgetting));
            self.say(from_agent::Kind::Forget(Forget {}));
        }
    }

    /// Says something to the engine. One that is gone says so in its last message.
    pub(super) fn say(&self, kind: from_agent::Kind) {
        if let Some(session) = &self.session {
            session.engine.send(kind).ok();
        }
    }
}

/// A request of the engine's own front end, and the client's whose it is, where that one came through this agent.
pub(super) fn foreign(trace: &TraceContext, key: u64, client: Option<&Client>) -> Request {
    let start_ns = client.map_or_else(unix_ns, |client| client.arrived.1);
    let own = Some(trace).filter(|trace| !trace.traceparent.is_empty());
    let trace = own.or(client.map(|client| &client.trace)).unwrap_or(trace);
    let answer = Answer::new(None, false, start_ns);
    let mut request = Request::new(key, None, answer, Spans::arrived(trace, start_ns));
    if let Some(client) = client {
        request.pace = Pace::since(client.arrived.0);
        request.method = client.method;
        request.width = client.anchor;
    }
    request
}

pub(super) fn engine_gone() -> Refusal {
    Refusal::Unavailable("the engine is gone: try again".to_owned())
}
