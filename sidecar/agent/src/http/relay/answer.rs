//! An answer of the engine's server on its way back.

use std::io;
use std::pin::Pin;

use axum::body::{Body, BodyDataStream, Bytes};
use bytes::BytesMut;
use futures::{StreamExt as _, stream};
use http::StatusCode;

use super::lines::{LONGEST, Lines};
use super::{End, Hold};
use crate::http::error::ApiError;
use crate::http::exchange::Exchange;
use crate::requests::Finish;

/// An answer whose head has come. A client that goes away drops it, and with it the question.
pub(super) struct Answer {
    exchange: Exchange,
    _hold: Hold,
    end: Pin<Box<dyn Future<Output = ApiError> + Send>>,
    status: StatusCode,
    pieces: BodyDataStream,
    lines: Lines,
}

impl Answer {
    pub(super) fn new(
        exchange: Exchange,
        hold: Hold,
        end: End,
        (status, body): (StatusCode, Body),
    ) -> Self {
        Self {
            exchange,
            _hold: hold,
            end: Box::pin(end.come()),
            status,
            pieces: body.into_data_stream(),
            lines: Lines::default(),
        }
    }

    /// What comes next; `None` at the end.
    async fn next(&mut self) -> Option<Result<Bytes, ApiError>> {
        let piece = tokio::select! {
            biased;
            piece = self.pieces.next() => piece?,
            why = &mut self.end => return Some(Err(why)),
        };
        Some(piece.map_err(|error| {
            ApiError::unavailable(format!(
                "the engine broke its answer off: {error}; try again"
            ))
        }))
    }

    /// Events, as they come. One that ends early ends with an event that says why.
    pub(super) fn stream(self) -> Body {
        Body::from_stream(stream::unfold(Some(self), async |answer| {
            let mut answer = answer?;
            loop {
                match answer.next().await {
                    Some(Ok(piece)) => {
                        let lines = answer.lines.take(piece);
                        if !lines.is_empty() {
                            return Some((io::Result::Ok(lines), Some(answer)));
                        }
                    }
                    Some(Err(error)) => {
                        answer.exchange.fail(&error);
                        let begun = answer.lines.is_passing();
                        return Some((Ok(event(&error, begun)), None));
                    }
                    None => {
                        let rest = answer.lines.end();
                        let is_whole = answer.lines.seen.is_done;
                        answer.finish(is_whole);
                        return Some((Ok(rest), None));
                    }
                }
            }
        }))
    }

    /// An answer that is looked at as a whole, unless it is a long one.
    ///
    /// # Errors
    /// It ended early.
    pub(super) async fn whole(mut self) -> Result<Body, ApiError> {
        let mut text = BytesMut::new();
        while text.len() <= LONGEST {
            match self.next().await {
                Some(Ok(piece)) => text.extend_from_slice(&piece),
                Some(Err(error)) => {
                    self.exchange.fail(&error);
                    return Err(error);
                }
                None => {
                    let text = text.freeze();
                    let other = self.lines.seen.take(&text);
                    self.finish(true);
                    return Ok(other.map_or_else(|| text.into(), Body::from));
                }
            }
        }
        Ok(self.pass(text.freeze()))
    }

    /// What has come, and the rest as it comes.
    fn pass(self, begun: Bytes) -> Body {
        let rest = stream::unfold(Some(self), async |answer| {
            let mut answer = answer?;
            match answer.next().await {
                Some(Ok(piece)) => Some((Ok(piece), Some(answer))),
                Some(Err(error)) => {
                    answer.exchange.fail(&error);
                    Some((Err(io::Error::other(error.message().to_owned())), None))
                }
                None => {
                    answer.finish(true);
                    None
                }
            }
        });
        Body::from_stream(stream::once(async { Ok(begun) }).chain(rest))
    }

    /// Nothing more comes.
    fn finish(&mut self, is_whole: bool) {
        let seen = self.lines.seen;
        if self.status.is_success() && is_whole && !seen.failed {
            let tokens = seen.tokens.unwrap_or(0);
            self.exchange
                .finish(seen.finish.unwrap_or(Finish::Stop), tokens);
        } else {
            let was_refused = self.status.is_client_error();
            self.exchange.answered(self.status, was_refused);
        }
    }
}

/// The last thing in a stream, which has no `[DONE]` then.
fn event(error: &ApiError, within_a_line: bool) -> Bytes {
    let before = if within_a_line { "\n\n" } else { "" };
    format!("{before}event: error\ndata: {}\n\n", error.body()).into()
}
