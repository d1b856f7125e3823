//! The official OpenAI client against the endpoint, with a data path that is played.
#![expect(clippy::unwrap_used, reason = "a test's failure is its report")]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command as Process;
use std::sync::Arc;
use std::time::Duration;

use lynx_agent::config::Role;
use lynx_agent::control::Status;
use lynx_agent::drain::Drain;
use lynx_agent::http::{self, Inputs, Settings};
use lynx_agent::metrics::{self, Metrics};
use lynx_agent::requests::{Command, Finish, Generate, Generated, Input, Refusal, Requests};
use lynx_agent::session::Attachment;
use lynx_proto::engine::v1::{Attach, Logprob, TokenLogprobs};
use lynx_units::Bytes;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;

const WORDS: [&str; 3] = ["one", " two", " three"];

#[test]
fn the_official_client_is_served() {
    let packages = packages();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let (gone, mut went_away) = unbounded_channel();
    let address = runtime.block_on(serve(gone));
    let status = Process::new("python3")
        .arg(here().join("openai/check.py"))
        .env("PYTHONPATH", packages)
        .env("BASE_URL", format!("http://{address}/v1"))
        .status()
        .unwrap();
    assert!(status.success(), "the client was not content: see above");
    let waited = runtime
        .block_on(async { tokio::time::timeout(Duration::from_secs(10), went_away.recv()).await });
    assert!(waited.is_ok(), "a client that went away was not noticed");
}

fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

/// The client, fetched where it isn't there.
fn packages() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let fetched = Process::new(root.join("scripts/python-env"))
        .arg(here().join("openai/requirements.txt"))
        .output()
        .unwrap();
    let problem = String::from_utf8_lossy(&fetched.stderr);
    assert!(fetched.status.success(), "no OpenAI client: {problem}");
    let text = String::from_utf8(fetched.stdout).unwrap();
    text.lines().last().unwrap().to_owned()
}

/// Serves until the runtime ends. Clients that go away are told to `gone`.
async fn serve(gone: UnboundedSender<()>) -> SocketAddr {
    let engine = Attach {
        model: "tiny".to_owned(),
        context_tokens: 100,
        weights: String::new(),
        model_fingerprint: vec![0x5a; 32],
        ..Attach::default()
    };
    let attachment = watch::Sender::new(Attachment {
        engine: Some(Arc::new(engine)),
        error: None,
        ..Attachment::default()
    });
    let status = watch::Sender::new(Status {
        ready: true,
        ..Status::default()
    });
    let drain = Drain::new();
    let metrics = Metrics::new(metrics::Sources {
        role: Role::Decode,
        counters: Arc::default(),
        status: status.subscribe(),
        attachment: attachment.subscribe(),
        drain: drain.clone(),
    });
    let (requests, inbox) = Requests::new();
    let settings = Settings {
        role: Role::Decode,
        max_body: Bytes::from_mib(1),
        admin: false,
        allow_provisional: true,
        drain_deadline: Duration::from_secs(1),
        queue: 8,
        body_memory: Bytes::from_mib(4),
        body_timeout: Duration::from_secs(30),
    };
    let inputs = Inputs {
        requests,
        attachment: attachment.subscribe(),
        status: status.subscribe(),
        policy: watch::Sender::new(None).subscribe(),
        served: None,
        drain,
        metrics: Arc::new(metrics),
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, http::router(settings, inputs)).await });
    tokio::spawn(answer(inbox, gone));
    address
}

async fn answer(mut inbox: UnboundedReceiver<Command>, gone: UnboundedSender<()>) {
    while let Some(command) = inbox.recv().await {
        let Command::Generate(generate, events) = command else {
            continue;
        };
        let asked = match &*generate.input {
            Input::Chat(chat) => chat.messages.last().unwrap().content.clone(),
            _ => "Hello".to_owned(),
        };
        let broken = || Generated::Failed(Refusal::Failed("it broke".to_owned()));
        match asked.as_str() {
            "break" => tell(&events, [broken()]),
            "unavailable" => tell(
                &events,
                [Generated::Failed(Refusal::Unavailable("later".to_owned()))],
            ),
            "break later" => tell(&events, [accepted(), token(0, WORDS[0], None), broken()]),
            "long" => tell(
                &events,
                [Generated::Failed(Refusal::TooLong("too long".to_owned()))],
            ),
            "wait" => {
                tell(&events, [accepted(), token(0, WORDS[0], None)]);
                let gone = gone.clone();
                tokio::spawn(async move {
                    events.closed().await;
                    gone.send(()).ok();
                });
            }
            _ => count(&generate, &events),
        }
    }
}

/// Drafts two words, the second of them wrong, and answers with three, or as many as were asked for.
fn count(generate: &Generate, events: &UnboundedSender<Generated>) {
    let asked = usize::try_from(generate.max_tokens).unwrap();
    tell(
        events,
        [
            accepted(),
            draft(0, WORDS[0]),
            draft(1, " too"),
            Generated::Retracted { from_index: 1 },
        ],
    );
    let words = WORDS.iter().take(asked).enumerate();
    tell(
        events,
        words.map(|(index, word)| {
            token(
                u32::try_from(index).unwrap(),
                word,
                generate.sampling.top_logprobs,
            )
        }),
    );
    let reason = if asked < WORDS.len() {
        Finish::Length
    } else {
        Finish::Stop
    };
    let finished = Generated::Finished {
        reason,
        rest: String::new(),
        logprobs: Vec::new(),
        completion_tokens: u32::try_from(asked.min(WORDS.len())).unwrap(),
        anchor: None,
        memory_bytes: [None, None],
    };
    tell(events, [finished]);
}

fn tell(events: &UnboundedSender<Generated>, what: impl IntoIterator<Item = Generated>) {
    for generated in what {
        drop(events.send(generated));
    }
}

fn accepted() -> Generated {
    Generated::Accepted {
        prompt_tokens: 4,
        cached_tokens: 3,
    }
}

/// A verified token, with as many of the likeliest as are wanted.
fn token(index: u32, text: &str, top: Option<u32>) -> Generated {
    let known = |place: u32| Logprob {
        token: index + place,
        logprob: -0.5 - f32::from(u16::try_from(place).unwrap()),
        bytes: if place == 0 {
            text.into()
        } else {
            vec![0xf0, 0x9f]
        },
        name: String::new(),
    };
    let logprobs = top.map(|top| TokenLogprobs {
        chosen: Some(known(0)),
        top: (0..top).map(known).collect(),
    });
    Generated::Token {
        index,
        token: index,
        text: text.to_owned(),
        provisional: false,
        logprobs: logprobs.into_iter().collect(),
    }
}

fn draft(index: u32, text: &str) -> Generated {
    Generated::Token {
        index,
        token: index,
        text: text.to_owned(),
        provisional: true,
        logprobs: Vec::new(),
    }
}
