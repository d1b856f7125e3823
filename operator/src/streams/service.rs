//! The agents' side of the operator, over gRPC.
//!
//! Every replica serves it; a replica that doesn't lead answers UNAVAILABLE, and ends its streams when it stops leading,
//! so that agents dial again and reach the leader. An agent that doesn't read what it is told is let go: it dials again
//! and is told everything anew.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::Stream;
use futures::channel::mpsc as queue;
use lynx_proto::operator::v1::control_server::Control;
use lynx_proto::operator::v1::{FromAgent, FromOperator, Hello, Report, Role, from_agent};
use lynx_units::Timestamp;
use std::pin::Pin;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::{Request, Response, Status, Streaming};

use super::entrance::Caller;
use super::plausible;
use super::{Key, Registry, StreamId};
use crate::clock::Clock;

/// Messages that wait for one agent at most: it gets a handful in its life. The queue takes memory as they come, and not for
/// all of them at once, as tokio's does.
const WAITING: usize = 32;

type Outbound = Result<FromOperator, Status>;

/// The registry, the streams it speaks through, and who wants to know of changes.
#[derive(Debug)]
pub struct Hub {
    shared: Mutex<Shared>,
    changed: mpsc::UnboundedSender<Key>,
    clock: Clock,
}

#[derive(Debug, Default)]
struct Shared {
    registry: Registry,
    streams: BTreeMap<StreamId, Outgoing>,
    /// The deployments that exist, as far as the controller has seen, and how their agents come.
    known: BTreeMap<Key, Way>,
}

/// How a deployment's agents come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Nobody has given them certificates that the operator could judge.
    Clear,
    /// By TLS, and no other way.
    Tls,
}

/// The way to an agent; when it is dropped, both directions of the stream end.
#[derive(Debug)]
struct Outgoing {
    sender: queue::Sender<Outbound>,
    _end: DropGuard,
}

impl Hub {
    /// `changed` receives the deployments whose agents changed in a way that status or replicas depend on.
    pub fn new(changed: mpsc::UnboundedSender<Key>, clock: Clock) -> Self {
        Self {
            shared: Mutex::default(),
            changed,
            clock,
        }
    }

    /// Now, on the clock that the registry's times are of.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Looks at the registry, or changes what its agents are to know; they are told on the way out.
    pub fn with<R>(&self, key: &Key, act: impl FnOnce(&mut Registry, Timestamp) -> R) -> R {
        let now = self.now();
        let mut shared = self.lock();
        let result = act(&mut shared.registry, now);
        shared.tell(key, now);
        result
    }

    /// How many agents have joined.
    pub fn agents(&self) -> usize {
        self.lock().registry.len()
    }

    /// A deployment exists: its agents may join, this way.
    pub fn admit(&self, key: &Key, way: Way) {
        self.lock().known.insert(key.clone(), way);
    }

    /// A deployment is gone: so are its agents.
    pub fn forget(&self, key: &Key) {
        let mut shared = self.lock();
        shared.known.remove(key);
        shared.registry.forget(key);
        shared.drop_orphans();
    }

    /// This replica leads no more: all streams end.
    pub fn end_all(&self) {
        let mut shared = self.lock();
        shared.registry.clear();
        shared.streams.clear();
    }

    fn join(&self, hello: Hello, caller: &Caller) -> Result<Joined, Status> {
        let key = key_of(&hello)?;
        let now = self.now();
        let mut shared = self.lock();
        let Some(way) = shared.known.get(&key) else {
            return Err(Status::not_found(format!(
                "no LynxDeployment {}/{} (yet)",
                key.namespace, key.name
            )));
        };
        judge(&key, *way, caller)?;
        let pod = hello.pod.clone();
        // An older stream of this pod ends here.
        if let Some(older) = shared.registry.stream_of(&key, &pod) {
            shared.streams.remove(&older);
        }
        let stream = shared.registry.join(hello, now);
        let (sender, messages) = queue::channel(WAITING);
        let end = CancellationToken::new();
        let outgoing = Outgoing {
            sender,
            _end: end.clone().drop_guard(),
        };
        shared.streams.insert(stream, outgoing);
        shared.tell(&key, now);
        drop(shared);
        tracing::info!(
            namespace = key.namespace,
            deployment = key.name,
            pod,
            "an agent joined"
        );
        self.announce(Some(key));
        Ok(Joined {
            stream,
            messages,
            end,
        })
    }

    fn report(&self, stream: StreamId, report: Report) {
        let now = self.now();
        let mut shared = self.lock();
        let changed = shared
            .registry
            .report(stream, plausible::report(report), now);
        if let Some(key) = &changed {
            shared.tell(key, now);
        }
        drop(shared);
        self.announce(changed);
    }

    fn leave(&self, stream: StreamId) {
        let now = self.now();
        let mut shared = self.lock();
        let left = shared.registry.leave(stream);
        shared.streams.remove(&stream);
        if let Some(key) = &left {
            shared.tell(key, now);
        }
        drop(shared);
        if let Some(key) = &left {
            tracing::info!(
                namespace = key.namespace,
                deployment = key.name,
                "an agent left"
            );
        }
        self.announce(left);
    }

    fn announce(&self, changed: Option<Key>) {
        if let Some(key) = changed
            && self.changed.send(key).is_err()
        {
            tracing::debug!("nobody listens for changes: shutting down");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    fn tell(&mut self, key: &Key, now: Timestamp) {
        for (stream, message) in self.registry.untold(key, now) {
            let sent = self
                .streams
                .get_mut(&stream)
                .is_some_and(|outgoing| outgoing.sender.try_send(Ok(message)).is_ok());
            if !sent {
                // It was counted as told, so its stream must end: the next one starts from nothing.
                self.streams.remove(&stream);
            }
        }
    }

    /// Ends the streams that the registry no longer knows.
    fn drop_orphans(&mut self) {
        let registry = &self.registry;
        self.streams.retain(|stream, _| registry.knows(*stream));
    }
}

struct Joined {
    stream: StreamId,
    messages: queue::Receiver<Outbound>,
    end: CancellationToken,
}

/// What tonic serves.
#[derive(Clone, Debug)]
pub struct Service {
    hub: Arc<Hub>,
    leading: watch::Receiver<bool>,
}

impl Service {
    /// Serves `hub` while `leading`.
    pub fn new(hub: Arc<Hub>, leading: watch::Receiver<bool>) -> Self {
        Self { hub, leading }
    }
}

#[tonic::async_trait]
impl Control for Service {
    type JoinStream = Pin<Box<dyn Stream<Item = Outbound> + Send>>;

    async fn join(
        &self,
        request: Request<Streaming<FromAgent>>,
    ) -> Result<Response<Self::JoinStream>, Status> {
        if !*self.leading.borrow() {
            return Err(Status::unavailable(
                "this replica of the operator doesn't lead: dial again",
            ));
        }
        let caller = request.extensions().get::<Caller>();
        let caller = caller.cloned().unwrap_or_default();
        let mut incoming = request.into_inner();
        let hello = match incoming.message().await?.and_then(|first| first.kind) {
            Some(from_agent::Kind::Hello(hello)) => hello,
            _ => return Err(Status::invalid_argument("the first message must be Hello")),
        };
        let Joined {
            stream,
            messages,
            end,
        } = self.hub.join(hello, &caller)?;
        let hub = Arc::clone(&self.hub);
        tokio::spawn(async move {
            tokio::select! {
                () = listen(&hub, stream, incoming) => {}
                () = end.cancelled() => {}
            }
            hub.leave(stream);
        });
        Ok(Response::new(Box::pin(messages)))
    }
}

/// Takes an agent's reports until its stream ends.
async fn listen(hub: &Hub, stream: StreamId, mut incoming: Streaming<FromAgent>) {
    loop {
        match incoming.message().await {
            Ok(Some(FromAgent {
                kind: Some(from_agent::Kind::Report(report)),
            })) => hub.report(stream, report),
            Ok(Some(_)) => {}
            Ok(None) => break,
            Err(status) => {
                tracing::debug!(%status, "an agent's stream broke");
                break;
            }
        }
    }
}

/// Whether who is at the other end may speak for an agent of this deployment.
fn judge(key: &Key, way: Way, caller: &Caller) -> Result<(), Status> {
    match &caller.key {
        Some(shown) if shown == key => Ok(()),
        None if way == Way::Clear => Ok(()),
        Some(shown) => Err(Status::permission_denied(format!(
            "your certificate is of {}/{}, and you say that you are of {}/{}",
            shown.namespace, shown.name, key.namespace, key.name
        ))),
        None => Err(Status::unauthenticated(format!(
            "agents of {}/{} come by TLS: operator.address must be https://, as in the deployment's ConfigMap",
            key.namespace, key.name
        ))),
    }
}

fn key_of(hello: &Hello) -> Result<Key, Status> {
    let missing = [
        ("namespace", hello.namespace.is_empty()),
        ("deployment", hello.deployment.is_empty()),
        ("pod", hello.pod.is_empty()),
        ("role", hello.role() == Role::Unspecified),
        ("generation", hello.generation.is_empty()),
    ];
    if let Some((field, _)) = missing.iter().find(|(_, missing)| *missing) {
        return Err(Status::invalid_argument(format!("Hello.{field} is empty")));
    }
    Ok(Key {
        namespace: hello.namespace.clone(),
        name: hello.deployment.clone(),
    })
}
