//! The rules of a session without its stream.

use std::sync::Arc;

use lynx_proto::engine::v1::{from_agent, from_engine};

use super::message::Message;
use super::rules::Rules;
use crate::pool::Pool;

/// What a session makes of messages, for whoever wants to try all kinds of them.
#[derive(Debug)]
pub struct Trial(Rules);

impl Trial {
    /// A session with an engine of this pool, whose prompts have `context_tokens` tokens at most; with `own_front` it may
    /// start requests itself.
    pub fn new(pool: &Arc<Pool>, context_tokens: u32, own_front: bool) -> Self {
        Self(Rules::new(Arc::clone(pool), context_tokens, own_front))
    }

    /// The agent says something.
    pub fn said(&mut self, kind: &from_agent::Kind) {
        self.0.said(kind);
    }

    /// The engine says something: what the role would get of it, if anything.
    ///
    /// # Errors
    /// The sentence that the session would end with.
    pub fn heard(&mut self, kind: from_engine::Kind) -> Result<Option<Message>, String> {
        self.0.heard(kind).map_err(|broken| broken.to_string())
    }
}
