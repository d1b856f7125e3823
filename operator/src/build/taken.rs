//! What the operator's own part of a pod takes, so that a template can't have it as well.
//!
//! Read off the pod that is built without anything of the user's: what is added to pods later is taken by itself.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Container, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use lynx_crds::LynxDeployment;

use super::agent_config::AgentConfig;
use super::names::Role;
use super::{Inputs, devices, pod};
use crate::config::OperatorConfig;

/// What the operator's variables begin with by which engine and agent find each other. The others are only defaults.
const VARIABLES: &str = "LYNX_";

/// Names, places and numbers of one role's pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Names of volumes.
    pub(crate) volumes: BTreeSet<String>,
    /// Where the engine's container has a volume of the operator's.
    pub(crate) folders: BTreeSet<String>,
    /// Names of variables of the engine's container.
    pub(crate) variables: BTreeSet<String>,
    /// Keys of annotations.
    pub(crate) annotations: BTreeSet<String>,
    /// Names of the agent's ports.
    pub(crate) port_names: BTreeSet<String>,
    /// Numbers of the agent's ports: one pod has one set of them.
    pub(crate) ports: BTreeSet<i32>,
}

impl Taken {
    /// By the operator, in the pods of this role, as far as this spec needs it.
    pub(crate) fn of(object: &LynxDeployment, role: Role) -> Self {
        let mut bare = object.clone();
        let spec = &mut bare.spec;
        spec.prefill.pool.template = None;
        spec.decode.pool.template = None;
        spec.engine.env.clear();
        spec.engine.ports.clear();
        let config = OperatorConfig::default();
        let inputs = Inputs {
            object: &bare,
            config: &config,
            prefill: 0,
            decode: 0,
            certificates: None,
        };
        let template = pod::template(&inputs, role, &AgentConfig::new(&inputs, role), "");
        let mut taken = Self::default();
        let annotations = template.metadata.and_then(|metadata| metadata.annotations);
        let annotations = annotations.unwrap_or_default().into_keys();
        // The template's networks and the pool's are joined.
        taken.annotations = annotations.filter(|key| key != devices::NETWORKS).collect();
        let pod = template.spec.unwrap_or_default();
        let volumes = pod.volumes.unwrap_or_default().into_iter();
        taken.volumes = volumes.map(|volume| volume.name).collect();
        for agent in pod.init_containers.iter().flatten() {
            taken.agent(agent);
        }
        for engine in pod.containers {
            taken.engine(engine);
        }
        taken
    }

    /// What either of two takes.
    pub(crate) fn and(mut self, other: Self) -> Self {
        self.volumes.extend(other.volumes);
        self.folders.extend(other.folders);
        self.variables.extend(other.variables);
        self.annotations.extend(other.annotations);
        self.port_names.extend(other.port_names);
        self.ports.extend(other.ports);
        self
    }

    fn agent(&mut self, agent: &Container) {
        for port in agent.ports.iter().flatten() {
            self.ports.insert(port.container_port);
            self.port_names.extend(port.name.clone());
        }
        let probes = [
            &agent.startup_probe,
            &agent.readiness_probe,
            &agent.liveness_probe,
        ];
        let asked = |probe: &Probe| Some(probe.http_get.as_ref()?.port.clone());
        let asked = probes.into_iter().flatten().filter_map(asked);
        self.ports.extend(asked.filter_map(number));
    }

    fn engine(&mut self, engine: Container) {
        let mounts = engine.volume_mounts.unwrap_or_default().into_iter();
        self.folders.extend(mounts.map(|mount| mount.mount_path));
        let variables = engine.env.unwrap_or_default().into_iter();
        let variables = variables.map(|variable| variable.name);
        self.variables
            .extend(variables.filter(|name| name.starts_with(VARIABLES)));
        // Its hook asks the agent.
        let hook = engine.lifecycle.and_then(|hooks| hooks.pre_stop);
        let asked = hook.and_then(|hook| hook.http_get);
        self.ports
            .extend(asked.and_then(|asked| number(asked.port)));
    }
}

fn number(port: IntOrString) -> Option<i32> {
    match port {
        IntOrString::Int(number) => Some(number),
        IntOrString::String(_) => None,
    }
}
