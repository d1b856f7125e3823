//! Status and events, written.

use kube::api::{Patch, PatchParams};
use kube::runtime::events::{Event, EventType};
use kube::{Api, Resource as _, ResourceExt as _};
use lynx_crds::{LynxDeployment, LynxDeploymentStatus};
use serde_json::json;

use super::{Context, ReconcileError};
use crate::status::Notice;

/// Of everything in a status, and of nothing else.
const MANAGER: &str = "lynx-operator-status";

/// Writes a status that differs from the old one.
pub(super) async fn write(
    object: &LynxDeployment,
    context: &Context,
    status: &LynxDeploymentStatus,
) -> Result<(), ReconcileError> {
    let namespace = object.namespace().unwrap_or_default();
    let api: Api<LynxDeployment> = Api::namespaced(context.client.clone(), &namespace);
    let patch = json!({
        "apiVersion": LynxDeployment::api_version(&()),
        "kind": LynxDeployment::kind(&()),
        "status": status,
    });
    let params = PatchParams::apply(MANAGER).force();
    match api
        .patch_status(&object.name_any(), &params, &Patch::Apply(&patch))
        .await
    {
        Ok(_) => {
            context.metrics.status_written();
            Ok(())
        }
        // It was deleted meanwhile.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(ReconcileError::api("write the status")(error)),
    }
}

/// Publishes events. One that can't be published is logged: it is nothing to try again for.
pub(super) async fn publish(object: &LynxDeployment, context: &Context, notices: &[Notice]) {
    let reference = object.object_ref(&());
    for notice in notices {
        let event = Event {
            type_: if notice.warning {
                EventType::Warning
            } else {
                EventType::Normal
            },
            reason: notice.reason.clone(),
            note: Some(notice.note.chars().take(1000).collect()),
            action: "Reconcile".into(),
            secondary: None,
        };
        if let Err(error) = context.recorder.publish(&event, &reference).await {
            tracing::warn!(%error, reason = notice.reason, "an event was not published");
        }
    }
}
