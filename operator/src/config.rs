//! What the operator is told at start: one YAML file, single values replaced by the environment.
//!
//! Parsed whole and checked whole: every mistake is named at once, before any port is bound. The environment comes as a
//! function, so that nothing else reads it.

use std::net::SocketAddr;
use std::time::Duration;

use serde::Deserialize;

use crate::certificates::Lives;

/// Everything about this process that its code does not decide.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct OperatorConfig {
    /// The namespaces whose LynxDeployments are acted on; none means all of them.
    pub namespaces: Vec<String>,
    /// This replica.
    pub pod: Pod,
    /// Who of the replicas writes.
    pub leader_election: LeaderElection,
    /// Where this process listens.
    pub listen: Listen,
    /// How agents find the leader.
    pub agents: Agents,
    /// What a deployment's pods run where it names no image.
    pub images: Images,
    /// How long the certificates last that it issues.
    pub certificates: Lives,
    /// Where this process sends its own spans, as a URL of an OTLP gRPC receiver; empty: nowhere.
    pub otlp_endpoint: String,
}

/// This replica, as the downward API gives it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Pod {
    /// The pod's name, which is its identity in the election. `POD_NAME` replaces it.
    pub name: String,
    /// The pod's namespace. `POD_NAMESPACE` replaces it.
    pub namespace: String,
    /// The pod's address. `POD_IP` replaces it.
    pub ip: String,
}

/// The Lease that decides who writes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LeaderElection {
    /// The Lease's name, in the pod's namespace.
    pub lease: String,
    /// How long a leader that is not heard of keeps the lease.
    pub duration_seconds: u16,
    /// How long before that it renews.
    pub grace_seconds: u16,
}

/// Addresses to bind.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Listen {
    /// Health and metrics.
    pub http: SocketAddr,
    /// Agents' streams.
    pub agents: SocketAddr,
}

/// How agents find the leader.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Agents {
    /// A Service without a selector, in the pod's namespace: the leader writes the EndpointSlice behind it, with only
    /// itself in it. Empty: no EndpointSlice is written.
    pub service: String,
    /// The URL that is written into agents' configuration; empty: made from the Service's name and port.
    pub url: String,
    /// The Service's port.
    pub port: u16,
}

/// Images.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Images {
    /// The agent's.
    pub agent: String,
    /// The embedded engine's.
    pub engine: String,
    /// When the kubelet pulls them.
    pub pull_policy: String,
    /// Secrets with credentials for pulling, in the deployments' namespaces.
    pub pull_secrets: Vec<String>,
}

/// Why a configuration is refused: every mistake in it.
#[derive(Debug, thiserror::Error)]
#[error("{}", mistakes.join("\n"))]
pub struct ConfigError {
    /// One sentence for each.
    pub mistakes: Vec<String>,
}

impl OperatorConfig {
    /// From the file's text and the environment.
    ///
    /// # Errors
    /// Every mistake of both.
    pub fn parse(text: &str, env: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let parsed = if text.trim().is_empty() {
            Ok(Self::default())
        } else {
            serde_norway::from_str(text)
        };
        let mut config: Self = parsed.map_err(|error| ConfigError {
            mistakes: vec![format!("the configuration file is not understood: {error}")],
        })?;
        let mut mistakes = config.overrides(env);
        mistakes.extend(config.mistakes());
        if mistakes.is_empty() {
            Ok(config)
        } else {
            Err(ConfigError { mistakes })
        }
    }

    /// The URL that agents dial.
    pub fn agents_url(&self) -> String {
        let Agents { service, url, port } = &self.agents;
        if !url.is_empty() || service.is_empty() {
            return url.clone();
        }
        format!("http://{service}.{}.svc:{port}", self.pod.namespace)
    }

    /// Whether the deployments of `namespace` are this operator's business.
    pub fn watches(&self, namespace: &str) -> bool {
        self.namespaces.is_empty() || self.namespaces.iter().any(|own| own == namespace)
    }

    fn overrides(&mut self, env: impl Fn(&str) -> Option<String>) -> Vec<String> {
        let mut mistakes = Vec::new();
        for (name, target) in [
            ("POD_NAME", &mut self.pod.name),
            ("POD_NAMESPACE", &mut self.pod.namespace),
            ("POD_IP", &mut self.pod.ip),
            ("LYNX_OPERATOR_LEASE", &mut self.leader_election.lease),
            ("LYNX_OPERATOR_AGENTS_SERVICE", &mut self.agents.service),
            ("LYNX_OPERATOR_AGENTS_URL", &mut self.agents.url),
            ("LYNX_OPERATOR_AGENT_IMAGE", &mut self.images.agent),
            ("LYNX_OPERATOR_ENGINE_IMAGE", &mut self.images.engine),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &mut self.otlp_endpoint),
        ] {
            if let Some(value) = env(name) {
                *target = value;
            }
        }
        for (name, target) in [
            ("LYNX_OPERATOR_LISTEN_HTTP", &mut self.listen.http),
            ("LYNX_OPERATOR_LISTEN_AGENTS", &mut self.listen.agents),
        ] {
            match env(name).map(|value| (value.parse(), value)) {
                None => {}
                Some((Ok(address), _)) => *target = address,
                Some((Err(_), value)) => {
                    mistakes.push(format!(
                        "{name}: `{value}` is no address such as 0.0.0.0:8080"
                    ));
                }
            }
        }
        if let Some(names) = env("LYNX_OPERATOR_NAMESPACES") {
            let names = names.split(',').map(str::trim);
            self.namespaces = names
                .filter(|name| !name.is_empty())
                .map(Into::into)
                .collect();
        }
        mistakes
    }

    fn mistakes(&self) -> Vec<String> {
        let mut mistakes = Vec::new();
        let mut refuse = |wrong: bool, sentence: &str| {
            if wrong {
                mistakes.push(sentence.to_owned());
            }
        };
        let LeaderElection {
            lease,
            duration_seconds,
            grace_seconds,
        } = &self.leader_election;
        refuse(
            self.pod.name.is_empty(),
            "pod.name is empty: set POD_NAME from the downward API (metadata.name)",
        );
        refuse(
            self.pod.namespace.is_empty(),
            "pod.namespace is empty: set POD_NAMESPACE from the downward API (metadata.namespace)",
        );
        refuse(
            lease.is_empty(),
            "leaderElection.lease is empty: name a Lease",
        );
        refuse(
            grace_seconds >= duration_seconds || *grace_seconds == 0,
            "leaderElection.graceSeconds must be at least 1 and less than durationSeconds",
        );
        refuse(
            !self.agents.service.is_empty() && self.pod.ip.is_empty(),
            "agents.service needs pod.ip: set POD_IP from the downward API (status.podIP)",
        );
        let Lives {
            leaf_seconds,
            authority_seconds,
            overlap_seconds,
        } = self.certificates;
        refuse(
            leaf_seconds / 9 < overlap_seconds
                || authority_seconds / 9 < leaf_seconds
                || overlap_seconds == 0,
            "certificates: authoritySeconds must be nine times leafSeconds or more, and that nine times overlapSeconds",
        );
        refuse(
            self.images.agent.is_empty(),
            "images.agent is empty: name the agent's image",
        );
        refuse(
            !["Always", "IfNotPresent", "Never"].contains(&self.images.pull_policy.as_str()),
            "images.pullPolicy must be Always, IfNotPresent or Never",
        );
        mistakes
    }
}

impl LeaderElection {
    /// How long a leader that is not heard of keeps the lease.
    pub fn duration(&self) -> Duration {
        Duration::from_secs(self.duration_seconds.into())
    }
}

impl Default for LeaderElection {
    fn default() -> Self {
        Self {
            lease: "lynx-operator".into(),
            duration_seconds: 15,
            grace_seconds: 5,
        }
    }
}

impl Default for Listen {
    fn default() -> Self {
        Self {
            http: SocketAddr::from(([0, 0, 0, 0], 8080)),
            agents: SocketAddr::from(([0, 0, 0, 0], 9090)),
        }
    }
}

impl Default for Agents {
    fn default() -> Self {
        Self {
            service: String::new(),
            url: String::new(),
            port: 9090,
        }
    }
}

impl Default for Images {
    fn default() -> Self {
        Self {
            agent: "lynx-agent:latest".into(),
            engine: "lynx:latest".into(),
            pull_policy: "IfNotPresent".into(),
            pull_secrets: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;
