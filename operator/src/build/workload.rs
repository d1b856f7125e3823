//! What runs a role's pods.

use k8s_openapi::api::apps::v1::{
    Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment,
};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt as _;

use super::agent_config::AgentConfig;
use super::generation::generation;
use super::names::{self, Role};
use super::{Inputs, pod};

/// The Deployment of one revision of a role. Another template is another Deployment, so that this one's controller never
/// rolls anything out by itself.
pub(super) fn deployment(
    inputs: &Inputs<'_>,
    role: Role,
    config: &AgentConfig,
    revision: &str,
) -> Deployment {
    let object = inputs.object;
    let mut labels = names::role_labels(object, role);
    labels.insert(names::GENERATION.into(), generation(&object.spec));
    labels.insert(names::REVISION.into(), revision.into());
    Deployment {
        metadata: names::metadata(object, names::of_revision(object, role, revision), labels),
        spec: Some(DeploymentSpec {
            replicas: Some(i32::try_from(inputs.replicas(role)).unwrap_or(i32::MAX)),
            selector: names::revision_selector(object, role, revision),
            revision_history_limit: Some(0),
            strategy: Some(DeploymentStrategy {
                type_: Some("RollingUpdate".into()),
                rolling_update: Some(RollingUpdateDeployment {
                    max_unavailable: Some(IntOrString::Int(0)),
                    max_surge: Some(IntOrString::Int(1)),
                }),
            }),
            template: pod::template(inputs, role, config, revision),
            ..DeploymentSpec::default()
        }),
        ..Deployment::default()
    }
}

/// An account without any rights: neither engine nor agent talks to the API server.
pub(super) fn service_account(inputs: &Inputs<'_>) -> ServiceAccount {
    let object = inputs.object;
    ServiceAccount {
        metadata: names::metadata(object, object.name_any(), names::labels(object)),
        automount_service_account_token: Some(false),
        ..ServiceAccount::default()
    }
}

/// One pod of a role at a time may be evicted. Not a least number: that would block a node's drain for a role of one pod.
pub(super) fn budget(inputs: &Inputs<'_>, role: Role) -> PodDisruptionBudget {
    let object = inputs.object;
    PodDisruptionBudget {
        metadata: names::metadata(
            object,
            names::of_role(object, role),
            names::role_labels(object, role),
        ),
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable: Some(IntOrString::Int(1)),
            selector: Some(names::selector(object, role)),
            ..PodDisruptionBudgetSpec::default()
        }),
        ..PodDisruptionBudget::default()
    }
}
