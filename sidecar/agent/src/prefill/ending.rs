//! How requests end: at the engine, on the link, or because nobody wants them any more.

use lynx_proto::engine::v1::{FinishReason, Finished, Refused};
use lynx_protocol::sender::Event;
use lynx_protocol::{Code, Reason};
use lynx_transport::Ticket;
use lynx_units::{Epoch, TransferId};
use tonic::Status;

use super::node::Node;
use super::serving::{Owed, Serving};
use crate::requests::Refusal;

impl Node {
    pub(super) fn finished(&mut self, finished: &Finished) {
        let request = finished.request;
        let Some(serving) = self.serving.get_mut(&request) else {
            return;
        };
        serving.finished = true;
        if !serving.done {
            let why = match finished.reason() {
                FinishReason::Aborted => "the prefill engine ended the request",
                _ => "the prefill engine could not compute the prompt",
            };
            self.fail(request, Status::aborted(why));
        } else if let Owed::Warmed(_) = serving.owed
            && let Owed::Warmed(done) = std::mem::replace(&mut serving.owed, Owed::Nothing)
        {
            drop(done.send(Ok(())));
        }
        self.settle(request);
    }

    pub(super) fn refused(&mut self, refused: Refused) {
        let why = format!("the prefill engine refused: {}", refused.reason);
        let status = if refused.retryable {
            Status::unavailable(why)
        } else {
            Status::invalid_argument(why)
        };
        if let Some(serving) = self.serving.get_mut(&refused.request) {
            serving.finished = true;
        }
        self.fail(refused.request, status);
    }

    /// Nobody listens to what is told of this request.
    pub(super) fn unwatched(&mut self, request: u64) {
        let serving = self.serving.get_mut(&request);
        // Once everything is told, the link tells how it ends.
        let listening = serving
            .and_then(Serving::transfer)
            .is_some_and(|transfer| transfer.events.is_some());
        if listening {
            let why = "the decode agent no longer wants the KV";
            self.fail(request, Status::cancelled(why));
        }
    }

    /// What became of transfers on a link.
    pub(super) fn on_link(&mut self, link: &Ticket, epoch: Epoch, event: Event) {
        let (id, status) = match event {
            Event::Complete(id) => (id, None),
            Event::Failed(id, reason) => (id, Some(Status::aborted(reason.to_string()))),
            Event::Cancelled(id, reason) => (id, Some(Status::cancelled(reason.to_string()))),
            Event::Accepted(_) | Event::Broken(_) => return,
        };
        let Some(request) = self.find(link, epoch, id) else {
            return;
        };
        match status {
            Some(status) => self.fail(request, status),
            None => {
                self.counters.transfers_complete.add(1);
                if let Some(serving) = self.serving.get_mut(&request)
                    && let Some(transfer) = serving.transfer()
                {
                    transfer.delivered = true;
                    serving.owe_nothing_more();
                }
            }
        }
        self.settle(request);
    }

    /// The request whose transfer this is.
    pub(super) fn find(&self, link: &Ticket, epoch: Epoch, id: TransferId) -> Option<u64> {
        let is_it = |serving: &Serving| match &serving.owed {
            Owed::Transfer(transfer) => {
                transfer.id == id && transfer.ticket == *link && transfer.link.epoch() == epoch
            }
            Owed::Nothing | Owed::Warmed(_) => false,
        };
        let mut found = self.serving.iter().filter(|(_, serving)| is_it(serving));
        found.next().map(|(request, _)| *request)
    }

    /// Ends what is owed for a request with a reason: on the link, to whoever listens, and at the engine.
    pub(super) fn fail(&mut self, request: u64, status: Status) {
        let Some(serving) = self.serving.get_mut(&request) else {
            return;
        };
        match std::mem::replace(&mut serving.owed, Owed::Nothing) {
            Owed::Nothing => return self.settle(request),
            Owed::Warmed(done) => {
                let why = status.message().to_owned();
                let refusal = match status.code() {
                    tonic::Code::Unavailable => Refusal::Unavailable(why),
                    tonic::Code::InvalidArgument => Refusal::Invalid(why),
                    _ => Refusal::Failed(why),
                };
                drop(done.send(Err(refusal)));
            }
            Owed::Transfer(transfer) => {
                let why = status.message();
                let is_cancelled = status.code() == tonic::Code::Cancelled;
                let what = if is_cancelled {
                    "a transfer is not wanted any more"
                } else {
                    "a transfer has failed"
                };
                transfer.span.log().in_scope(|| {
                    tracing::info!(peer = transfer.to, transfer = transfer.id.0, why, "{what}");
                });
                // A link that is over has ended the transfer itself.
                if is_cancelled {
                    self.counters.transfers_cancelled.add(1);
                    transfer.link.cancel(transfer.id, why).ok();
                } else {
                    self.counters.transfers_failed.add(1);
                    let code = match status.code() {
                        tonic::Code::DeadlineExceeded => Code::Deadline,
                        _ => Code::Application,
                    };
                    transfer.link.fail(transfer.id, Reason::new(code, why)).ok();
                }
                transfer.end(status);
                self.splitting.over();
            }
        }
        serving.to_abort = !serving.finished;
        self.settle(request);
    }
}
