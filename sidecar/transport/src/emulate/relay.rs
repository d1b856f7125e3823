//! The relay: accepts connections, and holds the link's knobs.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use lynx_units::{BitRate, Bytes};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use super::connection;
use super::options::{Direction, LinkOptions};
use super::pipe::{Knobs, Pipe, pipe};
use crate::Clock;

/// How long to leave the listener alone after an accept has failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Why a relay could not start.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    /// The address to listen on can't be had.
    #[error(
        "can't listen on {address} for the emulated link: {source}; choose another address, or port 0 for a free one"
    )]
    Listen {
        /// The address that was asked for.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The system has no timers or descriptors left.
    #[error("can't create a timer for the emulated link: {source}")]
    Timer {
        /// What the system said.
        source: io::Error,
    },
}

/// An emulated link in front of a target. Dropping it ends the link and every connection through it.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    from_target: watch::Sender<Knobs>,
    to_target: watch::Sender<Knobs>,
    cuts: watch::Sender<u64>,
    tasks: [JoinHandle<()>; 3],
}

impl Relay {
    /// Listens on `listen` (port 0 for a free one) and carries each connection to `target` over the link. Call it within
    /// a Tokio runtime with I/O and time enabled.
    ///
    /// # Errors
    /// The address is in use or not this machine's; or the system is out of descriptors.
    pub fn start(
        listen: SocketAddr,
        target: SocketAddr,
        options: LinkOptions,
    ) -> Result<Self, RelayError> {
        let clock = Clock::start();
        let listener = connection::listen(listen)
            .and_then(|listener| Ok((listener.local_addr()?, listener)))
            .map_err(|source| RelayError::Listen {
                address: listen,
                source,
            });
        let (address, listener) = listener?;
        let knobs = Knobs {
            rate: options.rate,
            corrupt_after: None,
        };
        let (from_target, to_target) = (watch::Sender::new(knobs), watch::Sender::new(knobs));
        let (back, back_pacer) = pipe(options, clock, from_target.clone())
            .map_err(|source| RelayError::Timer { source })?;
        let (forth, forth_pacer) = pipe(options, clock, to_target.clone())
            .map_err(|source| RelayError::Timer { source })?;
        let cuts = watch::Sender::new(0);
        let accept = Accept {
            target,
            back,
            forth,
            clock,
            cuts: cuts.clone(),
        };
        let tasks = [
            tokio::spawn(accept.run(listener)),
            // A pacer fails only where its kernel timer does; its connections then stand still and their owners' liveness
            // timers say so.
            tokio::spawn(async { drop(back_pacer.run().await) }),
            tokio::spawn(async { drop(forth_pacer.run().await) }),
        ];
        Ok(Self {
            address,
            from_target,
            to_target,
            cuts,
            tasks,
        })
    }

    /// Where the relay listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes the rate of both directions from the next packet on. [`BitRate::ZERO`] makes the link silent without
    /// closing a connection.
    pub fn set_rate(&self, rate: BitRate) {
        for knobs in [&self.from_target, &self.to_target] {
            knobs.send_modify(|knobs| knobs.rate = rate);
        }
    }

    /// Flips one bit of the byte that passes `after` bytes from now in `direction`.
    pub fn corrupt(&self, direction: Direction, after: Bytes) {
        let knobs = match direction {
            Direction::FromTarget => &self.from_target,
            Direction::ToTarget => &self.to_target,
        };
        knobs.send_modify(|knobs| knobs.corrupt_after = Some(after));
    }

    /// Closes every connection through the relay, with whatever is on the way. New ones are accepted.
    pub fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// What the accepting task needs.
struct Accept {
    target: SocketAddr,
    back: Pipe,
    forth: Pipe,
    clock: Clock,
    cuts: watch::Sender<u64>,
}

impl Accept {
    /// Accepts until aborted. The connections are its children: they end with it.
    async fn run(self, listener: TcpListener) {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((client, _)) => {
                        connections.spawn(self.serve(client));
                    }
                    // A connection that was reset before it was accepted, or a lack of descriptors that may pass.
                    Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
                },
                Some(_) = connections.join_next() => {}
            }
        }
    }

    /// Carries one connection until both directions have ended, one has failed, or the link is cut.
    fn serve(&self, client: TcpStream) -> impl Future<Output = ()> + use<> {
        let mut cuts = self.cuts.subscribe();
        let (target, clock) = (self.target, self.clock);
        let (back, forth) = (self.back.clone(), self.forth.clone());
        let carry = async move {
            let server = connection::connect(target).await?;
            client.set_nodelay(true)?;
            server.set_nodelay(true)?;
            let (client_read, client_write) = client.into_split();
            let (server_read, server_write) = server.into_split();
            tokio::try_join!(
                connection::carry(client_read, server_write, forth, clock),
                connection::carry(server_read, client_write, back, clock),
            )?;
            io::Result::Ok(())
        };
        async move {
            tokio::select! {
                // Its error is the peers' to notice: both sockets are closed by now.
                ended = carry => drop(ended),
                _ = cuts.changed() => {}
            }
        }
    }
}
