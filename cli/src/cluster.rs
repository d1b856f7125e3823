//! A prefill node and a decode node as two processes, and the emulated link between them.
//!
//! The parent of the demo and of the benches. Dropping a [`Cluster`] ends both nodes and the link, and a node whose parent
//! was killed reads the end of its input and leaves.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use lynx_transport::emulate::{LinkOptions, Relay};
use lynx_units::BitRate;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command as Process};

use crate::node::messages::{AnchorWidths, Command, Ready, Report, RunSpec};
use crate::run::{Event, Scenario};

/// How long a node may take from its start until it works: a cold disk has to read the model.
const START: Duration = Duration::from_secs(120);
/// How long a node may say nothing while it works.
const SILENCE: Duration = Duration::from_secs(300);

/// What a cluster is made of.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `lynx` program, which both nodes run: see [`this_program`].
    pub program: PathBuf,
    /// The model's file.
    pub model: PathBuf,
    /// The profile's file; `None` for the one that is built in.
    pub profile: Option<PathBuf>,
    /// The emulated link's rate.
    pub link: BitRate,
    /// Where the emulated link listens; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Threads of each node's engine.
    pub threads: usize,
    /// The longest sequence, prompt and answer, in tokens.
    pub max_tokens: u32,
}

/// Two nodes and a link.
#[derive(Debug)]
pub struct Cluster {
    prefill: Node,
    decode: Node,
    /// Held for its life.
    _link: Relay,
    next_run: u64,
}

/// How one run went.
#[derive(Debug)]
pub struct Outcome {
    /// What happened, in the order in which it was told.
    pub events: Vec<Event>,
    /// The answer.
    pub tokens: Vec<u32>,
    /// The anchor's widths, where there was one.
    pub anchor: Option<AnchorWidths>,
    /// The nodes' largest resident memories so far without the model's weights, prefill's first, in bytes.
    pub memory_bytes: [Option<u64>; 2],
}

impl Cluster {
    /// Starts both nodes and waits until they work.
    ///
    /// # Errors
    /// Where a node can't start; the message is the node's own.
    pub async fn start(options: &Options) -> Result<Self> {
        let mut prefill = Node::start(options, &["prefill"])?;
        let ready = prefill.ready().await?;
        let (Some(data), Some(control)) = (ready.data, ready.control) else {
            bail!("the prefill node does not say where it listens");
        };
        let relay = Relay::start(options.listen, data, LinkOptions::new(options.link))?;
        let (data, control) = (relay.address().to_string(), control.to_string());
        let mut decode = Node::start(options, &["decode", "--data", &data, "--control", &control])?;
        if let Err(error) = decode.ready().await {
            return Err(prefill.blamed_for(error));
        }
        Ok(Self {
            prefill,
            decode,
            _link: relay,
            next_run: 1,
        })
    }

    /// What the decode node says of itself.
    pub fn about(&self) -> Option<&Ready> {
        self.decode.about.as_ref()
    }

    /// Has the prefill node compute `prompt` and keep it; `progress` is told (done, total) tokens.
    ///
    /// # Errors
    /// Where the node can't, or has ended.
    pub async fn warm(&mut self, prompt: &[u32], mut progress: impl FnMut(u32, u32)) -> Result<()> {
        self.prefill
            .tell(&Command::Warm {
                prompt: prompt.to_vec(),
            })
            .await?;
        loop {
            match self.prefill.hear().await? {
                Report::Warming { done, total } => progress(done, total),
                Report::Warmed => return Ok(()),
                other => return Err(unexpected("the prefill node", other)),
            }
        }
    }

    /// Brings both nodes to where `scenario` begins for `prompt`: the decode node knows nothing, the prefill node the prompt
    /// or nothing.
    ///
    /// # Errors
    /// Where a node has ended.
    pub async fn prepare(
        &mut self,
        scenario: Scenario,
        prompt: &[u32],
        progress: impl FnMut(u32, u32),
    ) -> Result<()> {
        self.decode.forget().await?;
        match scenario {
            Scenario::Warm => self.warm(prompt, progress).await,
            Scenario::Cold => self.prefill.forget().await,
        }
    }

    /// Answers one request; `watch` sees every event as it is told. The request gets a run number of its own.
    ///
    /// # Errors
    /// Where the request fails, or a node has ended.
    pub async fn run(
        &mut self,
        mut spec: RunSpec,
        mut watch: impl FnMut(&Event),
    ) -> Result<Outcome> {
        spec.run = self.next_run;
        self.next_run += 1;
        let this = spec.run;
        self.decode.tell(&Command::Run(spec)).await?;
        let mut events = Vec::new();
        loop {
            let report = match self.decode.hear().await {
                Ok(report) => report,
                Err(error) => return Err(self.prefill.blamed_for(error)),
            };
            match report {
                Report::Happened { run, event } if run == this => {
                    watch(&event);
                    events.push(event);
                }
                Report::Finished {
                    run,
                    tokens,
                    anchor,
                    memory_bytes,
                } if run == this => {
                    return Ok(Outcome {
                        events,
                        tokens,
                        anchor,
                        memory_bytes,
                    });
                }
                other => return Err(unexpected("the decode node", other)),
            }
        }
    }
}

/// The program that is running, for a `lynx` command that starts nodes.
///
/// # Errors
/// Where the system doesn't tell.
pub fn this_program() -> Result<PathBuf> {
    std::env::current_exe().context("finding the lynx program")
}

/// One node's process.
#[derive(Debug)]
struct Node {
    role: &'static str,
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    about: Option<Ready>,
}

impl Node {
    fn start(options: &Options, role: &[&str]) -> Result<Self> {
        let mut process = Process::new(&options.program);
        process
            .arg("node")
            .args(role)
            .arg("--model")
            .arg(&options.model);
        if let Some(profile) = &options.profile {
            process.arg("--profile").arg(profile);
        }
        process.args([
            "--threads",
            &options.threads.to_string(),
            "--max-tokens",
            &options.max_tokens.to_string(),
        ]);
        process
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        let mut child = process.spawn().context("starting a node")?;
        let input = child.stdin.take().context("a node without an input")?;
        let output = child.stdout.take().context("a node without an output")?;
        let role = if role.first() == Some(&"prefill") {
            "the prefill node"
        } else {
            "the decode node"
        };
        Ok(Self {
            role,
            child,
            input,
            output: BufReader::new(output).lines(),
            about: None,
        })
    }

    /// What is wrong at the other node may be that this one is gone.
    fn blamed_for(&mut self, error: anyhow::Error) -> anyhow::Error {
        match self.child.try_wait() {
            Ok(Some(status)) => error.context(format!("{} has ended ({status})", self.role)),
            _ => error,
        }
    }

    async fn forget(&mut self) -> Result<()> {
        self.tell(&Command::Forget).await?;
        match self.hear().await? {
            Report::Forgotten => Ok(()),
            other => Err(unexpected(self.role, other)),
        }
    }

    async fn ready(&mut self) -> Result<Ready> {
        match tokio::time::timeout(START, self.hear()).await {
            Ok(Ok(Report::Ready(ready))) => {
                self.about = Some(ready.clone());
                Ok(ready)
            }
            Ok(Ok(other)) => Err(unexpected(self.role, other)),
            Ok(Err(error)) => Err(error),
            Err(_) => bail!(
                "{} did not start within {} s: is the machine overloaded?",
                self.role,
                START.as_secs()
            ),
        }
    }

    async fn tell(&mut self, command: &Command) -> Result<()> {
        let mut line = serde_json::to_vec(command)?;
        line.push(b'\n');
        let sent = self.input.write_all(&line).await;
        sent.with_context(|| format!("{} has ended", self.role))
    }

    async fn hear(&mut self) -> Result<Report> {
        let line = tokio::time::timeout(SILENCE, self.output.next_line()).await;
        let line = line
            .with_context(|| format!("{} said nothing for {} s", self.role, SILENCE.as_secs()))??;
        let Some(line) = line else {
            let status = self.child.wait().await?;
            bail!(
                "{} has ended ({status}); its own message is above",
                self.role
            );
        };
        match serde_json::from_str(&line)
            .with_context(|| format!("{} said what is no report: {line}", self.role))?
        {
            Report::Failed { message, .. } => bail!("{}: {message}", self.role),
            report => Ok(report),
        }
    }
}

fn unexpected(role: &str, report: Report) -> anyhow::Error {
    anyhow::anyhow!("{role} said {report:?}, which fits nothing it was asked")
}
