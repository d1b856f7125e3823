//! A prefill node and a decode node on this machine, an agent and an engine each, and the emulated link between them.
//!
//! The parent of the demo and of the benches: it starts the same four programs that a cluster runs, and asks the decode
//! agent's endpoint like any client. Dropping a [`Cluster`] ends all of them, and a process whose parent was killed reads
//! the end of its input and leaves. Where one node of a kind is not enough, a [`Shape`] says how many there are; whatever
//! is not about a certain node is about the first.

mod endpoint;
mod folder;
mod node;
mod process;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::future::{FutureExt as _, select_all};
use lynx_agent::config::Role;
use lynx_ports::HeldAddress;
use lynx_transport::emulate::{LinkOptions, Relay};
use lynx_units::{BitRate, Width};
use serde_json::{Value, json};

use self::folder::Folder;
use self::node::{ANY_PORT, Node};
use crate::run::{AnchorWidths, Event, Method, Scenario};

/// How long to wait for the end of a process that may be what is wrong.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// What the engines' model is called at the endpoint.
const MODEL: &str = "model";

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

/// How many nodes there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Prefill nodes, each behind an emulated link of its own.
    pub prefills: usize,
    /// Decode nodes, each linked to every prefill node.
    pub decodes: usize,
}

impl Shape {
    /// One of each.
    pub const PAIR: Self = Self {
        prefills: 1,
        decodes: 1,
    };
}

/// Nodes and the links between them.
#[derive(Debug)]
pub struct Cluster {
    prefills: Vec<Node>,
    decodes: Vec<Node>,
    /// To each prefill node.
    links: Vec<Arc<Relay>>,
    /// Where those agents listen for links, again after each death of an engine.
    _ports: Vec<HeldAddress>,
    /// Sockets, configurations and KV pools; held for its life, and dropped after the processes.
    folder: Folder,
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
    /// Starts one node of each kind and waits until they work.
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
        Self::start_as(options, Shape::PAIR, change).await
    }

    /// Starts so many nodes, and waits until they work and all links are up.
    ///
    /// # Errors
    /// Where a process can't start; the message is its own.
    pub async fn start_as(
        options: &Options,
        shape: Shape,
        change: impl Fn(&mut Value),
    ) -> Result<Self> {
        ensure!(
            shape.prefills > 0 && shape.decodes > 0,
            "there must be a node of each kind"
        );
        let folder = Folder::new()?;
        let start = async |kind: &str, index: usize, count: usize, config: Value| {
            // Of one there is no first.
            let name = if count == 1 {
                kind.to_owned()
            } else {
                format!("{kind}-{index}")
            };
            Node::start(options, folder.path(), &name, config, &change).await
        };
        let (mut prefills, mut links, mut peers) = (Vec::new(), Vec::new(), Vec::new());
        let mut ports = Vec::new();
        for index in 0..shape.prefills {
            let port = HeldAddress::take()?;
            let data = port.address();
            ports.push(port);
            let mut listen = options.listen;
            if index > 0 {
                listen.set_port(0);
            }
            let relay = Relay::start(listen, data, LinkOptions::new(options.link))?;
            let config = json!({
                "role": "prefill",
                "listen": {"http": ANY_PORT, "drain": ANY_PORT, "peer": ANY_PORT, "data": data, "announcedData": relay.address()},
            });
            let node = start("prefill", index, shape.prefills, config).await?;
            peers.push(node.address("peer")?.to_owned());
            prefills.push(node);
            links.push(Arc::new(relay));
        }
        let mut decodes = Vec::new();
        for index in 0..shape.decodes {
            let config = json!({
                "role": "decode",
                "listen": {"http": ANY_PORT, "drain": ANY_PORT},
                "peers": peers,
            });
            decodes.push(start("decode", index, shape.decodes, config).await?);
        }
        for decode in &mut decodes {
            tokio::select! {
                linked = decode.linked() => linked?,
                ended = first_end(&mut prefills) => return Err(ended),
            }
        }
        Ok(Self {
            prefills,
            decodes,
            links,
            _ports: ports,
            folder,
        })
    }

    /// Has the first prefill node compute `prompt` and keep it.
    ///
    /// # Errors
    /// Where the node can't, or has ended.
    pub async fn warm(&mut self, prompt: &[u32]) -> Result<()> {
        let warmed = self.node(Role::Prefill, 0)?.endpoint.warm(prompt).await;
        self.or_blame(warmed).await
    }

    /// Has the prefill nodes forget every prompt.
    ///
    /// # Errors
    /// Where a node has ended.
    pub async fn forget_prefill(&mut self) -> Result<()> {
        let reset = reset(&self.prefills).await;
        self.or_blame(reset).await
    }

    /// Brings all nodes to where `scenario` begins for `prompt`: decode nodes know nothing, the first prefill node the prompt,
    /// or none of them anything.
    ///
    /// # Errors
    /// Where a node has ended.
    pub async fn prepare(&mut self, scenario: Scenario, prompt: &[u32]) -> Result<()> {
        let reset = reset(&self.decodes).await;
        self.or_blame(reset).await?;
        match scenario {
            Scenario::Warm => self.warm(prompt).await,
            Scenario::Cold => self.forget_prefill().await,
        }
    }

    /// Has the first decode node answer one request, past its end so that every run has the same length; `watch` sees every
    /// event as it is told.
    ///
    /// # Errors
    /// Where the request fails, or a node has ended.
    pub async fn run(&mut self, spec: &RunSpec, watch: impl FnMut(&Event)) -> Result<Outcome> {
        self.run_at(0, spec, watch).await
    }

    /// The same of another decode node.
    ///
    /// # Errors
    /// Likewise.
    pub async fn run_at(
        &mut self,
        decode: usize,
        spec: &RunSpec,
        mut watch: impl FnMut(&Event),
    ) -> Result<Outcome> {
        let mut outcome = Outcome {
            events: Vec::new(),
            tokens: Vec::new(),
            anchor: None,
            memory_bytes: [None; 2],
        };
        let endpoint = &self.node(Role::Decode, decode)?.endpoint;
        let told = endpoint.complete(spec, |event| {
            outcome.take(&event);
            watch(&event);
            outcome.events.push(event);
        });
        let told = told.await;
        self.or_blame(told).await.map(|()| outcome)
    }

    /// What a node's agent says of a metric, as in `name` or `name{label="value"}`; the sum, where a name has several. 0 where
    /// it says nothing of it.
    ///
    /// # Errors
    /// Where it does not answer, or there is no such node.
    pub async fn metric(&self, kind: Role, index: usize, series: &str) -> Result<f64> {
        self.node(kind, index)?.endpoint.metric(series).await
    }

    /// Orders a node to drain, and waits until it takes no new work.
    ///
    /// # Errors
    /// Where it does not answer, or there is no such node.
    pub async fn drain(&self, kind: Role, index: usize) -> Result<()> {
        let node = self.node(kind, index)?;
        node.endpoint.drain(node.address("drain")?).await
    }

    /// Where the first nodes' agents answer over HTTP, prefill's first, as `host:port`: for clients of another kind.
    ///
    /// # Errors
    /// Where an agent did not say.
    pub fn addresses(&self) -> Result<[&str; 2]> {
        Ok([
            self.node(Role::Prefill, 0)?.address("http")?,
            self.node(Role::Decode, 0)?.address("http")?,
        ])
    }

    /// The emulated link to the first prefill node, and its knobs.
    ///
    /// # Panics
    /// Never: there is one.
    pub fn link(&self) -> Arc<Relay> {
        Arc::clone(&self.links[0])
    }

    /// Where the prefill agent's peer control is.
    ///
    /// # Errors
    /// Where it did not say.
    pub fn peer_control(&self) -> Result<&str> {
        self.node(Role::Prefill, 0)?.address("peer")
    }

    /// Where the decode agent takes the order to drain.
    ///
    /// # Errors
    /// Where it did not say.
    pub fn drain_address(&self) -> Result<&str> {
        self.node(Role::Decode, 0)?.address("drain")
    }

    /// Where each node has a folder of its role's name (and its number, where there are several), with its engine's socket.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The processes by name, with their ids: for tests of what their deaths do.
    pub fn processes(&self) -> Vec<(String, u32)> {
        let nodes = self.prefills.iter().chain(&self.decodes);
        let processes = nodes.flat_map(|node| [&node.agent, &node.engine]);
        processes
            .filter_map(|process| Some((process.name().to_owned(), process.id()?)))
            .collect()
    }

    /// Where clients ask, as a URL without a path.
    pub fn endpoint(&self) -> &str {
        self.decodes.first().map_or("", |node| node.endpoint.base())
    }

    /// Whether all processes are still there.
    ///
    /// # Errors
    /// The first that has ended.
    pub async fn check(&mut self) -> Result<()> {
        let gone = self.processes().len() < 2 * (self.prefills.len() + self.decodes.len());
        let checked = if gone {
            Err(anyhow::anyhow!("a process has ended"))
        } else {
            Ok(())
        };
        self.or_blame(checked).await
    }

    fn node(&self, kind: Role, index: usize) -> Result<&Node> {
        let nodes = match kind {
            Role::Prefill => &self.prefills,
            Role::Decode => &self.decodes,
        };
        nodes
            .get(index)
            .with_context(|| format!("there is no {} node {index}", kind.name()))
    }

    /// What is wrong may be that a process is gone: others notice it a moment before it can be waited for.
    async fn or_blame<T>(&mut self, result: Result<T>) -> Result<T> {
        let error = match result {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        let ended = first_end(self.prefills.iter_mut().chain(&mut self.decodes));
        Err(match tokio::time::timeout(LAST_WORDS, ended).await {
            Ok(ended) => error.context(ended),
            Err(_) => error,
        })
    }
}

/// The end of whichever process of these nodes ends first.
async fn first_end(nodes: impl IntoIterator<Item = &mut Node>) -> anyhow::Error {
    let ends = nodes.into_iter().map(|node| node.end().boxed());
    select_all(ends).await.0
}

/// Has engines forget every prompt.
async fn reset(nodes: &[Node]) -> Result<()> {
    for node in nodes {
        node.endpoint.reset().await?;
    }
    Ok(())
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

/// The program that is running, for a `lynx` command that starts nodes.
///
/// # Errors
/// Where the system doesn't tell.
pub fn this_program() -> Result<PathBuf> {
    std::env::current_exe().context("finding the lynx program")
}
