//! From a spec to the objects that it needs.
//!
//! Pure: the same inputs give the same objects to the byte, which snapshots hold. Nothing here knows what exists already;
//! numbers of replicas, which depend on what drains, are inputs.

mod agent;
mod agent_config;
mod api_key;
mod devices;
pub(crate) mod engine;
pub mod generation;
mod model;
pub mod names;
mod network;
mod placement;
mod pod;
mod quantity;
pub(crate) mod taken;
pub mod tls;
mod workload;

use kube::core::NamespaceResourceScope;
use kube::discovery::ApiResource;
use kube::{Resource, ResourceExt as _};
use lynx_crds::LynxDeployment;
use lynx_crds::spec::{Pool, Split};
use serde::Serialize;
use serde_json::Value;

use crate::certificates::State;
use crate::config::OperatorConfig;
use names::Role;

/// What the objects are made from.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// The deployment.
    pub object: &'a LynxDeployment,
    /// What the operator was told at start.
    pub config: &'a OperatorConfig,
    /// How many prefill pods the newest revision gets.
    pub prefill: u32,
    /// How many decode pods the newest revision gets.
    pub decode: u32,
    /// The certificates that the operator issued.
    pub certificates: Option<&'a State>,
}

/// An object of any kind, as it is applied.
#[derive(Clone, Debug, PartialEq)]
pub struct Built {
    /// Its kind.
    pub resource: ApiResource,
    /// Its name.
    pub name: String,
    /// All of it.
    pub value: Value,
}

/// An object that can't be written as JSON, which no well-formed one is.
#[derive(Debug, thiserror::Error)]
#[error("{kind} can't be written as JSON")]
pub struct BuildError {
    kind: String,
    #[source]
    source: serde_json::Error,
}

impl Built {
    fn new<K>(object: &K) -> Result<Self, BuildError>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Serialize,
    {
        let resource = ApiResource::erase::<K>(&());
        match serde_json::to_value(object) {
            Ok(value) => Ok(Self {
                resource,
                name: object.name_any(),
                value,
            }),
            Err(source) => Err(BuildError {
                kind: resource.kind,
                source,
            }),
        }
    }
}

impl Inputs<'_> {
    fn pool(&self, role: Role) -> &Pool {
        match role {
            Role::Prefill => &self.object.spec.prefill.pool,
            Role::Decode => &self.object.spec.decode.pool,
        }
    }

    fn replicas(&self, role: Role) -> u32 {
        match role {
            Role::Prefill => self.prefill,
            Role::Decode => self.decode,
        }
    }

    /// Who splits in this pool: a device plugin's GPUs are the engine's alone.
    fn engine_splits(&self, role: Role) -> bool {
        let plugin = self
            .pool(role)
            .gpus
            .as_ref()
            .is_some_and(|gpus| gpus.resource_name.is_some());
        match self.object.spec.transfer.split {
            Split::Engine => true,
            Split::Agent => false,
            Split::Auto => plugin,
        }
    }

    /// Where pods send spans, and how many of a hundred traces; `None` where tracing is off.
    fn otlp(&self) -> Option<(&str, u8)> {
        match &self.object.spec.observability.otlp {
            Some(otlp) => Some((otlp.endpoint.as_str(), otlp.sample_percent)),
            None if self.config.otlp_endpoint.is_empty() => None,
            None => Some((self.config.otlp_endpoint.as_str(), 100)),
        }
    }
}

/// Which pods the spec wants of a role: another template is another revision. Numbers of replicas are not in it.
pub fn revision(inputs: &Inputs<'_>, role: Role) -> String {
    let config = agent_config::AgentConfig::new(inputs, role);
    let template = pod::template(inputs, role, &config, "");
    let mut template = serde_json::to_value(template).unwrap_or_default();
    quantity::normalise(&mut template);
    generation::hash(&template)
}

/// All objects of a deployment's newest revision, in the order in which they are applied: what a pod needs comes before the pods.
///
/// # Errors
/// Where an object can't be written as JSON.
pub fn build(inputs: &Inputs<'_>) -> Result<Vec<Built>, BuildError> {
    let mut objects = vec![Built::new(&workload::service_account(inputs))?];
    if let Some(state) = inputs.certificates {
        objects.push(Built::new(&tls::secret(inputs.object, state))?);
    }
    for role in Role::ALL {
        let config = agent_config::AgentConfig::new(inputs, role);
        let revision = revision(inputs, role);
        objects.push(Built::new(&config.config_map(inputs, role, &revision))?);
        objects.push(Built::new(&network::policy(inputs, role))?);
        objects.push(Built::new(&network::service(inputs, role))?);
        objects.push(Built::new(&workload::budget(inputs, role))?);
        objects.push(Built::new(&workload::deployment(
            inputs, role, &config, &revision,
        ))?);
    }
    Ok(objects)
}

#[cfg(test)]
mod tests;
