//! `lynx bench soak`: many clients at once for a while, and what it does to the four processes.
//!
//! Every answer is compared with the model's alone, and the processes' memory, threads and open files are looked at
//! all along: what grows with the number of requests that were served shows here, and what grows with the number at a time
//! does not.

mod clients;
mod watch;

use std::io::{self, Write};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;
use tokio::time::Instant;

use self::clients::{Clients, Tally};
use self::watch::{Process, Sample};
use crate::args::Soak;
use crate::chat::Chat;
use crate::cluster::{Cluster, Options};
use crate::lab::{Copy, Lab};
use crate::terminal::Style;

/// Tokens of every answer.
const ANSWER: u32 = 8;
/// Prompts that differ, so that requests differ too.
const PROMPTS: usize = 48;
/// How often the processes are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// How much the mean memory of the last third may be above the first third's.
const GROWTH: f64 = 1.05;
/// How long the last answers may take, and open connections to be closed.
const PATIENCE: Duration = Duration::from_secs(120);

/// A prompt, and what the model says to it when it is alone.
#[derive(Clone, Debug)]
pub struct Case {
    pub(crate) prompt: Vec<u32>,
    pub(crate) answer: String,
}

/// One process in the course of the soak.
#[derive(Clone, Debug, Serialize)]
pub struct SoakRow {
    /// Which.
    pub process: String,
    /// Mean resident memory in the first third, in bytes.
    pub first_third_bytes: u64,
    /// And in the last.
    pub last_third_bytes: u64,
    /// Threads before any request and after the last.
    pub threads: [usize; 2],
    /// Open files before any request and after the last.
    pub files: [usize; 2],
}

/// How it went.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What became of the requests.
    pub tally: Tally,
    /// How long clients asked.
    pub time: Duration,
    /// A row for each process.
    pub rows: Vec<SoakRow>,
    /// What should not be, in words.
    pub faults: Vec<String>,
}

/// Runs the soak.
///
/// # Errors
/// Where the nodes can't run.
pub async fn run(args: &Soak, chat: &Chat, options: &Options, style: Style) -> Result<Outcome> {
    let cases = cases(chat, options)?;
    let mut cluster = Cluster::start(options).await?;
    let clients = Clients::new(cluster.endpoint(), cases, ANSWER);
    // Once through every prompt: what is made at the first use is no growth.
    let warm = clients.ask_all().await;
    ensure!(
        warm.wrong.is_empty(),
        "before the soak: {}",
        warm.wrong.join("; ")
    );
    let mut processes = Vec::new();
    for (name, id) in cluster.processes() {
        processes.push(Process::new(name, id)?);
    }
    let before: Vec<Sample> = processes
        .iter()
        .map(Process::sample)
        .collect::<Result<_>>()?;
    let time = Duration::from_secs(args.seconds.into());
    let samples = watch(
        &mut processes,
        &clients,
        usize::from(args.clients),
        time,
        style,
    );
    let (tally, looks) = samples.await?;
    drop(clients);
    let after = settle(&processes, &before).await?;
    let rows = rows(&processes, &looks, &before, &after);
    let faults = faults(&tally, &rows);
    cluster.check().await?;
    Ok(Outcome {
        tally,
        time,
        rows,
        faults,
    })
}

/// Short prompts with the model's own answers.
fn cases(chat: &Chat, options: &Options) -> Result<Vec<Case>> {
    const SUBJECTS: [&str; 8] = [
        "a lighthouse",
        "the tide",
        "an old clock",
        "winter",
        "a train",
        "bread",
        "the moon",
        "a garden",
    ];
    const ASKS: [&str; 6] = [
        "Say something about",
        "Write one line on",
        "What is the use of",
        "Describe",
        "Why do people like",
        "Name a colour for",
    ];
    let mut lab = Lab::open(&options.model, options.threads, 128)?;
    let mut cases = Vec::new();
    for (ask, subject) in ASKS
        .iter()
        .flat_map(|ask| SUBJECTS.map(|subject| (ask, subject)))
    {
        let prompt = chat.tokens(&format!("{ask} {subject}."))?;
        let first = lab.prefill(&prompt, &mut (), |_| {})?;
        let mut tokens = vec![first];
        tokens.extend(lab.greedy(Copy::Exact, first, prompt.len(), ANSWER as usize - 1)?);
        let answer = chat.tokenizer().decode(&tokens);
        cases.push(Case { prompt, answer });
    }
    ensure!(cases.len() == PROMPTS, "{} prompts", cases.len());
    Ok(cases)
}

/// Has clients ask for `time`, and looks at the processes meanwhile.
async fn watch(
    processes: &mut [Process],
    clients: &Clients,
    count: usize,
    time: Duration,
    style: Style,
) -> Result<(Tally, Vec<Vec<Sample>>)> {
    let end = Instant::now() + time;
    let asking = clients.ask_until(end, count);
    tokio::pin!(asking);
    let bar = style.progress("seconds", time.as_secs());
    let mut looks = Vec::new();
    let mut ticks = tokio::time::interval(LOOK);
    let tally = loop {
        tokio::select! {
            tally = &mut asking => break tally,
            now = ticks.tick() => {
                // Answers that are still on their way when the time is over belong to no third.
                if now <= end {
                    looks.push(processes.iter().map(Process::sample).collect::<Result<_>>()?);
                    bar.inc(1);
                }
            }
        }
    };
    bar.finish_and_clear();
    Ok((tally, looks))
}

/// What the processes have once nobody asks any more: files and threads go a moment after the last answer.
async fn settle(processes: &[Process], before: &[Sample]) -> Result<Vec<Sample>> {
    let end = Instant::now() + PATIENCE;
    loop {
        let after: Vec<Sample> = processes
            .iter()
            .map(Process::sample)
            .collect::<Result<_>>()?;
        let is_left =
            |(now, then): (&Sample, &Sample)| now.files > then.files || now.threads > then.threads;
        if !after.iter().zip(before).any(is_left) || Instant::now() > end {
            return Ok(after);
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn rows(
    processes: &[Process],
    looks: &[Vec<Sample>],
    before: &[Sample],
    after: &[Sample],
) -> Vec<SoakRow> {
    let third = looks.len() / 3;
    let mean = |looks: &[Vec<Sample>], index: usize| {
        let sum: u64 = looks
            .iter()
            .map(|samples| samples[index].resident_bytes)
            .sum();
        sum / (looks.len().max(1) as u64)
    };
    let row = |(index, process): (usize, &Process)| SoakRow {
        process: process.name().to_owned(),
        first_third_bytes: mean(&looks[..third], index),
        last_third_bytes: mean(&looks[looks.len() - third..], index),
        threads: [before[index].threads, after[index].threads],
        files: [before[index].files, after[index].files],
    };
    processes.iter().enumerate().map(row).collect()
}

impl SoakRow {
    /// Memory of the last third over that of the first.
    #[expect(clippy::cast_precision_loss, reason = "bytes of memory, for a ratio")]
    pub fn growth(&self) -> f64 {
        self.last_third_bytes as f64 / (self.first_third_bytes.max(1)) as f64
    }
}

fn faults(tally: &Tally, rows: &[SoakRow]) -> Vec<String> {
    let mut faults = tally.wrong.clone();
    if tally.answered == 0 {
        faults.push("nothing was answered".to_owned());
    }
    for row in rows {
        let name = &row.process;
        if row.growth() > GROWTH {
            faults.push(format!("{name} grew by a factor of {:.3}", row.growth()));
        }
        for (what, [before, after]) in [("threads", row.threads), ("files", row.files)] {
            if after > before {
                faults.push(format!("{name} has {after} {what}, and had {before}"));
            }
        }
    }
    faults
}

impl Outcome {
    /// Prints it as a table, and what should not be.
    ///
    /// # Errors
    /// Those of `out`; and where something should not be.
    pub fn write(&self, out: &mut dyn Write) -> Result<()> {
        self.table(out)?;
        ensure!(
            self.faults.is_empty(),
            "the soak found: {}",
            self.faults.join("; ")
        );
        Ok(())
    }

    fn table(&self, out: &mut dyn Write) -> io::Result<()> {
        let Tally {
            answered,
            asked_again,
            wrong,
            longest,
        } = &self.tally;
        let seconds = self.time.as_secs();
        writeln!(
            out,
            "{answered} answers in {seconds} s, {} wrong or none, {asked_again} asked again after 429; the slowest took {:.1} s",
            wrong.len(),
            longest.as_secs_f64()
        )?;
        writeln!(
            out,
            "{:<26} {:>12} {:>12} {:>7} {:>9} {:>9}",
            "process", "first third", "last third", "ratio", "threads", "files"
        )?;
        for row in &self.rows {
            let mib = |bytes: u64| format!("{} MiB", bytes >> 20);
            writeln!(
                out,
                "{:<26} {:>12} {:>12} {:>7.3} {:>9} {:>9}",
                row.process,
                mib(row.first_third_bytes),
                mib(row.last_third_bytes),
                row.growth(),
                format!("{}->{}", row.threads[0], row.threads[1]),
                format!("{}->{}", row.files[0], row.files[1]),
            )?;
        }
        Ok(())
    }
}

/// The first message of an error's chain, with the rest.
pub(crate) fn words(error: &anyhow::Error) -> String {
    format!("{error:#}")
}

/// A number from a line such as `VmRSS:   123 kB`.
fn number_after(text: &str, key: &str) -> Result<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    let number = line.and_then(|rest| rest.split_whitespace().next());
    let number = number.with_context(|| format!("the system tells no {key}"))?;
    Ok(number.parse()?)
}
