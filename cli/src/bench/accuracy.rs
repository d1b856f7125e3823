//! `lynx bench accuracy`: how near each way to hand over a KV cache brings the model to what the BF16 cache gives.
//!
//! Everything is measured on the same prompts. Of each, BF16 first continues greedily; then the KV goes through a codec, and
//! the same 32 tokens are evaluated on what comes out. Because the engine is batch-invariant, the first place where the most
//! probable token differs is the length of the draft that would have been accepted.

use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use lynx_agent::baseline::Baseline;
use lynx_agent::coding::whole_blocks;
use lynx_engine::{TokenId, Tokenizer};
use lynx_kernels::{Codec, Cuts, Profile, PromptPlan, RawTokens, UnitBuffer};
use lynx_units::Width;

use crate::chat::Chat;
use crate::lab::{Copy, Lab};
use crate::prompts::{Prompt, Source};
use crate::rows::{AccuracyMethod, AccuracyRow};
use crate::stats;
use crate::terminal::Style;

/// Tokens of a draft that are looked at.
const DRAFT: usize = 32;
/// Tokens of a needle's answer.
const ANSWER: usize = 24;
/// Tokens of a unit.
const UNIT_TOKENS: u32 = 512;
/// Sinks alone, as where there is no window.
const SINKS: u32 = 4;

/// One way to hand the KV over.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Scheme {
    method: AccuracyMethod,
    /// The anchor, for Lynx's approximations.
    cuts: Option<Cuts>,
}

impl Scheme {
    fn anchor(method: AccuracyMethod, cuts: Cuts) -> Self {
        Self {
            method,
            cuts: Some(cuts),
        }
    }
}

/// What one scheme came to on one prompt.
#[derive(Clone, Copy, Debug)]
struct Sample {
    agreement: f64,
    kl: f64,
    accepted: f64,
    needle: Option<bool>,
}

/// What the bench runs on.
#[derive(Debug)]
pub struct Bench<'a> {
    /// The model's file.
    pub model: &'a Path,
    /// The model's profile.
    pub profile: &'a Profile,
    /// The model's words.
    pub chat: &'a Chat,
    /// Threads of the engine.
    pub threads: usize,
    /// Where progress goes.
    pub style: Style,
}

impl Bench<'_> {
    /// A row for each scheme, over these prompts.
    ///
    /// # Errors
    /// Where the model can't be run or a prompt can't be made.
    pub fn run(&self, sources: &[(Source, usize)]) -> Result<Vec<AccuracyRow>> {
        let longest = sources
            .iter()
            .map(|(_, tokens)| *tokens)
            .max()
            .context("no prompts")?;
        let mut lab = Lab::open(self.model, self.threads, longest + DRAFT.max(ANSWER) + 1)?;
        let uniform = Profile::uniform(lab.shape())?;
        let schemes = schemes()?;
        let mut samples = vec![Vec::new(); schemes.len()];
        for (source, tokens) in sources {
            let prompt = self.chat.prompt(source, *tokens)?;
            let mut trial = Trial::new(&mut lab, &prompt.0, &prompt.1, self.style)?;
            let bar = self.style.progress(source.name(), schemes.len() as u64);
            for (scheme, samples) in schemes.iter().zip(&mut samples) {
                let profile = if scheme.method == AccuracyMethod::LynxUniform {
                    &uniform
                } else {
                    self.profile
                };
                samples.push(trial.sample(*scheme, profile, self.chat.tokenizer())?);
                bar.inc(1);
            }
            bar.finish_and_clear();
        }
        schemes
            .iter()
            .zip(&samples)
            .map(|(scheme, samples)| row(*scheme, samples))
            .collect()
    }
}

/// Every source at several lengths; a quick bench takes six.
pub fn cases(sources: Vec<Source>, quick: bool) -> Vec<(Source, usize)> {
    const LENGTHS: [usize; 4] = [1024, 2048, 768, 3072];
    let most = if quick { 6 } else { 24 };
    sources
        .into_iter()
        .zip(LENGTHS.into_iter().cycle())
        .take(most)
        .collect()
}

/// Prints the rows as a table.
///
/// # Errors
/// Those of `out`.
pub fn write(out: &mut dyn Write, rows: &[AccuracyRow]) -> io::Result<()> {
    writeln!(
        out,
        "{:<20} {:>5} {:>5} {:>9} {:>10} {:>7} {:>12}",
        "method", "K", "V", "KL", "agreement", "needle", "accepted/32"
    )?;
    for row in rows {
        let width =
            |bits: Option<f64>| bits.map_or_else(|| "-".to_owned(), |bits| format!("{bits}"));
        let needle = row
            .needle_found
            .map_or_else(|| "-".to_owned(), |share| format!("{:.0} %", share * 100.0));
        let (name, k, v) = (row.method.id(), width(row.anchor_k), width(row.anchor_v));
        let agreement = format!("{:.1} %", row.token_agreement * 100.0);
        writeln!(
            out,
            "{name:<20} {k:>5} {v:>5} {:>9.5} {agreement:>10} {needle:>7} {:>12.1}",
            row.kl, row.accepted_of_32
        )?;
    }
    Ok(())
}

/// The deployed formats, then Lynx's anchors from 3 to 8 bits in the pairs that the facts recommend, then exact.
fn schemes() -> Result<Vec<Scheme>> {
    use AccuracyMethod::{Int4, Int8, LynxExact, LynxProfile, LynxProfileWindow, LynxUniform};
    let mut schemes = vec![
        Scheme {
            method: Int4,
            cuts: None,
        },
        Scheme {
            method: Int8,
            cuts: None,
        },
    ];
    for method in [LynxUniform, LynxProfile, LynxProfileWindow] {
        for (k, v) in [
            (3, 3),
            (3, 4),
            (4, 4),
            (5, 4),
            (5, 5),
            (6, 6),
            (7, 7),
            (8, 8),
        ] {
            let k = Width::from_bits(k).context("a width over 8 bits")?;
            schemes.push(Scheme::anchor(method, Cuts::new(k, v)?));
        }
    }
    schemes.push(Scheme {
        method: LynxExact,
        cuts: None,
    });
    Ok(schemes)
}

fn row(scheme: Scheme, samples: &[Sample]) -> Result<AccuracyRow> {
    let mean = |value: fn(&Sample) -> f64| {
        stats::mean(&samples.iter().map(value).collect::<Vec<_>>()).context("no samples")
    };
    let needles: Vec<f64> = samples
        .iter()
        .filter_map(|s| s.needle)
        .map(|found| if found { 1.0 } else { 0.0 })
        .collect();
    Ok(AccuracyRow {
        method: scheme.method,
        anchor_k: scheme.cuts.map(|cuts| cuts.k().bits()),
        anchor_v: scheme.cuts.map(|cuts| f64::from(cuts.v())),
        prompts: u32::try_from(samples.len())?,
        token_agreement: mean(|s| s.agreement)?,
        needle_found: stats::mean(&needles),
        kl: mean(|s| s.kl)?,
        accepted_of_32: mean(|s| s.accepted)?,
    })
}

/// One prompt with BF16's own continuation.
#[derive(Debug)]
struct Trial<'a> {
    lab: &'a mut Lab,
    prompt: &'a Prompt,
    tokens: usize,
    /// BF16's continuation: the first token, then the draft's 32.
    truth: Vec<TokenId>,
    /// BF16's logits after the first token and each of the draft's but the last.
    rows: Vec<Vec<f32>>,
    codec: Codec,
}

impl<'a> Trial<'a> {
    fn new(lab: &'a mut Lab, prompt: &'a Prompt, tokens: &[TokenId], style: Style) -> Result<Self> {
        let bar = style.progress("prefill", tokens.len() as u64);
        let first = lab.prefill(tokens, &mut (), |done| bar.set_position(done as u64))?;
        bar.finish_and_clear();
        let mut truth = vec![first];
        truth.extend(lab.greedy(Copy::Exact, first, tokens.len(), DRAFT)?);
        lab.replay(Copy::Exact, &truth[..DRAFT], tokens.len())?;
        let rows = (0..DRAFT).map(|row| lab.row(row).to_vec()).collect();
        Ok(Self {
            lab,
            prompt,
            tokens: tokens.len(),
            truth,
            rows,
            codec: Codec::detect(),
        })
    }

    fn sample(
        &mut self,
        scheme: Scheme,
        profile: &Profile,
        tokenizer: &Tokenizer,
    ) -> Result<Sample> {
        self.code(scheme, profile)?;
        self.lab
            .replay(Copy::Coded, &self.truth[..DRAFT], self.tokens)?;
        let mut kl = 0.0;
        let mut best = Vec::with_capacity(DRAFT);
        for (row, reference) in self.rows.iter().enumerate() {
            kl += stats::kl_divergence(reference, self.lab.row(row))
                .context("the logits are no numbers")?;
            best.push(self.lab.best(row)?);
        }
        let truth = &self.truth[1..];
        if scheme.method == AccuracyMethod::LynxExact {
            ensure!(
                self.lab.copies_agree(self.tokens),
                "the exact tail did not restore the KV of {}",
                self.prompt.name
            );
            ensure!(
                best == truth,
                "equal KV gave other tokens on {}",
                self.prompt.name
            );
        }
        Ok(Sample {
            agreement: stats::agreement(&best, truth).context("no tokens")?,
            kl: kl / DRAFT as f64,
            accepted: stats::accepted_prefix(&best, truth) as f64,
            needle: self.needle(tokenizer, &best)?,
        })
    }

    /// Whether the answer on the coded KV holds the needle. Up to the first difference it is BF16's own; from there on it
    /// has to be decoded.
    fn needle(&mut self, tokenizer: &Tokenizer, best: &[TokenId]) -> Result<Option<bool>> {
        if self.prompt.answer.is_none() {
            return Ok(None);
        }
        let common = stats::accepted_prefix(best, &self.truth[1..]);
        let mut answer = self.truth[..=common].to_vec();
        if let Some(&own) = best.get(common) {
            answer.push(own);
            let start = self.tokens + answer.len() - 1;
            let rest = ANSWER.saturating_sub(answer.len());
            answer.extend(self.lab.greedy(Copy::Coded, own, start, rest)?);
        }
        answer.truncate(ANSWER);
        Ok(self.prompt.is_answered_by(&tokenizer.decode(&answer)))
    }

    /// Sends the exact copy through `scheme` into the coded one.
    fn code(&mut self, scheme: Scheme, profile: &Profile) -> Result<()> {
        let tokens = u32::try_from(self.tokens)?;
        let baseline = match scheme.method {
            AccuracyMethod::Int4 => Some(Baseline::Int4),
            AccuracyMethod::Int8 => Some(Baseline::Int8),
            _ => None,
        };
        let cuts = match scheme.cuts {
            Some(cuts) => cuts,
            None => Cuts::new(Width::from_bits(4).context("a width over 8 bits")?, 4)?,
        };
        let raw = match scheme.method {
            AccuracyMethod::LynxProfileWindow | AccuracyMethod::LynxExact => {
                RawTokens::for_prompt(tokens)
            }
            _ => RawTokens::new(SINKS, u32::MAX),
        };
        let plan = PromptPlan::new(self.lab.shape(), 0..tokens, UNIT_TOKENS, raw, cuts)?;
        let mut unit = UnitBuffer::default();
        for part in plan.units() {
            let (source, mut sink) = self.lab.layer(part.layer, part.plan.kind());
            if let Some(baseline) = baseline {
                let bytes = whole_blocks::encode(baseline, part.plan, &source)?;
                whole_blocks::decode(baseline, part.plan, &bytes, &mut sink)?;
                continue;
            }
            let order = profile.layer(part.layer);
            unit.reserve(part.plan);
            self.codec.split(part.plan, order, &source, &mut unit);
            if scheme.method == AccuracyMethod::LynxExact {
                self.codec.encode_tail(part.plan, &source, &mut unit.tail);
                self.codec.decode_tail(part.plan, order, &unit, &mut sink)?;
            } else {
                self.codec.merge(part.plan, order, &unit, 1, &mut sink)?;
            }
        }
        Ok(())
    }
}
