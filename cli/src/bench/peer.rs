//! `lynx bench peer`: one end of a transfer as a process of its own, told over standard input what to do.
//!
//! `make bench-peers` runs two of these in two network namespaces, beside the same two ends of plain TCP, NIXL and Mooncake, and
//! gives all of them the same orders; `tests/peers/end.py` is the same contract in Python. An order is a line of JSON, and so is
//! an answer. This is the transport that agents use, with its chunks, checksums and credit; only the payload is made up. It
//! refuses to compute a ratio: who compares has to see all peers.

mod payload;
mod receive;
mod send;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use lynx_tls::{Credentials, UnixTime};
use lynx_transport::{Clock, LinkConfig, PeerInfo};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines, Stdin, Stdout};

/// How long a link may take to come up.
const PATIENCE: Duration = Duration::from_secs(10);

/// Which end, and where it finds the other.
#[derive(Clone, Copy, Debug)]
pub enum End {
    /// Listens at this address, and receives from whoever dials.
    Receive(SocketAddr),
    /// Dials the receiver, whose hello is the first line of standard input.
    Send,
}

/// Runs one end until standard input ends.
///
/// # Errors
/// The link does not come up or breaks, or an order makes no sense.
pub async fn run(end: End, tls: Option<&Path>) -> Result<()> {
    let clock = Clock::start();
    let open = |directory| Credentials::open(directory, None, UnixTime::now());
    let credentials = tls.map(open).transpose()?;
    let config = |name| -> Result<LinkConfig> {
        let config = LinkConfig::new(clock, PeerInfo::new(name))?;
        Ok(config.with_credentials(credentials.clone()))
    };
    let mut orders = Orders::new();
    match end {
        End::Receive(listen) => receive::run(listen, config("receiver")?, &mut orders).await,
        End::Send => send::run(clock, config("sender")?, &mut orders).await,
    }
}

/// The lines from and to whoever compares.
#[derive(Debug)]
struct Orders {
    input: Lines<BufReader<Stdin>>,
    output: Stdout,
}

impl Orders {
    fn new() -> Self {
        Self {
            input: BufReader::new(tokio::io::stdin()).lines(),
            output: tokio::io::stdout(),
        }
    }

    /// The next order; `None` where there are no more. May be dropped and called again.
    async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        let line = self.input.next_line().await?;
        let parse = |line: String| {
            serde_json::from_str(&line).with_context(|| format!("no order of a bench: {line}"))
        };
        line.map(parse).transpose()
    }

    async fn answer(&mut self, answer: &impl Serialize) -> Result<()> {
        let line = serde_json::to_string(answer)? + "\n";
        self.output.write_all(line.as_bytes()).await?;
        Ok(self.output.flush().await?)
    }
}

/// Processor time of this process so far, of all its threads, in the kernel too; in seconds.
fn cpu_seconds() -> f64 {
    seconds(ClockId::ProcessCPUTime)
}

/// The present moment on the clock that all processes of this machine share; in seconds.
fn moment() -> f64 {
    seconds(ClockId::Monotonic)
}

fn seconds(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    (Duration::from_secs(seconds) + Duration::from_nanos(nanos)).as_secs_f64()
}
