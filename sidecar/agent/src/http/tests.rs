mod choices;
mod errors;
mod health;
mod limits;
mod relay;
mod requests;
mod streams;

use axum::Router;
use axum::body::{Body, to_bytes};
use http::{Request, Response, StatusCode};
use lynx_proto::engine::v1::Attach;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tower::Service as _;

use super::*;
use crate::metrics;
use crate::requests::{Command, Finish, Generate, Generated};

/// A server, and the data path that a test plays.
struct Server {
    router: Router,
    crowded: Router,
    inbox: UnboundedReceiver<Command>,
    attachment: watch::Sender<Attachment>,
    status: watch::Sender<Status>,
    policy: watch::Sender<Option<Policy>>,
    drain: Drain,
    metrics: Arc<Metrics>,
}

fn server() -> Server {
    with(|_| {})
}

fn with(change: impl FnOnce(&mut Settings)) -> Server {
    before(None, change)
}

/// A server before an engine's own, where there is one.
fn before(served: Option<Served>, change: impl FnOnce(&mut Settings)) -> Server {
    let engine = Attach {
        model: "tiny".to_owned(),
        context_tokens: 100,
        model_fingerprint: vec![0xab; 32],
        weights: String::new(),
        ..Attach::default()
    };
    let (attachment, attached) = watch::channel(Attachment {
        engine: Some(Arc::new(engine)),
        error: None,
        ..Attachment::default()
    });
    let (status, watched) = watch::channel(Status {
        ready: true,
        ..Status::default()
    });
    let (policy, told) = watch::channel(None);
    let (requests, inbox) = Requests::new();
    let drain = Drain::new();
    let mut settings = Settings {
        role: Role::Decode,
        max_body: Bytes::from_kib(64),
        admin: true,
        allow_provisional: true,
        drain_deadline: Duration::from_secs(1),
        queue: 2,
        body_memory: Bytes::from_mib(1),
        body_timeout: Duration::from_secs(30),
    };
    change(&mut settings);
    let metrics = Arc::new(Metrics::new(metrics::Sources {
        role: settings.role,
        counters: Arc::default(),
        status: watched.clone(),
        attachment: attached.clone(),
        drain: drain.clone(),
    }));
    let inputs = Inputs {
        requests,
        attachment: attached,
        status: watched,
        policy: told,
        served,
        drain: drain.clone(),
        metrics: Arc::clone(&metrics),
    };
    Server {
        crowded: crowded_router(&settings, &inputs),
        router: drain_router(&settings, &inputs).merge(router(settings, inputs)),
        inbox,
        attachment,
        status,
        policy,
        drain,
        metrics,
    }
}

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";

fn request(method: &str, path: &str, body: &str) -> Request<Body> {
    Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/json")
        .header(
            "traceparent",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        )
        .body(Body::from(body.to_owned()))
        .unwrap()
}

fn hello() -> Value {
    json!({"model": "tiny", "messages": [{"role": "user", "content": "Hello"}]})
}

/// The same with other fields.
fn hello_with(fields: &Value) -> Value {
    let mut body = hello();
    body.as_object_mut()
        .unwrap()
        .extend(fields.as_object().unwrap().clone());
    body
}

/// A prompt of so many tokens, two of which were known.
fn accepted(prompt_tokens: u32) -> Generated {
    Generated::Accepted {
        prompt_tokens,
        cached_tokens: 2,
    }
}

fn token(index: u32, text: &str) -> Generated {
    Generated::Token {
        index,
        token: 1000 + index,
        text: text.to_owned(),
        provisional: false,
        logprobs: Vec::new(),
    }
}

fn draft(index: u32, text: &str) -> Generated {
    Generated::Token {
        index,
        token: 1000 + index,
        text: text.to_owned(),
        provisional: true,
        logprobs: Vec::new(),
    }
}

fn finished(reason: Finish, completion_tokens: u32) -> Generated {
    Generated::Finished {
        reason,
        rest: String::new(),
        logprobs: Vec::new(),
        completion_tokens,
        anchor: None,
        memory_bytes: [None, None],
    }
}

/// Two tokens.
fn hi() -> Vec<Generated> {
    vec![
        accepted(7),
        token(0, "Hi"),
        token(1, " there"),
        finished(Finish::Stop, 2),
    ]
}

impl Server {
    async fn call(&mut self, request: Request<Body>) -> Response<Body> {
        self.router.call(request).await.unwrap()
    }

    /// The status, and the JSON.
    async fn json(&mut self, request: Request<Body>) -> (StatusCode, Value) {
        let response = self.call(request).await;
        let status = response.status();
        (status, serde_json::from_str(&text(response).await).unwrap())
    }

    /// What a refused request is told, with nothing handed in.
    async fn refused(&mut self, path: &str, body: &str) -> (StatusCode, Value) {
        let answer = self.json(request("POST", path, body)).await;
        assert!(self.inbox.try_recv().is_err(), "{body} was handed in");
        answer
    }

    /// Answers the next request with `script`, and gives what was asked and what was answered.
    async fn exchange(
        &mut self,
        path: &str,
        body: &Value,
        script: Vec<Generated>,
    ) -> (Generate, Response<Body>) {
        let mut router = self.router.clone();
        let call = router.call(request("POST", path, &body.to_string()));
        let play = async {
            let (generate, events) = taken(&mut self.inbox).await;
            for generated in script {
                drop(events.send(generated));
            }
            generate
        };
        let (response, generate) = tokio::join!(call, play);
        (generate, response.unwrap())
    }
}

async fn taken(inbox: &mut UnboundedReceiver<Command>) -> (Generate, UnboundedSender<Generated>) {
    match inbox.recv().await {
        Some(Command::Generate(generate, events)) => (*generate, events),
        other => panic!("expected a request, got {other:?}"),
    }
}

async fn text(response: Response<Body>) -> String {
    let bytes = to_bytes(response.into_body(), 1 << 20).await.unwrap();
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The `data:` lines of a stream.
fn data(stream: &str) -> Vec<&str> {
    stream
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .collect()
}
