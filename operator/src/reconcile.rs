//! Makes what exists what the spec wants.
//!
//! dereference → validate → build → apply → status. A request that writes is made only where something differs: an object
//! that was applied as it is, and that nobody touched, is left alone, and an equal status is not written.

pub mod apply;
pub mod backoff;
mod certificates;
mod children;
pub mod events;
mod lately;
pub mod places;
mod pods;
mod problems;
mod record;
pub mod rivals;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::ObjectMeta;
use kube::runtime::controller::Action;
use kube::{Client, ResourceExt as _};
use lynx_crds::spec::TlsMode;
use lynx_crds::{LynxDeployment, LynxDeploymentStatus};
use lynx_telemetry::{Context as Trace, KeyValue, Kind, attributes, names};
use tokio::sync::watch;
use tracing::Instrument as _;

use crate::build::names::Role;
use crate::build::{self, BuildError, Inputs};
use crate::caches::Caches;
use crate::certificates::State;
use crate::certificates::issue::IssueError;
use crate::clock::{self, Clock};
use crate::config::OperatorConfig;
use crate::metrics::Metrics;
use crate::scaling::pods::Pods;
use crate::status::{Problem, Progress, Seen, Summary, Workload};
use crate::streams::Key;
use crate::streams::doors::{DoorError, Doors};
use crate::streams::service::{Hub, Way};
use crate::validate;
use apply::Applied;
use children::Children;
use events::Events;
use lately::Lately;
use pods::Planned;
use rivals::Rival;

/// How long after a failed reference it is looked for again: nothing here watches what isn't ours.
const REFERENCE_AGAIN: Duration = Duration::from_secs(30);
/// Between two looks while pods aren't as they should be: an agent that has fallen silent, or a rollout that has taken
/// too long, is no change that is watched.
const PODS_AGAIN: Duration = Duration::from_secs(5);

/// What every reconcile has at hand.
pub struct Context {
    /// The API server.
    pub client: Client,
    /// What exists, as watches tell it.
    pub caches: Arc<Caches>,
    /// What the operator was told at start.
    pub config: OperatorConfig,
    /// The agents.
    pub hub: Arc<Hub>,
    /// How those of them come in that have certificates.
    pub doors: Arc<Doors>,
    /// Whether this replica writes.
    pub leading: watch::Receiver<bool>,
    /// Events.
    pub events: Events,
    /// Figures about this process.
    pub metrics: Arc<Metrics>,
    /// The clocks.
    pub clock: Clock,
    /// What is remembered of each deployment.
    pub memory: Mutex<HashMap<Key, Memory>>,
    /// What is known of nodes.
    pub nodes: places::Nodes,
}

/// What is remembered of a deployment between two looks at it. All of it can be lost: a new leader starts with none.
#[derive(Debug, Default)]
pub struct Memory {
    /// Failures in a row.
    pub failures: u32,
    /// What was applied, and what the API server made of it.
    pub applied: Applied,
    /// What agents reported, as the status tells it.
    pub summary: Summary,
    /// The Secret that pods mount.
    pub secret: Lately<ObjectMeta>,
    /// What the operator's own Secret holds.
    pub certificates: Lately<State>,
    /// The status that was written last, and its version: the watch may not have brought it yet.
    pub written: Option<(Option<u64>, LynxDeploymentStatus)>,
    /// The pods of prefill and decode, where somebody has looked.
    pub pods: Option<[Pods; 2]>,
    /// Who else scales the pools.
    pub rival: Option<Rival>,
}

/// Why a reconcile failed; it is tried again.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// The API server said no, or nothing.
    #[error("the API server refused to {what}: {source}")]
    Api {
        /// What was tried.
        what: String,
        /// What it said.
        #[source]
        source: Box<kube::Error>,
    },
    /// An object can't be written.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// No certificate can be issued.
    #[error(transparent)]
    Issue(#[from] IssueError),
    /// Agents can't reach the operator.
    #[error(transparent)]
    Door(#[from] DoorError),
    /// Somebody else has an object of this name.
    #[error("{kind} {name} exists and doesn't belong to this LynxDeployment: rename one of them")]
    NameTaken {
        /// The kind.
        kind: String,
        /// The name.
        name: String,
    },
}

impl ReconcileError {
    /// Wraps what the API server said to an attempt to do `what`.
    pub fn api(what: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let what = what.into();
        move |source| Self::Api {
            what,
            source: Box::new(source),
        }
    }

    /// As a condition's reason and a metric's label.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Api { .. } => "ApplyFailed",
            Self::Build(_) => "BuildFailed",
            Self::Issue(_) | Self::Door(_) => "NoCertificate",
            Self::NameTaken { .. } => "NameTaken",
        }
    }
}

impl Context {
    /// Whether this replica writes.
    pub fn leads(&self) -> bool {
        *self.leading.borrow()
    }

    /// What is remembered of a deployment, for a moment.
    pub fn remember<R>(&self, key: &Key, act: impl FnOnce(&mut Memory) -> R) -> R {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        act(memory.entry(key.clone()).or_default())
    }

    /// Forgets everything: another replica leads.
    pub fn forget_all(&self) {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        memory.clear();
    }

    /// Forgets a deployment that is gone.
    pub fn forget(&self, key: &Key) {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        memory.remove(key);
        drop(memory);
        self.doors.close(key);
        self.hub.forget(key);
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").finish_non_exhaustive()
    }
}

/// The key of an object.
pub fn key(object: &LynxDeployment) -> Key {
    Key {
        namespace: object.namespace().unwrap_or_default(),
        name: object.name_any(),
    }
}

/// One look at one deployment.
///
/// # Errors
/// Where it must be tried again.
pub async fn reconcile(
    object: Arc<LynxDeployment>,
    context: Arc<Context>,
) -> Result<Action, ReconcileError> {
    let key = key(&object);
    let may_act = context.leads() && context.caches.is_complete();
    if !may_act || !context.config.watches(&key.namespace) {
        return Ok(Action::await_change());
    }
    if object.metadata.deletion_timestamp.is_some() {
        // Everything that was made has an owner, so the garbage collector takes it.
        context.forget(&key);
        return Ok(Action::await_change());
    }
    let span = lynx_telemetry::start(names::RECONCILE, Kind::Internal, &Trace::new());
    told(&object, &key)
        .into_iter()
        .for_each(|one| span.set(one));
    if !context.config.otlp_endpoint.is_empty() {
        let (traceparent, _) = lynx_telemetry::inject(span.context());
        context
            .hub
            .with(&key, |registry, _| registry.set_look(&key, traceparent));
    }
    let begun = context.clock.now();
    let log = span.log();
    let result = one(&object, &context, &key).instrument(log.clone()).await;
    let took = context.clock.now().saturating_since(begun);
    let reason = result.as_ref().err().map(ReconcileError::reason);
    context.metrics.reconciled(took, reason);
    log.in_scope(|| match &result {
        Ok(_) => tracing::debug!(namespace = key.namespace, deployment = key.name, ?took, "reconciled"),
        Err(error) => {
            span.fail(&error.to_string());
            tracing::warn!(namespace = key.namespace, deployment = key.name, %error, "a reconcile failed and is tried again");
        }
    });
    result
}

/// What a look's span says of its deployment, in the words in which agents' spans say it of theirs: so a transfer's trace and
/// the looks that made its pods find each other.
fn told(object: &LynxDeployment, key: &Key) -> [KeyValue; 3] {
    let generation = build::generation::generation(&object.spec);
    [
        KeyValue::new("k8s.namespace.name", key.namespace.clone()),
        KeyValue::new(attributes::DEPLOYMENT, key.name.clone()),
        KeyValue::new(attributes::GENERATION, generation),
    ]
}

/// When a failed reconcile is tried again.
pub fn error_policy(
    object: Arc<LynxDeployment>,
    _: &ReconcileError,
    context: Arc<Context>,
) -> Action {
    let key = key(&object);
    let failures = context.remember(&key, |memory| {
        memory.failures = memory.failures.saturating_add(1);
        memory.failures
    });
    Action::requeue(backoff::pause(failures, &object.uid().unwrap_or_default()))
}

async fn one(
    object: &LynxDeployment,
    context: &Context,
    key: &Key,
) -> Result<Action, ReconcileError> {
    let latest = record::latest(object, context, key);
    let object = &*latest;
    let objections = validate::objections(object);
    if !objections.is_empty() {
        context.hub.admit(key, way(object));
        let problem = Problem {
            reason: "InvalidSpec",
            message: objections.join("; "),
        };
        write_status(object, context, key, &[problem], None).await?;
        context.remember(key, |memory| memory.failures = 0);
        return Ok(Action::await_change());
    }
    let mut problems = problems::missing_references(object, context).await?;
    let made = make(object, context, key).await;
    match made {
        Ok(made) => {
            problems.extend(made.stall());
            problems.extend(made.places.clone());
            problems.extend(problems::refusals(context, key));
            let again = (!problems.is_empty()).then_some(REFERENCE_AGAIN);
            let again = again.into_iter().chain(made.look_again(context)).min();
            write_status(object, context, key, &problems, Some(&made)).await?;
            context.remember(key, |memory| memory.failures = 0);
            Ok(again.map_or_else(Action::await_change, Action::requeue))
        }
        Err(error) => {
            problems.insert(
                0,
                Problem {
                    reason: error.reason(),
                    message: error.to_string(),
                },
            );
            write_status(object, context, key, &problems, None).await?;
            Err(error)
        }
    }
}

/// What was made, and how it is.
struct Made {
    children: Children,
    planned: Planned,
    progress: Progress,
    certificates_due: Option<i64>,
    places: Option<Problem>,
    /// Whether somebody else scales the pools, who may stop at any time.
    has_rival: bool,
}

impl Made {
    fn look_again(&self, context: &Context) -> Option<Duration> {
        let due = self.planned.look_again().into_iter();
        let due = due.chain(self.certificates_due).min();
        let due = due.map(|next| clock::until(next, context.clock.wall()) + Duration::from_secs(1));
        let settled = self.planned.step.is_none() && self.progress.troubles.is_empty();
        let pods = (!settled && !self.progress.stalled).then_some(PODS_AGAIN);
        let rival = self.has_rival.then_some(REFERENCE_AGAIN);
        due.into_iter().chain(pods).chain(rival).min()
    }

    fn workload(&self, role: Role) -> Workload {
        self.children.workload(role, &self.planned)
    }

    fn stall(&self) -> Option<Problem> {
        self.progress.stalled.then(|| Problem {
            reason: "RolloutStalled",
            message: self.progress.sentence(),
        })
    }
}

/// How a deployment's agents come to the operator.
fn way(object: &LynxDeployment) -> Way {
    match object.spec.transfer.tls.mode {
        TlsMode::OperatorCa => Way::Tls,
        TlsMode::Disabled | TlsMode::Secret | TlsMode::CertManager => Way::Clear,
    }
}

/// Whether somebody besides the operator scales what the operator is to scale.
async fn look_for_rivals(
    object: &LynxDeployment,
    context: &Context,
    key: &Key,
) -> Result<bool, ReconcileError> {
    let mut rival = None;
    if object.spec.decode.autoscaling.is_some() {
        let found = rivals::look(&context.client, key).await;
        rival = found.map_err(ReconcileError::api("list autoscalers"))?;
    }
    let found = rival.is_some();
    context.remember(key, |memory| memory.rival = rival);
    Ok(found)
}

async fn make(
    object: &LynxDeployment,
    context: &Context,
    key: &Key,
) -> Result<Made, ReconcileError> {
    let children = children::look(object, context, key).await?;
    let places = places::look(object, context, key, &children).await;
    children.count(context, key);
    let has_rival = look_for_rivals(object, context, key).await?;
    pods::await_agents(context, key, &children);
    context.hub.admit(key, way(object));
    let planned = pods::plan(object, context, key, &children);
    pods::mark(context, key, &planned).await?;
    pods::tell(context, key, &children, &planned);
    let certificates = certificates::ensure(object, context, key).await?;
    if let Some(state) = &certificates {
        let until = state.leaf.until;
        context
            .metrics
            .certificate(&key.namespace, &key.name, until);
    }
    let objects = build::build(&Inputs {
        object,
        certificates: certificates.as_ref(),
        config: &context.config,
        prefill: planned.replicas(Role::Prefill),
        decode: planned.replicas(Role::Decode),
    })?;
    let kept = planned.kept(object);
    apply::apply(object, context, key, &objects, &children, &kept).await?;
    pods::shrink(object, context, key, &planned).await?;
    let troubles = children.troubles(&planned);
    let now = Time(context.clock.wall());
    let targets = Role::ALL.map(|role| &planned.view(role).target);
    let step = planned.step.map(|step| (step, targets));
    let progress = Progress::new(object, step, troubles, &now);
    let lives = context.config.certificates;
    Ok(Made {
        certificates_due: certificates.map(|state| state.due(lives)),
        places,
        has_rival,
        children,
        planned,
        progress,
    })
}

async fn write_status(
    object: &LynxDeployment,
    context: &Context,
    key: &Key,
    problems: &[Problem],
    made: Option<&Made>,
) -> Result<(), ReconcileError> {
    let summary = context.remember(key, |memory| memory.summary.clone());
    let seen = Seen {
        object,
        prefill: made.map(|made| made.workload(Role::Prefill)),
        decode: made.map(|made| made.workload(Role::Decode)),
        progress: made.map(|made| &made.progress),
        summary: &summary,
        problems,
    };
    let next = crate::status::status(&seen, &Time(context.clock.wall()));
    let old = object.status.clone().unwrap_or_default();
    if next == old {
        return Ok(());
    }
    record::write(object, context, key, &next).await?;
    context
        .events
        .say(object, &crate::status::notices(&old, &next));
    Ok(())
}
