//! Hearing from a peer what it has cached and what is ahead there, as long as its link is up.

use std::sync::Arc;
use std::time::Duration;

use lynx_proto::peer::v1::peer_client::PeerClient;
use lynx_proto::peer::v1::{PeerNews, WatchRequest};
use tokio::sync::Semaphore;
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::{News, PeerId, Tell, What};
use crate::identity::Identity;

/// How long after a stream has ended another is begun.
const PAUSE: Duration = Duration::from_secs(2);

/// Hands on what the peer says, one message at a time, and begins anew when its stream ends; until the task is aborted,
/// nobody listens, or the peer turns out not to know the question.
pub(super) async fn watch(channel: Channel, caller: Identity, (peer, tell): (PeerId, Tell)) {
    let one = Arc::new(Semaphore::new(1));
    loop {
        let heard = hear(&channel, &caller, &one, |what| {
            (tell.0)(News { peer, what })
        });
        match heard.await {
            // It is of an earlier release: without its news it is as any new peer.
            Err(status) if status.code() == Code::Unimplemented => return,
            Err(_) => {}
            Ok(()) => return,
        }
        // What was told is no longer kept up to date.
        let nothing = PeerNews {
            reset: true,
            ..PeerNews::default()
        };
        let Ok(permit) = Arc::clone(&one).acquire_owned().await else {
            return;
        };
        let what = What::Told(Box::new(nothing), permit);
        if !(tell.0)(News { peer, what }) {
            return;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Hears one stream. `Ok` where nobody listens any more.
async fn hear(
    channel: &Channel,
    caller: &Identity,
    one: &Arc<Semaphore>,
    tell: impl Fn(What) -> bool,
) -> Result<(), Status> {
    let caller = Some(caller.to_proto());
    let mut client = PeerClient::new(channel.clone());
    let mut news = client.watch(WatchRequest { caller }).await?.into_inner();
    loop {
        // Before the message is read: a peer that talks faster than it is heard is held back by its stream.
        let permit = Arc::clone(one).acquire_owned().await;
        let permit = permit.map_err(|_| Status::cancelled("nobody listens"))?;
        let told = news.message().await?;
        let told = told.ok_or_else(|| Status::aborted("the stream has ended"))?;
        if !tell(What::Told(Box::new(told), permit)) {
            return Ok(());
        }
    }
}
