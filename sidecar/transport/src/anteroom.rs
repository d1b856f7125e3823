//! Connections that nobody knows yet.
//!
//! There is room for a bounded number of them, and a newcomer always finds some: the address that has most of them here
//! gives one up, the one that has been silent longest. Not a queue: who has opened many silent connections would make all
//! others wait behind them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::{AbortHandle, JoinError, JoinSet};

/// Tasks that each find out who is at the other end of a connection.
#[derive(Debug)]
pub struct Anteroom<T> {
    tasks: JoinSet<T>,
    /// The oldest first.
    guests: Vec<Guest>,
    most: usize,
}

/// Whether a connection has said anything.
#[derive(Clone, Debug, Default)]
pub struct Spoken(Arc<AtomicBool>);

#[derive(Debug)]
struct Guest {
    from: IpAddr,
    spoken: Spoken,
    task: AbortHandle,
}

impl Spoken {
    /// It has.
    pub fn note(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl<T: Send + 'static> Anteroom<T> {
    /// Room for so many.
    pub fn new(most: usize) -> Self {
        Self {
            tasks: JoinSet::new(),
            guests: Vec::new(),
            most,
        }
    }

    /// Takes in a connection from this address, whose task `begin` makes; another one is dropped for it where the room
    /// is full. Call it within a Tokio runtime.
    pub fn admit<F>(&mut self, from: IpAddr, begin: impl FnOnce(Spoken) -> F)
    where
        F: Future<Output = T> + Send + 'static,
    {
        self.guests.retain(|guest| !guest.task.is_finished());
        if self.guests.len() >= self.most {
            let states = self.guests.iter();
            let states = states.map(|guest| (guest.from, guest.spoken.0.load(Ordering::Relaxed)));
            if let Some(index) = given_up(&states.collect::<Vec<_>>()) {
                self.guests.remove(index).task.abort();
            }
        }
        let spoken = Spoken::default();
        let task = self.tasks.spawn(begin(spoken.clone()));
        self.guests.push(Guest { from, spoken, task });
    }

    /// The next task that has ended; `None` where there is none. Loses nothing where it is dropped.
    pub async fn next(&mut self) -> Option<Result<T, JoinError>> {
        self.tasks.join_next().await
    }
}

/// Which of these goes, the oldest first, each with whether it has said anything: of the address that has most the
/// oldest silent one, or its oldest.
pub(crate) fn given_up(guests: &[(IpAddr, bool)]) -> Option<usize> {
    let mut counts = HashMap::<IpAddr, usize>::new();
    for (from, _) in guests {
        *counts.entry(*from).or_default() += 1;
    }
    let most = counts.values().max()?;
    let is_theirs = |from: &IpAddr| counts.get(from) == Some(most);
    let silent = guests
        .iter()
        .position(|(from, spoke)| is_theirs(from) && !spoke);
    silent.or_else(|| guests.iter().position(|(from, _)| is_theirs(from)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const BAD: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    #[test]
    fn the_address_with_most_connections_gives_up_its_oldest_silent_one() {
        assert_eq!(given_up(&[]), None);
        assert_eq!(
            given_up(&[(GOOD, false), (BAD, false), (BAD, false)]),
            Some(1)
        );
        assert_eq!(
            given_up(&[(GOOD, false), (BAD, true), (BAD, false)]),
            Some(2)
        );
        assert_eq!(
            given_up(&[(GOOD, false), (BAD, true), (BAD, true)]),
            Some(1)
        );
        assert_eq!(given_up(&[(BAD, true), (GOOD, false)]), Some(1));
    }

    #[tokio::test]
    async fn a_newcomer_always_finds_room_and_the_room_stays_bounded() {
        let mut room = Anteroom::new(4);
        for _ in 0..100 {
            room.admit(BAD, |_| std::future::pending::<u32>());
        }
        room.admit(GOOD, |_| async { 7 });
        let mut dropped = 0;
        loop {
            match room.next().await.unwrap() {
                Ok(ended) => break assert_eq!(ended, 7),
                Err(error) => {
                    assert!(error.is_cancelled());
                    dropped += 1;
                }
            }
        }
        assert!(dropped <= 97, "{dropped}");
        while room.tasks.len() > 3 {
            assert!(room.next().await.unwrap().unwrap_err().is_cancelled());
        }
    }
}
