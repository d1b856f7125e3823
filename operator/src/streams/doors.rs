//! Which deployments' agents come by TLS, and what they are shown and asked for.
//!
//! Each deployment has an authority of its own, and its agents trust nobody else. So the operator has a door for each: a name
//! that agents ask for in their first TLS message, a certificate of that name by the deployment's authority, and the demand that
//! who comes has one by the same authority in the deployment's own name. A certificate of a door is no agent's: it doesn't
//! carry the name that agents ask of each other.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use lynx_tls::{Files, LoadError, Loaded, Plane, UnixTime};
use tokio_rustls::rustls::ServerConfig;

use super::Key;
use crate::certificates::issue::{self, IssueError};
use crate::certificates::{Lives, State};

/// Why agents of a deployment can't come in.
#[derive(Debug, thiserror::Error)]
pub enum DoorError {
    /// No certificate can be made.
    #[error(transparent)]
    Issue(#[from] IssueError),
    /// It was made, and is of no use.
    #[error("the operator's own certificate is of no use: {0}")]
    Load(#[from] LoadError),
}

/// All doors, by the names that are asked for.
#[derive(Debug, Default)]
pub struct Doors {
    open: RwLock<HashMap<String, Door>>,
}

#[derive(Clone, Debug)]
struct Door {
    key: Key,
    config: Arc<ServerConfig>,
    made_of: MadeOf,
}

/// What a door's certificate follows: the agents' own, and whom they trust.
#[derive(Clone, Debug, PartialEq, Eq)]
struct MadeOf {
    leaf_from: i64,
    bundle: String,
}

/// The name by which a deployment's agents ask for the operator. Nobody looks it up: it says whose door is meant.
pub fn name(key: &Key) -> String {
    format!("{}.{}.lynx-operator", key.name, key.namespace)
}

impl Doors {
    /// Opens the deployment's door, or follows its certificates. Nothing happens where they are what they were.
    ///
    /// # Errors
    /// Where no certificate of use can be made.
    pub fn follow(
        &self,
        key: &Key,
        state: &State,
        lives: Lives,
        now: UnixTime,
    ) -> Result<(), DoorError> {
        let name = name(key);
        let made_of = MadeOf {
            leaf_from: state.leaf.from,
            bundle: state.bundle(),
        };
        let known = self.read(|open| open.get(&name).map(|door| door.made_of == made_of));
        if known == Some(true) {
            return Ok(());
        }
        let at = i64::try_from(now.as_secs()).unwrap_or(i64::MAX / 2);
        let own = issue::service(&state.authority, &state.name, &name, at, lives)?;
        let files = Files::new(
            own.certificate.as_bytes(),
            own.key.as_bytes(),
            made_of.bundle.as_bytes(),
        );
        let config = Loaded::new(&files, Some(&state.name), now)?.server(Plane::Control);
        let door = Door {
            key: key.clone(),
            config,
            made_of,
        };
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        open.insert(name, door);
        Ok(())
    }

    /// The deployment's agents come by TLS no more, or it is gone.
    pub fn close(&self, key: &Key) {
        let name = name(key);
        if self.read(|open| open.contains_key(&name)) {
            let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
            open.remove(&name);
        }
    }

    /// Whose door has this name, and how it is opened.
    pub fn of(&self, name: &str) -> Option<(Key, Arc<ServerConfig>)> {
        self.read(|open| {
            let door = open.get(name)?;
            Some((door.key.clone(), Arc::clone(&door.config)))
        })
    }

    fn read<R>(&self, look: impl FnOnce(&HashMap<String, Door>) -> R) -> R {
        // Nothing panics while it holds the lock.
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        look(&open)
    }
}
