//! Peer control: what decode agents ask.
//!
//! Every question goes to the role's loop, which answers it; here are only the streams. A stream that its caller drops is
//! told to the loop too: that is how a transfer is cancelled.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _};
use lynx_proto::peer::v1::peer_server::{Peer, PeerServer};
use lynx_proto::peer::v1::{
    CheckRequest, CheckResponse, PeerNews, ProbeAnswer, ProbeFacts, ProbeRequest, TransferEvent,
    TransferRequest, WatchRequest, probe_answer,
};
use lynx_telemetry as telemetry;
use lynx_tls::PeerIdentity;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tonic::{Request, Response, Status};

use super::Signal;
use crate::security::Caller;

/// The longest message: a prompt of a million tokens and some.
const MAX_MESSAGE: usize = 8 << 20;

/// The most padding of a probe.
const MAX_PROBE: usize = 64 << 20;
/// The padding of one message.
const PADDING: usize = 256 << 10;

/// What is told of a transfer.
pub(super) type Events = mpsc::UnboundedSender<Result<TransferEvent, Status>>;

/// A transfer that was asked for.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) request: TransferRequest,
    /// Who the caller's certificate says that it is; nobody without TLS.
    pub(super) identity: Option<PeerIdentity>,
    /// The caller's span.
    pub(super) parent: telemetry::Context,
    pub(super) answer: oneshot::Sender<Result<Taken, Status>>,
}

/// A transfer that was begun.
#[derive(Debug)]
pub(super) struct Taken {
    /// Which.
    pub(super) request: u64,
    /// What happens to it.
    pub(super) events: mpsc::UnboundedReceiver<Result<TransferEvent, Status>>,
}

/// The service.
#[derive(Clone, Debug)]
pub(super) struct Service {
    signals: mpsc::UnboundedSender<Signal>,
    /// Whoever probes has it: a probe takes the link from transfers.
    probing: Arc<Semaphore>,
}

impl Service {
    pub(super) fn server(signals: mpsc::UnboundedSender<Signal>) -> PeerServer<Self> {
        let probing = Arc::new(Semaphore::new(1));
        PeerServer::new(Self { signals, probing }).max_decoding_message_size(MAX_MESSAGE)
    }

    async fn ask<T>(
        &self,
        signal: impl FnOnce(oneshot::Sender<Result<T, Status>>) -> Signal,
    ) -> Result<T, Status> {
        let (answer, answered) = oneshot::channel();
        // A role that has ended drops the question, and with it the answer's sender.
        drop(self.signals.send(signal(answer)));
        answered.await.unwrap_or_else(|_| {
            let why = "this prefill agent is shutting down: ask another";
            Err(Status::unavailable(why))
        })
    }
}

#[tonic::async_trait]
impl Peer for Service {
    type TransferStream = Watched;
    type ProbeStream = Probe;
    type WatchStream = BoxStream<'static, Result<PeerNews, Status>>;

    async fn check(
        &self,
        request: Request<CheckRequest>,
    ) -> Result<Response<CheckResponse>, Status> {
        let request = request.into_inner();
        let answer = self.ask(|answer| Signal::Check(request, answer)).await?;
        Ok(Response::new(answer))
    }

    async fn probe(&self, request: Request<ProbeRequest>) -> Result<Response<Probe>, Status> {
        let busy = |_| Status::resource_exhausted("somebody else is probing: try again");
        let permit = Arc::clone(&self.probing).try_acquire_owned();
        let permit = permit.map_err(busy)?;
        let facts = self.ask(Signal::Probe).await?;
        let bytes = usize::try_from(request.into_inner().bytes).unwrap_or(MAX_PROBE);
        Ok(Response::new(Probe {
            facts: Some(facts),
            left: bytes.min(MAX_PROBE),
            _permit: permit,
        }))
    }

    async fn watch(
        &self,
        request: Request<WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let request = request.into_inner();
        let reader = self.ask(|answer| Signal::Watch(request, answer)).await?;
        Ok(Response::new(reader.stream().boxed()))
    }

    async fn transfer(
        &self,
        request: Request<TransferRequest>,
    ) -> Result<Response<Watched>, Status> {
        let parent = telemetry::context_from_metadata(request.metadata());
        let caller = request.extensions().get::<Caller>();
        let identity = caller.and_then(|caller| caller.identity.clone());
        let request = request.into_inner();
        let asked = |answer| {
            Signal::Asked(Box::new(Asked {
                request,
                identity,
                parent,
                answer,
            }))
        };
        let Taken { request, events } = self.ask(asked).await?;
        Ok(Response::new(Watched {
            request,
            events,
            signals: self.signals.clone(),
        }))
    }
}

/// The answers to a probe.
#[derive(Debug)]
pub(super) struct Probe {
    facts: Option<ProbeFacts>,
    left: usize,
    _permit: OwnedSemaphorePermit,
}

impl Stream for Probe {
    type Item = Result<ProbeAnswer, Status>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let kind = if let Some(facts) = self.facts.take() {
            probe_answer::Kind::Facts(facts)
        } else if self.left > 0 {
            let bytes = self.left.min(PADDING);
            self.left -= bytes;
            probe_answer::Kind::Padding(vec![0; bytes])
        } else {
            return Poll::Ready(None);
        };
        Poll::Ready(Some(Ok(ProbeAnswer { kind: Some(kind) })))
    }
}

/// A transfer's events. Dropping it says that nobody listens any more.
#[derive(Debug)]
pub(super) struct Watched {
    request: u64,
    events: mpsc::UnboundedReceiver<Result<TransferEvent, Status>>,
    signals: mpsc::UnboundedSender<Signal>,
}

impl Stream for Watched {
    type Item = Result<TransferEvent, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.events.poll_recv(context)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // A role that has ended needs to know no more.
        drop(self.signals.send(Signal::Unwatched(self.request)));
    }
}
