//! Others that scale the same pools: an autoscaler of Kubernetes' or KEDA's.
//!
//! Looked for, and not watched: most deployments aren't autoscaled, and the one moment that matters is before a write.

use std::fmt;

use kube::api::ListParams;
use kube::core::{DynamicObject, GroupVersionKind};
use kube::discovery::ApiResource;
use kube::{Api, Client, ResourceExt as _};
use serde_json::Value;

use crate::streams::Key;

/// Who scales besides the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rival {
    kind: String,
    name: String,
    target: String,
}

impl fmt::Display for Rival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} scales {}", self.kind, self.name, self.target)
    }
}

/// What can scale, the owner before what it owns.
const KINDS: [(&str, &str, &str); 2] = [
    ("keda.sh", "v1alpha1", "ScaledObject"),
    ("autoscaling", "v2", "HorizontalPodAutoscaler"),
];

/// The first that scales a deployment, or one of the Deployments that it consists of.
///
/// # Errors
/// Where the API server can't say. That it doesn't know a kind, or doesn't let the operator list it, is no error.
pub async fn look(client: &Client, key: &Key) -> Result<Option<Rival>, kube::Error> {
    for (group, version, kind) in KINDS {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let api: Api<DynamicObject> =
            Api::namespaced_with(client.clone(), &key.namespace, &resource);
        let list = match api.list(&ListParams::default()).await {
            Ok(list) => list,
            Err(kube::Error::Api(status)) if status.code == 404 || status.code == 403 => {
                tracing::debug!(
                    kind,
                    code = status.code,
                    "nothing is known of other autoscalers"
                );
                continue;
            }
            Err(error) => return Err(error),
        };
        let mut rivals = list.iter().filter_map(|one| rival(one, kind, &key.name));
        if let Some(rival) = rivals.next() {
            return Ok(Some(rival));
        }
    }
    Ok(None)
}

fn rival(object: &DynamicObject, kind: &str, deployment: &str) -> Option<Rival> {
    let target = object.data.pointer("/spec/scaleTargetRef")?;
    let text = |field: &str| target.get(field).and_then(Value::as_str);
    // KEDA's default.
    let target_kind = text("kind").unwrap_or("Deployment");
    let name = text("name")?;
    let group = text("apiVersion").unwrap_or("apps/v1");
    let ours = match target_kind {
        "LynxDeployment" => group.starts_with("lynx.dev/") && name == deployment,
        "Deployment" => ["prefill", "decode"].iter().any(|role| {
            let revision = name.strip_prefix(&format!("{deployment}-{role}-"));
            revision.is_some_and(|revision| !revision.contains('-'))
        }),
        _ => false,
    };
    ours.then(|| Rival {
        kind: kind.to_owned(),
        name: object.name_any(),
        target: format!("{target_kind} {name}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn found(target: Value) -> Option<String> {
        let object = json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "other"}, "spec": {"scaleTargetRef": target},
        });
        let object = serde_json::from_value(object).unwrap();
        rival(&object, "HorizontalPodAutoscaler", "smol").map(|rival| rival.to_string())
    }

    #[test]
    fn who_scales_the_deployment_or_its_workloads_is_a_rival_and_nobody_else() {
        let lynx =
            json!({"apiVersion": "lynx.dev/v1alpha1", "kind": "LynxDeployment", "name": "smol"});
        let told = "HorizontalPodAutoscaler other scales LynxDeployment smol";
        assert_eq!(found(lynx).as_deref(), Some(told));
        let workload =
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "smol-decode-1a2b"});
        assert!(found(workload).is_some());
        assert!(found(json!({"name": "smol-prefill-1a2b"})).is_some());
        for other in [
            json!({"apiVersion": "lynx.dev/v1alpha1", "kind": "LynxDeployment", "name": "smol-decode"}),
            json!({"apiVersion": "other.dev/v1", "kind": "LynxDeployment", "name": "smol"}),
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "smol-decode-x-decode-1a2b"}),
            json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "smol-decode-1a2b"}),
        ] {
            assert_eq!(found(other.clone()), None, "{other}");
        }
    }
}
