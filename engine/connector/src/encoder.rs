//! The thread that makes tokens of long prompts.
//!
//! A prompt of megabytes takes a second and more to tokenise, and between two steps of the engine every other request's
//! tokens would wait for it. Short ones are not worth the way: the engine's thread does those itself.
//!
//! A request that is given up drops its [`Ticket`]: the thread skips it, or stops between two parts of it. What waits is
//! bounded, and who comes after that is told to come again.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use lynx_engine::{Longest, TokenId};
use lynx_proto::engine::v1::Submit;
use lynx_proto::engine::v1::submit::Input;

use crate::host::Refusal;
use crate::opened::Opened;
use crate::session::Signal;

/// A text that is longer, in bytes, is tokenised elsewhere: below it takes less than a step of the engine does.
const SHORT: usize = 8 << 10;

/// How many bytes of texts may wait, unless there is only one: several of the longest that an agent takes.
const MOST_WAITING: usize = 64 << 20;

/// Hands prompts to the thread, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Encoder {
    jobs: Sender<Job>,
    next: u64,
    /// Bytes of texts that the thread has not done with.
    waiting: Arc<AtomicUsize>,
}

/// A prompt that is being made tokens, for as long as this is kept.
#[derive(Debug)]
pub(crate) struct Ticket {
    number: u64,
    wanted: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Job {
    ticket: u64,
    submit: Submit,
    bytes: usize,
    wanted: Arc<AtomicBool>,
}

/// A request whose prompt is tokens now.
#[derive(Debug)]
pub(crate) struct Encoded {
    /// The number of what [`Encoder::encode`] gave.
    pub(crate) ticket: u64,
    /// The request; its input is in `prompt`.
    pub(crate) submit: Submit,
    pub(crate) prompt: Result<Vec<TokenId>, Refusal>,
}

/// Whether a prompt is for the thread.
pub(crate) fn is_long(input: Option<&Input>) -> bool {
    bytes(input) > SHORT
}

fn bytes(input: Option<&Input>) -> usize {
    match input {
        Some(Input::Text(text)) => text.len(),
        Some(Input::Chat(chat)) => chat
            .messages
            .iter()
            .map(|message| message.role.len() + message.content.len())
            .sum(),
        Some(Input::Tokens(_)) | None => 0,
    }
}

impl Ticket {
    /// Never given twice, as numbers of requests may be.
    pub(crate) const fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.wanted.store(false, Ordering::Relaxed);
    }
}

impl Encoder {
    /// Starts the thread; what is done comes as a signal.
    ///
    /// # Errors
    /// The system has no thread to give.
    pub(crate) fn start(
        opened: Arc<Opened>,
        longest: Longest,
        signals: Sender<Signal>,
    ) -> io::Result<Self> {
        let (jobs, inbox) = channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let left = Arc::clone(&waiting);
        std::thread::Builder::new()
            .name("lynx-encode".to_owned())
            .spawn(move || run((&opened, longest), &inbox, &signals, &left))?;
        Ok(Self {
            jobs,
            next: 0,
            waiting,
        })
    }

    /// Makes tokens of a request's prompt.
    ///
    /// # Errors
    /// Too much waits already.
    pub(crate) fn encode(&mut self, submit: Submit) -> Result<Ticket, Refusal> {
        let bytes = bytes(submit.input.as_ref());
        let waiting = self.waiting.load(Ordering::Relaxed);
        if waiting > 0 && waiting + bytes > MOST_WAITING {
            return Err(Refusal::TextsWait(waiting));
        }
        self.waiting.fetch_add(bytes, Ordering::Relaxed);
        let ticket = Ticket {
            number: self.next,
            wanted: Arc::new(AtomicBool::new(true)),
        };
        self.next += 1;
        // The thread lives as long as this handle.
        drop(self.jobs.send(Job {
            ticket: ticket.number,
            submit,
            bytes,
            wanted: Arc::clone(&ticket.wanted),
        }));
        Ok(ticket)
    }
}

fn run(
    (opened, longest): (&Opened, Longest),
    inbox: &Receiver<Job>,
    signals: &Sender<Signal>,
    waiting: &AtomicUsize,
) {
    while let Ok(job) = inbox.recv() {
        let Job {
            ticket,
            mut submit,
            bytes,
            wanted,
        } = job;
        let is_wanted = || wanted.load(Ordering::Relaxed);
        let prompt = opened.prompt(submit.input.take(), longest, &is_wanted);
        waiting.fetch_sub(bytes, Ordering::Relaxed);
        if !is_wanted() {
            continue;
        }
        let encoded = Encoded {
            ticket,
            submit,
            prompt,
        };
        if signals.send(Signal::Encoded(Box::new(encoded))).is_err() {
            return;
        }
    }
}
