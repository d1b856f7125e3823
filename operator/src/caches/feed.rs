//! The watches that fill the caches, as long as this replica leads.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt as _, TryStreamExt as _, future};
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::api::core::v1::{
    ConfigMap, ContainerStatus, Pod, PodSpec, PodStatus, PodTemplateSpec, Service, ServiceAccount,
};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::ObjectMeta;
use kube::core::{NamespaceResourceScope, PartialObjectMeta};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource};
use lynx_crds::LynxDeployment;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{Caches, Collector, Fed, Kind};
use crate::build::names::MANAGER;
use crate::build::tls;
use crate::metrics::Metrics;
use crate::reconcile::Context;
use crate::scaling::drain::{DELETION_COST, DRAIN_UNTIL};
use crate::streams::Key;

/// After the first failure of a watch.
const FIRST: Duration = Duration::from_millis(200);
/// However often it failed: an operator is blind for as long, so this is less than anybody waits for.
const LONGEST: Duration = Duration::from_secs(3);

/// The pauses of a watch that fails: doubling, to a few seconds.
///
/// kube's own grow to half a minute, and one row of them is shared by all watches of a controller: an API server that
/// was away for ten seconds was not looked at for minutes.
#[derive(Clone, Debug)]
pub struct Pauses {
    next: Duration,
}

impl Default for Pauses {
    fn default() -> Self {
        Self { next: FIRST }
    }
}

impl Iterator for Pauses {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let pause = self.next;
        self.next = (pause * 2).min(LONGEST);
        Some(pause)
    }
}

impl Backoff for Pauses {
    fn reset(&mut self) {
        self.next = FIRST;
    }
}

/// An object without what nobody here reads: a cache of all pods would be several times as large.
pub(super) fn lean<T: Lean>(mut object: T) -> T {
    object.slim();
    object
}

pub(super) trait Lean {
    fn slim(&mut self);
}

/// The same of a LynxDeployment.
pub(crate) fn slim(object: &mut LynxDeployment) {
    object.metadata.slim();
}

/// What `kubectl apply` keeps its own copy of an object in.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

impl Lean for ObjectMeta {
    fn slim(&mut self) {
        self.managed_fields = None;
        if let Some(annotations) = &mut self.annotations {
            annotations.remove(LAST_APPLIED);
        }
    }
}

/// Labels of Lynx's own: the others say the same of all that there is here.
fn own(labels: &mut Option<BTreeMap<String, String>>) {
    if let Some(labels) = labels {
        labels.retain(|name, _| name.starts_with("lynx.dev/"));
    }
}

impl Lean for Deployment {
    fn slim(&mut self) {
        self.metadata.slim();
        own(&mut self.metadata.labels);
        self.spec = self.spec.take().map(|spec| {
            let metadata = spec.template.metadata.map(|metadata| {
                let mut labels = metadata.labels;
                own(&mut labels);
                ObjectMeta {
                    labels,
                    ..ObjectMeta::default()
                }
            });
            DeploymentSpec {
                replicas: spec.replicas,
                template: PodTemplateSpec {
                    metadata,
                    spec: None,
                },
                ..DeploymentSpec::default()
            }
        });
        if let Some(status) = &mut self.status {
            let conditions = status.conditions.iter_mut();
            conditions.for_each(|all| all.retain(|one| one.type_ == "ReplicaFailure"));
        }
    }
}

impl Lean for Pod {
    fn slim(&mut self) {
        let metadata = &mut self.metadata;
        metadata.slim();
        own(&mut metadata.labels);
        metadata.owner_references = None;
        metadata.generate_name = None;
        if let Some(annotations) = &mut metadata.annotations {
            annotations.retain(|name, _| name == DRAIN_UNTIL || name == DELETION_COST);
        }
        self.spec = self.spec.take().map(|spec| PodSpec {
            node_name: spec.node_name,
            volumes: spec.volumes.and_then(|all| {
                let certificates = all.into_iter().find(tls::is_certificates);
                certificates.map(|volume| vec![volume])
            }),
            ..PodSpec::default()
        });
        self.status = self.status.take().map(|status| PodStatus {
            phase: status.phase,
            conditions: status.conditions.map(|mut all| {
                all.retain(|one| one.type_ == "Ready" || one.type_ == "PodScheduled");
                all
            }),
            init_container_statuses: status.init_container_statuses.map(waiting),
            container_statuses: status.container_statuses.map(waiting),
            ..PodStatus::default()
        });
    }
}

/// The containers that wait for something: of the others nothing is told.
fn waiting(mut all: Vec<ContainerStatus>) -> Vec<ContainerStatus> {
    all.retain(|one| {
        one.state
            .as_ref()
            .is_some_and(|state| state.waiting.is_some())
    });
    all.shrink_to_fit();
    all
}

/// Fills the caches whenever this replica leads, until `shutdown`. The deployments whose objects change go into `changed`.
pub async fn follow(
    context: Arc<Context>,
    changed: mpsc::UnboundedSender<Key>,
    shutdown: CancellationToken,
) {
    let mut leading = context.leading.clone();
    let feeds = Feeds {
        client: context.client.clone(),
        caches: Arc::clone(&context.caches),
        metrics: Arc::clone(&context.metrics),
        changed,
    };
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            leads = leading.wait_for(|leads| *leads) => if leads.is_err() { return },
        }
        let runs = feeds.runs(&context.config.namespaces);
        feeds.caches.begin(runs.len());
        tokio::select! {
            () = shutdown.cancelled() => {}
            _ = leading.wait_for(|leads| !*leads) => {}
            _ = future::join_all(runs) => {}
        }
        feeds.caches.end();
    }
}

type Run = Pin<Box<dyn Future<Output = ()> + Send>>;

struct Feeds {
    client: Client,
    caches: Arc<Caches>,
    metrics: Arc<Metrics>,
    changed: mpsc::UnboundedSender<Key>,
}

impl Feeds {
    /// One for each kind and namespace.
    fn runs(&self, namespaces: &[String]) -> Vec<Run> {
        if namespaces.is_empty() {
            return self.of_namespace(None);
        }
        let named = namespaces.iter().map(String::as_str).map(Some);
        named.flat_map(|one| self.of_namespace(one)).collect()
    }

    fn of_namespace(&self, namespace: Option<&str>) -> Vec<Run> {
        vec![
            self.metadata::<ServiceAccount>(Kind::ServiceAccount, namespace),
            self.metadata::<ConfigMap>(Kind::ConfigMap, namespace),
            self.metadata::<NetworkPolicy>(Kind::NetworkPolicy, namespace),
            self.metadata::<Service>(Kind::Service, namespace),
            self.metadata::<PodDisruptionBudget>(Kind::PodDisruptionBudget, namespace),
            self.whole::<Deployment>(Kind::Deployment, namespace),
            self.whole::<Pod>(Kind::Pod, namespace),
        ]
    }

    fn metadata<K>(&self, kind: Kind, namespace: Option<&str>) -> Run
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned
            + Send
            + 'static,
    {
        let events = watcher::watcher(self.api::<PartialObjectMeta<K>>(namespace), ours());
        let events = events.map_ok(|event| each(event, |object| lean(object.metadata)));
        self.feed(kind, namespace, events)
    }

    fn whole<K>(&self, kind: Kind, namespace: Option<&str>) -> Run
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Fed
            + Lean
            + Clone
            + Debug
            + DeserializeOwned
            + Send
            + 'static,
    {
        let events = watcher::watcher(self.api::<K>(namespace), ours());
        self.feed(kind, namespace, events.map_ok(|event| each(event, lean)))
    }

    fn feed<T: Fed + Send + 'static>(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        events: impl Stream<Item = Result<Event<T>, watcher::Error>> + Send + 'static,
    ) -> Run {
        let mut collector = Collector {
            namespace: namespace.map(str::to_owned),
            list: Vec::new(),
        };
        let (caches, changed) = (Arc::clone(&self.caches), self.changed.clone());
        let metrics = Arc::clone(&self.metrics);
        Box::pin(async move {
            let mut events = pin!(events.backoff(Pauses::default()));
            let mut listed = false;
            while let Some(event) = events.next().await {
                let event = match event {
                    Ok(event) => event,
                    Err(error) => {
                        metrics.watch_failed(&kind.resource().kind);
                        tracing::warn!(?kind, %error, "a watch broke and is opened again");
                        continue;
                    }
                };
                let Some(change) = collector.take(event) else {
                    continue;
                };
                let first = !listed && matches!(change, super::Change::Listed(..));
                let touched = caches.happened(kind, change);
                if first {
                    listed = true;
                    // Everything is looked at once all are complete.
                    caches.listed();
                } else if touched.into_iter().any(|key| changed.send(key).is_err()) {
                    return;
                }
            }
        })
    }

    fn api<K>(&self, namespace: Option<&str>) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        match namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        }
    }
}

/// Only what the operator made.
fn ours() -> watcher::Config {
    watcher::Config::default().labels(&format!("app.kubernetes.io/managed-by={MANAGER}"))
}

fn each<A, B>(event: Event<A>, make: impl FnOnce(A) -> B) -> Event<B> {
    match event {
        Event::Apply(object) => Event::Apply(make(object)),
        Event::Delete(object) => Event::Delete(make(object)),
        Event::InitApply(object) => Event::InitApply(make(object)),
        Event::Init => Event::Init,
        Event::InitDone => Event::InitDone,
    }
}
