//! The choices of one request as one stream of events.
//!
//! A choice is a request of its own to the data path, with a seed of its own. Dropped, all of them are aborted.

use std::future::poll_fn;
use std::task::Poll;

use tokio::sync::mpsc::UnboundedReceiver;

use crate::requests::{Generated, Refusal};

/// What becomes of every choice, each in its own order, and none before the others.
#[derive(Debug)]
pub(super) struct Choices {
    /// `None` where a choice has ended.
    receivers: Vec<Option<UnboundedReceiver<Generated>>>,
    /// Which one is asked first.
    turn: usize,
}

impl Choices {
    pub(super) fn new(receivers: Vec<UnboundedReceiver<Generated>>) -> Self {
        Self {
            receivers: receivers.into_iter().map(Some).collect(),
            turn: 0,
        }
    }

    /// What happens next, and to which choice; `None` when all have ended. The last event of a choice is
    /// [`Finished`](Generated::Finished) or [`Failed`](Generated::Failed).
    pub(super) async fn next(&mut self) -> Option<(usize, Generated)> {
        if self.receivers.iter().all(Option::is_none) {
            return None;
        }
        let (index, generated) = poll_fn(|context| {
            let count = self.receivers.len();
            for index in (self.turn..count).chain(0..self.turn) {
                if let Some(receiver) = &mut self.receivers[index]
                    && let Poll::Ready(generated) = receiver.poll_recv(context)
                {
                    self.turn = (index + 1) % count;
                    return Poll::Ready((index, generated));
                }
            }
            Poll::Pending
        })
        .await;
        let generated = generated.unwrap_or_else(|| Generated::Failed(lost()));
        if matches!(generated, Generated::Finished { .. } | Generated::Failed(_)) {
            self.receivers[index] = None;
        }
        Some((index, generated))
    }
}

/// The data path ended without a word.
pub(super) fn lost() -> Refusal {
    Refusal::Failed("the request was lost inside the agent: its log says more".to_owned())
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;

    fn retracted(from_index: u32) -> Generated {
        Generated::Retracted { from_index }
    }

    #[tokio::test]
    async fn choices_take_turns_and_one_that_is_lost_has_failed() {
        let (first, receiver) = unbounded_channel();
        let (second, other) = unbounded_channel();
        for index in 0..2 {
            first.send(retracted(index)).unwrap();
            second.send(retracted(10 + index)).unwrap();
        }
        drop(second);
        let mut choices = Choices::new(vec![receiver, other]);
        let mut told = Vec::new();
        for _ in 0..5 {
            told.push(choices.next().await.unwrap());
        }
        let expected = [
            (0, retracted(0)),
            (1, retracted(10)),
            (0, retracted(1)),
            (1, retracted(11)),
            (1, Generated::Failed(lost())),
        ];
        assert_eq!(told, expected);
        drop(choices);
        assert!(first.is_closed(), "the other choice is aborted");
    }
}
