//! GPUs and RDMA network cards: claims, resources, environment, capabilities.
//!
//! A device plugin allocates per container, so its GPUs go to the engine alone and its network card to the agent. A claim
//! is of the pod: both containers can name it, and one claim can hold both devices.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Capabilities, PodResourceClaim, ResourceClaim, ResourceRequirements, SecurityContext,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::names::Role;
use super::{Inputs, pod};

const GPU_CLAIM: &str = "gpu";
const RDMA_CLAIM: &str = "rdma";

/// The claims of a pod.
pub(super) fn claims(inputs: &Inputs<'_>, role: Role) -> Vec<PodResourceClaim> {
    let gpus = gpu_template(inputs, role).map(|template| claim(GPU_CLAIM, template));
    let rdma = rdma_template(inputs, role)
        .filter(|_| rdma_claim(inputs, role) == RDMA_CLAIM)
        .map(|template| claim(RDMA_CLAIM, template));
    gpus.into_iter().chain(rdma).collect()
}

/// What Multus reads: the networks that a pod joins besides the cluster's.
pub(super) const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";

/// Names the pod's networks, after those that the template's own annotation names.
pub(super) fn attach(inputs: &Inputs<'_>, role: Role, annotations: &mut BTreeMap<String, String>) {
    let Some(rdma) = &inputs.pool(role).rdma else {
        return;
    };
    if rdma.networks.is_empty() {
        return;
    }
    let ours = rdma.networks.join(",");
    annotations
        .entry(NETWORKS.into())
        .and_modify(|given| *given = format!("{given},{ours}"))
        .or_insert(ours);
}

/// Gives the engine's container its devices.
pub(super) fn give_engine(inputs: &Inputs<'_>, role: Role, to: &mut ResourceRequirements) {
    let Some(gpus) = &inputs.pool(role).gpus else {
        return;
    };
    if let Some(resource) = &gpus.resource_name {
        limit(to, resource, gpus.count);
    }
    if gpus.resource_claim_template.is_some() {
        take(to, GPU_CLAIM, gpus.request.clone());
    }
}

/// Gives the agent's container its devices: the GPUs where it splits, the network card always.
pub(super) fn give_agent(inputs: &Inputs<'_>, role: Role, to: &mut ResourceRequirements) {
    let pool = inputs.pool(role);
    if let Some(gpus) = &pool.gpus
        && gpus.resource_claim_template.is_some()
        && !inputs.engine_splits(role)
    {
        take(to, GPU_CLAIM, gpus.request.clone());
    }
    if let Some(rdma) = &pool.rdma {
        if let Some(resource) = &rdma.resource_name {
            limit(to, resource, rdma.rails.unwrap_or(1).into());
        }
        if rdma.resource_claim_template.is_some() {
            take(to, rdma_claim(inputs, role), rdma.request.clone());
        }
    }
}

/// Nothing but, with RDMA, the right to lock the memory that the card reads and writes.
pub(super) fn agent_security(inputs: &Inputs<'_>, role: Role) -> SecurityContext {
    let mut context = pod::least_rights();
    if inputs.pool(role).rdma.is_some() {
        context.capabilities = Some(Capabilities {
            add: Some(vec!["IPC_LOCK".into()]),
            drop: Some(vec!["ALL".into()]),
        });
    }
    context
}

/// Whether engine and agent hand each other GPU memory, for which they must see each other's processes.
pub(super) fn share_gpu_memory(inputs: &Inputs<'_>, role: Role) -> bool {
    inputs.pool(role).gpus.is_some() && !inputs.engine_splits(role)
}

fn gpu_template<'a>(inputs: &'a Inputs<'_>, role: Role) -> Option<&'a str> {
    let gpus = inputs.pool(role).gpus.as_ref()?;
    gpus.resource_claim_template.as_deref()
}

fn rdma_template<'a>(inputs: &'a Inputs<'_>, role: Role) -> Option<&'a str> {
    let rdma = inputs.pool(role).rdma.as_ref()?;
    rdma.resource_claim_template.as_deref()
}

/// The pod's claim that has the network card: the GPUs' where both name one template.
fn rdma_claim(inputs: &Inputs<'_>, role: Role) -> &'static str {
    let shared = gpu_template(inputs, role)
        .is_some_and(|template| rdma_template(inputs, role) == Some(template));
    if shared { GPU_CLAIM } else { RDMA_CLAIM }
}

fn claim(name: &str, template: &str) -> PodResourceClaim {
    PodResourceClaim {
        name: name.into(),
        resource_claim_template_name: Some(template.into()),
        ..PodResourceClaim::default()
    }
}

/// A container names a claim once: with one of its requests, or with all of them where it needs two.
fn take(to: &mut ResourceRequirements, claim: &str, request: Option<String>) {
    let claims = to.claims.get_or_insert_default();
    if let Some(named) = claims.iter_mut().find(|named| named.name == claim) {
        named.request = None;
        return;
    }
    claims.push(ResourceClaim {
        name: claim.into(),
        request,
    });
}

/// An extended resource's request is its limit.
fn limit(to: &mut ResourceRequirements, resource: &str, count: u32) {
    let limits: &mut BTreeMap<_, _> = to.limits.get_or_insert_default();
    limits.insert(resource.into(), Quantity(count.to_string()));
}
