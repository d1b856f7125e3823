//! Before an engine with an HTTP server of its own: a fake one, over real sockets.

use axum::response::IntoResponse as _;
use http::request::Parts;
use http::{HeaderValue, header};
use lynx_ports::HeldAddress;
use tokio::sync::mpsc;

use super::*;
use crate::clients::Clients;
use crate::testing::{FakeServer, soon};
use crate::upstream::Upstream;

/// An agent before an engine's server that a test plays.
struct World {
    agent: Server,
    engine: FakeServer,
    clients: Clients,
    health: watch::Sender<Option<String>>,
}

impl World {
    async fn start() -> Self {
        Self::with(|_| {}).await
    }

    async fn with(change: impl FnOnce(&mut Settings)) -> Self {
        let engine = FakeServer::start().await;
        let clients = Clients::default();
        let (health, watched) = watch::channel(None);
        let served = Served {
            upstream: engine.upstream.clone(),
            health: watched,
            clients: clients.clone(),
        };
        Self {
            agent: before(Some(served), change),
            engine,
            clients,
            health,
        }
    }

    /// Has a request answered with this.
    async fn exchange(
        &mut self,
        request: Request<Body>,
        answer: Response<Body>,
    ) -> (Parts, Value, Response<Body>) {
        let call = self.agent.router.call(request);
        let play = async {
            let (head, body, sender) = self.engine.asked().await;
            sender.send(answer).unwrap();
            (head, serde_json::from_slice(&body).unwrap())
        };
        let (response, (head, body)) = tokio::join!(soon(call), play);
        (head, body, response.unwrap())
    }

    /// Begins a stream: its answer, and what sends its pieces.
    async fn stream(
        &mut self,
    ) -> (
        Response<Body>,
        mpsc::UnboundedSender<Result<String, String>>,
    ) {
        let (pieces, body) = stream();
        let request = request("POST", CHAT, &hello().to_string());
        let (_, _, response) = self.exchange(request, body).await;
        (response, pieces)
    }

    fn outcome(&self, outcome: &str) -> bool {
        let measured = self.agent.metrics.encode();
        measured.contains(&format!(r#"lynx_requests_total{{outcome="{outcome}"}} 1"#))
    }
}

/// An answer in pieces, the last of which may be an error, and whoever sends them learns when nobody wants them.
fn stream() -> (
    mpsc::UnboundedSender<Result<String, String>>,
    Response<Body>,
) {
    let (pieces, inbox) = mpsc::unbounded_channel();
    let inbox = tokio_stream::wrappers::UnboundedReceiverStream::new(inbox);
    let kind = [(header::CONTENT_TYPE, "text/event-stream; charset=utf-8")];
    (pieces, (kind, Body::from_stream(inbox)).into_response())
}

fn whole(value: &Value) -> Response<Body> {
    axum::Json(value.clone()).into_response()
}

fn post(body: &Value) -> Request<Body> {
    request("POST", COMPLETIONS, &body.to_string())
}

/// The next piece of an answer.
async fn piece(body: &mut Body) -> String {
    use http_body_util::BodyExt as _;
    let frame = soon(body.frame()).await.unwrap().unwrap();
    String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap()
}

#[tokio::test]
async fn a_request_goes_on_with_its_number_and_the_answer_comes_back_as_it_is() {
    let mut world = World::start().await;
    let answer = json!({
        "id": "cmpl-1", "kv_transfer_params": {"secret": true},
        "choices": [{"text": "Hi", "finish_reason": "length"}], "usage": {"completion_tokens": 1},
    });
    let sent = json!({"model": "other", "prompt": [1, 2], "kv_transfer_params": null, "top_k": 7});
    let (head, body, response) = world.exchange(post(&sent), whole(&answer)).await;
    assert_eq!(head.uri.path(), COMPLETIONS);
    let salt = body["cache_salt"].as_str().unwrap();
    assert_eq!(salt.len(), 32);
    assert_eq!(
        body,
        json!({
            "model": "other", "prompt": [1, 2], "top_k": 7, "cache_salt": salt,
            "kv_transfer_params": {"lynx": {"client": "1"}},
        })
    );
    assert_eq!(response.status(), StatusCode::OK);
    let id = response.headers()["x-request-id"].to_str().unwrap();
    assert_eq!(
        Some(id),
        head.headers["x-request-id"]
            .to_str()
            .ok()
            .map(|bare| format!("cmpl-{bare}"))
            .as_deref()
    );
    let answered: Value = serde_json::from_str(&text(response).await).unwrap();
    assert_eq!(answered["choices"], answer["choices"]);
    assert!(answered.get("kv_transfer_params").is_none());
    assert!(world.outcome("length"));
    // Another one has another salt.
    let (_, other, _) = world.exchange(post(&sent), whole(&answer)).await;
    assert_ne!(other["cache_salt"], salt);
    assert_eq!(other["kv_transfer_params"]["lynx"]["client"], "2");
}

#[tokio::test]
async fn only_what_is_meant_to_goes_on_and_comes_back_of_a_head() {
    let mut world = World::start().await;
    let mut asking = post(&json!({"prompt": "a"}));
    for (name, value) in [
        ("authorization", "Bearer key"),
        ("cookie", "a=b"),
        ("connection", "x-secret, close"),
        ("x-secret", "1"),
        ("te", "trailers"),
        ("transfer-encoding", "chunked"),
        ("content-length", "3"),
        ("host", "elsewhere"),
        ("expect", "100-continue"),
        ("x-request-id", "mine"),
        ("x-forwarded-for", "10.0.0.1"),
    ] {
        asking
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    let mut answer = whole(&json!({"choices": []}));
    for (name, value) in [
        ("set-cookie", "a=b"),
        ("server", "uvicorn"),
        ("x-secret", "1"),
        ("retry-after", "7"),
    ] {
        answer
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    let (head, body, response) = world.exchange(asking, answer).await;
    assert_eq!(body["prompt"], "a");
    let mut names: Vec<&str> = head.headers.keys().map(http::HeaderName::as_str).collect();
    names.sort_unstable();
    let expected = "authorization content-length content-type host traceparent x-request-id";
    assert_eq!(names.join(" "), expected);
    assert_ne!(head.headers["x-request-id"], "mine");
    let host = head.headers["host"].to_str().unwrap();
    assert!(host.starts_with("127.0.0.1:"), "{host}");
    let trace = "0af7651916cd43dd8448eb211c80319c";
    assert!(
        head.headers["traceparent"]
            .to_str()
            .unwrap()
            .contains(trace)
    );
    let mut names: Vec<&str> = response
        .headers()
        .keys()
        .map(http::HeaderName::as_str)
        .collect();
    names.sort_unstable();
    assert_eq!(
        names.join(" "),
        "content-length content-type retry-after traceparent x-request-id"
    );
}

#[tokio::test]
async fn a_stream_passes_piece_by_piece_and_its_request_counts_until_its_end() {
    let mut world = World::start().await;
    let (response, pieces) = world.stream().await;
    assert_eq!(world.agent.drain.left(), 1);
    assert!(world.clients.get(1).is_some());
    let mut body = response.into_body();
    for text in ["data: {\"choices\":[]}\n\n", "data: {\"a\":1}\n\n"] {
        pieces.send(Ok(text.to_owned())).unwrap();
        assert_eq!(piece(&mut body).await, text);
    }
    let last = "data: {\"choices\":[{\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    pieces.send(Ok(last.to_owned())).unwrap();
    assert_eq!(piece(&mut body).await, last);
    drop(pieces);
    assert!(to_bytes(body, 1 << 10).await.unwrap().is_empty());
    assert!(world.outcome("stop"));
    assert_eq!(world.agent.drain.left(), 0);
    assert!(world.clients.get(1).is_none());
}

#[tokio::test]
async fn a_client_that_goes_away_is_gone_for_the_engine_too() {
    let mut world = World::start().await;
    // Before an answer has begun.
    let call = tokio::spawn(world.agent.router.call(post(&json!({"prompt": "a"}))));
    let (_, _, mut answer) = world.engine.asked().await;
    call.abort();
    soon(answer.closed()).await;
    assert!(world.clients.get(1).is_none());
    // While it is being given.
    let (response, pieces) = world.stream().await;
    assert!(!pieces.is_closed());
    drop(response);
    soon(pieces.closed()).await;
    assert_eq!(world.agent.drain.left(), 0);
}

#[tokio::test]
async fn what_is_too_much_is_refused_and_told_when_to_come_back() {
    let mut world = World::start().await;
    let (first, _pieces) = world.stream().await;
    let (second, _others) = world.stream().await;
    let third = world.agent.call(post(&json!({"prompt": "a"}))).await;
    assert_eq!(third.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(third.headers()["retry-after"], "1");
    drop((first, second));
    let (status, error) = world
        .agent
        .json(post(&json!({"prompt": "a", "n": 3})))
        .await;
    assert_eq!(
        (status, &error["error"]["param"]),
        (StatusCode::BAD_REQUEST, &json!("n"))
    );
    let long = post(&json!({"prompt": "a".repeat(70_000)}));
    let (status, _) = world.agent.json(long).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    let mut xml = post(&json!({}));
    xml.headers_mut()
        .insert("content-type", HeaderValue::from_static("text/xml"));
    let (status, _) = world.agent.json(xml).await;
    assert_eq!(status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    assert!(
        world.engine.asked.try_recv().is_err(),
        "the engine was not asked"
    );
}

#[tokio::test]
async fn what_a_client_says_to_the_connector_is_refused() {
    let mut world = World::start().await;
    let body = json!({"prompt": "a", "kv_transfer_params": {"lynx": {"client": "1"}}});
    let (status, error) = world.agent.json(post(&body)).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_eq!(error["error"]["param"], "kv_transfer_params");
    assert!(world.engine.asked.try_recv().is_err());
    assert!(world.outcome("refused"));
}

#[tokio::test]
async fn a_long_prompt_and_a_long_answer_pass_whole() {
    let mut world = World::with(|settings| {
        settings.max_body = Bytes::from_mib(4);
        settings.body_memory = Bytes::from_mib(8);
    })
    .await;
    let prompt = "a".repeat(3 << 20);
    let answer = "b".repeat(3 << 20);
    let sent = post(&json!({"prompt": prompt}));
    let answered = json!({"choices": [{"text": answer, "finish_reason": "stop"}]});
    let (_, body, response) = world.exchange(sent, whole(&answered)).await;
    assert_eq!(body["prompt"], prompt);
    let bytes = to_bytes(response.into_body(), 8 << 20).await.unwrap();
    let back: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(back, answered);
}

#[tokio::test]
async fn what_the_engine_refuses_is_told_as_it_says_it() {
    let mut world = World::start().await;
    let error = json!({"error": {"message": "no such model", "code": 404}});
    let answer = (StatusCode::NOT_FOUND, axum::Json(error.clone())).into_response();
    let (_, _, response) = world.exchange(post(&json!({})), answer).await;
    assert_eq!(response.status(), StatusCode::NOT_FOUND);
    let told: Value = serde_json::from_str(&text(response).await).unwrap();
    assert_eq!(told, error);
    assert!(world.outcome("refused"));
    let full = StatusCode::TOO_MANY_REQUESTS.into_response();
    let (_, _, response) = world.exchange(post(&json!({})), full).await;
    assert_eq!(response.headers()["retry-after"], "1");
}

#[tokio::test]
async fn an_answer_that_breaks_off_says_so() {
    let mut world = World::start().await;
    let (response, pieces) = world.stream().await;
    pieces
        .send(Ok("data: {}\n\ndata: {\"half".to_owned()))
        .unwrap();
    let mut body = response.into_body();
    assert_eq!(piece(&mut body).await, "data: {}\n\n");
    pieces.send(Err("the engine ends".to_owned())).unwrap();
    let event = piece(&mut body).await;
    let event = event.strip_prefix("event: error\n").unwrap();
    let error: Value = serde_json::from_str(data(event)[0]).unwrap();
    assert_eq!(error["error"]["type"], "service_unavailable");
    assert!(world.outcome("failed"));
    // Where no part of it has been given, there is a status for it.
    let (pieces, answer) = stream_of_json();
    pieces.send(Ok("{".to_owned())).unwrap();
    pieces.send(Err("the engine ends".to_owned())).unwrap();
    let (_, _, response) = world.exchange(post(&json!({})), answer).await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(response.headers()["retry-after"], "1");
}

fn stream_of_json() -> (
    mpsc::UnboundedSender<Result<String, String>>,
    Response<Body>,
) {
    let (pieces, mut answer) = stream();
    let json = HeaderValue::from_static("application/json");
    answer.headers_mut().insert(header::CONTENT_TYPE, json);
    (pieces, answer)
}

#[tokio::test]
async fn what_is_under_way_when_the_agent_ends_is_told_so() {
    let mut world = World::start().await;
    let (response, pieces) = world.stream().await;
    pieces.send(Ok("data: {}\n\n".to_owned())).unwrap();
    let mut body = response.into_body();
    assert_eq!(piece(&mut body).await, "data: {}\n\n");
    let waiting = tokio::spawn(world.agent.router.call(post(&json!({}))));
    let _question = world.engine.asked().await;
    world.clients.end();
    assert!(piece(&mut body).await.contains("this agent ends"));
    let refused = soon(waiting).await.unwrap().unwrap();
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn nobody_is_sent_where_no_engine_is() {
    let mut world = World::start().await;
    world.agent.drain.begin(Duration::from_secs(60));
    let (status, error) = world.agent.json(post(&json!({}))).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(error.to_string().contains("draining"), "{error}");
    let mut world = World::start().await;
    world
        .agent
        .attachment
        .send_modify(|state| state.engine = None);
    let (status, _) = world.agent.json(post(&json!({}))).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(world.engine.asked.try_recv().is_err());
    // Nobody listens there.
    let closed = HeldAddress::take().unwrap();
    let address = closed.address().to_string();
    let upstream = Upstream::new(address.parse().unwrap());
    assert!(upstream.trouble().await.unwrap().contains(&address));
    let served = Served {
        upstream,
        health: world.health.subscribe(),
        clients: Clients::default(),
    };
    let mut agent = before(Some(served), |_| {});
    let response = agent.call(post(&json!({}))).await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(response.headers()["retry-after"], "1");
    let error = text(response).await;
    assert!(
        error.contains(&address) && error.contains("\"error\""),
        "{error}"
    );
}

#[tokio::test]
async fn an_agent_is_ready_once_the_engines_server_is() {
    let mut world = World::start().await;
    let ask = || request("GET", "/readyz", "");
    assert_eq!(world.agent.call(ask()).await.status(), StatusCode::OK);
    world
        .health
        .send_replace(Some("it does not answer".to_owned()));
    let response = world.agent.call(ask()).await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(text(response).await, "it does not answer\n");
}

#[tokio::test]
async fn models_are_those_of_the_engines_server() {
    let mut world = World::start().await;
    let asking = world.agent.router.call(request("GET", "/v1/models", ""));
    let play = async {
        let (head, _, answer) = world.engine.asked().await;
        assert_eq!(
            (head.method.as_str(), head.uri.path()),
            ("GET", "/v1/models")
        );
        answer
            .send(whole(&json!({"data": [{"id": "lora"}]})))
            .unwrap();
    };
    let (response, ()) = tokio::join!(asking, play);
    assert!(text(response.unwrap()).await.contains("lora"));
}
