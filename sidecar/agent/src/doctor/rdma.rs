//! `lynx doctor rdma`: what RDMA this machine has, and what it does between two.
//!
//! What libibverbs and the kernel's files tell is listed; a probe with a second machine says what each priority's class gets. The probe
//! is its own small conversation and not a link: it needs no agent on either side, and measures the fabric, not Lynx.

#[cfg(feature = "rdma")]
mod devices;
mod hints;
#[cfg(feature = "rdma")]
mod probe;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::str::FromStr;

use clap::Args;
use lynx_verbs::Choice;

#[cfg(not(feature = "rdma"))]
use super::Finding;
use super::{Grade, Root, write};

/// What is looked at, and with whom.
#[derive(Clone, Debug, Args)]
pub struct RdmaArgs {
    /// The device to probe with: DEVICE, DEVICE:PORT or DEVICE:PORT:GID; by default the one that reaches the peer
    #[arg(long, value_name = "DEVICE")]
    device: Option<Choice>,
    /// Answer the probes of others at this address, until interrupted; whoever reaches it is answered
    #[arg(long, value_name = "ADDRESS", conflicts_with = "peer")]
    serve: Option<SocketAddr>,
    /// Probe the path to one who answers at this address
    #[arg(long, value_name = "ADDRESS")]
    peer: Option<SocketAddr>,
    /// Service level and traffic class of the anchor's packets; both sides say the same
    #[arg(long, value_name = "LEVEL:CLASS", default_value = "0:0")]
    anchor: Class,
    /// Service level and traffic class of the residual's packets; both sides say the same
    #[arg(long, value_name = "LEVEL:CLASS", default_value = "0:0")]
    residual: Class,
    /// Round trips of 64 bytes for each priority
    #[arg(long, value_name = "N", default_value = "1000", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rounds: u32,
    /// How much is written each way for each priority, in MiB
    #[arg(long, value_name = "MIB", default_value = "1024", value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    mebibytes: u32,
}

/// How a priority's packets are marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Class {
    /// 0 to 7.
    service_level: u8,
    /// The IP header's byte: DSCP times four.
    traffic_class: u8,
}

impl FromStr for Class {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let class = text.split_once(':').and_then(|(level, class)| {
            let service_level = level.parse().ok().filter(|level| *level < 8)?;
            let traffic_class = class.parse().ok()?;
            Some(Self {
                service_level,
                traffic_class,
            })
        });
        class.ok_or_else(|| {
            "a class is a service level from 0 to 7 and a traffic class from 0 to 255, such as 3:104"
                .to_owned()
        })
    }
}

/// Looks, and probes where that was asked for.
#[expect(clippy::print_stderr, reason = "there is no log")]
pub fn main(args: &RdmaArgs) -> ExitCode {
    let mut findings = devices(&Root::real());
    findings.extend(hints::examine(&Root::real()));
    findings.extend(probed(args));
    match write(&mut std::io::stdout(), &findings) {
        Ok(()) if findings.iter().all(|found| found.grade < Grade::Problem) => ExitCode::SUCCESS,
        Ok(()) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("lynx: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(feature = "rdma")]
use devices::examine as devices;
#[cfg(feature = "rdma")]
use probe::run as probed;

/// A build without verbs sees only what the kernel's files say.
#[cfg(not(feature = "rdma"))]
fn devices(root: &Root) -> Vec<Finding> {
    let adapters = root.names("/sys/class/infiniband");
    let found = if adapters.is_empty() {
        "no RDMA device is seen".to_owned()
    } else {
        format!("the kernel has {}", adapters.join(", "))
    };
    vec![Finding::note(
        "RDMA",
        format!("{found}; this build has no RDMA"),
        "nothing, where TCP is fine; otherwise an image of `make images ARGS=--rdma`, or a build with the feature rdma",
    )]
}

#[cfg(not(feature = "rdma"))]
fn probed(args: &RdmaArgs) -> Vec<Finding> {
    let asked = args.serve.or(args.peer);
    asked
        .map(|address| {
            Finding::problem(
                "RDMA probe",
                format!("{address} was not probed: this build has no RDMA"),
                "a build with the feature rdma",
            )
        })
        .into_iter()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_a_level_and_a_byte() {
        let class = Class {
            service_level: 3,
            traffic_class: 104,
        };
        assert_eq!("3:104".parse(), Ok(class));
        for wrong in ["", "3", "8:0", "0:256", "a:0", "1:2:3"] {
            assert!(wrong.parse::<Class>().is_err(), "{wrong}");
        }
    }
}
