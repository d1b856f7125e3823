//! The process: servers, election, watches, loop, and their end.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::{Stream, StreamExt as _, future};
use kube::api::ListParams;
use kube::core::NamespaceResourceScope;
use kube::runtime::controller::{self, Controller};
use kube::runtime::events::{Recorder, Reporter};
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource};
use lynx_crds::LynxDeployment;
use lynx_proto::operator::v1::control_server::ControlServer;
use serde::de::DeserializeOwned;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::{UnboundedReceiverStream, WatchStream};
use tokio_util::sync::CancellationToken;

use crate::build::names::MANAGER;
use crate::caches::Caches;
use crate::caches::feed::{self, Pauses};
use crate::clock::Clock;
use crate::config::OperatorConfig;
use crate::control::Control;
use crate::leadership;
use crate::metrics::Metrics;
use crate::reconcile::{Context, error_policy, events, reconcile};
use crate::requests;
use crate::streams::Key;
use crate::streams::doors::Doors;
use crate::streams::entrance::{self, Connection};
use crate::streams::service::{Hub, Service as Agents};
use crate::web::{self, Health};

/// Between two attempts to reach the API server.
const AGAIN: Duration = Duration::from_secs(3);
/// Changes that come together are looked at together.
const DEBOUNCE: Duration = Duration::from_millis(200);
/// Deployments that are looked at together: more would only wait in the API server instead of here.
const AT_ONCE: u16 = 4;
/// Agents' connections are asked whether they live this often.
const KEEPALIVE: Duration = Duration::from_secs(5);

/// How long connections may take to end.
const GOODBYE: Duration = Duration::from_secs(2);

/// Why the process can't run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// What is known of the API server can't be used.
    #[error("no client can be made for the API server: see the service account or the kubeconfig")]
    Client(#[source] Box<kube::Error>),
    /// An address can't be bound.
    #[error("{address} can't be bound: is another process there?")]
    Bind {
        /// The address.
        address: std::net::SocketAddr,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
}

/// Runs until `shutdown`, and then ends in order: no more writes, streams ended, lease given back.
///
/// # Errors
/// Where an address can't be bound, or `cluster` can't be used. An API server that can't be reached is waited for.
pub async fn run(
    cluster: kube::Config,
    config: OperatorConfig,
    shutdown: CancellationToken,
) -> Result<(), RunError> {
    let http = bind(config.listen.http).await?;
    let grpc = bind(config.listen.agents).await?;
    let clock = Clock::start();
    let metrics = Arc::new(Metrics::new());
    let client = requests::client(cluster, Arc::clone(&metrics), clock)
        .map_err(|source| RunError::Client(Box::new(source)))?;
    let ready = Arc::new(AtomicBool::new(false));
    let (changed, changes) = mpsc::unbounded_channel();
    let (leads, leading) = watch::channel(false);
    let hub = Arc::new(Hub::new(changed.clone(), clock));
    let doors = Arc::new(Doors::default());
    let (events, said) = events::events();
    let reporter = Reporter {
        controller: MANAGER.into(),
        instance: Some(config.pod.name.clone()),
    };
    let recorder = Recorder::new(client.clone(), reporter);
    let context = Arc::new(Context {
        events,
        client: client.clone(),
        caches: Arc::new(Caches::new()),
        config: config.clone(),
        hub: Arc::clone(&hub),
        doors: Arc::clone(&doors),
        leading: leading.clone(),
        metrics: Arc::clone(&metrics),
        clock,
        memory: std::sync::Mutex::default(),
        nodes: crate::reconcile::places::Nodes::default(),
    });
    let health = Health {
        ready: Arc::clone(&ready),
        metrics,
    };
    let servers = future::join3(
        serve_http(http, health, shutdown.clone()),
        serve_agents(
            entrance::incoming(grpc, doors, shutdown.clone()),
            Agents::new(hub, leading),
            shutdown.clone(),
        ),
        events::publish(recorder, said, shutdown.clone()),
    );
    let operate = async {
        if reachable(&client, &config, &shutdown).await {
            let (watches, runs) = watches(&context, &shutdown);
            let stores = watches.iter().map(|watch| watch.store.clone()).collect();
            let control = Control::new(Arc::clone(&context), stores, changed.clone());
            let feeds = feed::follow(Arc::clone(&context), changed, shutdown.clone());
            let together = future::join5(
                dispatch(&watches, changes, shutdown.clone()),
                seen(&watches, &ready),
                leadership::run(client.clone(), config, leads, shutdown.clone()),
                control.run(shutdown.clone()),
                future::join_all(runs),
            );
            future::join(together, feeds).await;
        }
    };
    future::join(servers, operate).await;
    tracing::info!("ended");
    Ok(())
}

/// The watch of one namespace, or of all.
struct Watch {
    /// `None`: all.
    namespace: Option<String>,
    store: Store<LynxDeployment>,
    /// Asks for a reconcile.
    ask: mpsc::UnboundedSender<ObjectRef<LynxDeployment>>,
}

type Run = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A controller for each namespace, or one for all of them.
fn watches(context: &Arc<Context>, shutdown: &CancellationToken) -> (Vec<Watch>, Vec<Run>) {
    let named = context.config.namespaces.iter().cloned().map(Some);
    let all = context.config.namespaces.is_empty().then_some(None);
    named
        .chain(all)
        .map(|namespace| one_watch(context, namespace, shutdown))
        .unzip()
}

fn one_watch(
    context: &Arc<Context>,
    namespace: Option<String>,
    shutdown: &CancellationToken,
) -> (Watch, Run) {
    let (ask, asked) = mpsc::unbounded_channel();
    let objects = api::<LynxDeployment>(&context.client, namespace.as_deref());
    let (store, writer) = reflector::store();
    let objects = watcher::watcher(objects, watcher::Config::default())
        .modify(feed::slim)
        .reflect(writer)
        .applied_objects();
    let controller = Controller::for_stream(objects, store.clone())
        .with_config(
            controller::Config::default()
                .debounce(DEBOUNCE)
                .concurrency(AT_ONCE),
        )
        .trigger_backoff(Pauses::default())
        .reconcile_on(UnboundedReceiverStream::new(asked))
        // A new leader looks at everything, once it knows what there is.
        .reconcile_all_on(
            WatchStream::from_changes(context.caches.completeness())
                .filter_map(|complete| future::ready(complete.then_some(()))),
        )
        .graceful_shutdown_on(shutdown.clone().cancelled_owned());
    let run = controller
        .run(reconcile, error_policy, Arc::clone(context))
        .for_each(|result| {
            if let Err(error) = result {
                watch_trouble(&error);
            }
            future::ready(())
        });
    let watch = Watch {
        namespace,
        store,
        ask,
    };
    (watch, Box::pin(run))
}

/// What goes wrong outside of a reconcile; its own failures are logged there.
fn watch_trouble<E: std::error::Error + 'static>(error: &controller::Error<E, watcher::Error>) {
    match error {
        controller::Error::ReconcilerFailed(..) | controller::Error::ObjectNotFound(_) => {}
        other => tracing::warn!(error = %other, "a watch broke and is opened again"),
    }
}

fn api<K>(client: &Client, namespace: Option<&str>) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

/// Hands changes that agents reported to the controllers.
async fn dispatch(
    watches: &[Watch],
    mut changes: mpsc::UnboundedReceiver<Key>,
    shutdown: CancellationToken,
) {
    loop {
        let key = tokio::select! {
            () = shutdown.cancelled() => return,
            key = changes.recv() => key,
        };
        let Some(key) = key else { return };
        let of = |watch: &&Watch| {
            let namespace = watch.namespace.as_ref();
            namespace.is_none_or(|namespace| *namespace == key.namespace)
        };
        for watch in watches.iter().filter(of) {
            let object = ObjectRef::new(&key.name).within(&key.namespace);
            if watch.ask.send(object).is_err() {
                return;
            }
        }
    }
}

/// Ready once every watch has listed what there is.
async fn seen(watches: &[Watch], ready: &AtomicBool) {
    let all = watches.iter().map(|watch| watch.store.wait_until_ready());
    if future::join_all(all).await.iter().all(Result::is_ok) {
        ready.store(true, Ordering::Release);
        tracing::info!("ready");
    }
}

/// Waits until the API server answers and knows LynxDeployments; false at the end.
async fn reachable(client: &Client, config: &OperatorConfig, shutdown: &CancellationToken) -> bool {
    let namespace = config.namespaces.first().map(String::as_str);
    let objects = api::<LynxDeployment>(client, namespace);
    loop {
        match objects.list(&ListParams::default().limit(1)).await {
            Ok(_) => return true,
            Err(kube::Error::Api(status)) if status.code == 404 => tracing::warn!(
                "the API server doesn't know LynxDeployments: run `lynx-operator crd apply`; looking again"
            ),
            Err(kube::Error::Api(status)) if status.code == 403 => tracing::warn!(
                message = status.message,
                "this operator may not list LynxDeployments: see its ClusterRole or Role; trying again"
            ),
            Err(error) => tracing::warn!(%error, "the API server can't be reached: trying again"),
        }
        tokio::select! {
            () = shutdown.cancelled() => return false,
            () = tokio::time::sleep(AGAIN) => {}
        }
    }
}

async fn bind(address: std::net::SocketAddr) -> Result<TcpListener, RunError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| RunError::Bind { address, source })
}

async fn serve_http(listener: TcpListener, health: Health, shutdown: CancellationToken) {
    let served = axum::serve(listener, web::router(health))
        .with_graceful_shutdown(shutdown.clone().cancelled_owned());
    tokio::select! {
        served = served => if let Err(error) = served {
            tracing::error!(%error, "the HTTP server ended");
        },
        () = overdue(&shutdown) => {}
    }
}

async fn serve_agents(
    incoming: impl Stream<Item = std::io::Result<Connection>>,
    agents: Agents,
    shutdown: CancellationToken,
) {
    let served = tonic::transport::Server::builder()
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE))
        .add_service(ControlServer::new(agents))
        .serve_with_incoming_shutdown(incoming, shutdown.clone().cancelled_owned());
    tokio::select! {
        served = served => if let Err(error) = served {
            tracing::error!(%error, "the agents' server ended");
        },
        () = overdue(&shutdown) => {}
    }
}

/// A while after the shutdown: who doesn't hang up by then is hung up on.
async fn overdue(shutdown: &CancellationToken) {
    shutdown.cancelled().await;
    tokio::time::sleep(GOODBYE).await;
}
