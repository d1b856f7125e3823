//! Certificates, kept in a Secret that no pod mounts.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, ResourceExt as _};
use lynx_crds::LynxDeployment;
use lynx_crds::spec::TlsMode;
use lynx_tls::UnixTime;

use super::{Context, ReconcileError};
use crate::build::names::{self, MANAGER};
use crate::build::tls;
use crate::certificates::{self, State};
use crate::status::Notice;
use crate::streams::Key;

/// The key of the Secret with everything in it.
const STATE: &str = "state.json";

/// The certificates that there should be now, for agents and for the operator's door; `None` where the operator issues none.
pub(super) async fn ensure(
    object: &LynxDeployment,
    context: &Context,
    key: &Key,
) -> Result<Option<State>, ReconcileError> {
    if object.spec.transfer.tls.mode != TlsMode::OperatorCa {
        context.doors.close(key);
        return Ok(None);
    }
    let state = current(object, context, key).await?;
    let wall = u64::try_from(context.clock.wall().as_second()).unwrap_or(0);
    let now = UnixTime::since_unix_epoch(Duration::from_secs(wall));
    let lives = context.config.certificates;
    context.doors.follow(key, &state, lives, now)?;
    Ok(Some(state))
}

/// What the Secret has, followed to this moment.
async fn current(
    object: &LynxDeployment,
    context: &Context,
    key: &Key,
) -> Result<State, ReconcileError> {
    let (now, wall) = (context.clock.now(), context.clock.wall().as_second());
    let known = context.remember(key, |memory| memory.certificates.get(now).cloned());
    let lives = context.config.certificates;
    let identity = tls::identity(object);
    if let Some(known) = known
        && known.name == identity
        && wall < known.due(lives)
    {
        return Ok(known);
    }
    let name = format!("{}-authority", object.name_any());
    let secrets: Api<Secret> = Api::namespaced(context.client.clone(), &key.namespace);
    let what = format!("read Secret {name}");
    let held = secrets.get_opt(&name).await;
    let held = held.map_err(ReconcileError::api(what))?;
    let uid = object.uid();
    let foreign = held.as_ref().is_some_and(|held| {
        let mut owners = held.owner_references().iter();
        !owners.any(|owner| Some(&owner.uid) == uid.as_ref())
    });
    if foreign {
        return Err(ReconcileError::NameTaken {
            kind: "Secret".into(),
            name,
        });
    }
    let old = held.as_ref().and_then(read);
    let state = certificates::follow(old.clone(), &identity, lives, wall)?;
    if old.as_ref() == Some(&state) {
        context.remember(key, |memory| memory.certificates.set(state.clone(), now));
        return Ok(state);
    }
    let secret = write(object, name.clone(), held.as_ref(), &state);
    // With the version that was read: two leaders never issue at once.
    let params = PostParams {
        field_manager: Some(MANAGER.into()),
        ..PostParams::default()
    };
    let what = format!("write Secret {name}");
    let written = match held {
        Some(_) => secrets.replace(&name, &params, &secret).await,
        None => secrets.create(&params, &secret).await,
    };
    written.map_err(ReconcileError::api(what))?;
    context.remember(key, |memory| memory.certificates.set(state.clone(), now));
    tracing::info!(
        namespace = key.namespace,
        deployment = key.name,
        until = state.leaf.until,
        "certificates were issued"
    );
    context.events.say(object, &[issued(&state)]);
    Ok(state)
}

fn issued(state: &State) -> Notice {
    let time = |seconds| Timestamp::from_second(seconds).unwrap_or_default();
    Notice {
        warning: false,
        reason: "CertificateIssued".into(),
        note: format!(
            "agents' certificates are valid until {}, by an authority until {}",
            time(state.leaf.until),
            time(state.authority.until)
        ),
    }
}

fn read(secret: &Secret) -> Option<State> {
    let bytes = secret.data.as_ref()?.get(STATE)?;
    serde_json::from_slice(&bytes.0).ok()
}

fn write(object: &LynxDeployment, name: String, held: Option<&Secret>, state: &State) -> Secret {
    let bytes = serde_json::to_vec(state).unwrap_or_default();
    let mut metadata = names::metadata(object, name, names::labels(object));
    metadata.resource_version = held.and_then(|held| held.metadata.resource_version.clone());
    Secret {
        metadata,
        data: Some(BTreeMap::from([(STATE.to_owned(), ByteString(bytes))])),
        ..Secret::default()
    }
}
