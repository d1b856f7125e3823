//! The embedded engine as a process of its own, behind the engine API.
//!
//! [`run`] opens a model, puts its KV pool into a file that the agent maps too, dials the agent's socket, and does what the
//! agent says until the process is told to end. The engine has a thread; the socket has another, and a third makes tokens of
//! long prompts; they meet in channels, and nothing waits for a lock. What the agent said is heard before the next step begins, and never within one.
//!
//! It is the model of a connector for any other engine: what of it is protocol is in `host`, and the contract itself in
//! `proto/lynx/engine/v1/engine.proto`. It has no queue, no HTTP and no policy: a request that finds no blocks is refused,
//! and the agent, which sees all requests, asks again.

mod attach;
mod clock;
mod encoder;
mod heap;
mod host;
mod memory;
mod opened;
mod options;
mod phases;
mod pool_file;
mod request;
mod session;
#[cfg(test)]
mod tests;
mod text;

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use lynx_engine::{PoolError, StartError, StepError};
use lynx_telemetry as telemetry;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};

use clock::Clock;
use encoder::Encoder;
use host::Host;
use opened::Opened;
use pool_file::PoolFile;
use session::Signal;

pub use opened::OpenError;
pub use options::{Options, Role};
pub use pool_file::PoolFileError;
pub use session::SocketError;

/// Why an engine could not start, or ended before it was told to.
#[derive(Debug, thiserror::Error)]
pub enum ConnectorError {
    /// Logs and traces can't be as they were asked for.
    #[error(transparent)]
    Telemetry(#[from] telemetry::InitError),
    /// The socket can't be one.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The model can't be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The pool's file can't be made.
    #[error(transparent)]
    PoolFile(#[from] PoolFileError),
    /// The pool can't lie in its file.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The engine can't start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// No thread for the socket, or no signals.
    #[error("can't start: {0}")]
    System(#[from] io::Error),
    /// The engine can't go on.
    #[error(transparent)]
    Step(#[from] StepError),
}

/// Runs an engine until the process is asked to end (SIGTERM, SIGINT).
///
/// # Errors
/// Where it can't start, or where the model can't be evaluated. An agent that is not there, goes away or says that the
/// engine does not fit is asked again.
pub fn run(options: &Options) -> Result<(), ConnectorError> {
    let _telemetry = telemetry::init(&options.telemetry)?;
    let (signals, inbox) = channel();
    let runtime = runtime()?;
    listen_for_the_end(&runtime, signals.clone())?;
    let opened = Arc::new(Opened::open(&options.model)?);
    serve(options, opened, &runtime, (signals, &inbox))
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
}

/// Runs an engine until it is told to stop, or nobody is left who could tell it.
fn serve(
    options: &Options,
    opened: Arc<Opened>,
    runtime: &Runtime,
    (signals, inbox): (Sender<Signal>, &Receiver<Signal>),
) -> Result<(), ConnectorError> {
    session::check(&options.socket)?;
    let file = PoolFile::create(&options.shared_directory, &options.pool_file)?;
    let engine = opened.engine(options, &file)?;
    memory::forget_peak();
    let attach = attach::message(options, &opened, &engine);
    tracing::info!(
        model = attach.model,
        blocks = options.kv_blocks,
        pool = %file.path().display(),
        "the engine is ready"
    );
    let encoder = Encoder::start(Arc::clone(&opened), engine.longest(), signals.clone())?;
    let attached = runtime.spawn(session::keep(options.socket.clone(), attach, signals));
    let mut host = Host::new(engine, opened, options.role, Clock::start(), encoder);
    let ended = host.run(inbox);
    // Before the host lets go of the agent: a stream that ends is dialled again, and the agent would meet an engine that is
    // about to go.
    attached.abort();
    ended
}

fn listen_for_the_end(runtime: &Runtime, signals: Sender<Signal>) -> io::Result<()> {
    let _entered = runtime.enter();
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        let (mut asked, signals) = (signal(kind)?, signals.clone());
        runtime.spawn(async move {
            asked.recv().await;
            drop(signals.send(Signal::Stop));
        });
    }
    Ok(())
}
