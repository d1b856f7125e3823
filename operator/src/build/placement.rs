//! Where the pods of a deployment are put, so that pairs can be made in one place.

use k8s_openapi::api::core::v1::{Affinity, PodAffinity, PodAffinityTerm, WeightedPodAffinityTerm};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use lynx_crds::spec::TopologyMode;

use super::names::{self, Role};
use super::{Inputs, generation};

/// Stronger than what the scheduler prefers by itself, and no stronger than what a user says.
const WEIGHT: i32 = 50;

/// The user's affinity, and what the topology adds. With `Required` a decode pod goes only where a prefill pod of its
/// generation is; the prefill pods themselves go anywhere, since two pods that wait for each other would wait for ever. What is only
/// preferred is so in both directions.
pub(super) fn affinity(
    inputs: &Inputs<'_>,
    role: Role,
    given: Option<Affinity>,
) -> Option<Affinity> {
    let topology = &inputs.object.spec.topology;
    let label = match &topology.node_label {
        Some(label) if topology.mode != TopologyMode::None => label,
        _ => return given,
    };
    let other = match role {
        Role::Prefill => Role::Decode,
        Role::Decode => Role::Prefill,
    };
    let mut labels = names::selected(inputs.object, other);
    labels.insert(
        names::GENERATION.into(),
        generation::generation(&inputs.object.spec),
    );
    let term = PodAffinityTerm {
        label_selector: Some(LabelSelector {
            match_labels: Some(labels),
            ..LabelSelector::default()
        }),
        topology_key: label.clone(),
        ..PodAffinityTerm::default()
    };
    let mut affinity = given.unwrap_or_default();
    let pods = affinity
        .pod_affinity
        .get_or_insert_with(PodAffinity::default);
    if topology.mode == TopologyMode::Required && role == Role::Decode {
        let required = &mut pods.required_during_scheduling_ignored_during_execution;
        required.get_or_insert_default().push(term);
    } else {
        let preferred = &mut pods.preferred_during_scheduling_ignored_during_execution;
        preferred
            .get_or_insert_default()
            .push(WeightedPodAffinityTerm {
                weight: WEIGHT,
                pod_affinity_term: term,
            });
    }
    Some(affinity)
}
