//! Bandwidth and latency between two machines, for each priority.
//!
//! A TCP connection carries one introduction each way, and the word that it is over; all that is measured goes by RDMA. Both sides take the
//! same steps in the same order, so nothing else has to be said. Whoever reaches the port may write into the probe's own ring of 64 KiB, and
//! nowhere else.

mod introduction;
mod pair;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use lynx_units::{BitRate, Bytes, Priority};
use lynx_verbs::{CallError, ChooseError, LibraryError, RegisterError};
use tokio::io::BufReader;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use self::introduction::Introduction;
use self::pair::{Pair, ProbeFailure};
use super::{Class, RdmaArgs};
use crate::doctor::Finding;
use crate::run::chain;

/// How long the other side may take to introduce itself, and to say that it is done.
const PATIENCE: Duration = Duration::from_secs(20);

/// A probe that came to nothing.
#[derive(Debug, thiserror::Error)]
enum ProbeError {
    #[error(transparent)]
    Library(#[from] LibraryError),
    #[error(transparent)]
    Choose(#[from] ChooseError),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(transparent)]
    Register(#[from] RegisterError),
    #[error("the TCP connection that arranges the probe failed")]
    Arrangement(#[source] io::Error),
    #[error("the other side isn't this version of the probe")]
    Stranger,
    #[error("the other side was silent for {} s", PATIENCE.as_secs())]
    Silent,
    #[error("{0}")]
    Work(ProbeFailure),
}

/// What one priority got.
struct Measured {
    median: Duration,
    worst: Duration,
    there: BitRate,
    back: BitRate,
}

/// What the anchor got while the residual was written.
struct Beside {
    median: Duration,
    worst: Duration,
    trips: usize,
    residual: BitRate,
}

/// Sorts them.
fn median_and_worst(trips: &mut [Duration]) -> (Duration, Duration) {
    trips.sort_unstable();
    let median = trips.get(trips.len() / 2).copied().unwrap_or_default();
    (median, trips.last().copied().unwrap_or_default())
}

/// The probe that was asked for, if any.
pub(super) fn run(args: &RdmaArgs) -> Vec<Finding> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return vec![Finding::problem("RDMA probe", error.to_string(), "")],
    };
    if let Some(address) = args.serve {
        return runtime.block_on(serve(args, address));
    }
    let Some(address) = args.peer else {
        return Vec::new();
    };
    match runtime.block_on(ask(args, address)) {
        Ok((measured, beside)) => {
            let each = Priority::ALL.iter().zip(&measured);
            let mut found: Vec<_> = each
                .map(|(priority, got)| told(args, *priority, got))
                .collect();
            found.push(told_beside(&beside));
            found
        }
        Err(error) => vec![failed(address, &error)],
    }
}

fn told(args: &RdmaArgs, priority: Priority, got: &Measured) -> Finding {
    let Class {
        service_level,
        traffic_class,
    } = class(args, priority);
    let Measured {
        median,
        worst,
        there,
        back,
    } = got;
    let name = match priority {
        Priority::Anchor => "anchor",
        Priority::Residual => "residual",
    };
    let found = format!(
        "{name} (service level {service_level}, traffic class {traffic_class}): {median:.1?} there and back, {worst:.1?} at worst of {}; {there} there, {back} back",
        args.rounds,
    );
    Finding::good("RDMA probe", found)
}

/// Both priorities at once: what their classes are for.
fn told_beside(got: &Beside) -> Finding {
    let Beside {
        median,
        worst,
        trips,
        residual,
    } = got;
    let found = format!(
        "anchor while the residual is written: {median:.1?} there and back, {worst:.1?} at worst of {trips}; {residual} of residual there"
    );
    Finding::good("RDMA probe", found)
}

fn failed(address: SocketAddr, error: &ProbeError) -> Finding {
    Finding::problem(
        "RDMA probe",
        format!("{address}: {}", chain(error)),
        "run `doctor rdma --serve` there with the same classes; the other lines say what each side has",
    )
}

fn class(args: &RdmaArgs, priority: Priority) -> Class {
    match priority {
        Priority::Anchor => args.anchor,
        Priority::Residual => args.residual,
    }
}

/// Answers one after the other, and tells of each, until the process ends.
#[expect(clippy::print_stderr, reason = "there is no log, and this has no end")]
async fn serve(args: &RdmaArgs, address: SocketAddr) -> Vec<Finding> {
    let unbound = |error: io::Error| {
        vec![Finding::problem(
            "RDMA probe",
            format!("{address} can't be listened at: {error}"),
            "take another address",
        )]
    };
    let listener = match TcpListener::bind(address).await {
        Ok(listener) => listener,
        Err(error) => return unbound(error),
    };
    eprintln!("probes are answered at {address}");
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => return unbound(error),
        };
        match answer(args, stream).await {
            Ok(()) => eprintln!("{peer} was answered"),
            Err(error) => eprintln!("{peer}: {}", chain(&error)),
        }
    }
}

/// Arranges a probe over the connection: a pair for each priority, connected.
async fn arrange(
    args: &RdmaArgs,
    stream: &mut BufReader<TcpStream>,
    asks: bool,
) -> Result<(Pair, Introduction), ProbeError> {
    let peer = stream
        .get_ref()
        .peer_addr()
        .map_err(ProbeError::Arrangement)?;
    let source = stream
        .get_ref()
        .local_addr()
        .map_err(ProbeError::Arrangement)?;
    let mut pair = Pair::new(args.device.as_ref(), address(peer), Some(address(source)))?;
    let own = pair.introduction(args.rounds, args.mebibytes);
    let exchange = async {
        if asks {
            own.write(stream).await?;
            Introduction::read(stream).await
        } else {
            let theirs = Introduction::read(stream).await?;
            own.write(stream).await?;
            Ok(theirs)
        }
    };
    let theirs = timeout(PATIENCE, exchange)
        .await
        .map_err(|_| ProbeError::Silent)??;
    for priority in Priority::ALL {
        pair.connect(priority, class(args, priority), &theirs)?;
    }
    // Whoever writes to a pair that isn't connected yet is only answered when it is sent again.
    timeout(PATIENCE, introduction::meet(stream))
        .await
        .map_err(|_| ProbeError::Silent)??;
    Ok((pair, theirs))
}

fn address(socket: SocketAddr) -> IpAddr {
    socket.ip().to_canonical()
}

async fn answer(args: &RdmaArgs, stream: TcpStream) -> Result<(), ProbeError> {
    let mut stream = BufReader::new(stream);
    let (mut pair, theirs) = arrange(args, &mut stream, false).await?;
    for priority in Priority::ALL {
        pair.echo(priority, theirs.rounds).await?;
        pair.listen(priority).await?;
        pair.pour(priority, theirs.pieces()).await?;
    }
    pair.echo_to_the_last().await?;
    timeout(PATIENCE, introduction::meet(&mut stream))
        .await
        .map_err(|_| ProbeError::Silent)?
}

async fn ask(args: &RdmaArgs, address: SocketAddr) -> Result<([Measured; 2], Beside), ProbeError> {
    let connecting = timeout(PATIENCE, TcpStream::connect(address));
    let stream = connecting.await.map_err(|_| ProbeError::Silent)?;
    let mut stream = BufReader::new(stream.map_err(ProbeError::Arrangement)?);
    let (mut pair, _) = arrange(args, &mut stream, true).await?;
    let own = pair.introduction(args.rounds, args.mebibytes);
    let bytes = Bytes::from_mib(u64::from(args.mebibytes));
    let mut measured = Vec::new();
    for priority in Priority::ALL {
        let mut trips = pair.ping(priority, own.rounds).await?;
        let (median, worst) = median_and_worst(&mut trips);
        let there = pair.pour(priority, own.pieces()).await?;
        let back = pair.listen(priority).await?;
        measured.push(Measured {
            median,
            worst,
            there: BitRate::from_delivery(bytes, there),
            back: BitRate::from_delivery(bytes, back),
        });
    }
    let (mut trips, took) = pair.ping_beside(own.pieces()).await?;
    let (median, worst) = median_and_worst(&mut trips);
    let beside = Beside {
        median,
        worst,
        trips: trips.len(),
        residual: BitRate::from_delivery(bytes, took),
    };
    timeout(PATIENCE, introduction::meet(&mut stream))
        .await
        .map_err(|_| ProbeError::Silent)??;
    let measured = measured.try_into().map_err(|_| ProbeError::Stranger)?;
    Ok((measured, beside))
}
