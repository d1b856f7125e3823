//! An agent and its engine.

use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::endpoint::Endpoint;
use super::process::Process;
use super::{MODEL, Options};

/// More requests than any bench has at a time.
const QUEUE: u32 = 1024;
/// An address whose port the system chooses.
pub(super) const ANY_PORT: &str = "127.0.0.1:0";

/// An agent, its engine, and where the agent answers.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) agent: Process,
    pub(super) engine: Process,
    pub(super) endpoint: Endpoint,
    about: Value,
}

impl Node {
    /// Starts an agent, then its engine, and waits until the engine is attached. `config` has
    /// what is this node's own, and `change` the last word.
    pub(super) async fn start(
        options: &Options,
        folder: &Path,
        name: &str,
        mut config: Value,
        change: &impl Fn(&mut Value),
    ) -> Result<Self> {
        let role = text(&config, "role")?.to_owned();
        let role = role.as_str();
        let folder = folder.join(name);
        std::fs::create_dir(&folder)?;
        let socket = folder.join("engine.sock");
        config["engine"] = json!({"socket": socket, "sharedDirectory": folder, "queue": QUEUE});
        config["pod"] = json!({"name": name});
        config["http"] = json!({"admin": true});
        config["telemetry"] = json!({"log": "warn"});
        config["transfer"] = json!({
            "profile": options.profile.as_deref().unwrap_or(Path::new("")),
            "objective": "verified",
            "anchor": {"mode": "adaptive", "minBits": 3, "maxBits": 8},
        });
        change(&mut config);
        let config_file = folder.join("agent.yaml");
        // JSON is YAML.
        std::fs::write(&config_file, config.to_string())?;
        let process = |what| format!("the {name} node's {what}");
        let mut agent = Process::start(process("agent"), &options.program, |command| {
            // What is set for another agent is not meant for this one, whose configuration is whole.
            for variable in lynx_agent::config::variables() {
                command.env_remove(variable);
            }
            command.arg("agent").arg("--config").arg(&config_file)
        })?;
        let about = agent.until("listening").await?["about"].take();
        let engine = Process::start(process("engine"), &options.program, |command| {
            command
                .args(["engine", "--role", role, "--model"])
                .arg(&options.model)
                .arg("--socket")
                .arg(&socket)
                .arg("--shared-directory")
                .arg(&folder)
                .args(["--name", MODEL])
                .args(["--threads", &options.threads.to_string()])
                .args(["--max-tokens", &options.max_tokens.to_string()])
        })?;
        let mut node = Self {
            endpoint: Endpoint::new(text(&about, "http")?),
            agent,
            engine,
            about,
        };
        node.attached().await?;
        Ok(node)
    }

    /// Waits until the agent has its engine; an engine that ends instead has said why.
    async fn attached(&mut self) -> Result<()> {
        tokio::select! {
            attached = self.agent.until("attached") => attached.map(drop),
            ended = self.engine.end() => Err(ended),
        }
    }

    /// Waits until all its links are up.
    pub(super) async fn linked(&mut self) -> Result<()> {
        tokio::select! {
            linked = self.agent.until("linked") => linked.map(drop),
            ended = self.engine.end() => Err(ended),
        }
    }

    /// Waits for the end of either process, as an error.
    pub(super) async fn end(&mut self) -> anyhow::Error {
        tokio::select! {
            ended = self.agent.end() => ended,
            ended = self.engine.end() => ended,
        }
    }

    /// Where the agent listens: for `http`, for orders to `drain`, or as a `peer`.
    pub(super) fn address(&self, what: &str) -> Result<&str> {
        text(&self.about, what)
    }
}

fn text<'a>(about: &'a Value, key: &str) -> Result<&'a str> {
    about[key]
        .as_str()
        .with_context(|| format!("the agent does not say its {key} address"))
}
