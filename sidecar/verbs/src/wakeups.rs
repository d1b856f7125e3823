//! Waiting for completions, in tokio.
#![expect(unsafe_code, reason = "tokio's promise that a file stays the same")]

use std::io;
use std::task::{Context, Poll};

use tokio::io::unix::AsyncFd;

use crate::completion::Completion;
use crate::error::CallError;
use crate::queue::CompletionQueue;

/// A completion queue that a task waits for.
#[derive(Debug)]
pub struct Wakeups(AsyncFd<CompletionQueue>);

impl Wakeups {
    /// Of this queue, in the runtime that this is called in. Only one for each queue, or they take each other's events.
    ///
    /// # Errors
    /// What the runtime's poller says.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn new(queue: CompletionQueue) -> io::Result<Self> {
        // SAFETY: the queue has the same file as long as it is there, and nobody else can close it.
        let registered = unsafe { AsyncFd::register(queue) }?;
        Ok(Self(registered))
    }

    /// The queue.
    pub fn queue(&self) -> &CompletionQueue {
        self.0.get_ref()
    }

    /// Appends completions, at least one, as soon as there are any. Loses none where it is dropped before its end, but for those that it has
    /// appended.
    ///
    /// # Errors
    /// What the driver says: the queue overran, or the device is gone.
    pub async fn next(&self, into: &mut Vec<Completion>) -> Result<(), CallError> {
        let queue = self.queue();
        loop {
            if drain(queue, into)? {
                return Ok(());
            }
            queue.arm()?;
            // What came before it was armed makes no event.
            if drain(queue, into)? {
                return Ok(());
            }
            let mut ready = self.0.readable().await.map_err(|source| CallError {
                what: "wait for completions",
                source,
            })?;
            ready.clear_ready();
            queue.take_events()?;
        }
    }
}

impl Wakeups {
    /// Ready when a completion may have come since the queue was armed. For those who poll by themselves: arm, poll until there is nothing,
    /// and then ask this.
    ///
    /// # Errors
    /// What the driver says.
    pub fn poll_woken(&self, context: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        let failed = |source| CallError {
            what: "wait for completions",
            source,
        };
        let ready = std::task::ready!(self.0.poll_read_ready(context));
        Poll::Ready(ready.map_err(failed).and_then(|mut ready| {
            ready.clear_ready();
            self.queue().take_events().map(|_| ())
        }))
    }
}

/// Whether there were any.
fn drain(queue: &CompletionQueue, into: &mut Vec<Completion>) -> Result<bool, CallError> {
    let mut any = false;
    while queue.poll(into)? > 0 {
        any = true;
    }
    Ok(any)
}
