//! An engine's own HTTP server, which answers what a test says.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};

use super::soon;
use crate::upstream::Upstream;

/// A question: its head, its body, and where its answer goes.
pub(crate) type Question = (Parts, Bytes, oneshot::Sender<Response<Body>>);

/// A listening server.
pub(crate) struct FakeServer {
    pub(crate) upstream: Upstream,
    pub(crate) asked: mpsc::UnboundedReceiver<Question>,
}

impl FakeServer {
    pub(crate) async fn start() -> Self {
        let (questions, asked) = mpsc::unbounded_channel();
        let router = Router::new().fallback(receive).with_state(questions);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async { axum::serve(listener, router).await.unwrap() });
        Self {
            upstream: Upstream::new(address.parse().unwrap()),
            asked,
        }
    }

    /// What is asked next.
    pub(crate) async fn asked(&mut self) -> Question {
        soon(self.asked.recv()).await.unwrap()
    }
}

async fn receive(
    State(questions): State<mpsc::UnboundedSender<Question>>,
    request: Request<Body>,
) -> Response<Body> {
    let (head, body) = request.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    let (answer, answered) = oneshot::channel();
    questions.send((head, body, answer)).unwrap();
    answered.await.unwrap()
}
