//! A way to the API server that a test can close, cut, and have lie.
//!
//! An operator dials it in clear; it forwards by the test's own client. So a test decides when the API server "is away",
//! when a watch's place in history is forgotten, and who else writes, at the moment it wants.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use futures::StreamExt as _;
use kube::{Client, Config};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const LARGEST: usize = 8 << 20;

/// Shut when it is dropped.
pub(crate) struct Gate {
    pub(crate) config: Config,
    door: Arc<Door>,
    task: JoinHandle<()>,
}

struct Door {
    client: Client,
    closed: AtomicBool,
    /// So many watches more are told that they come too late.
    forgotten: AtomicU32,
    /// So many writes more meet somebody else's.
    conflicts: AtomicU32,
    /// Ends what is being answered.
    cut: Mutex<CancellationToken>,
}

impl Gate {
    pub(crate) async fn open(client: &Client) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address: SocketAddr = listener.local_addr().unwrap();
        let door = Arc::new(Door {
            client: client.clone(),
            closed: AtomicBool::new(false),
            forgotten: AtomicU32::new(0),
            conflicts: AtomicU32::new(0),
            cut: Mutex::new(CancellationToken::new()),
        });
        let router = Router::new().fallback(pass).with_state(Arc::clone(&door));
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self {
            config: Config::new(format!("http://{address}").parse().unwrap()),
            door,
            task,
        }
    }

    /// The API server is away: what is asked is refused, and every watch ends.
    pub(crate) fn close(&self) {
        self.door.closed.store(true, Ordering::Release);
        self.cut();
    }

    /// It is back.
    pub(crate) fn reopen(&self) {
        self.door.closed.store(false, Ordering::Release);
    }

    /// Ends every watch.
    pub(crate) fn cut(&self) {
        let fresh = CancellationToken::new();
        std::mem::replace(&mut *self.door.cut.lock().unwrap(), fresh).cancel();
    }

    /// Ends every watch, and the next `count` that go on from where they were learn that nobody remembers.
    pub(crate) fn forget(&self, count: u32) {
        self.door.forgotten.store(count, Ordering::Release);
        self.cut();
    }

    /// How many watches are still to learn that.
    pub(crate) fn unforgotten(&self) -> u32 {
        self.door.forgotten.load(Ordering::Acquire)
    }

    /// The next `count` writes are refused, as if somebody else had written in between.
    pub(crate) fn conflict(&self, count: u32) {
        self.door.conflicts.store(count, Ordering::Release);
    }

    /// How many writes are still to be refused.
    pub(crate) fn unrefused(&self) -> u32 {
        self.door.conflicts.load(Ordering::Acquire)
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// One less, where there is any.
fn takes_one(count: &AtomicU32) -> bool {
    let less = |count: u32| count.checked_sub(1);
    count
        .fetch_update(Ordering::AcqRel, Ordering::Acquire, less)
        .is_ok()
}

fn refusal(code: StatusCode, reason: &str) -> Response {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure",
        "reason": reason, "message": "as the test wants it", "code": code.as_u16(),
    });
    (code, axum::Json(status)).into_response()
}

async fn pass(State(door): State<Arc<Door>>, request: Request) -> Response {
    let cut = door.cut.lock().unwrap().clone();
    if door.closed.load(Ordering::Acquire) {
        return refusal(StatusCode::INTERNAL_SERVER_ERROR, "InternalError");
    }
    let query = request.uri().query().unwrap_or_default();
    let goes_on = query.contains("watch=") && !query.contains("resourceVersion=0");
    if goes_on && takes_one(&door.forgotten) {
        return refusal(StatusCode::GONE, "Expired");
    }
    let writes = matches!(
        *request.method(),
        Method::PATCH | Method::PUT | Method::POST
    );
    // The lease is the one thing whose loss the test isn't about.
    if writes && !request.uri().path().contains("/leases") && takes_one(&door.conflicts) {
        return refusal(StatusCode::CONFLICT, "Conflict");
    }
    let (mut parts, body) = request.into_parts();
    parts.headers.remove("host");
    let body = to_bytes(body, LARGEST).await.unwrap();
    let request = axum::http::Request::from_parts(parts, kube::client::Body::from(body));
    let Ok(answer) = door.client.send(request).await else {
        return refusal(StatusCode::BAD_GATEWAY, "InternalError");
    };
    let (parts, body) = answer.into_parts();
    let pieces = Body::new(body).into_data_stream();
    let pieces = pieces.take_until(cut.cancelled_owned());
    Response::from_parts(parts, Body::from_stream(pieces))
}
