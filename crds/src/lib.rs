//! The `LynxDeployment` custom resource: what a user writes, what the operator answers, and the rules between.
//!
//! The types are the source: the CRD in `crds/yaml` is generated from them, with their comments as
//! descriptions. A rule is written once, as CEL next to the field that it is about; the API server and
//! [`LynxDeployment::validate_cel`] run the same text. Refuses to be a client: nothing here talks to a cluster.
//!
//! Why the parts of a pod have a schema rather than being passed through: a misspelt `tolerations` should be refused by
//! the API server, not be lost in silence.

mod bits;
mod definition;
mod deployment;
mod pending;
mod period;
mod schema;
pub mod spec;
mod status;

pub use bits::Bits;
pub use definition::{crd, yaml};
pub use deployment::{LynxDeployment, LynxDeploymentSpec};
pub use pending::{NotActedOn, not_acted_on};
pub use period::Period;
pub use status::{
    AnchorStatus, ConditionType, LinkClassStatus, LinkStatus, LynxDeploymentStatus, RoleStatus,
    RolloutStatus, ScalingStatus, condition, set_condition,
};

/// The API group, which is also the prefix of labels and annotations.
pub const GROUP: &str = "lynx.dev";

/// The longest `metadata.name`: with what Kubernetes and the operator append (`-prefill`, a generation) it still fits into
/// a label value and a host name of 63 characters.
pub const MAX_NAME: usize = 40;

#[cfg(test)]
mod tests;
