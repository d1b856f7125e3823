//! `lynx demo`: one prompt, two nodes, a narrow link, and five ways to move the KV cache.

use std::io::Write;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use lynx_kernels::{Codec, Simd};
use lynx_units::{BitRate, Bytes};

use crate::args::Demo;
use crate::bench::SEED;
use crate::chat::Chat;
use crate::cluster::{Cluster, Options, Outcome, RunSpec, this_program};
use crate::prompts::{self, Kind, Prompt, Source};
use crate::report::Page;
use crate::rows::TtftRow;
use crate::run::{AnchorWidths, Method, RunResult, Scenario};
use crate::terminal::{Answer, Style};
use crate::{bench, config, model_file, table};

/// The question where the user gives a text and none of his own.
const QUESTION: &str = "What is this text about? Answer in a few sentences.";

/// Runs the demo.
///
/// # Errors
/// Where the model, the prompt or the nodes can't be had.
pub async fn run(args: &Demo, style: Style, out: &mut dyn Write) -> Result<()> {
    let model = model_file::locate(args.model.model.as_deref())?;
    let chat = Chat::open(&model)?;
    let name = name_of(&model, chat.model());
    let (prompt, tokens) = prompt(args, &chat)?;
    let length = u32::try_from(tokens.len())?;
    chat.check_length(tokens.len(), args.tokens)?;
    let options = Options {
        program: this_program()?,
        model,
        profile: args.model.profile.clone(),
        link: args.link,
        listen: args.listen,
        threads: args.model.threads.map_or_else(config::cpus, usize::from),
        max_tokens: length + args.tokens,
    };
    let spinner = style.spinner("starting a prefill node and a decode node");
    let mut cluster = Cluster::start(&options).await?;
    spinner.finish_and_clear();
    introduce(out, args, &name, &prompt, length)?;

    let mut runs = Vec::new();
    let mut anchor = None;
    for method in Method::ALL {
        warm(&mut cluster, args.scenario, &tokens, style).await?;
        let outcome = answer(&mut cluster, args, method, &tokens, style, out).await?;
        anchor = outcome.anchor.or(anchor);
        runs.push(outcome.into_result(
            method,
            args.scenario,
            &prompt.name,
            tokens.len(),
            args.link,
        ));
    }
    let rows = TtftRow::of_all(&runs);
    writeln!(out)?;
    table::write_runs(out, &rows)?;
    explain(out, &rows, anchor)?;
    let page = page(&name, args, prompt, anchor, runs);
    write_page(&args.report, &page.html())?;
    if let Some(path) = &args.json {
        bench::write_json(path, &rows)?;
    }
    writeln!(
        out,
        "\nThe timeline is in {}: open it in a browser.",
        args.report.display()
    )?;
    Ok(())
}

/// What people call the model: its file. The name inside is often that of a step of its making.
fn name_of(file: &Path, inside: &str) -> String {
    let file = file.file_stem().unwrap_or_default().to_string_lossy();
    if inside.is_empty() || *file == *inside {
        file.into_owned()
    } else {
        format!("{file} ({inside})")
    }
}

/// The user's own text, or the project's documentation.
fn prompt(args: &Demo, chat: &Chat) -> Result<(Prompt, Vec<u32>)> {
    let target = args.prompt_tokens as usize;
    if let Some(path) = &args.prompt_file {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("reading {} as text", path.display()))?;
        ensure!(
            !text.trim().is_empty(),
            "{} is empty: give a text to ask about",
            path.display()
        );
        let question = args.question.clone().unwrap_or_else(|| QUESTION.to_owned());
        let source = Source::own(path.display().to_string(), text, question);
        return chat.prompt(&source, usize::MAX);
    }
    let room = chat.room(args.tokens);
    ensure!(
        target <= room,
        "--prompt-tokens is at most {room} here: the model reads {} tokens, and --tokens leaves {} of them to the answer",
        room + args.tokens as usize,
        args.tokens
    );
    let sources = prompts::corpus(SEED).sources;
    let Some(source) = sources
        .into_iter()
        .find(|source| source.kind() == Kind::Prose)
    else {
        bail!("no documentation is built in: give a text with --prompt-file");
    };
    let source = match &args.question {
        Some(question) => source.asking(question),
        None => source,
    };
    chat.prompt(&source, target)
}

fn introduce(
    out: &mut dyn Write,
    args: &Demo,
    model: &str,
    prompt: &Prompt,
    tokens: u32,
) -> Result<()> {
    writeln!(
        out,
        "{model}: a prefill node and a decode node on this machine, {} between them",
        args.link
    )?;
    let state = match args.scenario {
        Scenario::Warm => "its KV cache lies on the prefill node, as after a prefix-cache hit",
        Scenario::Cold => "the prefill node computes it while its KV cache travels",
    };
    writeln!(out, "Prompt: {} ({tokens} tokens); {state}", prompt.name)?;
    writeln!(out, "Question: {}", prompt.question.trim())?;
    writeln!(
        out,
        "Every answer goes on past its end, so that all have {} tokens to compare.\n",
        args.tokens
    )?;
    Ok(())
}

async fn warm(
    cluster: &mut Cluster,
    scenario: Scenario,
    tokens: &[u32],
    style: Style,
) -> Result<()> {
    let spinner = style.spinner("computing the prompt");
    cluster.prepare(scenario, tokens).await?;
    spinner.finish_and_clear();
    Ok(())
}

async fn answer(
    cluster: &mut Cluster,
    args: &Demo,
    method: Method,
    tokens: &[u32],
    style: Style,
    out: &mut dyn Write,
) -> Result<Outcome> {
    let spec = RunSpec {
        method,
        prompt: tokens.to_vec(),
        max_tokens: args.tokens,
        temperature: args.temperature,
        seed: args.seed,
        anchor: args.anchor.width(),
    };
    writeln!(out, "{method}")?;
    let mut shown = Answer::new(out, style);
    let mut broken = None;
    let outcome = cluster
        .run(&spec, |event| {
            if let Err(error) = shown.on_event(event) {
                broken = Some(error);
            }
        })
        .await?;
    match broken {
        Some(error) => Err(error).context("writing the answer"),
        None => Ok(outcome),
    }
}

fn page(
    model: &str,
    args: &Demo,
    prompt: Prompt,
    anchor: Option<AnchorWidths>,
    runs: Vec<RunResult>,
) -> Page {
    let fact = |name: &str, value: String| (name.to_owned(), value);
    let mut facts = vec![
        fact("Model", model.to_owned()),
        fact(
            "Prompt",
            format!("{} tokens", runs.first().map_or(0, |run| run.prompt_tokens)),
        ),
        fact("Link", args.link.to_string()),
        fact("Scenario", args.scenario.to_string()),
        fact("Compute", format!("{} codec", simd(Codec::detect().simd()))),
    ];
    if let Some(AnchorWidths { k, v }) = anchor {
        facts.push(fact("Anchor", format!("K {k}, V {v} bits")));
    }
    facts.push(fact("Lynx", env!("CARGO_PKG_VERSION").to_owned()));
    let names = ["Prefill node's memory", "Decode node's memory"];
    for (node, name) in names.into_iter().enumerate() {
        if let Some(bytes) = runs.iter().filter_map(|run| run.memory_bytes[node]).max() {
            facts.push(fact(
                name,
                format!("{} without the weights", Bytes::new(bytes)),
            ));
        }
    }
    let text = prompt.text();
    Page {
        title: "Five ways to move a KV cache".to_owned(),
        facts,
        runs,
        prompts: vec![(prompt.name, text)],
    }
}

/// The instruction set's usual name.
const fn simd(simd: Simd) -> &'static str {
    match simd {
        Simd::Scalar => "scalar",
        Simd::Avx2 => "AVX2",
        Simd::Avx512 => "AVX-512",
    }
}

impl Outcome {
    /// The run as the tables and the page take it.
    pub fn into_result(
        self,
        method: Method,
        scenario: Scenario,
        prompt: &str,
        tokens: usize,
        link: BitRate,
    ) -> RunResult {
        RunResult {
            method,
            scenario,
            prompt: prompt.to_owned(),
            prompt_tokens: u32::try_from(tokens).unwrap_or(u32::MAX),
            link_bps: link.bits_per_second(),
            memory_bytes: self.memory_bytes,
            answer: self.tokens,
            events: self.events,
        }
    }
}

/// What the table leaves open.
fn explain(out: &mut dyn Write, rows: &[TtftRow], anchor: Option<AnchorWidths>) -> Result<()> {
    if let Some(AnchorWidths { k, v }) = anchor {
        writeln!(
            out,
            "\nThe anchor had {k} bits of K and {v} of V in the mean."
        )?;
    }
    for row in rows
        .iter()
        .filter(|row| row.method.drafts() && row.drafted == 0)
    {
        let name = row.method;
        writeln!(
            out,
            "{name} drafted nothing: the rest was due within about two tokens' time, or a draft was not expected to pay."
        )?;
    }
    Ok(())
}

/// Writes the page: its file is complete, or as it was before. What is written goes beside it, to take its place at once.
fn write_page(page: &Path, html: &str) -> Result<()> {
    let mut name = page.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}", std::process::id()));
    let draft = page.with_file_name(name);
    let written = std::fs::write(&draft, html).and_then(|()| std::fs::rename(&draft, page));
    if written.is_err() {
        drop(std::fs::remove_file(&draft));
    }
    written.with_context(|| format!("writing {}", page.display()))
}
