//! One process of a cluster, and what it says of itself.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// How long a process may take to come to its next state: a cold disk has to read the model.
const PATIENCE: Duration = Duration::from_secs(120);

/// A process that writes a line of JSON for each state it comes to, and leaves when its input ends.
#[derive(Debug)]
pub(super) struct Process {
    name: String,
    child: Child,
    /// Held open for the process's life.
    _input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts `program` with the arguments that `arguments` gives it.
    pub(super) fn start(
        name: String,
        program: &Path,
        arguments: impl FnOnce(&mut Command) -> &mut Command,
    ) -> Result<Self> {
        let mut command = Command::new(program);
        arguments(&mut command)
            .arg("--attended")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command
            .spawn()
            .with_context(|| format!("starting {name}"))?;
        let input = child.stdin.take().context("a process without an input")?;
        let output = child.stdout.take().context("a process without an output")?;
        Ok(Self {
            name,
            child,
            _input: input,
            output: BufReader::new(output).lines(),
        })
    }

    /// What people call it.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Its id; `None` once it is known to be gone.
    pub(super) fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// What the process says when it comes to `state`.
    pub(super) async fn until(&mut self, state: &str) -> Result<Value> {
        let told = tokio::time::timeout(PATIENCE, self.hear(state)).await;
        let Ok(told) = told else {
            bail!(
                "{} was not {state} within {} s: is the machine overloaded?",
                self.name,
                PATIENCE.as_secs()
            );
        };
        told
    }

    async fn hear(&mut self, state: &str) -> Result<Value> {
        while let Some(line) = self.output.next_line().await? {
            let said: Value = serde_json::from_str(&line)
                .with_context(|| format!("{} said {line}", self.name))?;
            if said["state"] == state {
                return Ok(said);
            }
            if said["state"] == "refused" {
                bail!("{} refuses its engine: {}", self.name, said["about"]);
            }
        }
        Err(self.end().await)
    }

    /// Waits for the process's end, as an error.
    pub(super) async fn end(&mut self) -> anyhow::Error {
        match self.child.wait().await {
            Ok(status) => anyhow::anyhow!(
                "{} has ended ({status}); its own message is above",
                self.name
            ),
            Err(error) => error.into(),
        }
    }
}
