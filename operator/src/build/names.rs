//! What things are called.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::{Resource as _, ResourceExt as _};
use lynx_crds::LynxDeployment;

/// The deployment that an object belongs to.
pub const DEPLOYMENT: &str = "lynx.dev/deployment";
/// The half of a pair that a pod is.
pub const ROLE: &str = "lynx.dev/role";
/// What decides whether two pods fit together.
pub const GENERATION: &str = "lynx.dev/generation";
/// Which pod template a pod was made from, of its role.
pub const REVISION: &str = "lynx.dev/revision";
/// The field manager of everything that is built.
pub const MANAGER: &str = "lynx-operator";

/// Which half of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Computes prompts.
    Prefill,
    /// Answers.
    Decode,
}

impl Role {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Prefill, Self::Decode];

    /// As labels and configuration have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Prefill => "prefill",
            Self::Decode => "decode",
        }
    }
}

/// The PodDisruptionBudget and NetworkPolicy of a role.
pub fn of_role(object: &LynxDeployment, role: Role) -> String {
    format!("{}-{}", object.name_any(), role.name())
}

/// The Deployment and the ConfigMap of one revision of a role.
pub fn of_revision(object: &LynxDeployment, role: Role, revision: &str) -> String {
    format!("{}-{revision}", of_role(object, role))
}

/// The labels of everything that belongs to `object`.
pub fn labels(object: &LynxDeployment) -> BTreeMap<String, String> {
    strings([
        ("app.kubernetes.io/name", "lynx"),
        ("app.kubernetes.io/instance", &object.name_any()),
        ("app.kubernetes.io/managed-by", MANAGER),
        (DEPLOYMENT, &object.name_any()),
    ])
}

/// The labels of what belongs to one role.
pub fn role_labels(object: &LynxDeployment, role: Role) -> BTreeMap<String, String> {
    let mut labels = labels(object);
    labels.extend(strings([
        ("app.kubernetes.io/component", role.name()),
        (ROLE, role.name()),
    ]));
    labels
}

/// What selects a role's pods, of all revisions.
pub fn selected(object: &LynxDeployment, role: Role) -> BTreeMap<String, String> {
    strings([
        (DEPLOYMENT, object.name_any().as_str()),
        (ROLE, role.name()),
    ])
}

/// The same as a selector.
pub fn selector(object: &LynxDeployment, role: Role) -> LabelSelector {
    LabelSelector {
        match_labels: Some(selected(object, role)),
        ..LabelSelector::default()
    }
}

/// What selects the pods of one revision; a Deployment can never change it.
pub fn revision_selector(object: &LynxDeployment, role: Role, revision: &str) -> LabelSelector {
    let mut labels = selected(object, role);
    labels.insert(REVISION.into(), revision.into());
    LabelSelector {
        match_labels: Some(labels),
        ..LabelSelector::default()
    }
}

/// The role's in `kubectl`'s syntax.
pub fn selector_text(object: &LynxDeployment, role: Role) -> String {
    let pairs = selected(object, role);
    let pairs: Vec<_> = pairs
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    pairs.join(",")
}

/// Name, labels and owner of an object.
pub fn metadata(
    object: &LynxDeployment,
    name: String,
    labels: BTreeMap<String, String>,
) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: object.namespace(),
        labels: Some(labels),
        owner_references: object.controller_owner_ref(&()).map(|owner| vec![owner]),
        ..ObjectMeta::default()
    }
}

/// A map of texts.
pub fn strings<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, String> {
    pairs
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}
