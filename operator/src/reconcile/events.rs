//! Events, published beside the looks: nobody waits for one.

use std::fmt;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource as _;
use kube::runtime::events::{Event, EventType, Recorder};
use lynx_crds::LynxDeployment;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::status::Notice;

/// Events that wait at most. There are this many only while the API server is away or very slow, and then one that is lost
/// is nothing to hold anything up for: conditions say the same.
const WAITING: usize = 2048;
/// What is waiting at the end may take so long.
const GOODBYE: Duration = Duration::from_secs(2);

/// Takes events, and doesn't wait for them.
#[derive(Clone, Debug)]
pub struct Events {
    queue: mpsc::Sender<Said>,
}

/// An event, and what it is about.
pub struct Said {
    event: Event,
    about: ObjectReference,
}

impl fmt::Debug for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Said").finish_non_exhaustive()
    }
}

/// A way for events, and its other end.
pub fn events() -> (Events, mpsc::Receiver<Said>) {
    let (queue, said) = mpsc::channel(WAITING);
    (Events { queue }, said)
}

impl Events {
    /// Has events published. One that can't be is logged: it is nothing to try again for.
    pub(super) fn say(&self, object: &LynxDeployment, notices: &[Notice]) {
        for notice in notices {
            let event = Event {
                type_: if notice.warning {
                    EventType::Warning
                } else {
                    EventType::Normal
                },
                reason: notice.reason.clone(),
                note: Some(notice.note.chars().take(1000).collect()),
                action: "Reconcile".into(),
                secondary: None,
            };
            let about = object.object_ref(&());
            if self.queue.try_send(Said { event, about }).is_err() {
                tracing::warn!(
                    reason = notice.reason,
                    "an event was not published: too many wait"
                );
            }
        }
    }
}

/// Publishes what is said, in order, until `shutdown`.
pub async fn publish(
    recorder: Recorder,
    mut said: mpsc::Receiver<Said>,
    shutdown: CancellationToken,
) {
    loop {
        tokio::select! {
            () = shutdown.cancelled() => break,
            one = said.recv() => match one {
                Some(one) => publish_one(&recorder, &one).await,
                None => return,
            },
        }
    }
    said.close();
    let rest = async {
        while let Some(one) = said.recv().await {
            publish_one(&recorder, &one).await;
        }
    };
    if timeout(GOODBYE, rest).await.is_err() {
        tracing::warn!("some events were not published: the API server took too long");
    }
}

async fn publish_one(recorder: &Recorder, said: &Said) {
    if let Err(error) = recorder.publish(&said.event, &said.about).await {
        tracing::warn!(%error, reason = said.event.reason, "an event was not published");
    }
}
