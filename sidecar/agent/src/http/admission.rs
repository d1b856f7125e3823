//! What requests' bodies may take, and when those who find no room are to come back.
//!
//! A request's memory is bounded before it is there: its length is taken out of one pool before its first byte is read, and
//! is back when the last byte of its answer is gone. Not a layer of a library: none ties the pool to the answer's
//! end, and the time to come back is known only from what answers took here.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use http_body::{Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::error::ApiError;

/// What the pool is counted in, so that a semaphore's permits are enough for any size.
const UNIT: u64 = 1 << 10;
/// The longest time that anybody is told to stay away.
const LONGEST_PAUSE: u64 = 60;

/// Lets requests in. Clones share the pool.
#[derive(Clone, Debug)]
pub(super) struct Gate {
    pool: Arc<Semaphore>,
    total: u32,
    max_body: u64,
    patience: Duration,
    service: Arc<ServiceTime>,
}

/// What answers took lately, in microseconds: each new one has an eighth of the mean.
#[derive(Debug, Default)]
struct ServiceTime(AtomicU64);

impl Gate {
    /// A pool of so many bytes for bodies of at most `max_body`, each of which is here within `patience`.
    pub(super) fn new(pool: u64, max_body: u64, patience: Duration) -> Self {
        let total = units(pool.max(max_body));
        Self {
            pool: Arc::new(Semaphore::new(total as usize)),
            total,
            max_body,
            patience,
            service: Arc::default(),
        }
    }

    /// Takes a body in: its bytes, and the room that they have.
    async fn take(
        &self,
        body: Body,
        length: Option<u64>,
    ) -> Result<(Bytes, OwnedSemaphorePermit), ApiError> {
        if length.is_some_and(|length| length > self.max_body) {
            return Err(ApiError::too_large(self.max_body));
        }
        let wanted = units(length.unwrap_or(self.max_body)).min(self.total);
        let room = Arc::clone(&self.pool).try_acquire_many_owned(wanted);
        let mut room = room.map_err(|_| ApiError::no_memory())?;
        let limit = usize::try_from(self.max_body).unwrap_or(usize::MAX);
        let read = tokio::time::timeout(self.patience, axum::body::to_bytes(body, limit)).await;
        let bytes = match read {
            Err(_) => return Err(ApiError::slow(self.patience)),
            Ok(Err(error)) if is_too_large(&error) => {
                return Err(ApiError::too_large(self.max_body));
            }
            Ok(Err(_)) => return Err(ApiError::request("the request's body can't be read")),
            Ok(Ok(bytes)) => bytes,
        };
        let used = units(bytes.len() as u64) as usize;
        // Where the length wasn't told, most of it was not needed.
        drop(room.split(room.num_permits().saturating_sub(used)));
        Ok((bytes, room))
    }

    /// In how many seconds half of what is under way has made room.
    fn pause(&self) -> u64 {
        let micros = self.service.0.load(Ordering::Relaxed);
        (micros / 2).div_ceil(1_000_000).clamp(1, LONGEST_PAUSE)
    }
}

/// Lets a request in, or says when to come back.
pub(super) async fn admit(State(gate): State<Gate>, request: Request, next: Next) -> Response {
    let begun = Instant::now();
    if request.method() != http::Method::POST {
        return next.run(request).await;
    }
    let (head, body) = request.into_parts();
    let length = head.headers.get(header::CONTENT_LENGTH);
    let length = length.and_then(|value| value.to_str().ok()?.parse().ok());
    let (mut response, room) = match gate.take(body, length).await {
        Ok((bytes, room)) => {
            let request = Request::from_parts(head, Body::from(bytes));
            (next.run(request).await, Some(room))
        }
        Err(error) => {
            let mut response = error.into_response();
            // What is left of the body is not read.
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
            (response, None)
        }
    };
    if response.status() == StatusCode::TOO_MANY_REQUESTS {
        let pause = HeaderValue::from(gate.pause());
        response.headers_mut().insert(header::RETRY_AFTER, pause);
    }
    let service = (response.status() == StatusCode::OK).then_some((gate.service, begun));
    response.map(|body| {
        Body::new(Held {
            body,
            service,
            _room: room,
        })
    })
}

fn units(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT))
        .unwrap_or(u32::MAX)
        .min(u32::try_from(Semaphore::MAX_PERMITS).unwrap_or(u32::MAX))
}

fn is_too_large(error: &axum::Error) -> bool {
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        if error.is::<http_body_util::LengthLimitError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

impl ServiceTime {
    fn learn(&self, took: Duration) {
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let mean = |mean: u64| {
            Some(match mean {
                0 => took,
                mean => mean - mean / 8 + took / 8,
            })
        };
        // The closure always has a value.
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, mean)
            .ok();
    }
}

/// An answer, and what its request holds until it is gone.
struct Held {
    body: Body,
    /// Where to tell how long it took, and since when: once, at its end.
    service: Option<(Arc<ServiceTime>, Instant)>,
    _room: Option<OwnedSemaphorePermit>,
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some((service, begun)) = self.service.take() {
            service.learn(begun.elapsed());
        }
    }
}

impl HttpBody for Held {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(pool: u64) -> Gate {
        Gate::new(pool, 4 << 10, Duration::from_secs(30))
    }

    #[tokio::test]
    async fn what_is_taken_is_never_above_the_pool_and_comes_back() {
        let gate = gate(8 << 10);
        let body = || Body::from(vec![b'a'; 3000]);
        let (_, one) = gate.take(body(), Some(3000)).await.unwrap();
        let (_, two) = gate.take(body(), Some(3000)).await.unwrap();
        assert_eq!(gate.pool.available_permits(), 2);
        assert!(gate.take(body(), Some(3000)).await.is_err());
        drop(one);
        drop(gate.take(body(), Some(3000)).await.unwrap());
        drop(two);
        assert_eq!(gate.pool.available_permits(), 8);
    }

    #[tokio::test]
    async fn a_body_of_unknown_length_takes_the_most_until_it_is_known() {
        let gate = gate(8 << 10);
        let (_, room) = gate.take(Body::from("hello"), None).await.unwrap();
        assert_eq!(room.num_permits(), 1);
        assert_eq!(gate.pool.available_permits(), 7);
        let long = Body::from(vec![b'a'; 5000]);
        assert_eq!(
            gate.take(long, None).await.unwrap_err().status,
            StatusCode::PAYLOAD_TOO_LARGE
        );
        assert_eq!(gate.pool.available_permits(), 7);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_come_is_given_up() {
        let gate = gate(8 << 10);
        let never = Body::from_stream(futures::stream::pending::<Result<Bytes, std::io::Error>>());
        let error = gate.take(never, Some(100)).await.unwrap_err();
        assert_eq!(error.status, StatusCode::REQUEST_TIMEOUT);
        assert_eq!(gate.pool.available_permits(), 8);
    }

    #[test]
    fn the_pause_is_half_of_what_answers_take_and_at_least_a_second() {
        let gate = gate(1);
        assert_eq!(gate.pause(), 1);
        for _ in 0..100 {
            gate.service.learn(Duration::from_secs(9));
        }
        assert_eq!(gate.pause(), 5);
        for _ in 0..100 {
            gate.service.learn(Duration::from_secs(3600));
        }
        assert_eq!(gate.pause(), LONGEST_PAUSE);
    }
}
