//! One method's run on one prompt: what happened when, and the figures that follow from it.
//!
//! A run is a list of [`Event`]s and nothing else: the decode agent streams them to whoever asks for a timeline, and every
//! figure of the table, the bench rows and the page is computed from them here, so that no two of them can disagree. Nothing
//! here reads a clock; whoever makes an event says when it was, in seconds since the request arrived.

use std::fmt;

use serde::{Deserialize, Serialize};

mod figures;

pub use lynx_agent::method::Method;
pub use lynx_agent::timeline::{AnchorWidths, Class, Event};

pub use figures::{Figures, Token};

/// What the prefill node holds when the request arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scenario {
    /// The prompt's KV is there already (a prefix-cache hit): the link alone decides.
    Warm,
    /// Nothing is there: the transfer overlaps with the computation of the prompt.
    Cold,
}

impl Scenario {
    /// The name in JSON and on the command line.
    pub const fn id(self) -> &'static str {
        match self {
            Self::Warm => "warm",
            Self::Cold => "cold",
        }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.id())
    }
}

/// What runs must have in common to be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Setting<'a> {
    /// What the prefill node held at the start.
    pub scenario: Scenario,
    /// The prompt's name.
    pub prompt: &'a str,
    /// The prompt's length in tokens: one prompt is cut to several lengths.
    pub prompt_tokens: u32,
    /// The link's rate in bits per second; 0 where it was not limited.
    pub link_bps: u64,
}

/// One method's run on one prompt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// How the KV travelled.
    pub method: Method,
    /// What the prefill node held at the start.
    pub scenario: Scenario,
    /// The prompt's name.
    pub prompt: String,
    /// The prompt's length in tokens.
    pub prompt_tokens: u32,
    /// The link's rate in bits per second; 0 where it was not limited.
    pub link_bps: u64,
    /// The largest resident memories of the prefill and the decode node so far without the model's weights, in bytes, where they
    /// were measured.
    pub memory_bytes: [Option<u64>; 2],
    /// The answer, in tokens.
    pub answer: Vec<u32>,
    /// What happened, in any order.
    pub events: Vec<Event>,
}

impl RunResult {
    /// What it must have in common with the runs it is compared with.
    pub fn setting(&self) -> Setting<'_> {
        Setting {
            scenario: self.scenario,
            prompt: &self.prompt,
            prompt_tokens: self.prompt_tokens,
            link_bps: self.link_bps,
        }
    }

    /// The figures that follow from the events.
    pub fn figures(&self) -> Figures {
        Figures::of(&self.events)
    }

    /// When the last event ended, in seconds since the request.
    pub fn end_s(&self) -> f64 {
        let ends = self.events.iter().map(Event::end_s);
        ends.filter(|end| end.is_finite()).fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests;
