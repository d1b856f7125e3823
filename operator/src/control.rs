//! The loop over what agents report: the anchor's width, the pools' sizes, and what the status is told.
//!
//! Beside the reconciler because it has another clock: reports come every two seconds, and most of them change nothing. It
//! asks for a reconcile when something did, and writes one thing itself: both pools' replicas, at once.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams};
use kube::runtime::reflector::Store;
use kube::{Api, ResourceExt as _};
use lynx_crds::LynxDeployment;
use lynx_crds::spec::{AnchorMode, Fidelity, Objective};
use lynx_governor::width::{Controller, Decision, Link, Mode, Seen, Wanted};
use lynx_policy::Bounds;
use lynx_proto::operator::v1::{self, ClassWidth, Policy};
use lynx_units::{Timestamp, Width};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::reconcile::{Context, key, rivals};
use crate::scaling::autoscaler::{self, Autoscaler};
use crate::status::summary::Facts;
use crate::status::{Scaler, Summary};
use crate::streams::registry::LinkSeen;
use crate::streams::{Key, Window};

/// Agents report about as often.
const TICK: Duration = Duration::from_secs(2);
/// After a write that was refused nothing is written for so long.
const REFUSED: Duration = Duration::from_secs(30);
/// The field manager of the pools' replicas.
const AUTOSCALER: &str = "lynx-autoscaler";

/// What the loop keeps of a deployment.
struct Fleet {
    anchor: Controller,
    autoscaler: Autoscaler,
    /// Until when no replicas are written.
    refused_until: Option<Timestamp>,
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
                autoscaler: Autoscaler::default(),
                refused_until: None,
            }
        });
        fleet.anchor.set_wanted(wanted);
        let (links, loads) = self.context.hub.with(&key, |registry, now| {
            let window = registry.take_window(&key);
            let links = registry.links(&key, now);
            if tick(&mut fleet.anchor, &window, &links, now) {
                let Decision { width, rate, .. } = fleet.anchor.decision();
                tracing::info!(namespace = key.namespace, deployment = key.name, bits = %width, %rate, "the anchor's width changed");
            }
            registry.set_policy(&key, policy(object, &fleet.anchor));
            (links, registry.take_loads(&key, now))
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
        // Nothing is decided before somebody has looked at the pods.
        let pods = self.context.remember(&key, |memory| memory.pods);
        let decision = pods.map(|pods| fleet.autoscaler.decide(object, pods, loads, now));
        let (told, rival) = self.context.remember(&key, |memory| {
            let rival = memory.rival.clone();
            let scaling = match (decision, &rival) {
                (None, _) => None,
                (Some(_), Some(rival)) => Some(Scaler::Other(rival.to_string())),
                (Some(None), None) => Some(Scaler::Nobody),
                (Some(Some(decision)), None) => Some(Scaler::Operator(decision)),
            };
            let scaled =
                scaling.is_some_and(|scaling| memory.summary.follow_scaling(&scaling, now, &wall));
            (memory.summary.follow(&facts, now, &wall) || scaled, rival)
        });
        if told && self.changed.send(key.clone()).is_err() {
            tracing::debug!("nobody reconciles any more: shutting down");
        }
        let held = rival.is_some() || fleet.refused_until.is_some_and(|until| now < until);
        if let Some(decision) = decision.flatten().filter(|one| one.is_change() && !held)
            && !self.scale(&key, object, decision).await
            && let Some(fleet) = self.fleets.get_mut(&key)
        {
            fleet.refused_until = Some(now + REFUSED);
        }
    }

    /// Writes both pools' replicas in one request. False where it was refused for good.
    async fn scale(
        &self,
        key: &Key,
        object: &LynxDeployment,
        decision: autoscaler::Decision,
    ) -> bool {
        match rivals::look(&self.context.client, key).await {
            Ok(None) => {}
            Ok(rival) => {
                self.context
                    .remember(key, |memory| memory.rival = rival.clone());
                return self.changed.send(key.clone()).is_err();
            }
            Err(error) => {
                tracing::warn!(%error, "whether others scale the pools is not known: they are left alone");
                return false;
            }
        }
        let api: Api<LynxDeployment> = Api::namespaced(self.context.client.clone(), &key.namespace);
        let params = PatchParams {
            field_manager: Some(AUTOSCALER.into()),
            ..PatchParams::default()
        };
        let [prefill, decode] = decision.replicas;
        // The version guards against a write on top of somebody else's.
        let mut patch = json!({
            "metadata": {"resourceVersion": object.resource_version()},
            "spec": {"decode": {"replicas": decode}},
        });
        if decision.before[0] != prefill {
            patch["spec"]["prefill"] = json!({"replicas": prefill});
        }
        let name = &key.name;
        match api.patch(name, &params, &Patch::Merge(&patch)).await {
            Ok(_) => {
                tracing::info!(
                    namespace = key.namespace,
                    deployment = key.name,
                    from = ?decision.before,
                    to = ?decision.replicas,
                    reason = decision.reason.as_str(),
                    "the pools were scaled"
                );
                true
            }
            // Somebody was quicker: the next look sees what they wrote.
            Err(kube::Error::Api(status)) if status.code == 409 => true,
            Err(error) => {
                tracing::warn!(%error, namespace = key.namespace, deployment = key.name, "the pools were not scaled");
                false
            }
        }
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
