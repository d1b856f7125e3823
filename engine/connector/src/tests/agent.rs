//! The agent's side: a server on a socket of its own, and an engine that dials it.

use std::fs::File;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use lynx_proto::engine::v1::engine_api_server::{EngineApi, EngineApiServer};
use lynx_proto::engine::v1::{
    Attach, Attached, CachedBlocks, FromAgent, FromEngine, Report, from_agent, from_engine,
};
use lynx_telemetry::Settings;
use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_stream::wrappers::{UnboundedReceiverStream, UnixListenerStream};
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};

use super::opened;
use crate::session::Signal;
use crate::{ConnectorError, Options, Role, runtime, serve};

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// An engine on a thread, and the agent that it attaches to.
pub(crate) struct Agent {
    folder: TempDir,
    _runtime: Runtime,
    links: Receiver<Link>,
    signals: Sender<Signal>,
    engine: Option<JoinHandle<Result<(), ConnectorError>>>,
}

/// A stream of one attached engine.
pub(crate) struct Link {
    pub(crate) attach: Attach,
    to: UnboundedSender<Result<FromAgent, Status>>,
    from: Receiver<from_engine::Kind>,
    /// The last one.
    pub(crate) report: Option<Report>,
    /// What was told of the prefix cache.
    pub(crate) cached: Vec<CachedBlocks>,
}

impl Agent {
    /// An agent, and an engine of `blocks` KV blocks that has attached to it.
    pub(crate) fn with_engine(role: Role, blocks: u32) -> (Self, Link) {
        let agent = Self::start(role, blocks, None);
        let link = agent.attached();
        (agent, link)
    }

    /// An agent that says no once, if it is given the words.
    pub(crate) fn start(role: Role, blocks: u32, refusal: Option<Status>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = options(&folder, role, blocks);
        let runtime = runtime().unwrap();
        let (sender, links) = channel();
        let listener = {
            let _entered = runtime.enter();
            UnixListener::bind(&options.socket).unwrap()
        };
        let server = Server::builder().add_service(EngineApiServer::new(Fake {
            sender,
            refusal: Mutex::new(refusal),
        }));
        runtime.spawn(server.serve_with_incoming(UnixListenerStream::new(listener)));
        let (signals, inbox) = channel();
        let own = signals.clone();
        let engine = std::thread::spawn(move || {
            let runtime = crate::runtime().unwrap();
            serve(&options, opened(), &runtime, (own, &inbox))
        });
        Self {
            folder,
            _runtime: runtime,
            links,
            signals,
            engine: Some(engine),
        }
    }

    /// The next stream that the engine opens.
    pub(crate) fn attached(&self) -> Link {
        self.links.recv_timeout(PATIENCE).unwrap()
    }

    /// The pool's file, as an agent opens it.
    pub(crate) fn pool(&self, link: &Link) -> File {
        let path = self
            .folder
            .path()
            .join(&link.attach.pool.as_ref().unwrap().file);
        File::options().read(true).write(true).open(path).unwrap()
    }

    pub(crate) fn pool_path(&self) -> PathBuf {
        self.folder.path().join("kv")
    }

    /// Ends the engine.
    pub(crate) fn end(mut self) -> Result<(), ConnectorError> {
        self.signals.send(Signal::Stop).unwrap();
        self.engine.take().unwrap().join().unwrap()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // The engine's thread would outlive the folder that its file is in.
        drop(self.signals.send(Signal::Stop));
        drop(self.engine.take().map(JoinHandle::join));
    }
}

impl Link {
    pub(crate) fn say(&self, kind: from_agent::Kind) {
        self.to.send(Ok(FromAgent { kind: Some(kind) })).unwrap();
    }

    /// The next message that is neither a report nor about the prefix cache.
    pub(crate) fn hear(&mut self) -> from_engine::Kind {
        loop {
            match self.from.recv_timeout(PATIENCE).unwrap() {
                from_engine::Kind::Report(report) => self.report = Some(report),
                from_engine::Kind::CachedBlocks(cached) => self.cached.push(cached),
                other => return other,
            }
        }
    }

    /// Waits until the engine reports this many free blocks.
    pub(crate) fn wait_for_free_blocks(&mut self, blocks: u32) {
        while self.report.as_ref().is_none_or(|r| r.free_blocks != blocks) {
            match self.from.recv_timeout(PATIENCE).unwrap() {
                from_engine::Kind::Report(report) => self.report = Some(report),
                from_engine::Kind::CachedBlocks(cached) => self.cached.push(cached),
                other => panic!("{other:?} instead of a report"),
            }
        }
    }
}

fn options(folder: &TempDir, role: Role, blocks: u32) -> Options {
    Options {
        model: PathBuf::new(),
        served_name: Some("the-model".to_owned()),
        role,
        socket: folder.path().join("agent.sock"),
        shared_directory: folder.path().to_owned(),
        pool_file: "kv".to_owned(),
        threads: NonZeroUsize::MIN,
        kv_blocks: blocks,
        max_tokens: u32::MAX,
        chunk_tokens: 64,
        max_draft: 64,
        telemetry: Settings::new("lynx-engine"),
    }
}

struct Fake {
    sender: Sender<Link>,
    refusal: Mutex<Option<Status>>,
}

#[tonic::async_trait]
impl EngineApi for Fake {
    type AttachStream = UnboundedReceiverStream<Result<FromAgent, Status>>;

    async fn attach(
        &self,
        request: Request<Streaming<FromEngine>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        if let Some(refusal) = self.refusal.lock().unwrap().take() {
            return Err(refusal);
        }
        let mut messages = request.into_inner();
        let first = messages.message().await?.and_then(|message| message.kind);
        let Some(from_engine::Kind::Attach(attach)) = first else {
            panic!("{first:?} is not Attach");
        };
        let (to, outgoing) = unbounded_channel();
        let agent = "a test".to_owned();
        let attached = from_agent::Kind::Attached(Attached {
            agent,
            coded_on: String::new(),
        });
        to.send(Ok(FromAgent {
            kind: Some(attached),
        }))
        .unwrap();
        let (heard, from) = channel();
        let link = Link {
            attach,
            to,
            from,
            report: None,
            cached: Vec::new(),
        };
        self.sender.send(link).unwrap();
        tokio::spawn(async move {
            while let Ok(Some(message)) = messages.message().await {
                if heard.send(message.kind.unwrap()).is_err() {
                    break;
                }
            }
        });
        Ok(Response::new(UnboundedReceiverStream::new(outgoing)))
    }
}
