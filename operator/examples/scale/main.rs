//! Measures the operator at scale: `scale OPERATOR [DEPLOYMENTS] [STEADY_SECONDS] [ROWS]`, on a control plane without nodes.
//!
//! So many LynxDeployments of two prefill and four decode pods on a real API server with its controllers and scheduler. One node
//! is an object that this program keeps alive; it calls pods ready as a kubelet would, and plays their agents, which join, link
//! and report every two seconds as real ones do. The operator is a process of its own, started from OPERATOR; what it says about
//! itself at `/metrics` is what is reported, and its memory is what the kernel says.
#![expect(clippy::print_stdout, reason = "it prints its measurements")]
#![expect(clippy::unwrap_used, reason = "a bench whose world breaks is over")]
#![expect(
    clippy::disallowed_methods,
    reason = "a bench reads the clock and the environment"
)]

mod figures;
mod fleet;
mod node;
mod process;

use std::error::Error;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use kube::Client;
use serde_json::json;

use fleet::Fleet;
use process::Operator;

/// Between two looks at how far things are.
const POLL: Duration = Duration::from_millis(500);
/// For all pods to be there on a slow machine.
const PATIENCE: Duration = Duration::from_secs(900);
/// After the last pod is ready: statuses and links settle.
const SETTLE: Duration = Duration::from_secs(20);
/// Between two changes.
const PACE: Duration = Duration::from_millis(100);

struct Arguments {
    operator: PathBuf,
    deployments: usize,
    steady: Duration,
    rows: Option<PathBuf>,
}

fn arguments() -> Result<Arguments, Box<dyn Error>> {
    let mut all = std::env::args().skip(1);
    let operator = all
        .next()
        .ok_or("usage: scale OPERATOR [DEPLOYMENTS] [STEADY_SECONDS] [ROWS]")?;
    let deployments = all.next().map_or(Ok(100), |text| text.parse())?;
    let steady = all.next().map_or(Ok(120), |text| text.parse())?;
    Ok(Arguments {
        operator: operator.into(),
        deployments,
        steady: Duration::from_secs(steady),
        rows: all.next().map(PathBuf::from),
    })
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments = arguments()?;
    let client = Client::try_default().await?;
    lynx_operator::crd::apply(&client).await?;
    node::create(&client).await?;
    let operator = Operator::start(&arguments.operator).await?;
    let fleet = Fleet::start(client, operator.agents, arguments.deployments);
    let row = measure(&arguments, &operator, &fleet).await?;
    println!("{row:#}");
    if let Some(path) = &arguments.rows {
        std::fs::write(path, format!("{row:#}\n"))?;
    }
    Ok(())
}

async fn measure(
    arguments: &Arguments,
    operator: &Operator,
    fleet: &Fleet,
) -> Result<serde_json::Value, Box<dyn Error>> {
    let begun = Instant::now();
    fleet.create().await?;
    fleet.settled(2, PATIENCE).await?;
    let up = begun.elapsed();
    tokio::time::sleep(SETTLE).await;
    let ramp = operator.figures().await?;

    let (before, at) = (operator.figures().await?, Instant::now());
    tokio::time::sleep(arguments.steady).await;
    let steady = operator.figures().await?.since(&before);
    let quiet = at.elapsed();

    let before = operator.figures().await?;
    let mut waits = fleet.change_each(3, PACE).await?;
    fleet.settled(3, PATIENCE).await?;
    tokio::time::sleep(SETTLE).await;
    let changes = operator.figures().await?.since(&before);
    waits.sort();
    let at = |share: usize| waits[(waits.len() * share / 100).min(waits.len() - 1)].as_millis();

    let memory = operator.memory()?;
    Ok(json!({
        "deployments": arguments.deployments,
        "pods": fleet.ready(),
        "agents": steady.gauge("lynx_operator_agents"),
        "up_seconds": up.as_secs_f64(),
        "ramp": ramp.row(),
        "steady": steady.row(),
        "steady_seconds": quiet.as_secs_f64(),
        "changes": changes.row(),
        "change_to_write_ms": {"p50": at(50), "p99": at(99)},
        "memory_mib": {"now": memory.now_mib, "peak": memory.peak_mib},
        "processor_seconds": memory.processor_seconds,
    }))
}
