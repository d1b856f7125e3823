//! The decode node's connections to its prefill node.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use anyhow::{Context as _, Result};
use lynx_protocol::CreditBook;
use lynx_protocol::receiver::ReceiverConfig;
use lynx_transport::{Dialler, LinkConfig, ReceiverEvent, ReceiverHandle};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use super::messages::{Answer, Ask, Command};

/// How long the peer may be away before the node gives up.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the engine's thread is told.
pub(super) enum Signal {
    /// By the parent.
    Command(Result<Command>),
    /// There is a link, with this end of it.
    Connected(ReceiverHandle),
    /// By the link.
    Link(ReceiverEvent),
    /// By the prefill node, about a run.
    Answer(u64, Answer),
    /// The node can't go on.
    Lost(anyhow::Error),
}

/// Holds a link to the prefill node, and passes on what happens on it.
pub(super) async fn keep_linked(data: SocketAddr, config: LinkConfig, signals: Sender<Signal>) {
    let mut dialler = Dialler::new(data, config);
    let book = CreditBook::new(ReceiverConfig::default().window.into_iter().sum());
    loop {
        let (handle, mut events) = match link(&mut dialler, &book).await {
            Ok(link) => link,
            Err(error) => return drop(signals.send(Signal::Lost(error))),
        };
        if signals.send(Signal::Connected(handle)).is_err() {
            return;
        }
        while let Some(event) = events.next().await {
            if signals.send(Signal::Link(event)).is_err() {
                return;
            }
        }
    }
}

async fn link(
    dialler: &mut Dialler,
    book: &Arc<CreditBook>,
) -> Result<(ReceiverHandle, lynx_transport::ReceiverEvents)> {
    let connected = dialler.connect(PATIENCE).await?;
    Ok(connected.into_receiver(ReceiverConfig::default(), book)?)
}

/// Asks the prefill node for one request's KV, and passes on its answers.
pub(super) async fn converse(control: SocketAddr, ask: Ask, signals: Sender<Signal>) {
    let run = ask.spec.run;
    if let Err(error) = conversation(control, &ask, &signals).await {
        let message = format!("{error:#}");
        drop(signals.send(Signal::Answer(run, Answer::Failed { message })));
    }
}

async fn conversation(control: SocketAddr, ask: &Ask, signals: &Sender<Signal>) -> Result<()> {
    let reached = TcpStream::connect(control).await;
    let mut stream = reached.context("reaching the prefill node")?;
    let mut line = serde_json::to_vec(ask)?;
    line.push(b'\n');
    stream.write_all(&line).await?;
    let mut lines = BufReader::new(stream).lines();
    while let Some(line) = lines.next_line().await? {
        let answer = serde_json::from_str(&line);
        let answer = answer.context("the prefill node's answer can't be read")?;
        drop(signals.send(Signal::Answer(ask.spec.run, answer)));
    }
    Ok(())
}
