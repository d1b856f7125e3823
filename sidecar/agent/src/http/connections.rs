//! Connections: how many there are at a time, and how long each may keep a place without using it.
//!
//! A client that sends its request's head slowly, keeps a connection open for nothing, or doesn't read its answer holds
//! memory and a place for as long as it likes, unless somebody looks at the clock. Not axum's own server: that waits
//! for ever. The last places are kept for those who ask how the agent is: a kubelet that finds no place would have
//! the pod killed because its clients are many.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::patience::Patient;

/// Places besides those of clients, for those who ask how the agent is.
const PROBES: usize = 16;
/// Most fields in a request's head.
const MAX_HEADERS: usize = 64;
/// The longest head, in bytes; also what is read ahead of a connection.
const MAX_HEAD: usize = 32 << 10;
/// How long to wait where the system has no more file descriptors.
const NO_DESCRIPTORS: Duration = Duration::from_secs(1);
/// What a connection without a place is told.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// What connections may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How many there may be at a time; a few more are served where they only ask how the agent is.
    pub connections: usize,
    /// How long the head of the next request may take, from the last answer's end on.
    pub idle: Duration,
    /// How long a client may take none of what there is for it.
    pub write: Duration,
}

/// Serves connections until told to stop, then lets what they are about end.
///
/// `router` answers; `crowded` answers where clients have all their places: what probes ask, and nothing else.
///
/// # Errors
/// Never at present: a connection that fails ends alone.
pub async fn serve(
    listener: TcpListener,
    [router, crowded]: [Router; 2],
    limits: Limits,
    stop: CancellationToken,
) -> io::Result<()> {
    let places = Arc::new(Semaphore::new(limits.connections));
    let probes = Arc::new(Semaphore::new(PROBES));
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            () = stop.cancelled() => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) if is_of_one_connection(&error) => continue,
            Err(error) => {
                tracing::warn!("no connection can be taken: {error}");
                tokio::time::sleep(NO_DESCRIPTORS).await;
                continue;
            }
        };
        // Tokens are small and wanted at once.
        drop(stream.set_nodelay(true));
        if let Ok(place) = Arc::clone(&places).try_acquire_owned() {
            connections.spawn(converse(
                stream,
                router.clone(),
                limits,
                stop.clone(),
                place,
            ));
        } else if let Ok(place) = Arc::clone(&probes).try_acquire_owned() {
            connections.spawn(converse(
                stream,
                crowded.clone(),
                limits,
                stop.clone(),
                place,
            ));
        } else {
            refuse(stream);
        }
    }
    while connections.join_next().await.is_some() {}
    Ok(())
}

/// Serves one connection.
async fn converse(
    stream: TcpStream,
    router: Router,
    limits: Limits,
    stop: CancellationToken,
    place: OwnedSemaphorePermit,
) {
    let mut builder = Builder::new(TokioExecutor::new()).http1_only();
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.idle)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEAD);
    let stream = TokioIo::new(Patient::new(stream, limits.write));
    let connection = builder.serve_connection(stream, TowerToHyperService::new(router));
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!("a connection ended: {error}");
    }
    drop(place);
}

/// Says that there is no place, if that can be said at once.
fn refuse(mut stream: TcpStream) {
    tokio::spawn(async move {
        // It may be gone, and nobody waits for it.
        let said = tokio::time::timeout(NO_DESCRIPTORS, stream.write_all(FULL));
        drop(said.await);
    });
}

/// Whether only the connection that was to be taken is at fault.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
    )
}
