//! Writes what was built, and removes what no longer is.

use std::collections::{BTreeMap, BTreeSet};

use futures::future;
use kube::api::{DeleteParams, GetParams, ObjectMeta, Patch, PatchParams, Preconditions};
use kube::core::DynamicObject;
use kube::{Api, ResourceExt as _};
use lynx_crds::LynxDeployment;

use super::children::{ChildId, Children};
use super::{Context, ReconcileError};
use crate::build::Built;
use crate::build::generation::hash;
use crate::build::names::MANAGER;
use crate::streams::Key;

/// What was applied, by object.
pub type Applied = BTreeMap<ChildId, Stamp>;

/// What was applied, and the object that it became.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    hash: String,
    uid: Option<String>,
    version: Version,
}

/// What changes when somebody changes an object's spec: its generation, or for kinds without one every change.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Version {
    Generation(i64),
    Resource(Option<String>),
}

impl Version {
    fn of(metadata: &ObjectMeta) -> Self {
        match metadata.generation {
            Some(generation) if generation > 0 => Self::Generation(generation),
            _ => Self::Resource(metadata.resource_version.clone()),
        }
    }
}

/// Applies every object that isn't there as it should be, Deployments after all that their pods need, and then removes the
/// orphans: what is neither built nor `kept`.
///
/// # Errors
/// Where the API server refuses, or an object's name belongs to somebody else.
pub(super) async fn apply(
    object: &LynxDeployment,
    context: &Context,
    key: &Key,
    objects: &[Built],
    children: &Children,
    kept: &BTreeSet<ChildId>,
) -> Result<(), ReconcileError> {
    let due = objects
        .iter()
        .filter_map(|built| due(object, context, key, built, children));
    let (workloads, needs): (Vec<_>, Vec<_>) =
        due.partition(|due| due.built.resource.kind == "Deployment");
    // Whose names the Deployments' are is asked while the others are written.
    let (written, free) = future::join(
        future::join_all(needs.iter().map(|due| async {
            due.look(object).await?;
            due.write(context, key).await
        })),
        future::join_all(workloads.iter().map(|due| due.look(object))),
    )
    .await;
    // All are waited for: one that is refused shouldn't leave the others half written.
    written.into_iter().chain(free).collect::<Result<(), _>>()?;
    let written = future::join_all(workloads.iter().map(|due| due.write(context, key))).await;
    written.into_iter().collect::<Result<(), _>>()?;
    let wanted = objects.iter().map(id).chain(kept.iter().cloned()).collect();
    remove_orphans(object, context, key, &wanted, children).await
}

/// An object that isn't there as it should be.
struct Due<'a> {
    built: &'a Built,
    id: ChildId,
    hash: String,
    live: Option<&'a ObjectMeta>,
    api: Api<DynamicObject>,
}

/// `None` where the object is as it was applied, and what was applied is what is built.
fn due<'a>(
    object: &LynxDeployment,
    context: &Context,
    key: &Key,
    built: &'a Built,
    children: &'a Children,
) -> Option<Due<'a>> {
    let id = id(built);
    let hash = hash(&built.value);
    let live = children.metadata.get(&id).map(|(_, metadata)| metadata);
    let as_it_was = context.remember(key, |memory| {
        let (Some(known), Some(live)) = (memory.applied.get(&id), live) else {
            return false;
        };
        known.hash == hash
            && known.uid == live.uid
            && known.version == Version::of(live)
            && owned(live, object)
    });
    (!as_it_was).then(|| Due {
        built,
        id,
        hash,
        live,
        api: Api::namespaced_with(context.client.clone(), &key.namespace, &built.resource),
    })
}

impl Due<'_> {
    fn what(&self) -> String {
        format!("apply {} {}", self.id.kind, self.id.name)
    }

    /// Whether the name is free, or this deployment's.
    async fn look(&self, object: &LynxDeployment) -> Result<(), ReconcileError> {
        let foreign = match self.live {
            Some(live) => !owned(live, object),
            // Without our label, it may still be there.
            None => {
                // Of the API server's own cache: nobody takes a name in the moment by which that is late.
                let cached = GetParams::any();
                let other = self.api.get_metadata_opt_with(&self.built.name, &cached);
                let other = other.await.map_err(ReconcileError::api(self.what()))?;
                other.is_some_and(|other| !owned(&other.metadata, object))
            }
        };
        if foreign {
            return Err(ReconcileError::NameTaken {
                kind: self.id.kind.clone(),
                name: self.id.name.clone(),
            });
        }
        Ok(())
    }

    async fn write(&self, context: &Context, key: &Key) -> Result<(), ReconcileError> {
        // By force: these fields are the operator's, and it can't ask anybody about a conflict.
        let params = PatchParams::apply(MANAGER).force();
        let patch = Patch::Apply(&self.built.value);
        let applied = self.api.patch(&self.built.name, &params, &patch).await;
        let applied = applied.map_err(ReconcileError::api(self.what()))?;
        context.metrics.applied(&self.id.kind);
        context.caches.learn(&applied);
        let stamp = Stamp {
            hash: self.hash.clone(),
            uid: applied.uid(),
            version: Version::of(&applied.metadata),
        };
        let now = context.clock.now();
        context.remember(key, |memory| {
            if self.id.kind == "Secret" {
                memory.secret.set(applied.metadata, now);
            }
            memory.applied.insert(self.id.clone(), stamp);
        });
        Ok(())
    }
}

/// What has our label and our owner, and is built no more.
async fn remove_orphans(
    object: &LynxDeployment,
    context: &Context,
    key: &Key,
    wanted: &BTreeSet<ChildId>,
    children: &Children,
) -> Result<(), ReconcileError> {
    for (id, (resource, metadata)) in &children.metadata {
        if wanted.contains(id) || !owned(metadata, object) || metadata.deletion_timestamp.is_some()
        {
            continue;
        }
        let api: Api<DynamicObject> =
            Api::namespaced_with(context.client.clone(), &key.namespace, resource);
        let params = DeleteParams::background().preconditions(Preconditions {
            uid: metadata.uid.clone(),
            resource_version: None,
        });
        let what = format!("delete the orphan {} {}", id.kind, id.name);
        match api.delete(&id.name, &params).await {
            Ok(_) => tracing::info!(kind = id.kind, name = id.name, "an orphan was deleted"),
            // It is gone already, or is another one of the same name by now.
            Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => {}
            Err(error) => return Err(ReconcileError::api(what)(error)),
        }
        context.remember(key, |memory| memory.applied.remove(id));
    }
    Ok(())
}

fn id(built: &Built) -> ChildId {
    ChildId {
        kind: built.resource.kind.clone(),
        name: built.name.clone(),
    }
}

fn owned(metadata: &ObjectMeta, by: &LynxDeployment) -> bool {
    let uid = by.metadata.uid.as_deref();
    let mut owners = metadata.owner_references.iter().flatten();
    owners.any(|owner| Some(owner.uid.as_str()) == uid)
}
