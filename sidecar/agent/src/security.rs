//! Who may be a peer, and with what: the agent's certificate, on control and on data.
//!
//! One pair of files for both planes and both ends. What is refused here is to go on in clear where TLS was asked for:
//! an agent without a good certificate at its start doesn't start, and one whose certificate ends goes on refusing peers.

mod connection;
mod dialling;
mod places;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use lynx_tls::{Credentials, LoadError, Reload, UnixTime};
use lynx_transport::Tally;
use tokio::time::{MissedTickBehavior, interval};

pub use self::connection::{Caller, incoming};
pub use self::dialling::{Distrust, To, connect, is_no_peer, is_turned_away};
use crate::config::{Tls, TlsMode};
use crate::counters::Counters;

/// How often the files are looked at. Kubernetes itself takes about a minute to bring a renewed Secret to a pod.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// What an agent shows its peers, and asks of them.
#[derive(Clone, Debug, Default)]
pub struct Security {
    credentials: Option<Credentials>,
    on_data: bool,
    failures: [Tally; 2],
}

impl Security {
    /// Reads what the configuration names; nothing where it says so.
    ///
    /// # Errors
    /// What is wrong with the files, and what to do.
    pub fn open(config: &Tls) -> Result<Self, LoadError> {
        let Some(directory) = &config.directory else {
            return Ok(Self::default());
        };
        let on_data = match config.mode {
            TlsMode::Off => return Ok(Self::default()),
            TlsMode::Control => false,
            TlsMode::All => true,
        };
        let name = config.peer_name.as_deref();
        let credentials = Credentials::open(directory, name, UnixTime::now())?;
        Ok(Self::new(credentials, on_data))
    }

    /// These, for control, and for data too where `on_data`.
    pub fn new(credentials: Credentials, on_data: bool) -> Self {
        Self {
            credentials: Some(credentials),
            on_data,
            failures: Default::default(),
        }
    }

    /// The same, whose failed handshakes are counted there.
    #[must_use]
    pub fn counted(self, counters: &Counters) -> Self {
        Self {
            failures: counters.handshakes_failed.clone(),
            ..self
        }
    }

    /// Counts handshakes of peer control that failed.
    pub const fn control_failures(&self) -> &Tally {
        &self.failures[0]
    }

    /// Counts handshakes of links that failed.
    pub const fn data_failures(&self) -> &Tally {
        &self.failures[1]
    }

    /// For peer control and the operator.
    pub fn control(&self) -> Option<&Credentials> {
        self.credentials.as_ref()
    }

    /// For links.
    pub fn data(&self) -> Option<&Credentials> {
        self.credentials.as_ref().filter(|_| self.on_data)
    }

    /// What carries links, for people.
    pub const fn transport(&self) -> &'static str {
        if self.on_data { "TCP, TLS 1.3" } else { "TCP" }
    }

    /// Looks at the files from time to time, until the process ends.
    pub async fn keep_fresh(self, counters: Arc<Counters>) {
        let Some(credentials) = self.credentials else {
            return std::future::pending().await;
        };
        let mut looks = interval(LOOK_INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            let files = credentials.clone();
            let look = tokio::task::spawn_blocking(move || files.reload(UnixTime::now()));
            match look.await {
                Ok(Reload::Changed) => {
                    tracing::info!("new connections use the renewed certificate")
                }
                Ok(Reload::Kept(why)) => {
                    tracing::warn!(
                        "the renewed certificate is of no use, and the old one stays: {why}"
                    );
                }
                Ok(Reload::Unchanged) | Err(_) => {}
            }
            let ends = credentials.current().not_after().as_secs();
            counters.certificate_expires_unix_s.set(ends);
        }
    }
}
