//! What exists of a deployment.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{ListParams, ObjectMeta};
use kube::core::DynamicObject;
use kube::discovery::ApiResource;
use kube::{Api, Client, ResourceExt as _};
use lynx_crds::LynxDeployment;

use super::ReconcileError;
use crate::build::names::{self, Role};
use crate::scaling::drain::Plan;
use crate::status::Workload;

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
pub struct Children {
    /// By kind and name.
    pub metadata: BTreeMap<ChildId, (ApiResource, ObjectMeta)>,
    /// The workloads, by name.
    pub deployments: BTreeMap<String, Deployment>,
    /// The pods that aren't being deleted.
    pub pods: Vec<Pod>,
    names: [String; 2],
}

impl Children {
    /// The Deployment of a role.
    pub fn deployment(&self, role: Role) -> Option<&Deployment> {
        let [prefill, decode] = &self.names;
        self.deployments.get(match role {
            Role::Prefill => prefill,
            Role::Decode => decode,
        })
    }

    /// How a role's Deployment is doing, where `plan` is what was made of it.
    pub fn workload(&self, role: Role, plan: &Plan) -> Workload {
        let deployment = self.deployment(role);
        let status = deployment.and_then(|deployment| deployment.status.as_ref());
        let generation = deployment.and_then(|deployment| deployment.metadata.generation);
        let count = |value: Option<i32>| value.unwrap_or(0);
        Workload {
            desired: i32::try_from(plan.replicas).unwrap_or(i32::MAX),
            replicas: count(status.and_then(|status| status.replicas)),
            updated: count(status.and_then(|status| status.updated_replicas)),
            ready: count(status.and_then(|status| status.ready_replicas)),
            available: count(status.and_then(|status| status.available_replicas)),
            draining: i32::try_from(plan.draining.len()).unwrap_or(i32::MAX),
            observed: status.and_then(|status| status.observed_generation) >= generation
                && generation.is_some(),
        }
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
    let mut children = Children {
        names: Role::ALL.map(|role| names::of_role(object, role)),
        ..Children::default()
    };
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
    children.pods = list
        .map_err(ReconcileError::api("list pods"))?
        .into_iter()
        .filter(|pod| pod.metadata.deletion_timestamp.is_none())
        .collect();
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
