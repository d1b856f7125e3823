//! The stream to the agent: dialled, kept, and dialled again when it has ended.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use lynx_proto::engine::v1::engine_api_client::EngineApiClient;
use lynx_proto::engine::v1::{Attach, FromEngine, from_agent, from_engine};
use lynx_telemetry::chain;
use tokio::net::UnixStream;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Status};
use tower::service_fn;

use crate::encoder::Encoded;

/// How long to leave an agent alone that is not there: at first, and at most.
const PAUSES: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(2)];
/// How long to leave an agent alone that does not take the engine. Ending instead would only have a cluster start the
/// engine over and over; its deployment's status says what does not fit, and another agent may take it.
const REFUSED_PAUSE: Duration = Duration::from_secs(5);
/// How often a missing agent is spoken of: at first, and then after this many attempts.
const ATTEMPTS_PER_WORD: u32 = 15;
/// The longest message: a prompt of a million tokens, and some.
const MAX_MESSAGE: usize = 16 << 20;
/// The longest path that a Unix socket can have, in bytes.
const MAX_PATH: usize = 107;

/// What the engine's thread is told.
#[derive(Debug)]
pub(crate) enum Signal {
    /// An agent has taken the engine; this is how it is spoken to.
    Attached(Outbox),
    /// What it says.
    Agent(Box<from_agent::Kind>),
    /// A long prompt is tokens now.
    Encoded(Box<Encoded>),
    /// It is gone.
    Lost,
    /// The process is asked to end.
    Stop,
}

/// Messages to the agent, in order.
pub(crate) type Outbox = UnboundedSender<FromEngine>;

/// Why a path can't be the agent's socket.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Longer than the system allows.
    #[error("the socket's path {} has {} bytes, and the system takes {MAX_PATH}: use a shorter one", .0.display(), .0.as_os_str().len())]
    TooLong(PathBuf),
    /// No such folder.
    #[error("there is no folder for the agent's socket {}: give the socket that the agent listens on by --socket; in a pod, mount the volume that both share", .0.display())]
    NoFolder(PathBuf),
}

/// Whether an agent could ever listen there.
pub(crate) fn check(socket: &Path) -> Result<(), SocketError> {
    if socket.as_os_str().len() > MAX_PATH {
        return Err(SocketError::TooLong(socket.to_owned()));
    }
    let folder = socket.parent().filter(|folder| *folder != Path::new(""));
    if folder.is_some_and(|folder| !folder.is_dir()) {
        return Err(SocketError::NoFolder(socket.to_owned()));
    }
    Ok(())
}

/// Attaches to whatever agent listens, again and again, until nobody hears `signals`.
pub(crate) async fn keep(socket: PathBuf, attach: Attach, signals: Sender<Signal>) {
    let [mut pause, longest] = PAUSES;
    let mut attempts = 0;
    let mut refused = String::new();
    loop {
        match converse(&socket, attach.clone(), &signals).await {
            End::Refused(why) => {
                if refused != why {
                    tracing::error!(why, "the agent refuses this engine, which goes on asking");
                    refused = why;
                }
                if signals.send(Signal::Lost).is_err() {
                    return;
                }
                pause = REFUSED_PAUSE;
            }
            End::Lost(why) => {
                tracing::warn!(why, "the agent is gone; it is waited for");
                if signals.send(Signal::Lost).is_err() {
                    return;
                }
                [pause, _] = PAUSES;
                attempts = 0;
            }
            End::Absent(why) => {
                if attempts % ATTEMPTS_PER_WORD == 0 {
                    tracing::warn!(
                        socket = %socket.display(),
                        why,
                        "no agent answers: is it running, and does it listen on this socket?"
                    );
                }
                attempts += 1;
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(longest);
    }
}

/// How an attempt has ended.
enum End {
    /// Nobody took the engine.
    Absent(String),
    /// Somebody had taken it.
    Lost(String),
    /// The agent says that the engine does not fit.
    Refused(String),
}

async fn converse(socket: &Path, attach: Attach, signals: &Sender<Signal>) -> End {
    let channel = match connect(socket).await {
        Ok(channel) => channel,
        Err(error) => return End::Absent(chain(&error)),
    };
    let (outbox, outgoing) = unbounded_channel();
    let first = FromEngine {
        kind: Some(from_engine::Kind::Attach(attach)),
    };
    drop(outbox.send(first));
    let mut client = EngineApiClient::new(channel)
        .max_decoding_message_size(MAX_MESSAGE)
        .max_encoding_message_size(MAX_MESSAGE);
    let answered = client.attach(UnboundedReceiverStream::new(outgoing)).await;
    let mut incoming = match answered {
        Ok(answer) => answer.into_inner(),
        Err(status) => return refused_or(&status, End::Absent),
    };
    match incoming.message().await {
        Ok(Some(message)) => match message.kind {
            Some(from_agent::Kind::Attached(attached)) => {
                tracing::info!(agent = attached.agent, "attached");
            }
            _ => return End::Absent("it began with something else than Attached".to_owned()),
        },
        Ok(None) => return End::Absent("it ended the stream without a word".to_owned()),
        Err(status) => return refused_or(&status, End::Absent),
    }
    if signals.send(Signal::Attached(outbox)).is_err() {
        return End::Lost("the engine has ended".to_owned());
    }
    loop {
        match incoming.message().await {
            Ok(Some(message)) => {
                // A kind of message that is not known here has no meaning for this engine.
                let Some(kind) = message.kind else { continue };
                if signals.send(Signal::Agent(Box::new(kind))).is_err() {
                    return End::Lost("the engine has ended".to_owned());
                }
            }
            Ok(None) => return End::Lost("it ended the stream".to_owned()),
            Err(status) => return refused_or(&status, End::Lost),
        }
    }
}

fn refused_or(status: &Status, otherwise: fn(String) -> End) -> End {
    if status.code() == Code::FailedPrecondition {
        End::Refused(status.message().to_owned())
    } else {
        otherwise(words(status))
    }
}

/// What the agent says; where it is the connection that fails, its own words mean nothing to anybody.
fn words(status: &Status) -> String {
    if std::error::Error::source(status).is_some() {
        tracing::debug!(error = chain(status), "the stream broke");
        "its process has ended, or has closed the socket".to_owned()
    } else {
        status.message().to_owned()
    }
}

async fn connect(socket: &Path) -> Result<Channel, tonic::transport::Error> {
    let socket: Arc<Path> = socket.into();
    // A name that is never looked up: the connector below knows where to go.
    Endpoint::from_static("http://lynx-agent")
        .connect_with_connector(service_fn(move |_: Uri| {
            let socket = socket.clone();
            async move { io::Result::Ok(TokioIo::new(UnixStream::connect(socket).await?)) }
        }))
        .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_that_no_agent_could_listen_on_is_refused() {
        let long = PathBuf::from("/").join("a".repeat(120));
        let message = check(&long).unwrap_err().to_string();
        assert!(message.contains("121 bytes"), "{message}");
        let folder = tempfile::tempdir().unwrap();
        let lost = folder.path().join("none").join("agent.sock");
        let message = check(&lost).unwrap_err().to_string();
        assert!(message.contains("--socket"), "{message}");
        check(&folder.path().join("agent.sock")).unwrap();
        check(Path::new("agent.sock")).unwrap();
    }
}
