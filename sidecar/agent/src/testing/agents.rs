//! Two agents, from a client's request to its answer, with engines that do what is said here.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use lynx_proto::engine::v1::event::Kind as Step;
use lynx_proto::engine::v1::{
    Attach, Event, Expect, FinishReason, Progress, Prompted, Role, Sampling, Token, WriteGrant,
    from_agent, from_engine,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::by_engine::ByItself;
use super::gpu::{By, Kv, OnGpu, PAGE, hand_over};
use super::{FakeEngine, attach, make_pool, soon};
use crate::carriage::Carriage;
use crate::config::Config;
use crate::run::Agent;

const TOKENS: u32 = 300;
/// Where kernels are emulated beside other tests, an agent may not run for seconds; its peer must not take that for its end.
const SLOWED: u32 = 10;

/// An engine's KV, wherever it is.
pub(crate) enum Memory {
    Gpu(Box<OnGpu>),
    Host(PathBuf, Box<Attach>),
    Own(Arc<Mutex<ByItself>>),
}

impl Memory {
    pub(crate) fn on_host(directory: &Path, role: Role, seed: u64) -> Self {
        let attach = attach(role, 8);
        make_pool(directory, &attach, seed);
        Self::Host(directory.join("pool"), Box::new(attach))
    }

    pub(crate) fn on_gpu(by: By) -> Self {
        Self::Gpu(Box::new(OnGpu::new(by, 32)))
    }

    /// What only its engine sees.
    pub(crate) fn by_itself(engine: ByItself) -> Self {
        Self::Own(Arc::new(Mutex::new(engine)))
    }

    /// The same, of FP16.
    pub(crate) fn of_fp16(self) -> Self {
        match self {
            Self::Gpu(gpu) => Self::Gpu(Box::new(gpu.of_fp16())),
            Self::Own(engine) => {
                engine.lock().unwrap().use_fp16();
                Self::Own(engine)
            }
            Self::Host(..) => panic!("an agent takes no FP16 in host memory"),
        }
    }

    fn is_half(&self) -> bool {
        match self {
            Self::Gpu(gpu) => gpu.is_half(),
            Self::Own(engine) => engine.lock().unwrap().is_half(),
            Self::Host(..) => false,
        }
    }

    /// A prompt's blocks.
    fn table(&self) -> Vec<u32> {
        match self {
            Self::Gpu(_) | Self::Own(_) => (0..TOKENS.div_ceil(PAGE))
                .map(|page| (page * 5 + 3) % 32)
                .collect(),
            Self::Host(..) => vec![4, 7, 0, 2, 5],
        }
    }

    fn fill(&mut self, kv: &Kv) {
        let table = self.table();
        match self {
            Self::Gpu(gpu) => gpu.fill(&table, kv),
            Self::Host(file, attach) => kv.clone().exchange(file, attach, &table, true),
            Self::Own(engine) => engine.lock().unwrap().fill(&table, kv),
        }
    }

    fn read(&mut self) -> Kv {
        let table = self.table();
        match self {
            Self::Gpu(gpu) => gpu.read(&table, TOKENS),
            Self::Host(file, attach) => Kv::of_file(file, attach, &table, TOKENS),
            Self::Own(engine) => engine.lock().unwrap().read(&table, TOKENS),
        }
    }

    async fn attach(&self, socket: &Path, role: Role) -> FakeEngine {
        match self {
            Self::Gpu(gpu) => {
                let _connection = hand_over(socket, &gpu.descriptors()).await;
                FakeEngine::attach(socket, gpu.attach(role)).await.unwrap()
            }
            Self::Host(_, attach) => {
                let attach = Attach::clone(attach);
                FakeEngine::attach(socket, attach).await.unwrap()
            }
            Self::Own(engine) => {
                let attach = engine.lock().unwrap().attach(role);
                let attached = FakeEngine::attach(socket, attach).await.unwrap();
                let engine = Arc::clone(engine);
                attached.coding(move |kind| engine.lock().unwrap().answer(kind))
            }
        }
    }
}

/// An agent that runs until it is dropped, and the socket of its engine.
async fn start(
    directory: &Path,
    yaml: String,
    kernels: &Path,
    carriage: Carriage,
) -> (Agent, PathBuf) {
    let socket = directory.join(if yaml.contains("prefill-0") {
        "p.sock"
    } else {
        "d.sock"
    });
    let yaml = format!(
        "{yaml}\nlisten: {{http: '127.0.0.1:0', drain: '127.0.0.1:0', peer: '127.0.0.1:0', data: '127.0.0.1:0'}}\n\
         engine: {{socket: {}, sharedDirectory: {}, kernels: {}}}",
        socket.display(),
        directory.display(),
        kernels.display()
    );
    let config = Config::parse(&yaml, &|_| None).unwrap();
    let agent = Agent::bind_by(carriage.slowed(SLOWED), config);
    let agent = agent.await.unwrap();
    (agent, socket)
}

/// KV comes from one to the other, by agents that find their kernels there.
pub(crate) async fn comes_whole(kernels: &Path, from: Memory, to: Memory, directory: &Path) {
    comes_whole_by(&Carriage::default, kernels, [from, to], directory).await;
}

/// The same, carried so.
pub(crate) async fn comes_whole_by(
    carriage: &dyn Fn() -> Carriage,
    kernels: &Path,
    [mut from, mut to]: [Memory; 2],
    directory: &Path,
) {
    let mut kv = Kv::random(TOKENS, 7);
    if from.is_half() {
        kv = kv.into_fp16();
    }
    from.fill(&kv);
    let yaml = "role: prefill\npod: {name: prefill-0}".to_owned();
    let (prefill, prefill_socket) = start(directory, yaml, kernels, carriage()).await;
    let peer = prefill.peer_address().unwrap();
    let yaml = format!("role: decode\npod: {{name: decode-0}}\npeers: ['{peer}']");
    let (decode, decode_socket) = start(directory, yaml, kernels, carriage()).await;
    let (http, mut status) = (decode.http_address(), decode.status());
    let mut agents = JoinSet::new();
    let mut engines = JoinSet::new();
    let (stop, stopped) = oneshot::channel::<()>();
    let (stop_other, other_stopped) = oneshot::channel::<()>();
    agents.spawn(prefill.run(async move { stopped.await.unwrap_or(()) }));
    agents.spawn(decode.run(async move { other_stopped.await.unwrap_or(()) }));
    let table = from.table();
    let mut computes = from.attach(&prefill_socket, Role::Prefill).await;
    let mut answers = to.attach(&decode_socket, Role::Decode).await;
    let is_linked = |status: &crate::control::Status| status.links.iter().any(|link| link.up);
    drop(soon(status.wait_for(is_linked)).await.unwrap());

    let client = tokio::spawn(ask(http));
    let request = expect(&mut answers, to.table()).await;
    let prefill = computes.hear_prefill().await;
    computes.start(prefill.request, &table, 0);
    for start in (0..TOKENS).step_by(128) {
        computes.publish(prefill.request, start..TOKENS.min(start + 128));
    }
    computes.done(prefill.request, 42);
    computes.finish(prefill.request, FinishReason::Length);
    // It goes on answering what it is asked, until its stream ends.
    engines.spawn(async move { while computes.hear().await.is_ok() {} });
    let exact = drafts_until_full(&mut answers, request).await;
    assert_eq!(exact, !to.is_half());
    assert!(to.read() == kv, "the very values came");
    assert!(from.read() == kv, "and stayed as they were");
    answers.say(progress(request, token(1, 43)));
    answers.finish(request, FinishReason::Length);
    let answer = soon(client).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("<42><43>"), "{answer}");
    drop((stop, stop_other));
}

/// The decode engine takes the request, and waits for its KV in these blocks.
async fn expect(engine: &mut FakeEngine, blocks: Vec<u32>) -> u64 {
    let submit = match engine.hear().await {
        Ok(from_agent::Kind::Submit(submit)) => submit,
        other => panic!("{other:?} instead of Submit"),
    };
    let request = submit.request;
    assert!(submit.transfer);
    let prompted = Step::Prompted(Prompted {
        prompt_tokens: TOKENS,
        cached_tokens: 0,
    });
    engine.say(progress(request, prompted));
    engine.say(from_engine::Kind::Expect(Expect {
        request,
        tokens: (0..TOKENS).collect(),
        blocks,
        from_token: 0,
        sampling: Some(Sampling::default()),
        ..Expect::default()
    }));
    request
}

/// Gives every grant, until all is there; whether that is said to be exact.
async fn drafts_until_full(engine: &mut FakeEngine, request: u64) -> bool {
    loop {
        match engine.hear().await.unwrap() {
            from_agent::Kind::FirstToken(first) => {
                engine.say(progress(request, token(0, first.token)));
            }
            from_agent::Kind::WantGrant(_) => {
                engine.say(from_engine::Kind::WriteGrant(WriteGrant { request }));
            }
            from_agent::Kind::FullReady(full) => return full.exact,
            from_agent::Kind::AnchorReady(_) | from_agent::Kind::GrantReturned(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

fn progress(request: u64, kind: Step) -> from_engine::Kind {
    let kind = Some(kind);
    let events = vec![Event {
        kind,
        ..Event::default()
    }];
    from_engine::Kind::Progress(Progress { request, events })
}

fn token(index: u32, token: u32) -> Step {
    Step::Token(Token {
        index,
        token,
        text: format!("<{token}>"),
        provisional: false,
        logprobs: Vec::new(),
    })
}

async fn ask(http: std::net::SocketAddr) -> String {
    let body = r#"{"model": "tiny", "prompt": "a", "max_tokens": 2}"#;
    let mut stream = TcpStream::connect(http).await.unwrap();
    let request = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}
