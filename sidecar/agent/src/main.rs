//! The `lynx-agent` program.

use std::process::ExitCode;

use clap::Parser;
use lynx_agent::command::{self, AgentArgs};

/// The agent beside an inference engine: it sends a prefill engine's KV, or fetches it for a decode engine and serves
/// clients.
#[derive(Debug, Parser)]
#[command(name = "lynx-agent", version)]
struct Cli {
    #[command(flatten)]
    args: AgentArgs,
}

fn main() -> ExitCode {
    command::main(&Cli::parse().args)
}
