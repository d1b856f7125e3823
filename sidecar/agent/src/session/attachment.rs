//! One attached engine: what its agent says to it, and what it hears.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lynx_kernels::Profile;
use lynx_proto::engine::v1::{Attach, CodeWith, FromAgent, FromEngine, Role, from_agent};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tonic::{Status, Streaming};

use super::KEEPALIVE;
use super::message::Message;
use super::rules::{Broken, Rules};
use crate::pool::{Outbox, Pool};
use crate::run::chain;

/// Messages from the engine that wait for the role. More wait in the engine's own process.
const INBOX: usize = 1024;

/// The handle of an attached engine. Clones speak to the same engine.
#[derive(Clone, Debug)]
pub struct Engine {
    info: Arc<Attach>,
    pool: Arc<Pool>,
    rules: Arc<Mutex<Option<Rules>>>,
    outbox: Outbox,
    /// Why the role does not want it.
    unwanted: Arc<watch::Sender<Option<String>>>,
}

/// The engine's stream has ended; what it says last is [`Message::Detached`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the engine is gone")]
pub struct EngineGone;

/// An engine that has been taken.
#[derive(Debug)]
pub struct Attached {
    /// What is said to it.
    pub engine: Engine,
    /// What it says.
    pub messages: Messages,
}

/// What an engine says, in order, ended by [`Message::Detached`]. Dropping it ends the session.
#[derive(Debug)]
pub struct Messages {
    inbox: mpsc::Receiver<Message>,
}

impl Engine {
    pub(super) fn new(info: Attach, pool: Pool, outbox: Outbox) -> Self {
        let pool = Arc::new(pool);
        let own_front = info.role() == Role::Decode && !info.generates;
        let rules = Rules::new(Arc::clone(&pool), info.context_tokens, own_front);
        Self {
            info: Arc::new(info),
            pool,
            rules: Arc::new(Mutex::new(Some(rules))),
            outbox,
            unwanted: Arc::new(watch::Sender::new(None)),
        }
    }

    /// What it said of itself.
    pub fn info(&self) -> &Arc<Attach> {
        &self.info
    }

    /// Its KV.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Says something; never waits. What gives blocks back takes effect here before it is said: by then nobody of this process
    /// may read or write them any more.
    ///
    /// # Errors
    /// The engine is gone.
    pub fn send(&self, kind: from_agent::Kind) -> Result<(), EngineGone> {
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        rules.as_mut().ok_or(EngineGone)?.said(&kind);
        // Under the lock, so that messages leave in the order in which they took effect.
        let message = FromAgent { kind: Some(kind) };
        self.outbox.send(Ok(message)).map_err(|_| EngineGone)
    }

    /// Says what units are coded with, to an engine that codes by itself.
    pub fn code_with(&self, profile: &Profile) {
        if self.pool.is_by_engine()
            && let Ok(profile) = profile.to_json()
        {
            // One that is gone codes nothing.
            self.send(from_agent::Kind::CodeWith(CodeWith { profile }))
                .ok();
        }
    }

    /// Ends the session, because the role can't work with this engine: `why` is what the engine and whoever asks about the
    /// attachment are told.
    pub fn refuse(&self, why: &str) {
        self.unwanted.send_replace(Some(why.to_owned()));
    }

    /// Whether the stream has ended.
    pub fn is_gone(&self) -> bool {
        let rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        rules.is_none()
    }

    fn hear(&self, message: FromEngine) -> Result<Option<Message>, Broken> {
        let kind = message.kind.ok_or(Broken::Empty)?;
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        match rules.as_mut() {
            Some(rules) => rules.heard(kind),
            None => Ok(None),
        }
    }

    /// Takes every grant back, and lets nothing more be said.
    fn end(&self) {
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        *rules = None;
    }
}

impl Messages {
    /// The next message; `None` after [`Message::Detached`].
    pub async fn next(&mut self) -> Option<Message> {
        self.inbox.recv().await
    }
}

/// Where an engine's messages go, and where the role gets them.
pub(super) fn inbox() -> (mpsc::Sender<Message>, Messages) {
    let (sender, inbox) = mpsc::channel(INBOX);
    (sender, Messages { inbox })
}

/// Why a stream has ended without an error: an engine that fails its keepalive looks as if it had closed it, but for its
/// silence. One that lives says something about once a second.
fn ended_after(silence: Duration) -> String {
    let [_, patience] = KEEPALIVE;
    if silence < patience {
        return "the engine closed its stream".to_owned();
    }
    format!(
        "the engine has not answered for {} s: it hangs, or is stopped",
        silence.as_secs()
    )
}

/// What an engine is told at the end, if anything. As long as it isn't said, the stream doesn't end.
#[derive(Debug)]
pub(super) struct LastWord {
    outbox: Outbox,
    status: Option<Status>,
}

impl LastWord {
    pub(super) fn say(self) {
        if let Some(status) = self.status {
            // A stream that is gone can't be told.
            drop(self.outbox.send(Err(status)));
        }
    }
}

/// Passes on what the engine says until one of the two sides ends it; why it ended. An engine whose pool is in a GPU's memory keeps
/// that until its stream ends: what it is told then is its caller's to say, once the pool is closed.
pub(super) async fn listen(
    engine: Engine,
    mut stream: Streaming<FromEngine>,
    inbox: mpsc::Sender<Message>,
) -> (String, Option<LastWord>) {
    let mut unwanted = engine.unwanted.subscribe();
    let mut heard_at = Instant::now();
    let mut status = None;
    let why = loop {
        let next = tokio::select! {
            // A role that refuses the engine also drops its inbox: the reason comes first.
            biased;
            Ok(why) = unwanted.wait_for(Option::is_some) => {
                let why = why.clone().unwrap_or_default();
                status = Some(Status::failed_precondition(why.clone()));
                break why;
            }
            lost = engine.pool.lost() => {
                let why = lost.to_string();
                status = Some(Status::invalid_argument(why.clone()));
                break why;
            }
            next = stream.message() => next,
            () = inbox.closed() => break "the agent is shutting down".to_owned(),
        };
        let heard = match next {
            Ok(Some(message)) => {
                heard_at = Instant::now();
                engine.hear(message)
            }
            Ok(None) => break ended_after(heard_at.elapsed()),
            Err(status) => {
                tracing::debug!(error = chain(&status), "the engine's stream broke");
                break "the engine has ended: its process closed the socket".to_owned();
            }
        };
        match heard {
            Ok(Some(message)) => {
                if inbox.send(message).await.is_err() {
                    break "the agent is shutting down".to_owned();
                }
            }
            Ok(None) => {}
            Err(broken) => {
                let why = broken.to_string();
                status = Some(Status::invalid_argument(why.clone()));
                break why;
            }
        }
    };
    engine.end();
    let outbox = engine.outbox.clone();
    let mut last = Some(LastWord { outbox, status });
    if engine.pool.gpu().is_none() {
        last.take().into_iter().for_each(LastWord::say);
    }
    drop(inbox.send(Message::Detached(why.clone())).await);
    (why, last)
}
