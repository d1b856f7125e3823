//! The memory of peer control's messages, for all connections together.
//!
//! A message is read whole before it is looked at, and whoever reaches the port may begin as many as there are streams.
//! So every byte is taken out of one pool before it is kept, and given back when the question is answered; what finds no
//! room is refused. Not a wait for room: messages that each wait for the rest of theirs would wait for each other.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body::Frame;
use tokio::time::Sleep;
use tonic::Status;
use tonic::body::Body;
use tower::{Layer, Service};

use crate::counters::{Counters, Pool};

/// How long a message may take to come.
const PATIENCE: Duration = Duration::from_secs(10);

/// Has each message of a service take its memory out of the pool.
#[derive(Clone, Debug)]
pub(super) struct Bound {
    counters: Arc<Counters>,
}

/// A service whose messages are bounded.
#[derive(Clone, Debug)]
pub(super) struct Bounded<S> {
    inner: S,
    counters: Arc<Counters>,
}

/// What one message has of the pool.
#[derive(Debug)]
struct Held {
    counters: Arc<Counters>,
    bytes: AtomicU64,
}

/// A message that comes.
struct Incoming {
    body: Body,
    held: Arc<Held>,
    late: Pin<Box<Sleep>>,
}

impl Bound {
    /// A pool of so many bytes, used where `counters` say.
    pub(super) fn new(bytes: lynx_units::Bytes, counters: &Arc<Counters>) -> Self {
        counters.memory.of(Pool::Messages).set_limit(bytes.get());
        Self {
            counters: Arc::clone(counters),
        }
    }
}

impl<S> Layer<S> for Bound {
    type Service = Bounded<S>;

    fn layer(&self, inner: S) -> Bounded<S> {
        let counters = Arc::clone(&self.counters);
        Bounded { inner, counters }
    }
}

impl<S> Service<Request<Body>> for Bounded<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let held = Arc::new(Held {
            counters: Arc::clone(&self.counters),
            bytes: AtomicU64::new(0),
        });
        let request = request.map(|body| {
            Body::new(Incoming {
                body,
                held: Arc::clone(&held),
                late: Box::pin(tokio::time::sleep(PATIENCE)),
            })
        });
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            // Until here the question may wait for its link, and is as long as its message.
            drop(held);
            answer
        })
    }
}

impl Held {
    fn take(&self, bytes: usize) -> Result<(), Status> {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        if self.counters.memory.of(Pool::Messages).try_add(bytes) {
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
            return Ok(());
        }
        let why = "the messages that come have all the memory for them (transfer.messageMemory): ask another";
        Err(Status::resource_exhausted(why))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let bytes = self.bytes.load(Ordering::Relaxed);
        self.counters.memory.of(Pool::Messages).sub(bytes);
    }
}

impl http_body::Body for Incoming {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.late.as_mut().poll(context).is_ready() {
            let why = format!("the message did not come within {PATIENCE:?}: try again");
            return Poll::Ready(Some(Err(Status::deadline_exceeded(why))));
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        Poll::Ready(match frame {
            Some(Ok(frame)) => {
                let bytes = frame.data_ref().map_or(0, Bytes::len);
                Some(self.held.take(bytes).map(|()| frame))
            }
            other => other,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}
