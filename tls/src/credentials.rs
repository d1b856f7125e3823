//! This process's certificate, and the next one.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::pki_types::UnixTime;

use crate::{Files, LoadError, Loaded};

/// A certificate, its key and the authorities of peers, of the newest issue that was good. Clones share it.
///
/// Connections that are up keep what they were made with: a renewal ends none of them. Those that are made later use the
/// newest issue.
#[derive(Clone)]
pub struct Credentials {
    shared: Arc<Shared>,
}

struct Shared {
    directory: PathBuf,
    peer_name: Option<String>,
    state: RwLock<State>,
}

struct State {
    loaded: Arc<Loaded>,
    /// What was read last, good or not, so that each issue is judged once.
    seen: Option<Files>,
    /// Why the newest issue isn't the one in use.
    fault: Option<String>,
}

/// What a look at the files came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reload {
    /// They are what they were.
    Unchanged,
    /// They are new, and in use from now on.
    Changed,
    /// They are new and of no use, for this reason: the old ones stay in use.
    Kept(String),
}

impl Credentials {
    /// Reads the directory's `tls.crt`, `tls.key` and `ca.crt`. `peer_name` is the name that peers' certificates must
    /// carry; without one, the first that this side's own carries.
    ///
    /// # Errors
    /// What is wrong with them, and what to do.
    pub fn open(
        directory: &Path,
        peer_name: Option<&str>,
        now: UnixTime,
    ) -> Result<Self, LoadError> {
        let files = Files::read(directory)?;
        let loaded = Arc::new(Loaded::new(&files, peer_name, now)?);
        let state = State {
            loaded,
            seen: Some(files),
            fault: None,
        };
        Ok(Self {
            shared: Arc::new(Shared {
                directory: directory.to_owned(),
                peer_name: peer_name.map(str::to_owned),
                state: RwLock::new(state),
            }),
        })
    }

    /// Reads the files again: for every few seconds. It reads three small files and may parse them, so call it where
    /// blocking is allowed.
    pub fn reload(&self, now: UnixTime) -> Reload {
        self.offer(Files::read(&self.shared.directory), now)
    }

    /// Takes what was read, where it is new and good.
    fn offer(&self, read: Result<Files, LoadError>, now: UnixTime) -> Reload {
        let seen = self.read().seen.clone();
        let (files, loaded) = match read {
            Ok(files) if seen.as_ref() == Some(&files) => return Reload::Unchanged,
            Ok(files) => {
                let loaded = Loaded::new(&files, self.shared.peer_name.as_deref(), now);
                (Some(files), loaded)
            }
            Err(error) => (None, Err(error)),
        };
        let state = self.shared.state.write();
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        match loaded {
            Ok(loaded) => {
                state.loaded = Arc::new(loaded);
                state.seen = files;
                state.fault = None;
                Reload::Changed
            }
            Err(error) => {
                let why = error.to_string();
                let known = state.fault.as_ref() == Some(&why);
                state.seen = files;
                state.fault = Some(why.clone());
                if known {
                    Reload::Unchanged
                } else {
                    Reload::Kept(why)
                }
            }
        }
    }

    /// What new connections are made with.
    pub fn current(&self) -> Arc<Loaded> {
        Arc::clone(&self.read().loaded)
    }

    /// Why the files that are there aren't those in use; `None` where they are.
    pub fn fault(&self) -> Option<String> {
        self.read().fault.clone()
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, State> {
        // Nothing panics while it holds the lock.
        let state = self.shared.state.read();
        state.unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("directory", &self.shared.directory)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
