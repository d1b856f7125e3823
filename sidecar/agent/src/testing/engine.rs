//! An engine that does what a test says, over a real socket.

use std::path::Path;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use lynx_proto::engine::v1::engine_api_client::EngineApiClient;
use lynx_proto::engine::v1::{
    Attach, Coded, FinishReason, Finished, FromAgent, FromEngine, PrefillDone, PrefillStarted,
    Published, from_agent, from_engine,
};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::Endpoint;
use tonic::{Status, Streaming};

/// One stream.
pub(crate) struct FakeEngine {
    said: mpsc::UnboundedSender<FromEngine>,
    heard: Streaming<FromAgent>,
    /// The thread that codes, where the engine codes by itself.
    coding: Option<std::sync::mpsc::Sender<from_agent::Kind>>,
}

/// Fails where something that must happen doesn't. Generous: the machine may be busy.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), future)
        .await
        .expect("it happens in time")
}

impl FakeEngine {
    /// Dials the socket and attaches.
    pub(crate) async fn attach(socket: &Path, attach: Attach) -> Result<Self, Status> {
        let path = socket.to_owned();
        let connect = tower::service_fn(move |_| {
            let path = path.clone();
            async move { Ok::<_, std::io::Error>(TokioIo::new(UnixStream::connect(path).await?)) }
        });
        // The address is not used: the connector knows the socket.
        let endpoint = Endpoint::from_static("http://engine.invalid");
        let channel = endpoint.connect_with_connector(connect).await.unwrap();
        let (said, messages) = mpsc::unbounded_channel();
        let kind = Some(from_engine::Kind::Attach(attach));
        said.send(FromEngine { kind }).unwrap();
        let stream = UnboundedReceiverStream::new(messages);
        let mut heard = EngineApiClient::new(channel)
            .attach(stream)
            .await?
            .into_inner();
        match soon(heard.message()).await?.and_then(|first| first.kind) {
            Some(from_agent::Kind::Attached(_)) => Ok(Self {
                said,
                heard,
                coding: None,
            }),
            other => panic!("{other:?} instead of Attached"),
        }
    }

    /// From now on a thread of the engine's own codes what it is asked for, while the test listens.
    pub(crate) fn coding(
        mut self,
        mut code: impl FnMut(&from_agent::Kind) -> Option<Coded> + Send + 'static,
    ) -> Self {
        let (asked, asks) = std::sync::mpsc::channel();
        let said = self.said.clone();
        std::thread::spawn(move || {
            while let Ok(kind) = asks.recv() {
                if let Some(coded) = code(&kind) {
                    let kind = Some(from_engine::Kind::Coded(coded));
                    drop(said.send(FromEngine { kind }));
                }
            }
        });
        self.coding = Some(asked);
        self
    }

    pub(crate) fn say(&self, kind: from_engine::Kind) {
        drop(self.said.send(FromEngine { kind: Some(kind) }));
    }

    /// What the agent says next; how the stream ended where it did.
    pub(crate) async fn hear(&mut self) -> Result<from_agent::Kind, Status> {
        loop {
            let Some(message) = soon(self.heard.message()).await? else {
                return Err(Status::ok("the agent closed the stream"));
            };
            let kind = message.kind.unwrap();
            let is_coding = matches!(
                kind,
                from_agent::Kind::CodeWith(_)
                    | from_agent::Kind::Split(_)
                    | from_agent::Kind::Merge(_)
            );
            match &self.coding {
                Some(coding) if is_coding => drop(coding.send(kind)),
                _ => return Ok(kind),
            }
        }
    }

    /// The agent's next Prefill.
    pub(crate) async fn hear_prefill(&mut self) -> lynx_proto::engine::v1::Prefill {
        match self.hear().await {
            Ok(from_agent::Kind::Prefill(prefill)) => prefill,
            other => panic!("{other:?} instead of Prefill"),
        }
    }

    pub(crate) fn start(&self, request: u64, blocks: &[u32], cached_tokens: u32) {
        self.say(from_engine::Kind::PrefillStarted(PrefillStarted {
            request,
            blocks: blocks.to_vec(),
            cached_tokens,
            start_unix_ns: 1_000,
        }));
    }

    /// Publishes these tokens of both layers.
    pub(crate) fn publish(&self, request: u64, tokens: std::ops::Range<u32>) {
        for layer in 0..2 {
            self.say(from_engine::Kind::Published(Published {
                request,
                layer,
                first_token: tokens.start,
                end_token: tokens.end,
                start_unix_ns: 2_000,
                end_unix_ns: 3_000,
            }));
        }
    }

    pub(crate) fn done(&self, request: u64, first_token: u32) {
        self.say(from_engine::Kind::PrefillDone(PrefillDone {
            request,
            first_token,
            logprobs: None,
        }));
    }

    pub(crate) fn finish(&self, request: u64, reason: FinishReason) {
        self.say(from_engine::Kind::Finished(Finished {
            request,
            reason: reason.into(),
            ..Finished::default()
        }));
    }
}
