//! `lynx agent`: what the `lynx-agent` program does, and for a parent also what it comes to.

use std::convert::Infallible;
use std::future::pending;
use std::process::ExitCode;

use anyhow::Result;
use lynx_agent::command;
use lynx_agent::config::Config;
use lynx_agent::control::Status;
use lynx_agent::run::Agent;
use serde_json::json;
use tokio::sync::watch;

use crate::args;
use crate::attended;

/// Runs an agent until the process is asked to end.
///
/// # Errors
/// Where an attended one can't start, or fails.
pub fn run(args: &args::Agent) -> Result<ExitCode> {
    if !args.attended {
        return Ok(command::main(&args.agent));
    }
    attended::end_with_input();
    let config = Config::load(args.agent.config.as_deref())?;
    let _telemetry = lynx_telemetry::init(&config.telemetry_settings())?;
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(attend(config))?;
    Ok(ExitCode::SUCCESS)
}

/// Runs an agent whose parent ends it.
async fn attend(config: Config) -> Result<()> {
    let agent = Agent::bind(config).await?;
    let (drain, peer) = (agent.drain_address(), agent.peer_address());
    attended::tell(
        "listening",
        json!({"http": agent.http_address(), "drain": drain, "peer": peer}),
    );
    let mut status = agent.status();
    tokio::select! {
        ended = agent.run(pending()) => Ok(ended?),
        // States end with the agent, and it is the agent that says why.
        Ok(never) = tell_states(&mut status) => match never {},
    }
}

/// Tells when an engine is refused, is attached, and when all links are up, each for the first time.
async fn tell_states(
    status: &mut watch::Receiver<Status>,
) -> Result<Infallible, watch::error::RecvError> {
    let first = status.wait_for(|status| status.ready || status.attach_error.is_some());
    let refused = first.await?.attach_error.clone();
    if let Some(why) = refused {
        attended::tell("refused", why);
    }
    status.wait_for(|status| status.ready).await?;
    attended::tell("attached", json!({}));
    status
        .wait_for(|status| !status.links.is_empty() && status.links.iter().all(|link| link.up))
        .await?;
    attended::tell("linked", json!({}));
    pending().await
}
