//! The decode node: fetches KV, drafts on what is there, verifies, and answers.
//!
//! As at the prefill node, the engine has this thread and sockets have the runtime's. Between two steps, and only then,
//! what has arrived is merged into the engine's blocks: the anchor first, then every further bit as it comes, then the exact
//! values.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use lynx_engine::{
    AnchorInfo, Engine, EngineEvent, Exactness, KvSource, Request, RequestId, Stop, TextStream,
};
use lynx_kernels::checksum;
use lynx_policy::{Acceptance, Costs, DraftInputs, MAX_DEPTH, Prior, draft_depth};
use lynx_protocol::receiver::ReceiverConfig;
use lynx_protocol::{Code, CreditBook, Reason};
use lynx_transport::{Dialler, LinkConfig, ReceiverEvent, ReceiverHandle};
use lynx_units::{BitRate, Bytes, Priority, Timestamp, TransferId, Width};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

use super::coding::{Coding, Descriptor};
use super::messages::{AnchorWidths, Answer, Ask, Command, Report, RunSpec};
use super::request::Running;
use super::setup::{self, Setup, report};
use super::{peer, sampling};
use crate::args::NodeOptions;
use crate::clock::{self, seconds_between};
use crate::run::{Class, Event};

/// How often a waiting node looks at the link's figures, and whether a draft has become worthwhile.
const TICK: Duration = Duration::from_millis(10);
/// How long the peer may be away before the node gives up.
const PATIENCE: Duration = Duration::from_secs(30);
/// The anchor's mean width where nothing is known.
const FOUR_BITS: u8 = 4;
/// Decoding slower than this is not expected; used until a step was measured.
const TOKEN_TIME: Duration = Duration::from_millis(25);
/// What a drafted token adds to a verification, of a decode step, until it was measured: weights are read once for all.
const VERIFIED_SHARE: u32 = 5;
/// After this long, half of what was accepted is forgotten.
const HALF_LIFE: Duration = Duration::from_secs(600);

/// What the engine's thread is told.
enum Signal {
    Command(Result<Command>),
    Connected(ReceiverHandle),
    Link(ReceiverEvent),
    Answer(u64, Answer),
    /// The node can't go on.
    Lost(anyhow::Error),
}

/// Runs a decode node until its parent is gone.
///
/// # Errors
/// Where it can't start.
pub fn run(options: &NodeOptions, data: SocketAddr, control: SocketAddr) -> Result<()> {
    let setup = Setup::open(options)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let (signals, inbox) = channel();
    let config = setup.link(peer::info("the decode node", &setup.model, &setup.profile))?;
    runtime.spawn(keep_linked(data, config, signals.clone()));
    let Ok(Signal::Connected(link)) = inbox.recv() else {
        bail!("the prefill node can't be reached");
    };
    setup::listen(signals.clone(), Signal::Command);
    let engine = setup.engine()?;
    setup::forget_peak();
    report(&Report::Ready(setup.ready()));
    let prior = Prior::PROFILE;
    let node = Node {
        engine,
        setup,
        runtime,
        signals,
        control,
        link,
        running: Vec::new(),
        acceptance: Acceptance::new(prior, HALF_LIFE),
        verified_token: None,
        prefill_memory: None,
        received_before: [Bytes::ZERO; 2],
        told: [Bytes::ZERO; 2],
    };
    node.run(&inbox)
}

/// Holds a link to the prefill node, and passes on what happens on it.
async fn keep_linked(data: SocketAddr, config: LinkConfig, signals: Sender<Signal>) {
    let mut dialler = Dialler::new(data, config);
    let book = Arc::new(CreditBook::new(
        ReceiverConfig::default().window.into_iter().sum(),
    ));
    loop {
        let linked = match dialler.connect(PATIENCE).await {
            Ok(connected) => connected
                .into_receiver(ReceiverConfig::default(), &book)
                .map_err(anyhow::Error::from),
            Err(error) => Err(error.into()),
        };
        let (handle, mut events) = match linked {
            Ok(link) => link,
            Err(error) => return drop(signals.send(Signal::Lost(error))),
        };
        if signals.send(Signal::Connected(handle)).is_err() {
            return;
        }
        while let Some(event) = events.next().await {
            if signals.send(Signal::Link(event)).is_err() {
                return;
            }
        }
    }
}

/// Asks the prefill node for one request's KV, and passes on its answers.
async fn converse(control: SocketAddr, ask: Ask, signals: Sender<Signal>) {
    let run = ask.spec.run;
    let conversation = async {
        let mut stream = TcpStream::connect(control)
            .await
            .context("reaching the prefill node")?;
        let mut line = serde_json::to_vec(&ask)?;
        line.push(b'\n');
        stream.write_all(&line).await?;
        let mut lines = BufReader::new(stream).lines();
        while let Some(line) = lines.next_line().await? {
            let answer =
                serde_json::from_str(&line).context("the prefill node's answer can't be read")?;
            drop(signals.send(Signal::Answer(run, answer)));
        }
        anyhow::Ok(())
    };
    if let Err(error) = conversation.await {
        drop(signals.send(Signal::Answer(
            run,
            Answer::Failed {
                message: format!("{error:#}"),
            },
        )));
    }
}

struct Node {
    engine: Engine,
    setup: Setup,
    runtime: Runtime,
    signals: Sender<Signal>,
    control: SocketAddr,
    link: ReceiverHandle,
    running: Vec<Running>,
    acceptance: Acceptance,
    /// What a drafted token added to a verification, as measured.
    verified_token: Option<Duration>,
    prefill_memory: Option<u64>,
    /// The link's count of received bytes when the first running request began, and when the parent was last told.
    received_before: [Bytes; 2],
    told: [Bytes; 2],
}

impl Node {
    fn run(mut self, inbox: &Receiver<Signal>) -> Result<()> {
        loop {
            let idle =
                self.engine.is_idle(clock::now()) && !self.running.iter().any(Running::has_fresh);
            match self.next_signal(inbox, idle) {
                Next::Signal(signal) => self.handle(signal)?,
                Next::Ended => return Ok(()),
                Next::Nothing => {
                    self.merge()?;
                    self.step()?;
                    self.watch_link();
                }
            }
        }
    }

    fn next_signal(&self, inbox: &Receiver<Signal>, idle: bool) -> Next {
        if !idle {
            return match inbox.try_recv() {
                Ok(signal) => Next::Signal(signal),
                Err(TryRecvError::Empty) => Next::Nothing,
                Err(TryRecvError::Disconnected) => Next::Ended,
            };
        }
        if self.running.is_empty() {
            return inbox.recv().map_or(Next::Ended, Next::Signal);
        }
        match inbox.recv_timeout(TICK) {
            Ok(signal) => Next::Signal(signal),
            Err(RecvTimeoutError::Timeout) => Next::Nothing,
            Err(RecvTimeoutError::Disconnected) => Next::Ended,
        }
    }

    fn handle(&mut self, signal: Signal) -> Result<()> {
        match signal {
            Signal::Command(Ok(Command::Run(spec))) => {
                let run = spec.run;
                if let Err(error) = self.begin(spec) {
                    report(&Report::Failed {
                        run: Some(run),
                        message: format!("{error:#}"),
                    });
                }
            }
            Signal::Command(Ok(Command::Forget)) => {
                self.engine = self.setup.engine()?;
                self.running.clear();
                report(&Report::Forgotten);
            }
            Signal::Command(Ok(Command::Warm { .. })) => {
                report(&Report::Failed {
                    run: None,
                    message: "a decode node computes no prompts ahead".to_owned(),
                });
            }
            Signal::Command(Err(error)) => report(&Report::Failed {
                run: None,
                message: format!("{error:#}"),
            }),
            Signal::Connected(link) => self.link = link,
            Signal::Link(event) => self.on_link(event)?,
            Signal::Answer(run, answer) => self.on_answer(run, answer)?,
            Signal::Lost(error) => return Err(error),
        }
        Ok(())
    }

    /// Takes a request, and asks the prefill node for its KV.
    fn begin(&mut self, spec: RunSpec) -> Result<()> {
        let start = clock::now();
        let request = Request {
            prompt: spec.prompt.clone(),
            max_tokens: spec.max_tokens,
            sampling: sampling(spec.sampling)?,
            stop: Stop {
                ignore_eos: spec.ignore_eos,
                ..Stop::default()
            },
            kv: KvSource::Transfer,
            retain: false,
        };
        let request = self.engine.submit(request)?;
        let mean = spec
            .anchor()
            .or_else(|| Width::from_bits(FOUR_BITS))
            .context("a width over 8 bits")?;
        let cuts = self.setup.profile.cuts(mean);
        let descriptor = Descriptor {
            run: spec.run,
            method: spec.method,
            prompt_tokens: u32::try_from(spec.prompt.len())?,
            from_token: self.engine.cached_tokens(request)?,
            anchor_k_eighths: cuts.k().eighths(),
            anchor_v: cuts.v(),
            profile: peer::profile_name(&self.setup.profile),
        };
        let coding = Coding::new(self.setup.shape(), &descriptor)?;
        let anchor = spec.method.drafts().then(|| AnchorWidths {
            k: cuts.k().bits(),
            v: cuts.v(),
        });
        let text = TextStream::new(self.setup.tokenizer.clone(), Vec::new());
        if self.running.is_empty() {
            self.received_before = self.link.stats().wire_received;
            self.told = self.received_before;
        }
        self.running
            .push(Running::new(spec.run, request, start, coding, anchor, text));
        let start_ns = u64::try_from(start.since_origin().as_nanos())?;
        self.runtime.spawn(converse(
            self.control,
            Ask {
                spec,
                descriptor,
                start_ns,
            },
            self.signals.clone(),
        ));
        Ok(())
    }

    fn on_answer(&mut self, run: u64, answer: Answer) -> Result<()> {
        let Some(running) = self.running.iter().find(|running| running.run == run) else {
            return Ok(());
        };
        match answer {
            Answer::First { token } => {
                let request = running.request;
                self.engine.first_token(request, token)?;
                let now = clock::now();
                let events = self.engine.take_events();
                self.tell(&events, now, now)
            }
            Answer::Happened { event } => {
                running.happened(event);
                Ok(())
            }
            Answer::Memory { bytes } => {
                self.prefill_memory = Some(bytes);
                Ok(())
            }
            Answer::Failed { message } => self.lose(TransferId(run), &message),
        }
    }

    fn on_link(&mut self, event: ReceiverEvent) -> Result<()> {
        match event {
            ReceiverEvent::Offered {
                transfer,
                descriptor,
                ..
            } => self.on_offer(transfer, &descriptor),
            ReceiverEvent::SegmentComplete {
                transfer,
                unit,
                segment,
                bytes,
                checksum: expected,
            } => {
                let Some(running) = self
                    .running
                    .iter_mut()
                    .find(|r| r.transfer == transfer && r.loading)
                else {
                    return Ok(());
                };
                let taken = if checksum(&bytes) == expected {
                    running.take(unit, usize::from(segment.0), bytes.into_vec())
                } else {
                    Err(anyhow::anyhow!(
                        "segment {segment} of unit {unit} has another checksum than its sender computed"
                    ))
                };
                taken.or_else(|error| self.refuse(transfer, &error))
            }
            ReceiverEvent::LevelComplete { transfer, level } => self.on_level(transfer, level),
            ReceiverEvent::Complete(transfer) => self.on_complete(transfer),
            ReceiverEvent::Failed(transfer, reason)
            | ReceiverEvent::Cancelled(transfer, reason) => {
                self.lose(transfer, &reason.to_string())
            }
            ReceiverEvent::Broken(_) => Ok(()),
        }
    }

    fn on_offer(&mut self, transfer: TransferId, descriptor: &[u8]) -> Result<()> {
        let Some(running) = self
            .running
            .iter()
            .find(|running| running.transfer == transfer && running.loading)
        else {
            return Ok(drop(
                self.link
                    .reject(transfer, "no request waits for this transfer"),
            ));
        };
        let offered = serde_json::from_slice::<Descriptor>(descriptor).ok();
        let same = offered.is_some_and(|offered| offered.run == running.run);
        let answered = if same {
            self.link
                .accept(transfer, Arc::new(running.coding.transfer().clone()))
        } else {
            self.link
                .reject(transfer, "the descriptor is not the one that was asked for")
        };
        // A link that is over says so in its events.
        drop(answered);
        Ok(())
    }

    fn on_level(&mut self, transfer: TransferId, level: u8) -> Result<()> {
        self.merge()?;
        let now = clock::now();
        let Some(running) = self
            .running
            .iter()
            .find(|running| running.transfer == transfer && running.loading)
        else {
            return Ok(());
        };
        let t = seconds_between(running.start, now);
        running.happened(Event::LevelComplete {
            level: u32::from(level),
            t,
        });
        if running.anchor.is_none() || level == running.coding.last_level() {
            return Ok(());
        }
        let t = seconds_between(running.start, clock::now());
        let (request, info) = (running.request, self.anchor_info(running, now));
        running.happened(if level == 0 {
            Event::AnchorReady { t }
        } else {
            Event::Refined {
                level: u32::from(level),
                t,
            }
        });
        Ok(self.engine.anchor_ready(request, info)?)
    }

    /// When the rest is due, and how deep to draft until then.
    fn anchor_info(&self, running: &Running, now: Timestamp) -> AnchorInfo {
        let received = self.received();
        let left = Bytes::new(running.residual_bytes()) - received[Priority::Residual.index()];
        let rate = self.link.stats().estimate.rate;
        let measured = BitRate::from_delivery(received.into_iter().sum(), running.age(now));
        let rate = if rate == BitRate::ZERO {
            measured
        } else {
            rate
        };
        let due_in = rate.time_for(left);
        let width = running.anchor.and_then(|anchor| mean_width(anchor));
        let depth_limit = draft_depth(&DraftInputs {
            full_due_in: due_in.unwrap_or(Duration::MAX),
            rate: width.map_or(0.0, |width| self.acceptance.rate(width, now)),
            costs: self.costs(),
            limit: MAX_DEPTH,
        });
        AnchorInfo {
            residual_due: due_in.map(|due_in| now + due_in),
            depth_limit,
        }
    }

    fn costs(&self) -> Costs {
        let token = Some(self.engine.token_time())
            .filter(|time| !time.is_zero())
            .unwrap_or(TOKEN_TIME);
        Costs {
            token,
            verification: token,
            verified_token: self.verified_token.unwrap_or(token / VERIFIED_SHARE),
        }
    }

    fn on_complete(&mut self, transfer: TransferId) -> Result<()> {
        self.merge()?;
        let now = clock::now();
        let Some(running) = self
            .running
            .iter_mut()
            .find(|running| running.transfer == transfer && running.loading)
        else {
            return Ok(());
        };
        running.end_loading();
        running.happened(Event::FullReady {
            t: seconds_between(running.start, now),
        });
        let exactness = if running.coding.is_exact() {
            Exactness::Exact
        } else {
            Exactness::Quantised
        };
        let request = running.request;
        Ok(self.engine.full_ready(request, exactness)?)
    }

    /// The transfer won't come: the engine computes the prompt itself.
    fn lose(&mut self, transfer: TransferId, why: &str) -> Result<()> {
        let Some(running) = self
            .running
            .iter_mut()
            .find(|running| running.transfer == transfer && running.loading)
        else {
            return Ok(());
        };
        running.end_loading();
        let request = running.request;
        Ok(self.engine.kv_failed(request, why.to_owned())?)
    }

    /// What came can't be merged: this side ends the transfer.
    fn refuse(&mut self, transfer: TransferId, error: &anyhow::Error) -> Result<()> {
        let why = format!("{error:#}");
        drop(
            self.link
                .fail(transfer, Reason::new(Code::Application, &why)),
        );
        self.lose(transfer, &why)
    }

    fn merge(&mut self) -> Result<()> {
        let mut refused = Vec::new();
        for running in self
            .running
            .iter_mut()
            .filter(|running| running.has_fresh())
        {
            let kv = self.engine.kv_mut(running.request)?;
            if let Err(error) = running.merge(&self.setup, kv) {
                refused.push((running.transfer, error));
            }
        }
        for (transfer, error) in refused {
            self.refuse(transfer, &error)?;
        }
        Ok(())
    }

    fn step(&mut self) -> Result<()> {
        let start = clock::now();
        if self.engine.is_idle(start) {
            return Ok(());
        }
        let events = self.engine.step(start, &mut ())?;
        self.tell(&events, start, clock::now())
    }

    fn tell(&mut self, events: &[EngineEvent], start: Timestamp, end: Timestamp) -> Result<()> {
        let mut by_request: HashMap<RequestId, Vec<EngineEvent>> = HashMap::new();
        for event in events {
            by_request
                .entry(event.request())
                .or_default()
                .push(event.clone());
        }
        for (request, events) in by_request {
            let index = self
                .running
                .iter()
                .position(|running| running.request == request);
            let index = index.context("an event of a request that is not running")?;
            self.learn(index, &events, start, end);
            if self.running[index].tell(&events, start, end).is_some() {
                self.watch_link();
                let running = self.running.swap_remove(index);
                if running.loading {
                    drop(self.link.cancel(running.transfer, "the request has ended"));
                }
                let own = setup::memory_without(self.setup.model.weight_bytes());
                running.finish(end, [self.prefill_memory, own]);
            }
        }
        Ok(())
    }

    /// Notes what was accepted, and what a verification costs.
    fn learn(&mut self, index: usize, events: &[EngineEvent], start: Timestamp, end: Timestamp) {
        for event in events {
            let EngineEvent::Verified {
                drafted, accepted, ..
            } = *event
            else {
                continue;
            };
            if let Some(width) = self.running[index].anchor.and_then(mean_width) {
                self.acceptance.record(width, drafted, accepted, end);
            }
            let extra = (end - start).saturating_sub(self.costs().token);
            self.verified_token = extra.checked_div(drafted).or(self.verified_token);
        }
    }

    /// Bytes received since the first running request began.
    fn received(&self) -> [Bytes; 2] {
        let now = self.link.stats().wire_received;
        [
            now[0] - self.received_before[0],
            now[1] - self.received_before[1],
        ]
    }

    /// Tells what has arrived meanwhile.
    fn watch_link(&mut self) {
        let (received, now) = (self.received(), clock::now());
        let total = self.link.stats().wire_received;
        for priority in Priority::ALL {
            let index = priority.index();
            if total[index] == self.told[index] {
                continue;
            }
            self.told[index] = total[index];
            for running in &self.running {
                let t = seconds_between(running.start, now);
                running.happened(Event::Sent {
                    priority: Class::from(priority),
                    bytes: received[index].get(),
                    t,
                });
            }
        }
    }
}

/// What the loop found in its inbox.
enum Next {
    Signal(Signal),
    Nothing,
    Ended,
}

/// The mean over K and V.
fn mean_width(anchor: AnchorWidths) -> Option<Width> {
    let eighths = f64::midpoint(anchor.k, f64::from(anchor.v)) * 8.0;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "widths are 0 to 8 bits"
    )]
    Width::from_eighths(eighths as u8)
}
