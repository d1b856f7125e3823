//! The operator's stream: what this agent reports, and what it is told.
//!
//! Optional in every respect: an agent that can't reach the operator keeps the last peers and the last policy, and works.
//! It refuses to apply anything: what is told goes to whoever watches it. One stream for both roles, since what differs
//! between them is only which figures there are.

mod report;
#[cfg(test)]
mod tests;

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use lynx_proto::operator::v1::control_client::ControlClient;
use lynx_proto::operator::v1::{
    FromAgent, Hello, Link, PeerAddress, Policy, from_agent, from_operator,
};
use lynx_telemetry::Context;
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status as Refused;
use tonic::transport::{Channel, Endpoint};

use self::report::Totals;
use crate::config::Operator;
use crate::counters::Counters;
use crate::drain::Drain;
use crate::run::chain;
use crate::security::{Security, To, connect};
use crate::session::Attachment;

/// How often a report goes out.
const REPORT_INTERVAL: Duration = Duration::from_secs(2);
/// How often a stream is looked at for changes that are to be reported at once.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// How long a connection may take.
const PATIENCE: Duration = Duration::from_secs(3);
/// A stream on which nothing was heard for this long is asked whether it lives, and is dead after as long again.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// The first pause after a failure.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// No pause is longer: an operator that is back is found within this time.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How an agent is, apart from what is counted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Status {
    /// Whether it can work: an engine is attached that fits.
    pub ready: bool,
    /// Requests that the engine works on.
    pub running: u32,
    /// Requests that wait for it.
    pub waiting: u32,
    /// Blocks that the engine could give a new request.
    pub free_blocks: u32,
    /// How often a request gave its blocks to an older one, since the engine began.
    pub preemptions: u64,
    /// KV of transfers under way, as BF16, in bytes.
    pub pending_kv_bytes: u64,
    /// Links with peers.
    pub links: Vec<Link>,
    /// What one token takes the engine, in nanoseconds; 0 where unknown.
    pub token_time_ns: u64,
    /// Why the engine that is attached can't be used, where it can't.
    pub attach_error: Option<String>,
    /// The anchor's mean width that new transfers get, in eighths of a bit; 0 where none was chosen yet.
    pub anchor_eighths: u32,
}

/// What is reported.
#[derive(Clone, Debug)]
pub struct Sources {
    /// How the role is.
    pub status: watch::Receiver<Status>,
    /// Whether there is an engine.
    pub attachment: watch::Receiver<Attachment>,
    /// What is counted.
    pub counters: Arc<Counters>,
    /// Whether the agent drains, and what is in flight. The operator may begin a drain.
    pub drain: Drain,
}

/// Where goes what the operator tells.
#[derive(Debug)]
pub struct Sinks {
    /// All peers that a decode agent may use.
    pub peers: watch::Sender<Option<Vec<PeerAddress>>>,
    /// The deployment's policy.
    pub policy: watch::Sender<Option<Policy>>,
    /// The operator's look at the deployment that came last before it told something, by its span.
    pub look: watch::Sender<Context>,
}

/// What an agent with an operator, or without one, watches: nothing is told at first.
#[derive(Clone, Debug)]
pub struct Told {
    /// All peers that a decode agent may use.
    pub peers: watch::Receiver<Option<Vec<PeerAddress>>>,
    /// The deployment's policy.
    pub policy: watch::Receiver<Option<Policy>>,
    /// The operator's look at the deployment that came last before it told something, by its span.
    pub look: watch::Receiver<Context>,
}

/// Sinks, and what they fill.
pub fn told() -> (Sinks, Told) {
    let (peers, told_peers) = watch::channel(None);
    let (policy, told_policy) = watch::channel(None);
    let (look, told_look) = watch::channel(Context::new());
    let told = Told {
        peers: told_peers,
        policy: told_policy,
        look: told_look,
    };
    let sinks = Sinks {
        peers,
        policy,
        look,
    };
    (sinks, told)
}

/// Why there is no stream.
#[derive(Debug, thiserror::Error)]
enum JoinError {
    #[error("the operator can't be reached: {}", chain(.0))]
    Unreachable(#[from] tonic::transport::Error),
    #[error("the operator says: {}", .0.message())]
    Refused(#[from] Box<Refused>),
    #[error("the operator ended the stream")]
    Ended,
}

/// Holds a stream to the operator until the process ends. It is never given up.
pub async fn run(
    operator: Operator,
    security: Security,
    hello: Hello,
    sources: Sources,
    sinks: Sinks,
) {
    let target = Target::new(operator, &security);
    let address = target.shown.clone();
    let mut pause = FIRST_PAUSE;
    let mut said = String::new();
    loop {
        let mut was_heard = false;
        if let Err(error) = join(&target, &hello, &sources, &sinks, &mut was_heard).await {
            let why = error.to_string();
            if was_heard || why != said {
                tracing::warn!(address, "{why}; the last peers and policy stay");
            }
            said = why;
        }
        if was_heard {
            pause = FIRST_PAUSE;
        }
        tokio::time::sleep(shortened(pause, random())).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Where the operator is, and how it is dialled.
struct Target {
    /// As it was configured.
    shown: String,
    /// For the client, which knows nothing of TLS: that is the connection's affair.
    dialled: String,
    to: To,
    security: Security,
}

impl Target {
    fn new(operator: Operator, security: &Security) -> Self {
        let Operator { address, name } = operator;
        let to = name.map_or(To::Host, To::Named);
        match address.strip_prefix("https://") {
            Some(host) => Self {
                dialled: format!("http://{host}"),
                security: security.clone(),
                shown: address,
                to,
            },
            None => Self {
                dialled: address.clone(),
                security: Security::default(),
                shown: address,
                to,
            },
        }
    }
}

async fn join(
    target: &Target,
    hello: &Hello,
    sources: &Sources,
    sinks: &Sinks,
    was_heard: &mut bool,
) -> Result<(), JoinError> {
    let endpoint = Endpoint::from_shared(target.dialled.clone())?
        .connect_timeout(PATIENCE)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .keep_alive_while_idle(true);
    let mut client: ControlClient<Channel> =
        ControlClient::new(connect(endpoint, target.to.clone(), &target.security).await?);
    let (outbox, outgoing) = mpsc::channel(4);
    let hello = from_agent::Kind::Hello(hello.clone());
    // The channel has room, and its other end is here.
    drop(outbox.send(said(hello)).await);
    let joined = client.join(ReceiverStream::new(outgoing)).await;
    let mut incoming = joined.map_err(Box::new)?.into_inner();
    let mut looks = interval(LOOK_INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut reporting = Reporting::new(sources);
    loop {
        tokio::select! {
            message = incoming.message() => {
                let message = message.map_err(Box::new)?.ok_or(JoinError::Ended)?;
                *was_heard = true;
                if !message.traceparent.is_empty() {
                    let look = lynx_telemetry::context_from(&message.traceparent, "");
                    sinks.look.send_replace(look);
                }
                if let Some(kind) = message.kind {
                    take(kind, sinks, &sources.drain);
                }
            }
            _ = looks.tick() => {
                if let Some(report) = reporting.due() {
                    let report = from_agent::Kind::Report(report);
                    // Where the operator does not read, the next report will do.
                    drop(outbox.try_send(said(report)));
                }
            }
        }
    }
}

const fn said(kind: from_agent::Kind) -> FromAgent {
    FromAgent { kind: Some(kind) }
}

fn take(kind: from_operator::Kind, sinks: &Sinks, drain: &Drain) {
    match kind {
        from_operator::Kind::Peers(peers) => {
            replace(&sinks.peers, peers.peers);
        }
        from_operator::Kind::Policy(policy) => {
            replace(&sinks.policy, policy);
        }
        from_operator::Kind::Drain(told) if told.cancel => {
            tracing::info!("the operator wants this agent to go on");
            drain.order(None);
        }
        from_operator::Kind::Drain(told) => {
            tracing::info!(
                deadline_ms = told.deadline_ms,
                "the operator wants this agent drained"
            );
            drain.order(Some(Duration::from_millis(told.deadline_ms)));
        }
    }
}

/// Wakes those who watch only where something changes.
fn replace<T: PartialEq>(sink: &watch::Sender<Option<T>>, new: T) {
    sink.send_if_modified(|old| {
        let changed = old.as_ref() != Some(&new);
        *old = Some(new);
        changed
    });
}

/// What was reported on one stream.
struct Reporting<'a> {
    sources: &'a Sources,
    totals: Totals,
    last: Option<lynx_proto::operator::v1::Report>,
    looks: u32,
}

impl<'a> Reporting<'a> {
    fn new(sources: &'a Sources) -> Self {
        Self {
            totals: Totals::read(&sources.counters),
            sources,
            last: None,
            looks: 0,
        }
    }

    /// The report that is to go out now: at first, every two seconds, and when something has changed that can't wait.
    fn due(&mut self) -> Option<lynx_proto::operator::v1::Report> {
        let totals = Totals::read(&self.sources.counters);
        let report = report::report(self.sources, &self.totals, &totals);
        let urgent = self.last.as_ref().is_none_or(|last| {
            (last.ready, last.draining, &last.attach_error)
                != (report.ready, report.draining, &report.attach_error)
                || (report.draining && last.in_flight != report.in_flight)
        });
        self.looks += 1;
        if !urgent && LOOK_INTERVAL * self.looks < REPORT_INTERVAL {
            return None;
        }
        self.looks = 0;
        self.totals = totals;
        self.last = Some(report.clone());
        Some(report)
    }
}

/// Agents that lost the same operator shouldn't come back in step.
fn shortened(pause: Duration, random: u32) -> Duration {
    pause / 2 + (pause / 2).mul_f64(f64::from(random) / f64::from(u32::MAX))
}

/// A random number that nobody has to be unable to guess: each hasher of the standard library is keyed at random.
fn random() -> u32 {
    let [a, b, c, d, ..] = RandomState::new().build_hasher().finish().to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}
