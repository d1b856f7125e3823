//! Requests and what becomes of them: the seam between the endpoint that clients call and the data path.
//!
//! The endpoint knows HTTP and JSON and nothing of engines; the data path knows engines and nothing of HTTP. Each can be
//! tested without the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lynx_proto::engine::v1::{Chat, Sampling, TokenLogprobs, Tokens, TraceContext};
use lynx_units::Width;
use tokio::sync::{mpsc, oneshot};

use crate::method::Method;
use crate::timeline::{AnchorWidths, Event};

/// What is to be answered.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A text to go on from.
    Text(String),
    /// A conversation, for the model's own template.
    Chat(Chat),
    /// The model's tokens.
    Tokens(Tokens),
}

/// One request.
#[derive(Clone, Debug, PartialEq)]
pub struct Generate {
    /// What is to be answered, once for all choices of it.
    pub input: Arc<Input>,
    /// How many tokens to answer with at most.
    pub max_tokens: u32,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Texts that end the answer, and are not part of it.
    pub stop: Vec<String>,
    /// Whether to go on past the model's end-of-text token.
    pub ignore_eos: bool,
    /// How the KV travels; `None` leaves it to the deployment.
    pub method: Option<Method>,
    /// The anchor's mean width; `None` leaves it to the policy.
    pub anchor: Option<Width>,
    /// Whether [`Generated::Happened`] is wanted.
    pub timeline: bool,
    /// The span that this request belongs to.
    pub trace: TraceContext,
    /// Requests of one number, see [`Requests::group`], differ in nothing but the seed, and one prompt's KV serves them all;
    /// 0 where there is no other.
    pub group: u64,
}

/// What happens to a request. The last one is [`Finished`](Self::Finished) or [`Failed`](Self::Failed).
#[derive(Clone, Debug, PartialEq)]
pub enum Generated {
    /// The engine has taken it.
    Accepted {
        /// Tokens of the prompt.
        prompt_tokens: u32,
        /// How many of them had their KV in the engine.
        cached_tokens: u32,
    },
    /// A token. Verified ones (not provisional) come in the order of their index, each once.
    Token {
        /// Its place in the answer.
        index: u32,
        /// The token.
        token: u32,
        /// What it adds to the text of the verified tokens before it, or of the provisional ones.
        text: String,
        /// Whether it may yet be retracted. Clients see such tokens only where they asked for them and may.
        provisional: bool,
        /// Where they are asked for: of the verified tokens, in order, that the text told by now has begun with.
        logprobs: Vec<TokenLogprobs>,
    },
    /// The provisional tokens from this one on are void.
    Retracted {
        /// The first of them.
        from_index: u32,
    },
    /// Something for the timeline.
    Happened(Event),
    /// The answer is complete.
    Finished {
        /// Why.
        reason: Finish,
        /// Text that was held back for a stop text that did not come.
        rest: String,
        /// Of the tokens that it is of.
        logprobs: Vec<TokenLogprobs>,
        /// Tokens of the answer.
        completion_tokens: u32,
        /// The anchor's widths, where there was one.
        anchor: Option<AnchorWidths>,
        /// The largest resident memories so far without the model's weights, in bytes: of the prefill node, and of the
        /// decode node, agent and engine together; `None` where unknown.
        memory_bytes: [Option<u64>; 2],
    },
    /// There is no answer.
    Failed(Refusal),
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The model's end-of-text token, or a text that was to end it.
    Stop,
    /// As many tokens as were asked for, or as the context holds.
    Length,
}

/// Why a request is not answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The request itself is at fault: 400.
    #[error("{0}")]
    Invalid(String),
    /// As much is under way as may be: 429, and may be tried again.
    #[error("{0}")]
    Busy(String),
    /// The prompt has more tokens than the model's context: 400.
    #[error("{0}")]
    TooLong(String),
    /// No engine is attached, or the agent is draining: 503, and may be tried again.
    #[error("{0}")]
    Unavailable(String),
    /// Something broke: 500.
    #[error("{0}")]
    Failed(String),
}

/// The model that is being served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelInfo {
    /// Its name.
    pub name: String,
    /// The longest sequence, prompt and answer, in tokens.
    pub context_tokens: u32,
    /// Of its weights, as clients are told; `None` where the engine does not say.
    pub fingerprint: Option<String>,
}

/// What the data path is asked.
#[derive(Debug)]
pub enum Command {
    /// Answer this. Dropping the receiver of `events` aborts the request.
    Generate(Box<Generate>, mpsc::UnboundedSender<Generated>),
    /// Compute this prompt and keep its KV; the answer comes when it is done.
    Warm(Vec<u32>, oneshot::Sender<Result<(), Refusal>>),
    /// Forget every prompt.
    Forget(oneshot::Sender<Result<(), Refusal>>),
}

/// Where requests are handed in.
#[derive(Clone, Debug)]
pub struct Requests {
    commands: mpsc::UnboundedSender<Command>,
    groups: Arc<AtomicU64>,
}

impl Requests {
    /// A handle, and where its commands arrive.
    pub fn new() -> (Self, mpsc::UnboundedReceiver<Command>) {
        let (commands, inbox) = mpsc::unbounded_channel();
        let groups = Arc::new(AtomicU64::new(1));
        (Self { commands, groups }, inbox)
    }

    /// A number for requests that share a prompt; never the same twice.
    pub fn group(&self) -> u64 {
        self.groups.fetch_add(1, Ordering::Relaxed)
    }

    /// Hands in a request. What becomes of it arrives at the receiver; dropping that aborts the request.
    pub fn generate(&self, generate: Generate) -> mpsc::UnboundedReceiver<Generated> {
        let (events, receiver) = mpsc::unbounded_channel();
        if let Err(error) = self
            .commands
            .send(Command::Generate(Box::new(generate), events))
            && let Command::Generate(_, events) = error.0
        {
            drop(events.send(Generated::Failed(gone())));
        }
        receiver
    }

    /// Has the engine compute a prompt and keep its KV.
    ///
    /// # Errors
    /// Where there is no engine, or it can't.
    pub async fn warm(&self, prompt: Vec<u32>) -> Result<(), Refusal> {
        let (done, answer) = oneshot::channel();
        drop(self.commands.send(Command::Warm(prompt, done)));
        answer.await.unwrap_or_else(|_| Err(gone()))
    }

    /// Has the engine end every request and forget every prompt.
    ///
    /// # Errors
    /// Where there is no engine.
    pub async fn forget(&self) -> Result<(), Refusal> {
        let (done, answer) = oneshot::channel();
        drop(self.commands.send(Command::Forget(done)));
        answer.await.unwrap_or_else(|_| Err(gone()))
    }
}

fn gone() -> Refusal {
    Refusal::Unavailable("the agent is shutting down: try another replica".to_owned())
}
