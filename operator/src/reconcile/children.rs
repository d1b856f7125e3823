//! What exists of a deployment.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{ListParams, ObjectMeta};
use kube::core::DynamicObject;
use kube::discovery::ApiResource;
use kube::{Api, Client, ResourceExt as _};
use lynx_crds::LynxDeployment;
use lynx_crds::spec::TlsMode;

use super::ReconcileError;
use super::pods::{Planned, is_ready};
use crate::build::names::{self, Role};
use crate::build::tls;
use crate::status::{Workload, trouble};

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
    /// The pods that aren't being deleted.
    pub pods: Vec<Pod>,
    /// The pods that are.
    pub ending: Vec<Pod>,
}

impl Children {
    /// The Deployments of a role, of all revisions.
    pub(super) fn of_role(&self, role: Role) -> impl Iterator<Item = &Deployment> {
        self.deployments.values().filter(move |deployment| {
            let label = deployment.labels().get(names::ROLE);
            label.is_some_and(|label| label == role.name())
                && deployment.metadata.deletion_timestamp.is_none()
        })
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
        let pods = self.pods.iter().filter(newest);
        let waiting = pods.filter(|pod| !is_ready(pod)).filter_map(trouble);
        unmade.chain(waiting).collect()
    }
}

/// Looks. Metadata is enough for all but workloads and pods.
pub(super) async fn look(
    object: &LynxDeployment,
    client: &Client,
) -> Result<Children, ReconcileError> {
    let namespace = object.namespace().unwrap_or_default();
    let label = format!("{}={}", names::DEPLOYMENT, object.name_any());
    let params = ListParams::default().labels(&label);
    let mut children = Children::default();
    for resource in kinds() {
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &resource);
        let list = api
            .list_metadata(&params)
            .await
            .map_err(ReconcileError::api(format!("list {}", resource.plural)))?;
        for item in list {
            let id = ChildId {
                kind: resource.kind.clone(),
                name: item.name_any(),
            };
            children
                .metadata
                .insert(id, (resource.clone(), item.metadata));
        }
    }
    if object.spec.transfer.tls.mode == TlsMode::OperatorCa
        && let Some(name) = tls::secret_name(object)
    {
        // By name: rights on other Secrets aren't needed.
        let resource = ApiResource::erase::<Secret>(&());
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &resource);
        let found = api.get_metadata_opt(&name).await;
        if let Some(found) = found.map_err(ReconcileError::api(format!("read Secret {name}")))? {
            let id = ChildId {
                kind: resource.kind.clone(),
                name,
            };
            children.metadata.insert(id, (resource, found.metadata));
        }
    }
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), &namespace);
    let list = deployments.list(&params).await;
    for deployment in list.map_err(ReconcileError::api("list deployments"))? {
        let id = ChildId {
            kind: "Deployment".into(),
            name: deployment.name_any(),
        };
        let resource = ApiResource::erase::<Deployment>(&());
        children
            .metadata
            .insert(id, (resource, deployment.metadata.clone()));
        children
            .deployments
            .insert(deployment.name_any(), deployment);
    }
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let list = pods.list(&params).await;
    (children.ending, children.pods) = list
        .map_err(ReconcileError::api("list pods"))?
        .into_iter()
        .partition(|pod| pod.metadata.deletion_timestamp.is_some());
    Ok(children)
}

/// The kinds that are built, besides Deployments.
fn kinds() -> [ApiResource; 5] {
    [
        ApiResource::erase::<ServiceAccount>(&()),
        ApiResource::erase::<ConfigMap>(&()),
        ApiResource::erase::<NetworkPolicy>(&()),
        ApiResource::erase::<Service>(&()),
        ApiResource::erase::<PodDisruptionBudget>(&()),
    ]
}
