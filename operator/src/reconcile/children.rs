//! What exists of a deployment.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::ObjectMeta;
use kube::core::DynamicObject;
use kube::discovery::ApiResource;
use kube::{Api, ResourceExt as _};
use lynx_crds::LynxDeployment;
use lynx_crds::spec::TlsMode;

use super::pods::{Planned, is_ready};
use super::{Context, ReconcileError};
use crate::build::names::{self, Role};
use crate::build::tls;
use crate::caches::{Existing, Kind};
use crate::scaling::pods::Pods;
use crate::status::{Workload, trouble};
use crate::streams::Key;

/// An object that exists.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChildId {
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
}

/// Everything with a deployment's label.
#[derive(Debug, Default)]
pub(super) struct Children {
    /// By kind and name.
    pub metadata: BTreeMap<ChildId, (ApiResource, ObjectMeta)>,
    /// The workloads, by name.
    pub deployments: BTreeMap<String, Deployment>,
    pods: Vec<Pod>,
    ending: Vec<Pod>,
}

impl Children {
    /// What the caches have.
    fn new(existing: Existing) -> Self {
        let deployments = existing.deployments.iter().map(|(name, one)| {
            let id = (Kind::Deployment, name.clone());
            (id, one.metadata.clone())
        });
        let metadata = existing
            .metadata
            .into_iter()
            .chain(deployments)
            .map(|((kind, name), metadata)| {
                let resource = kind.resource();
                let kind = resource.kind.clone();
                (ChildId { kind, name }, (resource, metadata))
            })
            .collect();
        let (ending, pods) = existing
            .pods
            .into_iter()
            .partition(|pod| pod.metadata.deletion_timestamp.is_some());
        Self {
            metadata,
            deployments: existing.deployments,
            pods,
            ending,
        }
    }

    /// The pods that aren't being deleted.
    pub(super) fn pods(&self) -> impl Iterator<Item = &Pod> {
        self.pods.iter()
    }

    /// The pods that are.
    pub(super) fn ending(&self) -> impl Iterator<Item = &Pod> {
        self.ending.iter()
    }

    /// The Deployments of a role, of all revisions.
    pub(super) fn of_role(&self, role: Role) -> impl Iterator<Item = &Deployment> {
        let all = self.deployments.values();
        all.filter(move |deployment| {
            let label = deployment.labels().get(names::ROLE);
            label.is_some_and(|label| label == role.name())
                && deployment.metadata.deletion_timestamp.is_none()
        })
    }

    /// Counts the pods for autoscaling.
    pub(super) fn count(&self, context: &Context, key: &Key) {
        let moment = (context.clock.wall(), context.hub.now());
        let counted = Role::ALL.map(|role| {
            let of_role = |pod: &&Pod| {
                let label = pod.labels().get(names::ROLE);
                label.is_some_and(|label| label == role.name())
            };
            Pods::count(self.pods().chain(self.ending()).filter(of_role), moment)
        });
        context.remember(key, |memory| memory.pods = Some(counted));
    }

    /// How a role is doing, where `planned` is what was made of it.
    pub(super) fn workload(&self, role: Role, planned: &Planned) -> Workload {
        let target = &planned.view(role).target;
        let sum = |count: fn(&DeploymentStatus) -> Option<i32>| {
            let statuses = self.of_role(role).filter_map(|one| one.status.as_ref());
            statuses.filter_map(count).sum()
        };
        let newest = self.of_role(role).find(|deployment| {
            let label = deployment.labels().get(names::REVISION);
            label == Some(&target.revision)
        });
        let status = newest.and_then(|newest| newest.status.as_ref());
        let generation = newest.and_then(|newest| newest.metadata.generation);
        Workload {
            desired: i32::try_from(target.replicas).unwrap_or(i32::MAX),
            replicas: sum(|status| status.replicas),
            updated: status.and_then(|status| status.replicas).unwrap_or(0),
            ready: sum(|status| status.ready_replicas),
            available: sum(|status| status.available_replicas),
            draining: i32::try_from(planned.draining(role)).unwrap_or(i32::MAX),
            observed: status.and_then(|status| status.observed_generation) >= generation
                && generation.is_some(),
        }
    }

    /// What keeps pods of the newest revisions from being ready, in sentences.
    pub(super) fn troubles(&self, planned: &Planned) -> Vec<String> {
        let newest = |pod: &&Pod| {
            let label = |name: &str| pod.labels().get(name).map(String::as_str);
            Role::ALL.into_iter().any(|role| {
                label(names::ROLE) == Some(role.name())
                    && label(names::REVISION) == Some(&planned.view(role).target.revision)
            })
        };
        // Of pods that can't even be made the workload tells: a quota, or the namespace's pod security.
        let unmade = Role::ALL.into_iter().flat_map(|role| {
            let revision = &planned.view(role).target.revision;
            self.of_role(role).filter(move |one| {
                let label = one.labels().get(names::REVISION);
                label == Some(revision)
            })
        });
        let unmade = unmade.filter_map(|one| {
            let conditions = one.status.as_ref()?.conditions.as_ref()?;
            let failure = conditions
                .iter()
                .find(|one| one.type_ == "ReplicaFailure" && one.status == "True")?;
            failure.message.clone()
        });
        let pods = self.pods().filter(newest);
        let waiting = pods.filter(|pod| !is_ready(pod)).filter_map(trouble);
        unmade.chain(waiting).collect()
    }
}

/// Looks into the caches, and asks for the one Secret, which isn't watched: for that, rights on all others were needed.
pub(super) async fn look(
    object: &LynxDeployment,
    context: &Context,
    key: &Key,
) -> Result<Children, ReconcileError> {
    let mut children = Children::new(context.caches.of(key));
    if object.spec.transfer.tls.mode == TlsMode::OperatorCa
        && let Some(name) = tls::secret_name(object)
        && let Some(metadata) = secret(context, key, &name).await?
    {
        let resource = ApiResource::erase::<Secret>(&());
        let kind = resource.kind.clone();
        let id = ChildId { kind, name };
        children.metadata.insert(id, (resource, metadata));
    }
    Ok(children)
}

async fn secret(
    context: &Context,
    key: &Key,
    name: &str,
) -> Result<Option<ObjectMeta>, ReconcileError> {
    let now = context.clock.now();
    let known = context.remember(key, |memory| memory.secret.get(now).cloned());
    if known.is_some() {
        return Ok(known);
    }
    let resource = ApiResource::erase::<Secret>(&());
    let api: Api<DynamicObject> =
        Api::namespaced_with(context.client.clone(), &key.namespace, &resource);
    let found = api.get_metadata_opt(name).await;
    let found = found.map_err(ReconcileError::api(format!("read Secret {name}")))?;
    let metadata = found.map(|found| found.metadata);
    if let Some(metadata) = &metadata {
        context.remember(key, |memory| memory.secret.set(metadata.clone(), now));
    }
    Ok(metadata)
}
