//! How pods are replaced by newer ones.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Period;

/// How pods are replaced where the spec makes others of them. A change that decides whether pods fit together (model, engine,
/// profile) replaces both pools in step, any other the pool that it is about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rollout {
    /// `Rolling` (the default): new pods come up and pair before old ones are drained, and as many pairs work all the time as
    /// the spec wants. `Recreate`: old pods go first, for where there is no room for more; requests fail meanwhile.
    #[serde(default)]
    pub strategy: Strategy,
    /// How many pods of a pool there may be beyond its replicas; default: 1.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 64))]
    pub max_surge: u32,
    /// A rollout that comes no further for so long is called stalled; old pods go on answering; default: 10m.
    #[serde(default = "progress_deadline")]
    pub progress_deadline: Period,
}

const fn one() -> u32 {
    1
}

const fn progress_deadline() -> Period {
    Period::from_secs(600)
}

impl Default for Rollout {
    fn default() -> Self {
        Self {
            strategy: Strategy::default(),
            max_surge: one(),
            progress_deadline: progress_deadline(),
        }
    }
}

/// Which pods go or come first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Strategy {
    /// New ones come first.
    #[default]
    Rolling,
    /// Old ones go first.
    Recreate,
}
