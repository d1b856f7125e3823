//! The decode node: fetches KV, drafts on what is there, verifies, and answers.
//!
//! As at the prefill node, the engine has this thread and sockets have the runtime's. Between two steps, and only then,
//! what has arrived is merged into the engine's blocks: the anchor first, then every further bit as it comes, then the exact
//! values.

mod arrivals;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use lynx_engine::{Engine, EngineEvent, KvSource, Request, RequestId, Stop, TextStream};
use lynx_policy::Fidelity;
use lynx_transport::ReceiverHandle;
use lynx_units::{Bytes, Priority, Timestamp, TransferId, Width};
use tokio::runtime::Runtime;

use super::coding::{Coding, Descriptor};
use super::drafting::Drafting;
use super::messages::{AnchorWidths, Answer, Ask, Command, Report, RunSpec};
use super::peering::{Signal, converse, keep_linked};
use super::request::Running;
use super::setup::{self, Setup, report};
use super::{peer, sampling};
use crate::args::NodeOptions;
use crate::clock::{self, seconds_between};
use crate::run::{Class, Event, Method};

/// How often a waiting node looks at the link's figures, and whether a draft has become worthwhile.
const TICK: Duration = Duration::from_millis(10);

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
    let name = format!("the decode node (process {})", std::process::id());
    let config = setup.link(peer::info(&name, &setup.model, &setup.profile))?;
    runtime.spawn(keep_linked(data, config, signals.clone()));
    let link = match inbox.recv()? {
        Signal::Connected(link) => link,
        Signal::Lost(error) => return Err(error),
        _ => bail!("the link began with something else than a connection"),
    };
    setup::listen(signals.clone(), Signal::Command);
    let engine = setup.engine()?;
    setup::forget_peak();
    report(&Report::Ready(setup.ready()));
    let node = Node {
        engine,
        setup,
        runtime,
        signals,
        control,
        name,
        link,
        running: Vec::new(),
        last_run: None,
        drafting: Drafting::new(),
        prefill_memory: None,
        received_before: [Bytes::ZERO; 2],
        told: [Bytes::ZERO; 2],
    };
    node.run(&inbox)
}

struct Node {
    engine: Engine,
    setup: Setup,
    runtime: Runtime,
    signals: Sender<Signal>,
    control: SocketAddr,
    /// What the prefill node knows this one by.
    name: String,
    link: ReceiverHandle,
    running: Vec<Running>,
    /// The highest number of a run so far. A transfer has its run's number, and no two of a link may have the same.
    last_run: Option<u64>,
    drafting: Drafting,
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
                    self.lose_late()?;
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
                self.engine.forget();
                for running in self.running.drain(..).filter(|running| running.loading) {
                    self.link
                        .cancel(running.transfer, "the request is forgotten")
                        .ok();
                }
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
        ensure!(
            self.last_run < Some(spec.run),
            "run {} does not follow run {}: number runs upwards",
            spec.run,
            self.last_run.unwrap_or_default()
        );
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
        self.last_run = Some(spec.run);
        let mean = spec
            .anchor()
            .unwrap_or_else(|| self.best_width(&spec, start));
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
                node: self.name.clone(),
                start_ns,
            },
            self.signals.clone(),
        ));
        Ok(())
    }

    /// The anchor's mean width that the policy would have, from what the link was last seen to carry.
    fn best_width(&self, spec: &RunSpec, now: Timestamp) -> Width {
        let shape = self.setup.shape();
        let per_token = shape.layers * shape.kv_heads * shape.head_dim * 4;
        let kv = Bytes::new((spec.prompt.len() * per_token) as u64);
        let fidelity = if spec.method == Method::LynxInt8 {
            Fidelity::Int8
        } else {
            Fidelity::Exact
        };
        let link = self.link.stats().estimate.rate;
        self.drafting
            .width(kv, link, fidelity, self.engine.token_time(), now)
    }

    fn on_answer(&mut self, run: u64, answer: Answer) -> Result<()> {
        let Some(running) = self.running.iter().find(|running| running.run == run) else {
            return Ok(());
        };
        match answer {
            Answer::First { token } if token as usize >= self.engine.config().vocab => {
                self.lose(TransferId(run), "the first token is none of this model's")
            }
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
                    self.link
                        .cancel(running.transfer, "the request has ended")
                        .ok();
                }
                let own = setup::memory_without(self.setup.model.weight_bytes());
                running.finish(end, [self.prefill_memory, own]);
            }
        }
        Ok(())
    }

    /// Notes how good the anchor was, and what a comparison of all drafts costs.
    fn learn(&mut self, index: usize, events: &[EngineEvent], start: Timestamp, end: Timestamp) {
        let token_time = self.engine.token_time();
        let running = &self.running[index];
        let Some(anchor) = running.anchor else { return };
        for event in events {
            let result = match *event {
                EngineEvent::Redrafted { drafted, kept, .. } => (drafted, kept),
                EngineEvent::Verified {
                    drafted, accepted, ..
                } if !running.redrafted => (drafted, accepted),
                _ => continue,
            };
            self.drafting
                .learn(anchor, result, end - start, token_time, end);
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
