//! What exists of the deployments, as watches tell it: what a reconcile reads instead of asking the API server.
//!
//! A cache is a little late, and what this process itself wrote must not look undone because of that: it would mark a second
//! pod for the one that it marked already. So what the API server answers to a write is [`learned`](Caches::learn) at once, and of
//! two versions of an object the newer one stays, whichever way it came.
//!
//! The caches live as long as a leadership does. A replica that doesn't lead holds none; one that begins to lists
//! everything anew, so that nothing it acts on was read before the last leader's writes. Objects are kept by the
//! deployment that their label names, as text, and without what nobody here reads: a store of all objects to search through, as
//! kube has it, would make every look as long as the cluster is large, and be several times as large as what is in it.

pub mod feed;
mod table;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::ObjectMeta;
use kube::core::DynamicObject;
use kube::discovery::ApiResource;
use kube::runtime::watcher::Event;
use tokio::sync::watch;

use crate::streams::Key;
use table::Table;
pub(crate) use table::version;

/// The kinds that are built and watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Of the pods.
    ServiceAccount,
    /// Agents' configurations.
    ConfigMap,
    /// Who may reach pods.
    NetworkPolicy,
    /// How pods are reached.
    Service,
    /// How many pods may be evicted at once.
    PodDisruptionBudget,
    /// Pods of one revision.
    Deployment,
    /// Pods.
    Pod,
}

impl Kind {
    /// All that the operator makes itself. Pods it doesn't.
    const MADE: [Self; 6] = [
        Self::ServiceAccount,
        Self::ConfigMap,
        Self::NetworkPolicy,
        Self::Service,
        Self::PodDisruptionBudget,
        Self::Deployment,
    ];

    /// As the API server calls it.
    pub fn resource(self) -> ApiResource {
        match self {
            Self::ServiceAccount => ApiResource::erase::<ServiceAccount>(&()),
            Self::ConfigMap => ApiResource::erase::<ConfigMap>(&()),
            Self::NetworkPolicy => ApiResource::erase::<NetworkPolicy>(&()),
            Self::Service => ApiResource::erase::<Service>(&()),
            Self::PodDisruptionBudget => ApiResource::erase::<PodDisruptionBudget>(&()),
            Self::Deployment => ApiResource::erase::<Deployment>(&()),
            Self::Pod => ApiResource::erase::<Pod>(&()),
        }
    }

    fn of(name: &str) -> Option<Self> {
        Self::MADE
            .into_iter()
            .find(|kind| kind.resource().kind == name)
    }
}

/// What exists of one deployment.
#[derive(Clone, Debug, Default)]
pub struct Existing {
    /// Metadata of everything but Deployments and pods, by kind and name.
    pub metadata: BTreeMap<(Kind, String), ObjectMeta>,
    /// The workloads, by name.
    pub deployments: BTreeMap<String, Deployment>,
    /// All pods, also those that are being deleted.
    pub pods: Vec<Pod>,
}

/// Everything that is watched.
#[derive(Debug)]
pub struct Caches {
    state: Mutex<State>,
    complete: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct State {
    metadata: BTreeMap<Kind, Table<ObjectMeta>>,
    deployments: Table<Deployment>,
    pods: Table<Pod>,
    /// Feeds that have not listed yet.
    missing: usize,
}

impl Caches {
    /// Empty, and incomplete.
    pub fn new() -> Self {
        Self {
            state: Mutex::default(),
            complete: watch::Sender::new(false),
        }
    }

    /// Whether every watch has listed what there is.
    pub fn is_complete(&self) -> bool {
        *self.complete.borrow()
    }

    /// Says when the caches become complete, and when they end.
    pub fn completeness(&self) -> watch::Receiver<bool> {
        self.complete.subscribe()
    }

    /// What exists of a deployment.
    pub fn of(&self, key: &Key) -> Existing {
        let state = self.lock();
        let metadata = state.metadata.iter().flat_map(|(kind, table)| {
            let objects = table.of(key);
            objects.map(|(name, object)| ((*kind, name), object))
        });
        Existing {
            metadata: metadata.collect(),
            deployments: state.deployments.of(key).collect(),
            pods: state.pods.of(key).map(|(_, pod)| pod).collect(),
        }
    }

    /// What the API server made of a write. What isn't watched is nothing to learn of.
    pub fn learn(&self, object: &DynamicObject) {
        let kind = object.types.as_ref().map(|types| types.kind.as_str());
        let Some(kind) = kind.and_then(Kind::of) else {
            return;
        };
        if kind == Kind::Deployment {
            if let Ok(deployment) = object.clone().try_parse::<Deployment>() {
                self.learn_deployment(deployment);
            }
        } else {
            let mut state = self.lock();
            let table = state.metadata.entry(kind).or_default();
            table.learn(&feed::lean(object.metadata.clone()));
        }
    }

    /// The same of a Deployment.
    pub fn learn_deployment(&self, deployment: Deployment) {
        self.lock().deployments.learn(&feed::lean(deployment));
    }

    /// The same of a pod.
    pub fn learn_pod(&self, pod: Pod) {
        self.lock().pods.learn(&feed::lean(pod));
    }

    /// A leadership begins: so many feeds have to list.
    fn begin(&self, feeds: usize) {
        *self.lock() = State {
            missing: feeds,
            ..State::default()
        };
    }

    /// A leadership is over.
    fn end(&self) {
        self.complete.send_replace(false);
        *self.lock() = State::default();
    }

    /// A feed has listed for the first time.
    fn listed(&self) {
        let mut state = self.lock();
        state.missing = state.missing.saturating_sub(1);
        let complete = state.missing == 0;
        drop(state);
        if complete {
            self.complete.send_replace(true);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Caches {
    fn default() -> Self {
        Self::new()
    }
}

/// What a feed brings, by the table that it belongs in.
trait Fed: table::Kept + Sized {
    fn table(state: &mut State, kind: Kind) -> &mut Table<Self>;
}

impl Fed for ObjectMeta {
    fn table(state: &mut State, kind: Kind) -> &mut Table<Self> {
        state.metadata.entry(kind).or_default()
    }
}

impl Fed for Deployment {
    fn table(state: &mut State, _: Kind) -> &mut Table<Self> {
        &mut state.deployments
    }
}

impl Fed for Pod {
    fn table(state: &mut State, _: Kind) -> &mut Table<Self> {
        &mut state.pods
    }
}

impl Caches {
    /// What a watch says happened to an object. Gives whose it is.
    fn happened<T: Fed>(&self, kind: Kind, event: Change<T>) -> BTreeSet<Key> {
        let mut state = self.lock();
        let table = T::table(&mut state, kind);
        match event {
            Change::Applied(object) => table.learn(&object).into_iter().collect(),
            Change::Deleted(object) => table.delete(&object).into_iter().collect(),
            Change::Listed(namespace, objects) => table.replace(namespace.as_deref(), &objects),
        }
    }
}

/// An event of a watch, its list in one piece.
enum Change<T> {
    Applied(T),
    Deleted(T),
    /// All there is in a namespace, or in all of them.
    Listed(Option<String>, Vec<T>),
}

/// Makes lists whole.
struct Collector<T> {
    namespace: Option<String>,
    list: Vec<T>,
}

impl<T> Collector<T> {
    fn take(&mut self, event: Event<T>) -> Option<Change<T>> {
        match event {
            Event::Apply(object) => Some(Change::Applied(object)),
            Event::Delete(object) => Some(Change::Deleted(object)),
            Event::Init => {
                self.list.clear();
                None
            }
            Event::InitApply(object) => {
                self.list.push(object);
                None
            }
            Event::InitDone => {
                let list = std::mem::take(&mut self.list);
                Some(Change::Listed(self.namespace.clone(), list))
            }
        }
    }
}
