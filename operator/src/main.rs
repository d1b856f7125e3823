//! The `lynx-operator` program.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use kube::Client;
use lynx_operator::config::OperatorConfig;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// A mistake of whoever started this: `EX_USAGE` of sysexits.h.
const USAGE: u8 = 64;

/// Lynx's operator: LynxDeployments into pods, policies and status.
#[derive(Debug, Parser)]
#[command(name = "lynx-operator", version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs the operator until it is told to stop.
    Run {
        /// The configuration, as YAML; without it, every value is its default or the environment's.
        #[arg(long)]
        config: Option<PathBuf>,
    },
    /// The custom resource definition.
    Crd {
        #[command(subcommand)]
        command: CrdCommand,
    },
    /// Gets a URL and succeeds where the answer is fine: a health check for where there is no curl.
    Probe {
        /// The URL, such as http://lynx-operator.lynx-system:8080/readyz.
        url: String,
    },
}

#[derive(Debug, Subcommand)]
enum CrdCommand {
    /// Prints it as YAML.
    Print,
    /// Applies it to the cluster, and returns when LynxDeployments are served.
    Apply,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match arguments.command {
        Command::Run { config } => match read(config.as_deref()) {
            Ok(config) => run(config),
            Err(mistakes) => {
                say(&mistakes);
                return ExitCode::from(USAGE);
            }
        },
        Command::Crd { command } => crd(&command),
        Command::Probe { url } => probe(&url),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// To standard error: there are no logs before the configuration is read.
fn say(text: &str) {
    // Nobody is left to tell where this fails.
    writeln!(std::io::stderr(), "{text}").ok();
}

#[expect(
    clippy::disallowed_methods,
    reason = "the operator's one reader of the environment"
)]
fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn read(path: Option<&std::path::Path>) -> Result<OperatorConfig, String> {
    let text = match path {
        None => String::new(),
        Some(path) => std::fs::read_to_string(path)
            .map_err(|error| format!("{} can't be read: {error}", path.display()))?,
    };
    OperatorConfig::parse(&text, environment).map_err(|error| error.to_string())
}

fn run(config: OperatorConfig) -> anyhow::Result<()> {
    let mut settings = lynx_telemetry::Settings::new("lynx-operator");
    settings.instance = Some(config.pod.name.clone());
    settings.log_format = lynx_telemetry::LogFormat::Json;
    settings.otlp_endpoint = Some(config.otlp_endpoint.clone()).filter(|url| !url.is_empty());
    if let Some(filter) = environment("RUST_LOG") {
        settings.log_filter = filter;
    }
    let guard = lynx_telemetry::init(&settings)?;
    let result = runtime()?.block_on(async {
        let shutdown = CancellationToken::new();
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let stop = shutdown.clone();
        tokio::spawn(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            tracing::info!("told to stop");
            stop.cancel();
        });
        let cluster = kube::Config::infer().await.context(
            "neither a pod's service account nor a kubeconfig says where the API server is",
        )?;
        lynx_operator::run::run(cluster, config, shutdown).await?;
        Ok(())
    });
    drop(guard);
    result
}

fn crd(command: &CrdCommand) -> anyhow::Result<()> {
    match command {
        CrdCommand::Print => {
            std::io::stdout().write_all(lynx_crds::yaml().as_bytes())?;
            Ok(())
        }
        CrdCommand::Apply => runtime()?.block_on(async {
            let client = Client::try_default().await.context(
                "neither a pod's service account nor a kubeconfig says where the API server is",
            )?;
            lynx_operator::crd::apply(&client).await?;
            say("LynxDeployments are served");
            Ok(())
        }),
    }
}

fn probe(url: &str) -> anyhow::Result<()> {
    runtime()?.block_on(lynx_operator::probe::probe(url))?;
    Ok(())
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
}
