//! An engine that keeps the engine API's rules, and computes nothing.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use hyper_util::rt::TokioIo;
use lynx_proto::engine::v1::engine_api_client::EngineApiClient;
use lynx_proto::engine::v1::event::Kind as Step;
use lynx_proto::engine::v1::{
    Checked, Event, Expect, FinishReason, Finished, Forgotten, FromAgent, FromEngine, Progress,
    Prompted, Recomputing, Refused, Report, Retracted, Role, Sampling, Submit, Token, TraceContext,
    WriteGrant, from_agent, from_engine, submit,
};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::{Channel, Endpoint, Uri};

use crate::clock::unix_ns;
use crate::testing;

pub(super) const BLOCKS: u32 = 64;
/// What the engine answers with where it computes.
pub(super) const COMPUTED: [u32; 3] = [70, 71, 72];

/// What a test sees of the engine, and sets.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    shared: Arc<Mutex<Shared>>,
    said: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct Shared {
    said: Vec<from_agent::Kind>,
    blocks: HashMap<u64, Vec<u32>>,
    room: usize,
    grants: bool,
}

/// An attached engine; dropped, its stream ends.
#[derive(Debug)]
pub(super) struct Engine {
    pub(super) seen: Seen,
    /// Requests that it begins itself: their numbers and their clients', and those that it ends.
    own: mpsc::UnboundedSender<Own>,
    task: tokio::task::JoinHandle<()>,
}

/// What an engine with a server of its own does of its own accord.
#[derive(Debug)]
enum Own {
    Begin { request: u64, client: u64 },
    End(u64),
}

impl Engine {
    /// Begins a request of the usual prompt.
    pub(super) fn begin(&self, request: u64, client: u64) {
        self.own.send(Own::Begin { request, client }).unwrap();
    }

    /// Ends one, as if its client had gone.
    pub(super) fn end(&self, request: u64) {
        self.own.send(Own::End(request)).unwrap();
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Seen {
    /// Everything that the agent has said.
    pub(super) fn said(&self) -> Vec<from_agent::Kind> {
        self.shared.lock().unwrap().said.clone()
    }

    /// The blocks of a request.
    pub(super) fn blocks(&self, request: u64) -> Vec<u32> {
        self.shared.lock().unwrap().blocks[&request].clone()
    }

    /// Waits until the agent has said something of which this is true.
    pub(super) async fn wait(&self, is: impl Fn(&from_agent::Kind) -> bool) -> from_agent::Kind {
        let mut said = self.said.subscribe();
        loop {
            said.borrow_and_update();
            if let Some(found) = self.said().into_iter().find(&is) {
                return found;
            }
            said.changed().await.unwrap();
        }
    }

    /// How many requests are taken at a time.
    pub(super) fn set_room(&self, room: usize) {
        self.shared.lock().unwrap().room = room;
    }

    /// Whether grants are given.
    pub(super) fn set_grants(&self, grants: bool) {
        self.shared.lock().unwrap().grants = grants;
    }
}

pub(super) fn attach() -> lynx_proto::engine::v1::Attach {
    testing::attach(Role::Decode, BLOCKS)
}

/// Attaches an engine whose pool lies in `directory`; one with a server of its own where it doesn't generate.
pub(super) async fn start(socket: &Path, directory: &Path, generates: bool) -> Engine {
    testing::make_pool(directory, &attach(), 99);
    let path: PathBuf = socket.to_owned();
    let connect = tower::service_fn(move |_: Uri| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    });
    let endpoint = Endpoint::from_static("http://engine");
    let channel: Channel = endpoint.connect_with_connector(connect).await.unwrap();
    let (outbox, outgoing) = mpsc::unbounded_channel();
    let attach = lynx_proto::engine::v1::Attach {
        generates,
        ..attach()
    };
    say(&outbox, from_engine::Kind::Attach(attach));
    let mut client = EngineApiClient::new(channel);
    let stream = client
        .attach(UnboundedReceiverStream::new(outgoing))
        .await
        .unwrap();
    let seen = Seen {
        shared: Arc::new(Mutex::new(Shared {
            room: 8,
            grants: true,
            ..Shared::default()
        })),
        said: watch::Sender::new(0),
    };
    let mut stream = stream.into_inner();
    let mut state = State {
        seen: seen.clone(),
        outbox,
        running: HashMap::new(),
        next_block: 0,
        ended: HashSet::new(),
    };
    let (own, mut begun) = mpsc::unbounded_channel();
    let task = tokio::spawn(async move {
        loop {
            tokio::select! {
                message = stream.message() => match message {
                    Ok(Some(FromAgent { kind: Some(kind) })) => state.hear(kind),
                    _ => break,
                },
                Some(own) = begun.recv() => state.act(&own),
            }
        }
    });
    Engine { seen, own, task }
}

struct State {
    seen: Seen,
    outbox: mpsc::UnboundedSender<FromEngine>,
    running: HashMap<u64, Running>,
    next_block: u32,
    ended: HashSet<u64>,
}

#[derive(Default)]
struct Running {
    most: u32,
    first: Option<u32>,
    drafted: u32,
    is_own: bool,
    wanted: bool,
}

fn say(outbox: &mpsc::UnboundedSender<FromEngine>, kind: from_engine::Kind) {
    outbox.send(FromEngine { kind: Some(kind) }).unwrap();
}

impl State {
    fn hear(&mut self, kind: from_agent::Kind) {
        let about = match &kind {
            from_agent::Kind::FirstToken(m) => Some(m.request),
            from_agent::Kind::WantGrant(m) => Some(m.request),
            from_agent::Kind::AnchorReady(m) => Some(m.request),
            from_agent::Kind::GrantReturned(m) => Some(m.request),
            from_agent::Kind::FullReady(m) => Some(m.request),
            from_agent::Kind::KvFailed(m) => Some(m.request),
            _ => None,
        };
        // An anchor and the engine's last word may have crossed, when the first token was the last.
        if about.is_none_or(|request| !self.ended.contains(&request)) {
            self.react(&kind);
        }
        let mut shared = self.seen.shared.lock().unwrap();
        shared.said.push(kind);
        self.seen.said.send_replace(shared.said.len());
    }

    fn react(&mut self, kind: &from_agent::Kind) {
        match kind {
            from_agent::Kind::Submit(submit) => self.submitted(submit),
            from_agent::Kind::FirstToken(first) => {
                if let Some(running) = self.running.get_mut(&first.request) {
                    running.first = Some(first.token);
                    let is_last = running.most == 1;
                    self.progress(first.request, [token(0, first.token, false)]);
                    if is_last {
                        // The blocks stay the agent's until it lets go of them.
                        self.finish(first.request, FinishReason::Length);
                    }
                }
            }
            from_agent::Kind::WantGrant(want) => {
                let running = self.running.get_mut(&want.request).unwrap();
                assert!(running.is_own && !running.wanted);
                let grants = self.seen.shared.lock().unwrap().grants;
                if grants {
                    running.is_own = false;
                    let request = want.request;
                    self.say(from_engine::Kind::WriteGrant(WriteGrant { request }));
                } else {
                    running.wanted = true;
                }
            }
            from_agent::Kind::GrantReturned(returned) => {
                let running = self.running.get_mut(&returned.request).unwrap();
                assert!(!running.is_own);
                running.is_own = true;
            }
            from_agent::Kind::AnchorReady(ready) => {
                let running = self.running.get_mut(&ready.request).unwrap();
                running.is_own = true;
                let index = 1 + running.drafted;
                if index <= ready.depth_limit.min(4) {
                    running.drafted += 1;
                    self.progress(ready.request, [token(index, 100 + index, true)]);
                }
            }
            from_agent::Kind::FullReady(full) => self.full(full.request),
            from_agent::Kind::KvFailed(failed) => {
                let reason = failed.reason.clone();
                self.compute(failed.request, [Step::Recomputing(Recomputing { reason })]);
            }
            from_agent::Kind::Abort(abort) if self.running.contains_key(&abort.request) => {
                self.finish(abort.request, FinishReason::Aborted);
            }
            from_agent::Kind::Forget(_) => self.say(from_engine::Kind::Forgotten(Forgotten {})),
            _ => {}
        }
    }

    fn act(&mut self, own: &Own) {
        match *own {
            Own::Begin { request, client } => {
                self.running.insert(request, Running::default());
                let tokens = (0..super::world::TOKENS).collect();
                self.expect(request, tokens, (None, client));
            }
            Own::End(request) => self.finish(request, FinishReason::Aborted),
        }
    }

    fn submitted(&mut self, submit: &Submit) {
        let request = submit.request;
        let room = self.seen.shared.lock().unwrap().room;
        if self.running.len() >= room {
            return self.say(from_engine::Kind::Refused(Refused {
                request,
                reason: "full".to_owned(),
                retryable: true,
                too_long: false,
            }));
        }
        let Some(submit::Input::Tokens(tokens)) = &submit.input else {
            return self.say(from_engine::Kind::Refused(Refused {
                request,
                reason: "only tokens".to_owned(),
                retryable: false,
                too_long: false,
            }));
        };
        let running = Running {
            most: submit.max_tokens,
            ..Running::default()
        };
        self.running.insert(request, running);
        let prompt_tokens = u32::try_from(tokens.ids.len()).unwrap();
        let prompted = Step::Prompted(Prompted {
            prompt_tokens,
            cached_tokens: 0,
        });
        if !submit.transfer {
            return self.compute(request, [prompted]);
        }
        self.progress(request, [prompted]);
        self.expect(request, tokens.ids.clone(), (submit.trace.clone(), 0));
    }

    fn expect(
        &mut self,
        request: u64,
        tokens: Vec<u32>,
        (trace, client): (Option<TraceContext>, u64),
    ) {
        let count = u32::try_from(tokens.len()).unwrap().div_ceil(64);
        let blocks: Vec<u32> = (self.next_block..self.next_block + count).collect();
        self.next_block += count;
        let mut shared = self.seen.shared.lock().unwrap();
        shared.blocks.insert(request, blocks.clone());
        drop(shared);
        self.say(from_engine::Kind::Expect(Expect {
            request,
            tokens,
            blocks,
            from_token: 0,
            sampling: Some(Sampling::default()),
            trace,
            client,
        }));
    }

    /// Verifies: half of what was drafted stands.
    fn full(&mut self, request: u64) {
        let running = &self.running[&request];
        let first = running.first.expect("the first token comes before all KV");
        assert!(first < 1000);
        let (drafted, kept) = (running.drafted, running.drafted / 2);
        let mut steps = Vec::new();
        if drafted > 0 {
            steps.push(Step::Verified(Checked { drafted, kept }));
            let from_index = 1 + kept;
            steps.push(Step::Retracted(Retracted { from_index }));
        }
        steps.extend((1..=kept + 1).map(|index| token(index, 100 + index, false)));
        self.progress(request, steps);
        self.finish(request, FinishReason::Length);
    }

    fn compute(&mut self, request: u64, before: impl IntoIterator<Item = Step>) {
        self.progress(request, before);
        let from = usize::from(self.running[&request].first.is_some());
        let tokens = COMPUTED.iter().zip(0..).skip(from);
        let steps: Vec<Step> = tokens.map(|(id, index)| token(index, *id, false)).collect();
        self.progress(request, steps);
        self.finish(request, FinishReason::Stop);
    }

    fn finish(&mut self, request: u64, reason: FinishReason) {
        self.running.remove(&request);
        self.ended.insert(request);
        self.say(from_engine::Kind::Finished(Finished {
            request,
            reason: reason.into(),
            rest: String::new(),
            logprobs: Vec::new(),
            end_unix_ns: unix_ns(),
        }));
        self.say(from_engine::Kind::Report(Report {
            running: u32::try_from(self.running.len()).unwrap(),
            token_time_ns: 1_000_000,
            ..Report::default()
        }));
    }

    fn progress(&self, request: u64, steps: impl IntoIterator<Item = Step>) {
        let now = unix_ns();
        let event = |kind| Event {
            start_unix_ns: now,
            end_unix_ns: now + 1_000_000,
            kind: Some(kind),
        };
        let events = steps.into_iter().map(event).collect();
        self.say(from_engine::Kind::Progress(Progress { request, events }));
    }

    fn say(&self, kind: from_engine::Kind) {
        say(&self.outbox, kind);
    }
}

fn token(index: u32, token: u32, provisional: bool) -> Step {
    Step::Token(Token {
        index,
        token,
        text: format!("<{token}>"),
        provisional,
        logprobs: Vec::new(),
    })
}
