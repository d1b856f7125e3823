//! The prefill node: computes prompts, and sends their KV as it is computed.
//!
//! The engine runs on this thread, sockets on the runtime's; they meet in one queue of [`Signal`]s. A unit is coded where
//! the engine's blocks are, on the engine's thread, as soon as its last token's layer is there: nothing is copied but what
//! goes on the wire.

mod publishing;

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use anyhow::{Context as _, Result};
use lynx_engine::{Engine, EngineEvent, KvSource, Request, RequestId, Stop};
use lynx_protocol::sender::OpenTransfer;
use lynx_transport::{Listener, SenderHandle};
use lynx_units::{Epoch, Timestamp, TransferId};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use self::publishing::{Serving, Transfer, UnitRanges, Watch};
use super::coding::Coding;
use super::messages::{Answer, Ask, Command, Report};
use super::setup::{self, Setup, report};
use super::{TRANSFER_TIME, peer, sampling};
use crate::args::NodeOptions;
use crate::clock;

/// The longest question in bytes: a million tokens and some.
const MAX_ASK: u64 = 8 << 20;
/// How long a question may take from the connection to the end of its line.
const ASK_TIME: Duration = Duration::from_secs(30);
/// How long to leave the listener alone after an accept has failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// What the engine's thread is told.
enum Signal {
    Command(Result<Command>),
    /// A decode node's link, by the node's name.
    Link(String, SenderHandle),
    /// The end of a link.
    Gone(String, Epoch),
    Asked(Box<Ask>, UnboundedSender<Answer>),
}

/// Runs a prefill node until its parent is gone.
///
/// # Errors
/// Where it can't start.
pub fn run(options: &NodeOptions) -> Result<()> {
    let setup = Setup::open(options)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let (signals, inbox) = channel();
    let config = setup.link(peer::info("the prefill node", &setup.model, &setup.profile))?;
    let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let (data, control) = runtime.block_on(async {
        let data = Listener::bind(any_port, config)?;
        let control = TcpListener::bind(any_port)
            .await
            .context("listening for requests")?;
        anyhow::Ok((data, control))
    })?;
    let ready = Report::Ready(super::messages::Ready {
        data: Some(data.address()),
        control: Some(control.local_addr()?),
        ..setup.ready()
    });
    serve(&runtime, data, control, &signals);
    setup::listen(signals, Signal::Command);
    let engine = setup.engine()?;
    setup::forget_peak();
    report(&ready);
    Node {
        engine,
        setup,
        links: HashMap::new(),
        serving: HashMap::new(),
    }
    .run(&inbox)
}

fn serve(runtime: &Runtime, mut data: Listener, control: TcpListener, signals: &Sender<Signal>) {
    let links = signals.clone();
    runtime.spawn(async move {
        loop {
            let connected = data.accept().await;
            let node = connected.peer().name().to_owned();
            let epoch = connected.epoch();
            let (handle, mut events) = connected.into_sender();
            if links.send(Signal::Link(node.clone(), handle)).is_err() {
                return;
            }
            let gone = links.clone();
            tokio::spawn(async move {
                // A transfer's fate is the decode node's affair: it has the request.
                while events.next().await.is_some() {}
                drop(gone.send(Signal::Gone(node, epoch)));
            });
        }
    });
    let asks = signals.clone();
    runtime.spawn(async move {
        loop {
            match control.accept().await {
                Ok((stream, _)) => drop(tokio::spawn(converse(stream, asks.clone()))),
                // For want of descriptors, say: some will be free again.
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            }
        }
    });
}

/// One request's connection: its question, then our answers until the engine has no more.
async fn converse(stream: TcpStream, asks: Sender<Signal>) -> Result<()> {
    let (reading, mut writing) = stream.into_split();
    let mut lines = BufReader::new(reading.take(MAX_ASK)).lines();
    let line = tokio::time::timeout(ASK_TIME, lines.next_line()).await??;
    let line = line.context("a request without a line")?;
    let (answers, mut outbox) = unbounded_channel();
    // Whoever answers owns `answers`: when it is dropped, the conversation is over.
    match serde_json::from_str(&line) {
        Ok(ask) => drop(asks.send(Signal::Asked(Box::new(ask), answers))),
        Err(error) => {
            let message = format!("the request can't be read: {error}");
            drop(answers.send(Answer::Failed { message }));
            drop(answers);
        }
    }
    while let Some(answer) = outbox.recv().await {
        let mut line = serde_json::to_vec(&answer)?;
        line.push(b'\n');
        writing.write_all(&line).await?;
    }
    Ok(())
}

struct Node {
    engine: Engine,
    setup: Setup,
    links: HashMap<String, SenderHandle>,
    serving: HashMap<RequestId, Serving>,
}

impl Node {
    fn run(mut self, inbox: &Receiver<Signal>) -> Result<()> {
        loop {
            let idle = self.engine.is_idle(clock::now());
            let signal = if idle {
                inbox.recv().ok()
            } else {
                inbox.try_recv().ok()
            };
            match signal {
                Some(signal) => self.handle(signal)?,
                None if idle => return Ok(()),
                None => self.step()?,
            }
        }
    }

    fn handle(&mut self, signal: Signal) -> Result<()> {
        match signal {
            Signal::Link(node, link) => drop(self.links.insert(node, link)),
            Signal::Gone(node, epoch) => {
                // Unless the node has come back meanwhile.
                self.links
                    .retain(|name, link| *name != node || link.epoch() != epoch);
            }
            Signal::Command(Ok(Command::Warm { prompt })) => {
                if let Err(error) = self.warm(prompt) {
                    report(&Report::Failed {
                        run: None,
                        message: format!("{error:#}"),
                    });
                }
            }
            Signal::Command(Ok(Command::Forget)) => {
                self.engine.forget();
                for transfer in self.serving.drain().filter_map(|(_, s)| s.transfer) {
                    let why = "the prefill node was told to forget the prompt";
                    transfer.link.cancel(transfer.id, why).ok();
                }
                report(&Report::Forgotten);
            }
            Signal::Command(Ok(Command::Run(_))) => {
                report(&Report::Failed {
                    run: None,
                    message: "a prefill node answers no requests".to_owned(),
                });
            }
            Signal::Command(Err(error)) => report(&Report::Failed {
                run: None,
                message: format!("{error:#}"),
            }),
            Signal::Asked(ask, answers) => {
                if let Err(error) = self.asked(*ask, &answers) {
                    drop(answers.send(Answer::Failed {
                        message: format!("{error:#}"),
                    }));
                }
            }
        }
        Ok(())
    }

    fn warm(&mut self, prompt: Vec<u32>) -> Result<()> {
        let prompt_tokens = u32::try_from(prompt.len())?;
        let request = self
            .engine
            .submit(prefill_request(prompt, super::messages::Sampling::GREEDY)?)?;
        let now = clock::now();
        self.serving.insert(
            request,
            Serving {
                transfer: None,
                chunk: 0,
                layer_start: now,
                prompt_tokens,
            },
        );
        Ok(())
    }

    /// Opens the transfer, sends at once what needs no computing, and leaves the rest to the engine's steps.
    fn asked(&mut self, ask: Ask, answers: &UnboundedSender<Answer>) -> Result<()> {
        let link = self.links.get(&ask.node).cloned();
        let link =
            link.with_context(|| format!("{} is not connected: is its link down?", ask.node))?;
        let prompt_tokens = u32::try_from(ask.spec.prompt.len())?;
        // First of all: a plan is as long as the descriptor says.
        anyhow::ensure!(
            prompt_tokens == ask.descriptor.prompt_tokens,
            "the descriptor is of another prompt"
        );
        let coding = Coding::new(self.setup.shape(), &ask.descriptor)?;
        let request = self
            .engine
            .submit(prefill_request(ask.spec.prompt, ask.spec.sampling)?)?;
        let id = TransferId(ask.spec.run);
        link.open(OpenTransfer {
            transfer: id,
            descriptor: serde_json::to_vec(&ask.descriptor)?.into(),
            plan: Arc::new(coding.transfer().clone()),
            deadline: self.setup.clock.now() + TRANSFER_TIME,
        })?;
        let published = vec![false; coding.units().len()];
        let start = Timestamp::from_origin(Duration::from_nanos(ask.start_ns));
        let transfer = Transfer {
            id,
            coding,
            answers: answers.clone(),
            start,
            link,
            published,
            cached_sent: false,
        };
        let serving = Serving {
            transfer: Some(transfer),
            chunk: 0,
            layer_start: clock::now(),
            prompt_tokens,
        };
        self.serving.insert(request, serving);
        // The first units keep the link busy while the prompt's last token is evaluated; the others follow it.
        self.publish_cached(request, UnitRanges::First)
    }

    /// Publishes units whose tokens were all here before the request came.
    fn publish_cached(&mut self, request: RequestId, ranges: UnitRanges) -> Result<()> {
        let cached = self.engine.cached_tokens(request)?;
        let kv = self.engine.kv(request)?;
        let Some(transfer) = self
            .serving
            .get_mut(&request)
            .and_then(|serving| serving.transfer.as_mut())
        else {
            return Ok(());
        };
        transfer.cached_sent |= ranges == UnitRanges::All;
        transfer.publish_ended_in(&self.setup, kv, 0..cached, None, ranges)
    }

    fn step(&mut self) -> Result<()> {
        let now = clock::now();
        for serving in self.serving.values_mut() {
            serving.layer_start = now;
        }
        let mut watch = Watch {
            setup: &self.setup,
            serving: &mut self.serving,
            failed: None,
        };
        let events = self.engine.step(now, &mut watch)?;
        if let Some(error) = watch.failed.take() {
            return Err(error);
        }
        for serving in self.serving.values_mut() {
            serving.chunk += 1;
        }
        for event in events {
            self.tell(&event)?;
        }
        let unsent = |serving: &Serving| {
            serving
                .transfer
                .as_ref()
                .is_some_and(|transfer| !transfer.cached_sent)
        };
        let requests: Vec<RequestId> = self
            .serving
            .iter()
            .filter(|(_, serving)| unsent(serving))
            .map(|(id, _)| *id)
            .collect();
        for request in requests {
            self.publish_cached(request, UnitRanges::All)?;
        }
        Ok(())
    }

    fn tell(&mut self, event: &EngineEvent) -> Result<()> {
        match *event {
            EngineEvent::PrefillDone { request, first } => {
                if let Some(transfer) = self
                    .serving
                    .get(&request)
                    .and_then(|serving| serving.transfer.as_ref())
                {
                    drop(transfer.answers.send(Answer::First { token: first }));
                }
            }
            EngineEvent::Finished { request, .. } => {
                self.publish_cached(request, UnitRanges::All)?;
                match self.serving.remove(&request) {
                    Some(Serving { transfer: None, .. }) => report(&Report::Warmed),
                    Some(Serving {
                        transfer: Some(transfer),
                        ..
                    }) => transfer.finished(&self.setup),
                    None => {}
                }
                self.engine.release(request)?;
            }
            _ => {}
        }
        Ok(())
    }
}

/// A request that computes a prompt and its first token.
fn prefill_request(prompt: Vec<u32>, chosen: super::messages::Sampling) -> Result<Request> {
    Ok(Request {
        prompt,
        max_tokens: 1,
        sampling: sampling(chosen)?,
        stop: Stop {
            ignore_eos: true,
            ..Stop::default()
        },
        kv: KvSource::Compute,
        retain: true,
    })
}
