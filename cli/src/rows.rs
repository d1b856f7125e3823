//! The rows of `lynx bench --json`: one JSON object for a measurement, documented in docs/bench-rows.md.
//!
//! A row is flat, with units in its field names, so that a spreadsheet or three lines of a script can read it. What a method did
//! not reach is null, never a number that looks like one.

use serde::{Deserialize, Serialize};

use crate::run::{Method, RunResult, Scenario, Setting};

/// One method's times on one prompt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TtftRow {
    /// What the prefill node held when the request arrived.
    pub scenario: Scenario,
    /// The prompt's name.
    pub prompt: String,
    /// The prompt's length in tokens.
    pub prompt_tokens: u32,
    /// The link's rate in bits per second; 0 where it was not limited.
    pub link_bps: u64,
    /// How the KV travelled.
    pub method: Method,
    /// All bytes sent, headers included.
    pub wire_bytes: u64,
    /// Seconds from the request to the first token.
    pub t_first_s: Option<f64>,
    /// Seconds to the second token; provisional where the method drafts.
    pub t_second_s: Option<f64>,
    /// Seconds to the second verified token.
    pub t_second_verified_s: Option<f64>,
    /// Seconds to the 32nd verified token.
    pub t32_s: Option<f64>,
    /// Seconds to the 64th verified token.
    pub t64_s: Option<f64>,
    /// Tokens drafted on an incomplete KV.
    pub drafted: u32,
    /// Drafted tokens that stood.
    pub accepted: u32,
    /// Whether the answer is BF16's, token for token; null where no BF16 run is there to compare with.
    pub equal_to_bf16: Option<bool>,
    /// The prefill node's largest resident memory so far, without the model's weights, in bytes.
    pub prefill_memory_bytes: Option<u64>,
    /// The decode node's.
    pub decode_memory_bytes: Option<u64>,
}

impl TtftRow {
    /// The row of `run`, compared with `bf16`: the BF16 run on the same prompt.
    pub fn of(run: &RunResult, bf16: Option<&RunResult>) -> Self {
        let figures = run.figures();
        Self {
            scenario: run.scenario,
            prompt: run.prompt.clone(),
            prompt_tokens: run.prompt_tokens,
            link_bps: run.link_bps,
            method: run.method,
            wire_bytes: figures.wire_bytes,
            t_first_s: figures.t_first_s,
            t_second_s: figures.t_second_s,
            t_second_verified_s: figures.t_verified_s(2),
            t32_s: figures.t_verified_s(32),
            t64_s: figures.t_verified_s(64),
            drafted: figures.drafted,
            accepted: figures.accepted,
            equal_to_bf16: bf16.map(|bf16| bf16.answer == run.answer),
            prefill_memory_bytes: run.memory_bytes[0],
            decode_memory_bytes: run.memory_bytes[1],
        }
    }

    /// What it must have in common with the rows it is compared with.
    pub fn setting(&self) -> Setting<'_> {
        Setting {
            scenario: self.scenario,
            prompt: &self.prompt,
            prompt_tokens: self.prompt_tokens,
            link_bps: self.link_bps,
        }
    }

    /// The rows of these runs, each compared with the BF16 run of its own setting.
    pub fn of_all(runs: &[RunResult]) -> Vec<Self> {
        let rows = runs.iter().map(|run| {
            let reference = runs
                .iter()
                .find(|other| other.method == Method::Bf16 && other.setting() == run.setting());
            Self::of(run, reference)
        });
        rows.collect()
    }
}

/// A way to hand the KV over, in the accuracy bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AccuracyMethod {
    /// 4 bits with one scale for a token and head.
    Int4,
    /// 8 bits with one scale for a token and head.
    Int8,
    /// An anchor of the same width for every channel.
    LynxUniform,
    /// An anchor whose widths a profile chooses.
    LynxProfile,
    /// The same, and the prompt's last tokens in BF16.
    LynxProfileWindow,
    /// All planes and the exact tail.
    LynxExact,
}

impl AccuracyMethod {
    /// The name in JSON.
    pub const fn id(self) -> &'static str {
        match self {
            Self::Int4 => "int4",
            Self::Int8 => "int8",
            Self::LynxUniform => "lynx-uniform",
            Self::LynxProfile => "lynx-profile",
            Self::LynxProfileWindow => "lynx-profile-window",
            Self::LynxExact => "lynx-exact",
        }
    }
}

/// How near a method's KV brings the model's output to that of the BF16 KV, over a set of prompts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AccuracyRow {
    /// How the KV was handed over.
    pub method: AccuracyMethod,
    /// Mean bits of a K element in the anchor; null where the method has none.
    pub anchor_k: Option<f64>,
    /// Mean bits of a V element in the anchor; null where the method has none.
    pub anchor_v: Option<f64>,
    /// How many prompts.
    pub prompts: u32,
    /// The share of answer tokens equal to BF16's, place by place, 0 to 1.
    pub token_agreement: f64,
    /// The share of needle prompts whose answer holds the needle, 0 to 1; null where none was asked.
    pub needle_found: Option<f64>,
    /// The mean KL divergence of the next-token distribution from BF16's, in nats.
    pub kl: f64,
    /// Of 32 drafted tokens, how many BF16 would have chosen before the first that it would not; the mean.
    pub accepted_of_32: f64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Event;

    fn run(method: Method, prompt: &str, answer: &[&str]) -> RunResult {
        let tokens = answer.iter().zip(0_u32..);
        RunResult {
            method,
            scenario: Scenario::Warm,
            prompt: prompt.to_owned(),
            prompt_tokens: 512,
            link_bps: 0,
            memory_bytes: [None; 2],
            answer: answer
                .iter()
                .map(|text| u32::from(text.as_bytes()[0]))
                .collect(),
            events: tokens
                .map(|(text, index)| Event::Token {
                    index,
                    token: index,
                    text: (*text).to_owned(),
                    t: f64::from(index),
                    provisional: false,
                })
                .collect(),
        }
    }

    #[test]
    fn each_run_is_compared_with_bf16_on_its_own_prompt() {
        let runs = [
            run(Method::Bf16, "a", &["x", "y"]),
            run(Method::Int4, "a", &["x", "z"]),
            run(Method::LynxExact, "a", &["x", "y"]),
            run(Method::Int8, "b", &["x", "y"]),
            RunResult {
                prompt_tokens: 1024,
                ..run(Method::Int8, "a", &["x", "y"])
            },
        ];
        let equal: Vec<_> = TtftRow::of_all(&runs)
            .iter()
            .map(|row| row.equal_to_bf16)
            .collect();
        assert_eq!(equal, [Some(true), Some(false), Some(true), None, None]);
    }

    #[test]
    fn what_was_not_reached_is_null() {
        let row = TtftRow::of(&run(Method::Int8, "b", &["x"]), None);
        let json = serde_json::to_value(&row).unwrap();
        assert_eq!(json["method"], "int8");
        assert_eq!(json["scenario"], "warm");
        assert_eq!(json["t_first_s"], 0.0);
        for unreached in ["t_second_s", "t_second_verified_s", "t32_s", "t64_s"] {
            assert!(json[unreached].is_null(), "{unreached}");
        }
        assert_eq!(serde_json::from_value::<TtftRow>(json).unwrap(), row);
    }

    #[test]
    fn every_field_is_documented() {
        let documentation = include_str!("../../docs/bench-rows.md");
        let ttft = TtftRow::of(&run(Method::Bf16, "a", &[]), None);
        let accuracy = AccuracyRow {
            method: AccuracyMethod::Int4,
            anchor_k: None,
            anchor_v: None,
            prompts: 1,
            token_agreement: 1.0,
            needle_found: None,
            kl: 0.0,
            accepted_of_32: 32.0,
        };
        let rows = [
            serde_json::to_value(&ttft).unwrap(),
            serde_json::to_value(&accuracy).unwrap(),
        ];
        for field in rows.iter().flat_map(|row| row.as_object().unwrap().keys()) {
            assert!(documentation.contains(&format!("`{field}`")), "{field}");
        }
    }

    #[test]
    fn accuracy_methods_have_the_documented_names() {
        let json = serde_json::to_string(&[
            AccuracyMethod::LynxUniform,
            AccuracyMethod::LynxProfileWindow,
        ]);
        assert_eq!(json.unwrap(), r#"["lynx-uniform","lynx-profile-window"]"#);
    }
}
