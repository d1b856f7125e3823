//! `lynx bench turns`: conversations that go on, over two prefill and two decode nodes, and what it saves that a turn finds
//! the ones before it.
//!
//! Every turn's prompt is all that was said before and something new. The same conversations are held three times, by
//! agents that differ in one thing at a time; each answer is compared with the model's alone. Requests come one after the
//! other, so that what is counted does not depend on how fast the machine is.

use std::io::{self, Write};

use anyhow::{Result, ensure};
use lynx_agent::config::Role;
use lynx_units::Width;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::SEED;
use crate::chat::Chat;
use crate::cluster::{Cluster, Options, RunSpec, Shape};
use crate::lab::{Copy, Lab};
use crate::prompts;
use crate::run::{Figures, Method};
use crate::terminal::Style;

/// Nodes of each kind.
const NODES: usize = 2;
/// Tokens of a first prompt, of what each later turn adds, and of every answer.
const FIRST: usize = 400;
const NEXT: usize = 80;
const ANSWER: u32 = 16;
/// Four bits, as in the other benches.
const ANCHOR_BITS: u8 = 4;

/// What was held, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnsRow {
    /// What decode agents choose a prefill agent by.
    pub choice: By,
    /// Which decode node a turn comes to.
    pub decode: Decode,
    /// How many conversations.
    pub conversations: usize,
    /// How many turns each has.
    pub turns: usize,
    /// Tokens of all prompts.
    pub prompt_tokens: u64,
    /// Those that prefill engines computed.
    pub computed_tokens: u64,
    /// All bytes on the links, headers included.
    pub wire_bytes: u64,
}

/// What a prefill agent is chosen by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// By what it has cached, and by its load.
    Prefix,
    /// By its load alone: where all are idle, one after the other.
    Load,
}

/// Which decode node is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decode {
    /// Always the conversation's own.
    Own,
    /// One after the other.
    Next,
}

/// From what is implemented to what nobody would do: each differs from the one before in one thing.
const ARMS: [(By, Decode); 3] = [
    (By::Prefix, Decode::Own),
    (By::Load, Decode::Own),
    (By::Load, Decode::Next),
];

/// A conversation: prompts and answers, turn by turn.
#[derive(Clone, Debug)]
struct Talk {
    turns: Vec<(Vec<u32>, Vec<u32>)>,
}

/// Runs the bench.
///
/// # Errors
/// Where the nodes can't run, a request fails, or an answer is not the model's own.
pub async fn run(
    quick: bool,
    chat: &Chat,
    options: &Options,
    style: Style,
) -> Result<Vec<TurnsRow>> {
    // As many at each decode node that turns of one conversation don't always meet the same prefill node by chance.
    let (conversations, turns) = if quick {
        (3 * NODES, 2)
    } else {
        (3 * NODES, 4)
    };
    let longest = FIRST + (turns - 1) * (NEXT + ANSWER as usize) + ANSWER as usize;
    let options = Options {
        max_tokens: u32::try_from(conversations * longest.next_multiple_of(64))?,
        ..options.clone()
    };
    let talks = talks(chat, &options, conversations, turns, style)?;
    let bar = style.progress("turns", (ARMS.len() * conversations * turns) as u64);
    let mut rows = Vec::new();
    for (choice, decode) in ARMS {
        let shape = Shape {
            prefills: NODES,
            decodes: NODES,
        };
        let change = |config: &mut Value| {
            if choice == By::Load {
                config["transfer"]["prefixBlocks"] = 0.into();
            }
        };
        let mut cluster = Cluster::start_as(&options, shape, change).await?;
        let mut row = TurnsRow {
            choice,
            decode,
            conversations,
            turns,
            prompt_tokens: 0,
            computed_tokens: 0,
            wire_bytes: 0,
        };
        for turn in 0..turns {
            for (number, talk) in talks.iter().enumerate() {
                let at = match decode {
                    Decode::Own => number,
                    Decode::Next => number + turn,
                };
                row.take(&mut cluster, at % NODES, &talk.turns[turn])
                    .await?;
                bar.inc(1);
            }
        }
        for node in 0..NODES {
            row.computed_tokens += computed(&cluster, node).await?;
        }
        rows.push(row);
    }
    bar.finish_and_clear();
    Ok(rows)
}

/// What a node's engine has computed for transfers.
async fn computed(cluster: &Cluster, node: usize) -> Result<u64> {
    const COMPUTED: &str = "lynx_prompt_tokens_total{kv=\"computed\"}";
    let tokens = cluster.metric(Role::Prefill, node, COMPUTED).await?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a count of tokens"
    )]
    Ok(tokens as u64)
}

impl TurnsRow {
    async fn take(
        &mut self,
        cluster: &mut Cluster,
        decode: usize,
        (prompt, answer): &(Vec<u32>, Vec<u32>),
    ) -> Result<()> {
        let spec = RunSpec {
            method: Method::LynxExact,
            prompt: prompt.clone(),
            max_tokens: ANSWER,
            temperature: 0.0,
            seed: 0,
            anchor: Width::from_bits(ANCHOR_BITS),
        };
        let outcome = cluster.run_at(decode, &spec, |_| {}).await?;
        ensure!(
            outcome.tokens == *answer,
            "the answer to {} tokens is not the model's own",
            prompt.len()
        );
        self.prompt_tokens += prompt.len() as u64;
        self.wire_bytes += Figures::of(&outcome.events).wire_bytes;
        Ok(())
    }
}

/// Conversations about different texts, with what the model alone says.
fn talks(
    chat: &Chat,
    options: &Options,
    conversations: usize,
    turns: usize,
    style: Style,
) -> Result<Vec<Talk>> {
    let sources = prompts::corpus(SEED).sources;
    ensure!(sources.len() >= conversations, "too few texts");
    let text = FIRST + (turns - 1) * NEXT;
    // A chat's tokens may be a few short of what was asked for.
    let spare = NEXT / 2;
    let mut lab = Lab::open(&options.model, options.threads, options.max_tokens as usize)?;
    let bar = style.progress("the model alone", (conversations * turns) as u64);
    let mut talks = Vec::new();
    for source in sources.iter().take(conversations) {
        let (_, tokens) = chat.prompt(source, text + spare)?;
        ensure!(tokens.len() >= text, "{} is too short", source.name());
        let (first, rest) = tokens.split_at(FIRST);
        let mut said = first.to_vec();
        let mut parts = rest.chunks(NEXT);
        let mut talk = Talk { turns: Vec::new() };
        for _ in 0..turns {
            let answer = alone(&mut lab, &said)?;
            talk.turns.push((said.clone(), answer.clone()));
            said.extend(answer);
            said.extend(parts.next().unwrap_or_default());
            bar.inc(1);
        }
        talks.push(talk);
    }
    bar.finish_and_clear();
    Ok(talks)
}

fn alone(lab: &mut Lab, prompt: &[u32]) -> Result<Vec<u32>> {
    let first = lab.prefill(prompt, &mut (), |_| {})?;
    let mut answer = vec![first];
    answer.extend(lab.greedy(Copy::Exact, first, prompt.len(), ANSWER as usize - 1)?);
    Ok(answer)
}

/// Prints the rows, each beside what nobody would do.
///
/// # Errors
/// Those of `out`.
#[expect(clippy::cast_precision_loss, reason = "counts, for a ratio")]
pub fn write(out: &mut dyn Write, rows: &[TurnsRow]) -> io::Result<()> {
    writeln!(
        out,
        "{:<14} {:<18} {:>13} {:>15} {:>7} {:>12} {:>7}",
        "prefill by",
        "decode node",
        "prompt tokens",
        "computed tokens",
        "ratio",
        "wire bytes",
        "ratio"
    )?;
    let Some(last) = rows.last() else {
        return Ok(());
    };
    for row in rows {
        let choice = match row.choice {
            By::Prefix => "prefix, load",
            By::Load => "load alone",
        };
        let decode = match row.decode {
            Decode::Own => "the talk's own",
            Decode::Next => "the next one",
        };
        let ratio = |one: u64, all: u64| one as f64 / all.max(1) as f64;
        writeln!(
            out,
            "{choice:<14} {decode:<18} {:>13} {:>15} {:>7.3} {:>12} {:>7.3}",
            row.prompt_tokens,
            row.computed_tokens,
            ratio(row.computed_tokens, last.computed_tokens),
            row.wire_bytes,
            ratio(row.wire_bytes, last.wire_bytes),
        )?;
    }
    Ok(())
}
