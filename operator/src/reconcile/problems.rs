//! What stands in a deployment's way, besides what its pods say.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, ResourceExt as _};
use lynx_crds::LynxDeployment;

use super::{Context, ReconcileError};
use crate::status::Problem;
use crate::streams::Key;

/// What the spec names and isn't there.
pub(super) async fn missing_references(
    object: &LynxDeployment,
    context: &Context,
) -> Result<Vec<Problem>, ReconcileError> {
    let profile = object.spec.transfer.anchor.profile.as_ref();
    let Some(named) = profile.and_then(|profile| profile.config_map.as_ref()) else {
        return Ok(Vec::new());
    };
    let namespace = object.namespace().unwrap_or_default();
    let maps: Api<ConfigMap> = Api::namespaced(context.client.clone(), &namespace);
    let found = maps
        .get_opt(&named.name)
        .await
        .map_err(ReconcileError::api(format!(
            "read ConfigMap {}",
            named.name
        )))?;
    let has_key = found
        .and_then(|map| map.data)
        .is_some_and(|data| data.contains_key(&named.key));
    Ok(if has_key {
        Vec::new()
    } else {
        vec![Problem {
            reason: "ReferenceMissing",
            message: format!(
                "spec.transfer.anchor.profile: there is no ConfigMap {} with the key {}; pods wait for it",
                named.name, named.key
            ),
        }]
    })
}

/// Why agents refuse their engines.
pub(super) fn refusals(context: &Context, key: &Key) -> Vec<Problem> {
    context.hub.with(key, |registry, _| {
        let mut errors: Vec<_> = registry
            .agents(key)
            .map(|(_, agent)| agent.report.attach_error.clone())
            .filter(|error| !error.is_empty())
            .collect();
        errors.sort();
        errors.dedup();
        errors
            .into_iter()
            .map(|error| Problem {
                reason: "EngineRefused",
                message: format!("an engine doesn't fit its agent: {error}"),
            })
            .collect()
    })
}
