//! Where pods are: the values that their nodes have of the deployment's topology label.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Api, ResourceExt as _};
use lynx_crds::LynxDeployment;
use lynx_crds::spec::TopologyMode;
use lynx_units::Timestamp;

use super::Context;
use super::children::Children;
use crate::status::Problem;
use crate::streams::Key;
use crate::streams::registry::Places;

/// A node's labels change when somebody moves it, which is seldom.
const FRESH: Duration = Duration::from_secs(300);

type Labels = BTreeMap<String, String>;

/// Nodes' labels, as they were lately.
#[derive(Default)]
pub struct Nodes(Mutex<HashMap<String, (Labels, Timestamp)>>);

impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nodes").finish_non_exhaustive()
    }
}

impl Nodes {
    fn known(&self, node: &str, now: Timestamp) -> Option<Labels> {
        let nodes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (labels, at) = nodes.get(node)?;
        (now.saturating_since(*at) < FRESH).then(|| labels.clone())
    }

    fn learn(&self, node: &str, labels: Labels, now: Timestamp) {
        let mut nodes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        nodes.retain(|_, (_, at)| now.saturating_since(*at) < FRESH);
        nodes.insert(node.to_owned(), (labels, now));
    }
}

/// Tells the registry where pods are. Gives what stands in the way.
pub(super) async fn look(
    object: &LynxDeployment,
    context: &Context,
    key: &Key,
    children: &Children,
) -> Option<Problem> {
    let topology = &object.spec.topology;
    let label = match &topology.node_label {
        Some(label) if topology.mode != TopologyMode::None => label,
        _ => {
            let none = Places::default();
            context
                .hub
                .with(key, |registry, _| registry.set_places(key, none));
            return None;
        }
    };
    let mut places = Places {
        required: topology.mode == TopologyMode::Required,
        ..Places::default()
    };
    let mut problem = None;
    for pod in children.pods() {
        let Some(node) = node_of(pod) else { continue };
        match labels(context, node).await {
            Ok(labels) => match labels.get(label) {
                Some(place) => {
                    places.of.insert(pod.name_any(), place.clone());
                }
                None => {
                    problem = Some(unknown(format!("node {node} has no label {label}")));
                }
            },
            Err(error) => {
                problem = Some(unknown(format!("node {node} can't be read: {error}")));
            }
        }
    }
    context
        .hub
        .with(key, |registry, _| registry.set_places(key, places));
    problem
}

fn unknown(why: String) -> Problem {
    Problem {
        reason: "TopologyUnknown",
        message: format!(
            "spec.topology: {why}; its pods are in no place, so with Required they pair with nobody"
        ),
    }
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

async fn labels(context: &Context, node: &str) -> Result<Labels, kube::Error> {
    let now = context.clock.now();
    if let Some(labels) = context.nodes.known(node, now) {
        return Ok(labels);
    }
    let api: Api<Node> = Api::all(context.client.clone());
    let labels = api.get_metadata(node).await?.labels().clone();
    context.nodes.learn(node, labels.clone(), now);
    Ok(labels)
}
