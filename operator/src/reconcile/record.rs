//! The status, written.

use std::borrow::Cow;

use kube::api::{Patch, PatchParams};
use kube::{Api, Resource as _, ResourceExt as _};
use lynx_crds::{LynxDeployment, LynxDeploymentStatus};
use serde_json::json;

use super::{Context, ReconcileError};
use crate::caches;
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
    let seen = caches::version(&object.metadata);
    let newer = context.remember(key, |memory| {
        // What the watch has brought needn't be remembered beside it.
        memory.written = memory.written.take().filter(|(version, _)| seen < *version);
        let (_, status) = memory.written.as_ref()?;
        Some(status.clone())
    });
    match newer {
        Some(status) => Cow::Owned(LynxDeployment {
            status: Some(status),
            ..object.clone()
        }),
        None => Cow::Borrowed(object),
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
