//! What Prometheus is told.
//!
//! Everything is read, when it is asked for, from what the agent counts and knows anyway. So there is one place where a thing
//! is counted, a figure here can't differ from the operator's, and nobody who counts waits for a scrape. The library writes
//! the text; names, types and meanings are those of [`lynx_metrics`].

mod out;
mod scrape;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::sync::watch;

use self::scrape::Scrape;
use crate::config::Role;
use crate::control::Status;
use crate::counters::Counters;
use crate::drain::Drain;
use crate::session::Attachment;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// With its end.
    Stop,
    /// With as many tokens as it may have.
    Length,
    /// It was the client's fault, or there was no place for it.
    Refused,
    /// Something broke.
    Failed,
    /// The client went away.
    Aborted,
}

impl Outcome {
    /// Every way.
    pub const ALL: [Self; 5] = [
        Self::Stop,
        Self::Length,
        Self::Refused,
        Self::Failed,
        Self::Aborted,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Aborted => "aborted",
        }
    }
}

/// Where figures are read from.
#[derive(Clone, Debug)]
pub struct Sources {
    /// Which end of the transfers this is.
    pub role: Role,
    /// What is counted.
    pub counters: Arc<Counters>,
    /// How the role is.
    pub status: watch::Receiver<Status>,
    /// Whether there is an engine.
    pub attachment: watch::Receiver<Attachment>,
    /// What is in flight.
    pub drain: Drain,
}

/// Everything that is measured.
pub struct Metrics {
    registry: Mutex<Registry>,
    counters: Arc<Counters>,
}

impl Metrics {
    /// What these know.
    pub fn new(sources: Sources) -> Self {
        let counters = Arc::clone(&sources.counters);
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Scrape(sources)));
        Self {
            registry: Mutex::new(registry),
            counters,
        }
    }

    /// A client's request has ended.
    pub fn request(&self, outcome: Outcome, seconds: f64) {
        self.counters.pace.outcomes[outcome as usize].add(1);
        let time = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        self.counters.pace.duration.observe_time(time);
    }

    /// All of it in the OpenMetrics text format.
    pub fn encode(&self) -> String {
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        // Writing to a String can't fail.
        encode(&mut text, &registry).ok();
        text
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
