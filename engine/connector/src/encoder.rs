//! The thread that makes tokens of long prompts.
//!
//! A prompt of megabytes takes a second and more to tokenise, and between two steps of the engine every other request's
//! tokens would wait for it. Short ones are not worth the way: the engine's thread does those itself.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use lynx_engine::TokenId;
use lynx_proto::engine::v1::Submit;
use lynx_proto::engine::v1::submit::Input;

use crate::host::Refusal;
use crate::opened::Opened;
use crate::session::Signal;

/// A text that is longer, in bytes, is tokenised elsewhere: below it takes less than a step of the engine does.
const SHORT: usize = 8 << 10;

/// Hands prompts to the thread, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Encoder {
    jobs: Sender<(u64, Submit)>,
    next: u64,
}

/// A request whose prompt is tokens now.
#[derive(Debug)]
pub(crate) struct Encoded {
    /// What [`Encoder::encode`] gave.
    pub(crate) ticket: u64,
    /// The request; its input is in `prompt`.
    pub(crate) submit: Submit,
    pub(crate) prompt: Result<Vec<TokenId>, Refusal>,
}

/// Whether a prompt is for the thread.
pub(crate) fn is_long(input: Option<&Input>) -> bool {
    let bytes = match input {
        Some(Input::Text(text)) => text.len(),
        Some(Input::Chat(chat)) => chat
            .messages
            .iter()
            .map(|message| message.content.len())
            .sum(),
        Some(Input::Tokens(_)) | None => 0,
    };
    bytes > SHORT
}

impl Encoder {
    /// Starts the thread; what is done comes as a signal.
    ///
    /// # Errors
    /// The system has no thread to give.
    pub(crate) fn start(opened: Arc<Opened>, signals: Sender<Signal>) -> io::Result<Self> {
        let (jobs, inbox) = channel();
        std::thread::Builder::new()
            .name("lynx-encode".to_owned())
            .spawn(move || run(&opened, &inbox, &signals))?;
        Ok(Self { jobs, next: 0 })
    }

    /// Makes tokens of a request's prompt. The ticket is never given twice, as numbers of requests may be.
    pub(crate) fn encode(&mut self, submit: Submit) -> u64 {
        let ticket = self.next;
        self.next += 1;
        // The thread lives as long as this handle.
        drop(self.jobs.send((ticket, submit)));
        ticket
    }
}

fn run(opened: &Opened, inbox: &Receiver<(u64, Submit)>, signals: &Sender<Signal>) {
    while let Ok((ticket, mut submit)) = inbox.recv() {
        let prompt = opened.prompt(submit.input.take());
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
