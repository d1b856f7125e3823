//! The `lynx` command. Exit status: 0, 1 where something failed, 2 where the command line makes no sense, 130 and 143 where it
//! was interrupted or told to end.
#![expect(
    clippy::print_stderr,
    reason = "the last word of a command that failed"
)]

use std::io::{IsTerminal as _, Write, stdout};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Parser as _;
use lynx::args::{self, Command, Lynx};
use lynx::bench::peer::End;
use lynx::bench::{self, SEED};
use lynx::chat::Chat;
use lynx::cluster::{Options, this_program};
use lynx::lab::Lab;
use lynx::rows::TtftRow;
use lynx::terminal::Style;
use lynx::{agent, calibrate, config, demo, engine, model_file, outputs, prompts, table};
use lynx_agent::command::{self, AgentArgs};
use lynx_agent::profile;
use lynx_engine::Model;
use lynx_units::BitRate;
use tokio::signal::unix::{SignalKind, signal};

/// What a shell gives a command that SIGINT ended.
const INTERRUPTED: u8 = 130;
/// The same of SIGTERM.
const TERMINATED: u8 = 143;

fn main() -> ExitCode {
    let command = Lynx::parse().command;
    match run(command) {
        Ok(code) => code,
        // Whoever read the output has seen enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lynx: {}", lynx_telemetry::chain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let cause = error.root_cause().downcast_ref::<std::io::Error>();
    cause.is_some_and(|cause| cause.kind() == std::io::ErrorKind::BrokenPipe)
}

fn run(command: Command) -> Result<ExitCode> {
    outputs::check(&command)?;
    match command {
        Command::Engine(args) => engine::run(&args)?,
        Command::Agent(args) => return agent::run(&args),
        Command::Doctor(args) => {
            return Ok(command::main(&AgentArgs::doctor(args.config, args.args)));
        }
        Command::Calibrate(args) => calibrate(&args)?,
        Command::Bench(args::Bench::Codec(output)) => codec(&output)?,
        Command::Bench(args::Bench::Gpu(args)) => gpu(&args)?,
        Command::Bench(args::Bench::Accuracy(args)) => accuracy(&args)?,
        Command::Bench(args::Bench::Link(output)) => return interruptible(link(&output)),
        Command::Bench(args::Bench::Peer(args)) => return interruptible(peer(args)),
        Command::Bench(args::Bench::Soak(args)) => return interruptible(soak(&args)),
        Command::Bench(args::Bench::Ttft(args)) => return interruptible(ttft(&args)),
        Command::Bench(args::Bench::Turns(args)) => return interruptible(turns(&args)),
        Command::Demo(args) => return interruptible(demo(&args)),
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs to the end, or until Ctrl-C or SIGTERM: then everything the command started is dropped, and with it its processes.
fn interruptible(work: impl Future<Output = Result<()>>) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            done = work => done.map(|()| ExitCode::SUCCESS),
            interrupt = tokio::signal::ctrl_c() => {
                interrupt?;
                Ok(ExitCode::from(INTERRUPTED))
            }
            _ = terminate.recv() => Ok(ExitCode::from(TERMINATED)),
        }
    })
}

async fn demo(args: &args::Demo) -> Result<()> {
    demo::run(args, style(), &mut stdout()).await
}

async fn soak(args: &args::Soak) -> Result<()> {
    let (chat, options) = nodes(&args.model, args.link)?;
    let options = Options {
        max_tokens: args.max_tokens,
        ..options
    };
    let outcome = bench::soak::run(args, &chat, &options, style()).await?;
    write_json(&args.output, &outcome.rows)?;
    outcome.write(&mut stdout())
}

async fn turns(args: &args::Turns) -> Result<()> {
    let (chat, options) = nodes(&args.model, args.link)?;
    let rows = bench::turns::run(args.output.quick, &chat, &options, style()).await?;
    bench::turns::write(&mut stdout(), &rows)?;
    write_json(&args.output, &rows)
}

/// The model's words, and nodes that run it, with no room yet.
fn nodes(model: &args::Model, link: BitRate) -> Result<(Chat, Options)> {
    let path = model_file::locate(model.model.as_deref())?;
    let chat = Chat::open(&path)?;
    let options = Options {
        program: this_program()?,
        model: path,
        profile: model.profile.clone(),
        link,
        listen: SocketAddr::from((IpAddr::V4(Ipv4Addr::LOCALHOST), 0)),
        threads: threads(model.threads),
        max_tokens: 0,
    };
    Ok((chat, options))
}

async fn ttft(args: &args::Ttft) -> Result<()> {
    let (chat, options) = nodes(&args.model, BitRate::ZERO)?;
    let runs = bench::ttft::run(args, &chat, options, style(), |_| {}).await?;
    let rows = TtftRow::of_all(&runs);
    let mut out = stdout();
    table::write_runs(&mut out, &rows)?;
    writeln!(out)?;
    table::write_summary(&mut out, &rows)?;
    write_json(&args.output, &rows)
}

async fn link(output: &args::Output) -> Result<()> {
    let rows = bench::link::run(output.quick).await?;
    bench::print::link(&mut stdout(), &rows)?;
    write_json(output, &rows)
}

async fn peer(args: args::Peer) -> Result<()> {
    let end = args.receive.map_or(End::Send, End::Receive);
    bench::peer::run(end, args.tls.as_deref()).await
}

fn codec(output: &args::Output) -> Result<()> {
    let rows = bench::codec::run(output.quick);
    bench::print::codec(&mut stdout(), &rows)?;
    write_json(output, &rows)
}

fn gpu(args: &args::Gpu) -> Result<()> {
    let rows = bench::gpu::run(args, &mut stdout())?;
    bench::gpu::print(&mut stdout(), &rows)?;
    write_json(&args.output, &rows)
}

fn accuracy(args: &args::Accuracy) -> Result<()> {
    let model = model_file::locate(args.model.model.as_deref())?;
    let chat = Chat::open(&model)?;
    let shape = lynx::lab::shape_of(&Model::open(&model)?);
    let profile = profile::choose(args.model.profile.as_deref(), chat.model(), shape)?;
    let corpus = prompts::corpus(SEED);
    let mut out = stdout();
    for note in &corpus.notes {
        writeln!(out, "{note}")?;
    }
    let cases = bench::accuracy::cases(corpus.sources, args.output.quick);
    let bench = bench::accuracy::Bench {
        model: &model,
        profile: &profile,
        chat: &chat,
        threads: threads(args.model.threads),
        style: style(),
    };
    let rows = bench.run(&cases)?;
    bench::accuracy::write(&mut out, &rows)?;
    write_json(&args.output, &rows)
}

fn calibrate(args: &args::Calibrate) -> Result<()> {
    let model = model_file::locate(args.model.as_deref())?;
    let chat = Chat::open(&model)?;
    let texts = calibrate::texts(&args.texts)?;
    let mut lab = Lab::open(&model, threads(args.threads), calibrate::TOKENS)?;
    let profile = calibrate::profile(&mut lab, chat.tokenizer(), &texts, style())?;
    std::fs::write(&args.out, profile.to_json()?)
        .with_context(|| format!("writing {}", args.out.display()))?;
    writeln!(
        stdout(),
        "{}: the profile of {}, from {}",
        args.out.display(),
        profile.name(),
        match texts.len() {
            1 => "1 text".to_owned(),
            count => format!("{count} texts"),
        }
    )?;
    Ok(())
}

fn write_json<R: serde::Serialize>(output: &args::Output, rows: &[R]) -> Result<()> {
    match &output.json {
        Some(path) => bench::write_json(path, rows),
        None => Ok(()),
    }
}

fn threads(asked: Option<u16>) -> usize {
    asked.map_or_else(config::cpus, usize::from)
}

fn style() -> Style {
    let columns = stdout().is_terminal().then(rustix_columns).flatten();
    Style::choose(columns, config::no_color())
}

fn rustix_columns() -> Option<u16> {
    rustix::termios::tcgetwinsize(stdout())
        .ok()
        .map(|size| size.ws_col)
}
