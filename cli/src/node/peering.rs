//! The decode node's connections to its prefill node.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use anyhow::{Context as _, Result};
use lynx_protocol::CreditBook;
use lynx_protocol::receiver::ReceiverConfig;
use lynx_transport::{DialError, Dialler, LinkConfig, ReceiverEvent, ReceiverHandle};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use super::messages::{Answer, Ask, Command};

/// How long the peer may be away when the node starts, before it gives up.
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

/// Holds a link to the prefill node, and passes on what happens on it. A peer that was there once is waited for as long as it
/// takes: meanwhile the engine computes prompts itself.
pub(super) async fn keep_linked(data: SocketAddr, config: LinkConfig, signals: Sender<Signal>) {
    let mut dialler = Dialler::new(data, config);
    let book = CreditBook::new(ReceiverConfig::default().window.into_iter().sum());
    let mut was_there = false;
    loop {
        let (handle, mut events) = match link(&mut dialler, &book).await {
            Ok(link) => link,
            Err(error) if was_there && may_come_back(&error) => continue,
            Err(error) => return drop(signals.send(Signal::Lost(error))),
        };
        was_there = true;
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

/// Whether dialling again can help: not where the peer is another one now, and refuses this node.
fn may_come_back(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<DialError>();
    error.is_some_and(DialError::is_retryable)
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

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn a_silent_peer_may_come_back_and_one_that_does_not_fit_may_not() {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let source = lynx_transport::HandshakeError::Silent;
        let silent = DialError::Unreachable { address, source };
        assert!(may_come_back(&silent.into()));
        let difference = "codec is 1 here and 2 there".to_owned();
        let other = DialError::Incompatible {
            address,
            difference,
        };
        assert!(!may_come_back(&other.into()));
    }
}
