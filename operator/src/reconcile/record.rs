//! Status and events, written.

use std::borrow::Cow;

use kube::api::{Patch, PatchParams};
use kube::runtime::events::{Event, EventType};
use kube::{Api, Resource as _, ResourceExt as _};
use lynx_crds::{LynxDeployment, LynxDeploymentStatus};
use serde_json::json;

use super::{Context, ReconcileError};
use crate::caches;
use crate::status::Notice;
use crate::streams::Key;

/// Of everything in a status, and of nothing else.
const MANAGER: &str = "lynx-operator-status";

/// The object with the status that was written last, where the watch hasn't brought that yet: conditions would change
/// twice, and their events come twice.
pub(super) fn latest<'a>(
    object: &'a LynxDeployment,
    context: &Context,
    key: &Key,
) -> Cow<'a, LynxDeployment> {
    let written = context.remember(key, |memory| memory.written.clone());
    match written {
        Some((version, status)) if caches::version(&object.metadata) < version => {
            Cow::Owned(LynxDeployment {
                status: Some(status),
                ..object.clone()
            })
        }
        _ => Cow::Borrowed(object),
    }
}

/// Writes a status that differs from the old one.
pub(super) async fn write(
    object: &LynxDeployment,
    context: &Context,
    key: &Key,
    status: &LynxDeploymentStatus,
) -> Result<(), ReconcileError> {
    let api: Api<LynxDeployment> = Api::namespaced(context.client.clone(), &key.namespace);
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
        Ok(written) => {
            context.metrics.status_written();
            let version = caches::version(&written.metadata);
            let status = written.status.unwrap_or_default();
            context.remember(key, |memory| memory.written = Some((version, status)));
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
