//! What Prometheus is told.
//!
//! Requests are measured where they are served; everything else is read, when it is asked for, from what the agent counts
//! and knows anyway. So there is one place where a thing is counted, and a figure here can't differ from the operator's.

mod scrape;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
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

type Labels = [(&'static str, &'static str); 1];

/// Everything that is measured.
pub struct Metrics {
    registry: Mutex<Registry>,
    requests: Family<Labels, Counter>,
    first_token: Histogram,
    duration: Histogram,
}

impl Metrics {
    /// Nothing measured yet.
    pub fn new(sources: Sources) -> Self {
        let requests = Family::<Labels, Counter>::default();
        // From a millisecond to half a minute: a token of a small model, and a long prompt on a narrow link.
        let seconds = || Histogram::new(exponential_buckets(0.001, 2.0, 16));
        let (first_token, duration) = (seconds(), seconds());
        let mut registry = Registry::with_prefix("lynx");
        if sources.role == Role::Decode {
            registry.register(
                "requests",
                "Clients' requests that have ended, by how",
                requests.clone(),
            );
            registry.register(
                "time_to_first_token_seconds",
                "From a request's arrival until its first verified token",
                first_token.clone(),
            );
            registry.register(
                "request_duration_seconds",
                "From a request's arrival until its end, however it ended",
                duration.clone(),
            );
        }
        registry.register_collector(Box::new(Scrape(sources)));
        Self {
            registry: Mutex::new(registry),
            requests,
            first_token,
            duration,
        }
    }

    /// A request has ended.
    pub fn request(&self, outcome: Outcome, seconds: f64) {
        self.requests
            .get_or_create(&[("outcome", outcome.name())])
            .inc();
        self.duration.observe(seconds);
    }

    /// A request has got its first verified token.
    pub fn first_token(&self, seconds: f64) {
        self.first_token.observe(seconds);
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
