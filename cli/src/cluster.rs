//! A prefill node and a decode node on this machine, an agent and an engine each, and the emulated link between them.
//!
//! The parent of the demo and of the benches: it starts the same four programs that a cluster runs, and asks the decode
//! agent's endpoint like any client. Dropping a [`Cluster`] ends all of them, and a process whose parent was killed reads
//! the end of its input and leaves.

mod endpoint;
mod process;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use lynx_transport::emulate::{LinkOptions, Relay};
use lynx_units::{BitRate, Width};
use serde_json::{Value, json};

use self::endpoint::Endpoint;
use self::process::Process;
use crate::run::{AnchorWidths, Event, Method, Scenario};

/// How long to wait for the end of a process that may be what is wrong.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// What the engines' model is called at the endpoint.
const MODEL: &str = "model";
/// More requests than any bench has at a time.
const QUEUE: u32 = 1024;
/// An address whose port the system chooses.
const ANY_PORT: &str = "127.0.0.1:0";

/// What a cluster is made of.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `lynx` program, which all processes run: see [`this_program`].
    pub program: PathBuf,
    /// The model's file.
    pub model: PathBuf,
    /// The profile's file; `None` for the one that is built in.
    pub profile: Option<PathBuf>,
    /// The emulated link's rate.
    pub link: BitRate,
    /// Where the emulated link listens; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Threads of each engine.
    pub threads: usize,
    /// The longest sequence, prompt and answer, in tokens.
    pub max_tokens: u32,
}

/// One request.
#[derive(Clone, Debug)]
pub struct RunSpec {
    /// How the KV travels.
    pub method: Method,
    /// The prompt.
    pub prompt: Vec<u32>,
    /// How many tokens to answer with at most.
    pub max_tokens: u32,
    /// 0 is greedy.
    pub temperature: f32,
    /// The seed of sampling.
    pub seed: u64,
    /// The anchor's mean width; `None` leaves it to the policy.
    pub anchor: Option<Width>,
}

/// Two nodes and a link.
#[derive(Debug)]
pub struct Cluster {
    prefill: Node,
    decode: Node,
    link: Arc<Relay>,
    /// Sockets, configurations and KV pools; held for its life, and dropped after the processes.
    folder: tempfile::TempDir,
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

/// An agent, its engine, and where the agent answers.
#[derive(Debug)]
struct Node {
    agent: Process,
    engine: Process,
    endpoint: Endpoint,
    about: Value,
}

impl Cluster {
    /// Starts both nodes and waits until they work.
    ///
    /// # Errors
    /// Where a process can't start; the message is its own.
    pub async fn start(options: &Options) -> Result<Self> {
        Self::start_with(options, |_| {}).await
    }

    /// The same with each agent's configuration as `change` leaves it.
    ///
    /// # Errors
    /// Where a process can't start; the message is its own.
    pub async fn start_with(options: &Options, change: impl Fn(&mut Value)) -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("lynx-")
            .tempdir_in(memory_backed())
            .context("making a folder for sockets and KV pools")?;
        let data = free_address()?;
        let relay = Relay::start(options.listen, data, LinkOptions::new(options.link))?;
        let prefill = json!({
            "role": "prefill",
            "listen": {"http": ANY_PORT, "drain": ANY_PORT, "peer": ANY_PORT, "data": data, "announcedData": relay.address()},
        });
        let mut prefill = Node::start(options, folder.path(), prefill, &change).await?;
        let decode = json!({
            "role": "decode",
            "listen": {"http": ANY_PORT, "drain": ANY_PORT},
            "peers": [text(&prefill.about, "peer")?],
        });
        let mut decode = Node::start(options, folder.path(), decode, &change).await?;
        tokio::select! {
            linked = decode.agent.until("linked") => drop(linked?),
            ended = prefill.agent.end() => return Err(ended),
            ended = prefill.engine.end() => return Err(ended),
        }
        Ok(Self {
            prefill,
            decode,
            link: Arc::new(relay),
            folder,
        })
    }

    /// Has the prefill node compute `prompt` and keep it.
    ///
    /// # Errors
    /// Where the node can't, or has ended.
    pub async fn warm(&mut self, prompt: &[u32]) -> Result<()> {
        match self.prefill.endpoint.warm(prompt).await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.blame(error).await),
        }
    }

    /// Has the prefill node forget every prompt.
    ///
    /// # Errors
    /// Where the node has ended.
    pub async fn forget_prefill(&mut self) -> Result<()> {
        match self.prefill.endpoint.reset().await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.blame(error).await),
        }
    }

    /// Brings both nodes to where `scenario` begins for `prompt`: the decode node knows nothing, the prefill node the prompt
    /// or nothing.
    ///
    /// # Errors
    /// Where a node has ended.
    pub async fn prepare(&mut self, scenario: Scenario, prompt: &[u32]) -> Result<()> {
        let mut reset = self.decode.endpoint.reset().await;
        if reset.is_ok() && scenario == Scenario::Cold {
            reset = self.prefill.endpoint.reset().await;
        }
        match (reset, scenario) {
            (Err(error), _) => Err(self.blame(error).await),
            (Ok(()), Scenario::Warm) => self.warm(prompt).await,
            (Ok(()), Scenario::Cold) => Ok(()),
        }
    }

    /// Answers one request, past its end so that every run has the same length; `watch` sees every event as it is told.
    ///
    /// # Errors
    /// Where the request fails, or a node has ended.
    pub async fn run(&mut self, spec: &RunSpec, mut watch: impl FnMut(&Event)) -> Result<Outcome> {
        let mut outcome = Outcome {
            events: Vec::new(),
            tokens: Vec::new(),
            anchor: None,
            memory_bytes: [None; 2],
        };
        let told = self.decode.endpoint.complete(spec, |event| {
            outcome.take(&event);
            watch(&event);
            outcome.events.push(event);
        });
        match told.await {
            Ok(()) => Ok(outcome),
            Err(error) => Err(self.blame(error).await),
        }
    }

    /// Where the nodes' agents answer over HTTP, prefill's first, as `host:port`: for clients of another kind.
    ///
    /// # Errors
    /// Where an agent did not say.
    pub fn addresses(&self) -> Result<[&str; 2]> {
        Ok([
            text(&self.prefill.about, "http")?,
            text(&self.decode.about, "http")?,
        ])
    }

    /// The emulated link, and its knobs.
    pub fn link(&self) -> Arc<Relay> {
        Arc::clone(&self.link)
    }

    /// Where the prefill agent's peer control is.
    ///
    /// # Errors
    /// Where it did not say.
    pub fn peer_control(&self) -> Result<&str> {
        text(&self.prefill.about, "peer")
    }

    /// Where the decode agent takes the order to drain.
    ///
    /// # Errors
    /// Where it did not say.
    pub fn drain_address(&self) -> Result<&str> {
        text(&self.decode.about, "drain")
    }

    /// Where each node has a folder of its role's name, with its engine's socket.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The processes by name, with their ids: for tests of what their deaths do.
    pub fn processes(&self) -> Vec<(String, u32)> {
        let nodes = [&self.prefill, &self.decode];
        let processes = nodes
            .into_iter()
            .flat_map(|node| [&node.agent, &node.engine]);
        processes
            .filter_map(|process| Some((process.name().to_owned(), process.id()?)))
            .collect()
    }

    /// Where clients ask, as a URL without a path.
    pub fn endpoint(&self) -> &str {
        self.decode.endpoint.base()
    }

    /// Whether all four processes are still there.
    ///
    /// # Errors
    /// The first that has ended.
    pub async fn check(&mut self) -> Result<()> {
        let gone = self.processes().len() < 4;
        if gone {
            let error = anyhow::anyhow!("a process has ended");
            return Err(self.blame(error).await);
        }
        Ok(())
    }

    /// What is wrong may be that a process is gone: others notice it a moment before it can be waited for.
    async fn blame(&mut self, error: anyhow::Error) -> anyhow::Error {
        let Self {
            prefill, decode, ..
        } = self;
        let ended = async {
            tokio::select! {
                ended = prefill.agent.end() => ended,
                ended = prefill.engine.end() => ended,
                ended = decode.agent.end() => ended,
                ended = decode.engine.end() => ended,
            }
        };
        match tokio::time::timeout(LAST_WORDS, ended).await {
            Ok(ended) => error.context(ended),
            Err(_) => error,
        }
    }
}

impl Outcome {
    fn take(&mut self, event: &Event) {
        match *event {
            Event::Token {
                token,
                provisional: false,
                ..
            } => self.tokens.push(token),
            Event::Summary {
                anchor,
                memory_bytes,
            } => {
                self.anchor = anchor;
                self.memory_bytes = memory_bytes;
            }
            _ => {}
        }
    }
}

impl Node {
    /// Starts an agent, then its engine, and waits until the engine is attached.
    async fn start(
        options: &Options,
        folder: &Path,
        mut config: Value,
        change: &impl Fn(&mut Value),
    ) -> Result<Self> {
        let role = text(&config, "role")?.to_owned();
        let role = role.as_str();
        let folder = folder.join(role);
        std::fs::create_dir(&folder)?;
        let socket = folder.join("engine.sock");
        config["engine"] = json!({"socket": socket, "sharedDirectory": folder, "queue": QUEUE});
        config["pod"] = json!({"name": role});
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
        let name = |what| format!("the {role} node's {what}");
        let mut agent = Process::start(name("agent"), &options.program, |command| {
            command.arg("agent").arg("--config").arg(&config_file)
        })?;
        let about = agent.until("listening").await?["about"].take();
        let engine = Process::start(name("engine"), &options.program, |command| {
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
}

/// An address of this machine that nobody listens on. Somebody could until the agent does; it says so then.
fn free_address() -> Result<SocketAddr> {
    Ok(std::net::TcpListener::bind(ANY_PORT)?.local_addr()?)
}

/// Where a file lives in memory: KV pools that a disk had to follow would be slow ones.
fn memory_backed() -> PathBuf {
    let shared = Path::new("/dev/shm");
    if shared.is_dir() {
        shared.to_owned()
    } else {
        std::env::temp_dir()
    }
}

fn text<'a>(about: &'a Value, key: &str) -> Result<&'a str> {
    about[key]
        .as_str()
        .with_context(|| format!("the agent does not say its {key} address"))
}

/// The program that is running, for a `lynx` command that starts nodes.
///
/// # Errors
/// Where the system doesn't tell.
pub fn this_program() -> Result<PathBuf> {
    std::env::current_exe().context("finding the lynx program")
}
