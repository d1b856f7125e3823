//! The loop over what agents report: the anchor's width, the decode pool's size, and what the status is told.
//!
//! Beside the reconciler because it has another clock: reports come every two seconds, and most of them change nothing. It
//! asks for a reconcile when something did, and writes one thing itself: the scale.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams};
use kube::runtime::reflector::Store;
use kube::{Api, ResourceExt as _};
use lynx_crds::LynxDeployment;
use lynx_crds::spec::{AnchorMode, Fidelity, Objective};
use lynx_governor::replicas::{self, Load, Pool, Scaler, Settings, Targets};
use lynx_governor::width::{Controller, Decision, Link, Mode, Seen, Wanted};
use lynx_policy::Bounds;
use lynx_proto::operator::v1::{self, ClassWidth, Policy, Role};
use lynx_units::{Timestamp, Width};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::reconcile::{Context, key};
use crate::scaling::quantity;
use crate::status::Summary;
use crate::status::summary::Facts;
use crate::streams::registry::LinkSeen;
use crate::streams::{Agent, Key, Window};

/// Agents report about as often.
const TICK: Duration = Duration::from_secs(2);
/// The field manager of the scale.
const AUTOSCALER: &str = "lynx-autoscaler";

/// What the loop keeps of a deployment.
struct Fleet {
    anchor: Controller,
    scaler: Scaler,
}

/// The loop.
pub struct Control {
    context: Arc<Context>,
    stores: Vec<Store<LynxDeployment>>,
    /// Asks for a reconcile.
    changed: mpsc::UnboundedSender<Key>,
    fleets: HashMap<Key, Fleet>,
    led: bool,
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control").finish_non_exhaustive()
    }
}

impl Control {
    /// A loop over the deployments in `stores`.
    pub fn new(
        context: Arc<Context>,
        stores: Vec<Store<LynxDeployment>>,
        changed: mpsc::UnboundedSender<Key>,
    ) -> Self {
        Self {
            context,
            stores,
            changed,
            fleets: HashMap::new(),
            led: false,
        }
    }

    /// Until `shutdown`.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = shutdown.cancelled() => break,
                _ = ticks.tick() => self.tick().await,
            }
        }
        self.context.hub.end_all();
    }

    async fn tick(&mut self) {
        let leads = self.context.leads();
        let agents = self.context.hub.agents();
        self.context.metrics.present(leads, agents);
        if self.led && !leads {
            // Agents dial again and reach the new leader.
            self.context.hub.end_all();
            self.context.forget_all();
            self.fleets.clear();
        }
        self.led = leads;
        if !leads {
            return;
        }
        let objects: Vec<_> = self.stores.iter().flat_map(Store::state).collect();
        self.forget_gone(&objects);
        for object in objects {
            self.follow(&object).await;
        }
    }

    fn forget_gone(&mut self, objects: &[Arc<LynxDeployment>]) {
        let there: HashSet<_> = objects.iter().map(|object| key(object)).collect();
        let gone: Vec<_> = self
            .fleets
            .keys()
            .filter(|key| !there.contains(key))
            .cloned()
            .collect();
        for key in gone {
            self.fleets.remove(&key);
            self.context.forget(&key);
            self.context.metrics.forget(&key.namespace, &key.name);
        }
    }

    async fn follow(&mut self, object: &LynxDeployment) {
        let key = key(object);
        let Some(wanted) = wanted(object) else {
            return;
        };
        let context = Arc::clone(&self.context);
        let fleet = self.fleets.entry(key.clone()).or_insert_with(|| {
            context.remember(&key, |memory| memory.summary = Summary::resume(object));
            Fleet {
                anchor: resumed(object, wanted, context.hub.now()),
                scaler: Scaler::default(),
            }
        });
        fleet.anchor.set_wanted(wanted);
        let (links, loads): (_, Vec<_>) = self.context.hub.with(&key, |registry, now| {
            let window = registry.take_window(&key);
            let links = registry.links(&key, now);
            if tick(&mut fleet.anchor, &window, &links, now) {
                let Decision { width, rate, .. } = fleet.anchor.decision();
                tracing::info!(namespace = key.namespace, deployment = key.name, bits = %width, %rate, "the anchor's width changed");
            }
            registry.set_policy(&key, policy(object, &fleet.anchor));
            let decode = registry
                .agents(&key)
                .filter(|(_, agent)| agent.role() == Role::Decode && agent.is_ready(now));
            (links, decode.map(|(_, agent)| load(agent)).collect())
        });
        let decision = fleet.anchor.decision();
        self.context
            .metrics
            .anchor(&key.namespace, &key.name, decision.width.bits());
        let facts = Facts {
            object,
            links: &links,
            decision,
            accepted: fleet.anchor.accepted_share(),
        };
        let (now, wall) = (self.context.hub.now(), Time(self.context.clock.wall()));
        let told = self
            .context
            .remember(&key, |memory| memory.summary.follow(&facts, now, &wall));
        if told && self.changed.send(key.clone()).is_err() {
            tracing::debug!("nobody reconciles any more: shutting down");
        }
        if let Some(replicas) = rescaled(object, &mut fleet.scaler, loads, now) {
            self.scale(&key, object, replicas).await;
        }
    }

    async fn scale(&self, key: &Key, object: &LynxDeployment, replicas: u32) {
        let api: Api<LynxDeployment> = Api::namespaced(self.context.client.clone(), &key.namespace);
        let params = PatchParams {
            field_manager: Some(AUTOSCALER.into()),
            ..PatchParams::default()
        };
        // The version guards against a write on top of somebody else's.
        let patch = json!({
            "metadata": {"resourceVersion": object.resource_version()},
            "spec": {"replicas": replicas},
        });
        let from = object.spec.decode.pool.replicas;
        match api
            .patch_scale(&key.name, &params, &Patch::Merge(&patch))
            .await
        {
            Ok(_) => tracing::info!(
                namespace = key.namespace,
                deployment = key.name,
                from,
                to = replicas,
                "the decode pool was scaled"
            ),
            Err(error) => {
                tracing::warn!(%error, deployment = key.name, "the decode pool was not scaled")
            }
        }
    }
}

/// The size that the load asks for, where it is another than the spec's.
fn rescaled(
    object: &LynxDeployment,
    scaler: &mut Scaler,
    loads: Vec<Load>,
    now: Timestamp,
) -> Option<u32> {
    let settings = settings(object)?;
    let count = |pool: &lynx_crds::spec::Pool| u32::try_from(pool.replicas).ok();
    let prefill = Pool {
        replicas: count(&object.spec.prefill.pool)?,
        ..Pool::default()
    };
    let decode = Pool {
        replicas: count(&object.spec.decode.pool)?,
        loads,
        ..Pool::default()
    };
    let decision = scaler.decide(&settings, [&prefill, &decode], now);
    let [_, desired] = decision.replicas;
    // Bounds hold at once, whatever is known. Zero was a person's word: no load can ask for more where nobody answers.
    let desired = desired.clamp(settings.decode.min, settings.decode.max);
    (desired != decode.replicas && decode.replicas > 0).then_some(desired)
}

fn settings(object: &LynxDeployment) -> Option<Settings> {
    let autoscaling = object.spec.decode.autoscaling.as_ref()?;
    let bytes = autoscaling.target.pending_kv_bytes.as_ref();
    let targets = Targets {
        running: autoscaling.target.running_requests.map(f64::from),
        pending_kv: bytes.and_then(|bytes| quantity::bytes(&bytes.0)),
        ..Targets::default()
    };
    Some(Settings {
        prefill: None,
        decode: replicas::Bounds {
            min: u32::try_from(autoscaling.min_replicas).ok()?,
            max: u32::try_from(autoscaling.max_replicas).ok()?,
        },
        targets,
        ratio: None,
        budget: None,
        up: autoscaling.scale_up_stabilization.duration(),
        down: autoscaling.scale_down_stabilization.duration(),
    })
}

fn load(agent: &Agent) -> Load {
    let report = &agent.report;
    #[expect(
        clippy::cast_precision_loss,
        reason = "bytes within 1e-15 of themselves"
    )]
    let pending_kv = report.pending_kv_bytes as f64;
    Load {
        ready_since: agent.ready_since,
        running: f64::from(report.running),
        waiting: f64::from(report.waiting),
        pending_kv,
        ..Load::default()
    }
}

/// What the spec says about the anchor; `None` where its bounds cross, which the CRD's rules refuse.
fn wanted(object: &LynxDeployment) -> Option<Wanted> {
    let transfer = &object.spec.transfer;
    let anchor = &transfer.anchor;
    let mode = match anchor.mode {
        AnchorMode::Fixed => Mode::Fixed(anchor.bits?.width()),
        AnchorMode::Adaptive => Mode::Adaptive(Bounds::new(
            anchor.min_bits.width(),
            anchor.max_bits.width(),
        )?),
    };
    Some(Wanted {
        mode,
        objective: match transfer.objective {
            Objective::FirstTokens => lynx_policy::Objective::FirstTokens,
            Objective::Verified => lynx_policy::Objective::Verified,
        },
        fidelity: match transfer.fidelity {
            Fidelity::Exact => lynx_policy::Fidelity::Exact,
            Fidelity::Int8 => lynx_policy::Fidelity::Int8,
        },
        profile: anchor.profile.is_some(),
    })
}

/// Tells the controller what was reported; whether a width changed.
fn tick(anchor: &mut Controller, window: &Window, links: &[LinkSeen], now: Timestamp) -> bool {
    let up = links.iter().filter(|link| link.up);
    let links: Vec<_> = up
        .map(|link| Link {
            class: link.class,
            rate: link.rate,
        })
        .collect();
    let seen = Seen {
        links: &links,
        drafts: &window.drafts(),
        token_time: window.token_time(),
        kv: window.transfer_bytes(),
    };
    anchor.tick(&seen, now)
}

/// A controller that goes on from the width that the last leader had chosen.
fn resumed(object: &LynxDeployment, wanted: Wanted, now: Timestamp) -> Controller {
    let mut controller = Controller::new(wanted);
    let anchor = object
        .status
        .as_ref()
        .and_then(|status| status.anchor.as_ref());
    if let Some(anchor) = anchor.filter(|anchor| anchor.reason != "NoLinkMeasured") {
        controller.resume(anchor.bits.width(), now);
    }
    controller
}

fn policy(object: &LynxDeployment, anchor: &Controller) -> Policy {
    let transfer = &object.spec.transfer;
    let fidelity = match transfer.fidelity {
        Fidelity::Exact => v1::Fidelity::Exact,
        Fidelity::Int8 => v1::Fidelity::Int8,
    };
    let width = |(class, width): (&str, Width)| ClassWidth {
        link_class: class.to_owned(),
        anchor_eighths: width.eighths().into(),
    };
    Policy {
        fidelity: fidelity.into(),
        widths: anchor
            .decisions()
            .map(|(class, decision)| width((class, decision.width)))
            .collect(),
        max_draft_tokens: transfer.max_draft_tokens,
        allow_provisional: transfer.allow_provisional,
        transfer_deadline_ms: u64::try_from(transfer.deadlines.transfer.duration().as_millis())
            .unwrap_or(u64::MAX),
    }
}
