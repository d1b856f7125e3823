//! The command line of the agent, for its own program and for `lynx agent`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::config::{Config, default_file};
use crate::doctor::{self, Grade, rdma};
use crate::run::{chain, run};

/// The configuration is wrong: sysexits' EX_USAGE, so that it is told from a failure at work.
const BAD_CONFIGURATION: u8 = 64;
/// Signals within this time are one order.
const ONE_ORDER: Duration = Duration::from_millis(500);

/// What the agent is started with.
#[derive(Debug, Args)]
pub struct AgentArgs {
    /// The configuration, a YAML file; without one everything is as `config` prints it.
    #[arg(long, value_name = "PATH", global = true)]
    pub config: Option<PathBuf>,
    #[command(subcommand)]
    command: Option<AgentCommand>,
}

#[derive(Debug, Subcommand)]
enum AgentCommand {
    /// Print every field of the configuration with its default, its variable and its meaning.
    Config {
        /// Check the file and the variables instead, and print nothing where they are right.
        #[arg(long)]
        check: bool,
    },
    /// Look at this machine, this agent's configuration and the path to peers, and say what to do about what is found.
    ///
    /// Ends with 1 where something is to be fixed.
    Doctor(DoctorArgs),
}

/// What the doctor looks at.
#[derive(Clone, Debug, Args)]
pub struct DoctorArgs {
    /// The peer control of a prefill agent, to probe the path to it; may be given more than once
    #[arg(long, value_name = "HOST:PORT")]
    peer: Vec<String>,
    #[command(subcommand)]
    only: Option<Only>,
}

/// Parts of the doctor that are asked for alone.
#[derive(Clone, Debug, Subcommand)]
enum Only {
    /// List RDMA devices, ports and addresses, and probe bandwidth and latency between two machines.
    Rdma(rdma::RdmaArgs),
}

impl AgentArgs {
    /// Those of an agent that only examines.
    pub fn doctor(config: Option<PathBuf>, args: DoctorArgs) -> Self {
        let command = Some(AgentCommand::Doctor(args));
        Self { config, command }
    }
}

/// Runs the agent, or prints what was asked for.
#[expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program's output, and its errors before there is a log"
)]
pub fn main(args: &AgentArgs) -> ExitCode {
    let config = match (&args.command, Config::load(args.config.as_deref())) {
        (Some(AgentCommand::Config { check: false }), _) if args.config.is_some() => {
            eprintln!(
                "lynx-agent: `config` prints the defaults: add --check to look at a file of your own"
            );
            return ExitCode::from(BAD_CONFIGURATION);
        }
        (Some(AgentCommand::Config { check: false }), _) => {
            print!("{}", default_file());
            return ExitCode::SUCCESS;
        }
        (Some(AgentCommand::Config { check: true }), Ok(_)) => return ExitCode::SUCCESS,
        (Some(AgentCommand::Doctor(args)), Ok(config)) => return examine(&config, args),
        (None, Ok(config)) => config,
        (_, Err(mistakes)) => {
            eprintln!("lynx-agent: {mistakes}");
            return ExitCode::from(BAD_CONFIGURATION);
        }
    };
    let telemetry = match lynx_telemetry::init(&config.telemetry_settings()) {
        Ok(telemetry) => telemetry,
        Err(error) => {
            eprintln!("lynx-agent: {}", chain(&error));
            return ExitCode::from(BAD_CONFIGURATION);
        }
    };
    if !config.ignored_variables.is_empty() {
        tracing::warn!(
            variables = config.ignored_variables.join(" "),
            "these variables look like this agent's and are none: they change nothing"
        );
    }
    let ended = work(config);
    if let Err(error) = &ended {
        tracing::error!("{}", chain(error.as_ref()));
    }
    drop(telemetry);
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Tells what is found; the configuration's own peers are looked at too.
#[expect(clippy::print_stderr, reason = "there is no log")]
fn examine(config: &Config, args: &DoctorArgs) -> ExitCode {
    if let Some(Only::Rdma(args)) = &args.only {
        return rdma::main(args);
    }
    let mut peers: Vec<String> = Vec::new();
    for peer in args.peer.iter().chain(&config.peers) {
        if !peers.contains(peer) {
            peers.push(peer.clone());
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let written = runtime.and_then(|runtime| {
        let findings = runtime.block_on(doctor::examine(&doctor::Root::real(), config, &peers));
        doctor::write(&mut std::io::stdout(), &findings)?;
        Ok(findings)
    });
    match written {
        Ok(findings) if findings.iter().all(|found| found.grade < Grade::Problem) => {
            ExitCode::SUCCESS
        }
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("lynx-agent: {error}");
            ExitCode::FAILURE
        }
    }
}

fn work(config: Config) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let ended = runtime.block_on(async {
        let mut signals = Signals::new()?;
        let impatient = Signals::new()?;
        tokio::select! {
            ended = run(config, signals.next()) => ended.map_err(anyhow::Error::from),
            second = impatient.second() => {
                second?;
                anyhow::bail!("a second signal came: ending at once, with all that is in flight")
            }
        }
    });
    runtime.shutdown_background();
    ended
}

/// SIGTERM and SIGINT.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for somebody who is impatient. `timeout` and shells send one order twice, to the process and to its group: what
    /// comes along with the first is no second.
    async fn second(mut self) -> std::io::Result<()> {
        self.next().await;
        tokio::time::sleep(ONE_ORDER).await;
        Self::new()?.next().await;
        Ok(())
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
