//! The custom resource definition, printed and applied.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use kube::runtime::conditions::is_crd_established;
use kube::runtime::wait::await_condition;
use kube::{Api, Client, ResourceExt as _};

use crate::build::names::MANAGER;

/// How long the API server may take to serve the new kind.
const ESTABLISHED: Duration = Duration::from_secs(60);

/// Why the definition could not be applied.
#[derive(Debug, thiserror::Error)]
pub enum CrdError {
    /// The API server refused.
    #[error("the API server refused the definition")]
    Refused(#[source] kube::Error),
    /// It took it, and did not serve the kind in time.
    #[error(
        "the definition was taken, and is not served after 60 s: see its conditions with kubectl describe crd"
    )]
    NotServed,
}

/// Applies the definition, by force: helm, kubectl and older versions of this command may own its fields. Returns when the
/// kind is served.
///
/// # Errors
/// Where the API server refuses, or takes too long.
pub async fn apply(client: &Client) -> Result<(), CrdError> {
    let definition = lynx_crds::crd();
    let name = definition.name_any();
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let params = PatchParams::apply(MANAGER).force();
    api.patch(&name, &params, &Patch::Apply(&definition))
        .await
        .map_err(CrdError::Refused)?;
    let served = await_condition(api, &name, is_crd_established());
    match tokio::time::timeout(ESTABLISHED, served).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(_)) | Err(_) => Err(CrdError::NotServed),
    }
}
