//! The process that holds a pod's namespaces in the tests' cluster: it waits to be told to end.
//!
//! Every pod has one, from an image that Kubernetes' own registry serves to everybody else. The tests' node fetches
//! nothing, so this one comes with them. Where a pod's containers share their process namespace, it is the first process
//! in it, so it also buries those whose parents are gone.

use std::io;

use rustix::process::{WaitOptions, wait};
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut child = signal(SignalKind::child())?;
    loop {
        tokio::select! {
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
            _ = child.recv() => bury(),
        }
    }
}

/// Takes note of every child that has ended: signals of several at once arrive as one.
fn bury() {
    while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
}
