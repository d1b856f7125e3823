//! Asking a prefill agent for one request's KV, and hearing how it gets on.

use std::time::Duration;

use lynx_proto::peer::v1::peer_client::PeerClient;
use lynx_proto::peer::v1::transfer_event::Kind;
use lynx_proto::peer::v1::{First, Layer, Sent, TransferEvent, TransferRequest};
use lynx_telemetry::Context;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use crate::integrity;

/// How long the peer may take to begin to answer. The KV itself may take as long as the transfer's deadline says.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a prefill agent says about a transfer.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Told {
    /// One layer of some tokens is computed.
    Layer(Layer),
    /// The output's first token.
    First(First),
    /// All KV is on its way. The last word.
    Sent(Sent),
    /// It won't come. The last word.
    Failed {
        /// Why.
        why: String,
        /// Whether another peer may have it: this one takes no work at the moment, or is gone.
        elsewhere: bool,
    },
}

/// Asks, and hands on what is said until the last word, or until nobody wants to hear it.
pub(super) async fn ask(
    channel: Channel,
    request: TransferRequest,
    trace: &Context,
    mut tell: impl FnMut(Told) -> bool,
) {
    if let Err(status) = conversation(channel, request, trace, &mut tell).await {
        tell(Told::Failed {
            why: sentence(&status),
            elsewhere: is_of_the_peer(&status),
        });
    }
}

async fn conversation(
    channel: Channel,
    request: TransferRequest,
    trace: &Context,
    tell: &mut impl FnMut(Told) -> bool,
) -> Result<(), Status> {
    let mut request = Request::new(request);
    lynx_telemetry::inject_metadata(trace, request.metadata_mut());
    let mut client = PeerClient::new(channel);
    let answer = tokio::time::timeout(PATIENCE, client.transfer(request)).await;
    let silent = || Status::deadline_exceeded(format!("no answer within {PATIENCE:?}"));
    let mut events = answer.map_err(|_| silent())??.into_inner();
    while let Some(TransferEvent { kind }) = events.message().await? {
        let told = match kind {
            Some(Kind::Layer(layer)) => Told::Layer(layer),
            Some(Kind::First(first))
                if first.checksum != integrity::of_first(first.token, first.logprobs.as_ref()) =>
            {
                return Err(Status::data_loss("its first token was changed on the way"));
            }
            Some(Kind::First(first)) => Told::First(first),
            Some(Kind::Sent(sent)) => {
                tell(Told::Sent(sent));
                return Ok(());
            }
            // What a later version says besides.
            Some(Kind::Started(_)) | None => continue,
        };
        if !tell(told) {
            return Ok(());
        }
    }
    Err(Status::aborted("it stopped before all KV was sent"))
}

/// Whether it is this peer that can't, rather than the request that nobody can answer. What the transport reports has a
/// source, whatever its code is; what a peer says has none.
fn is_of_the_peer(status: &Status) -> bool {
    let is_busy = matches!(status.code(), Code::Unavailable | Code::ResourceExhausted);
    is_busy || std::error::Error::source(status).is_some()
}

fn sentence(status: &Status) -> String {
    match status.message() {
        "" => format!("the prefill agent says {:?}", status.code()),
        message => format!("the prefill agent: {message}"),
    }
}
