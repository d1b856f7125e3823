//! One side's queue pairs and memory, and the steps of a probe.

use std::collections::VecDeque;
use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::IpAddr;
use std::time::Duration;

use lynx_transport::Clock;
use lynx_units::Priority;
use lynx_verbs::{
    Choice, Completion, CompletionQueue, Domain, Failure, Library, Outcome, Path, QueuePair, Ring,
    Sizes, Staging, Target, Wakeups, Write, choose,
};

use super::introduction::Introduction;
use super::{Class, ProbeError};

/// What is written at a time when much is.
pub(super) const PIECE: usize = 64 << 10;

/// What is written when the time counts.
const SHORT: usize = 64;

/// Pieces under way.
const WINDOW: u64 = 16;

/// Announcements that the other side can make before this one has taken any.
const RECEIVES: u32 = 16;

const SIZES: Sizes = Sizes {
    writes: 32,
    receives: 32,
    inline: 64,
};

/// What an announcement says: that more follow, or that it is the step's last.
const MORE: u32 = 0;
const LAST: u32 = 1;

/// The numbers of work.
const PING: u64 = 0;
const POUR: u64 = 1;

/// For packets' numbers: each hasher of the standard library is keyed at random.
fn random() -> u32 {
    let [a, b, c, d, ..] = RandomState::new().build_hasher().finish().to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// Work that failed in a probe.
#[derive(Debug)]
pub(super) struct ProbeFailure(Failure);

impl fmt::Display for ProbeFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an RDMA write failed: {}", self.0)
    }
}

/// One side of a probe.
pub(super) struct Pair {
    clock: Clock,
    wakeups: Wakeups,
    staging: Staging,
    ring: Ring,
    pairs: [QueuePair; 2],
    remote: Option<Target>,
    /// The immediates of announcements that came, of each pair.
    announced: [VecDeque<u32>; 2],
    /// Pieces that have been taken.
    poured: u64,
    found: Vec<Completion>,
}

impl Pair {
    pub(super) fn new(
        choice: Option<&Choice>,
        peer: IpAddr,
        source: Option<IpAddr>,
    ) -> Result<Self, ProbeError> {
        let library = Library::open()?;
        let gids = library.gids()?;
        let gid = choose(&gids, choice, peer, source)?;
        let context = library.device(&gid.device)?;
        let domain = Domain::new(&context)?;
        let room = 2 * (SIZES.writes + SIZES.receives);
        let queue = CompletionQueue::new(&context, room)?;
        let clock = Clock::start();
        let new_pair = || {
            let pair = QueuePair::new(&domain, &queue, gid, SIZES, random())?;
            pair.post_receives(RECEIVES)?;
            Ok::<_, ProbeError>(pair)
        };
        let pairs = [new_pair()?, new_pair()?];
        let wakeups = Wakeups::new(queue).map_err(ProbeError::Arrangement)?;
        Ok(Self {
            clock,
            wakeups,
            staging: Staging::new(&domain, PIECE)?,
            ring: Ring::new(&domain, PIECE)?,
            pairs,
            remote: None,
            announced: Default::default(),
            poured: 0,
            found: Vec::new(),
        })
    }

    pub(super) fn introduction(&self, rounds: u32, mebibytes: u32) -> Introduction {
        let ends = self.pairs.each_ref().map(QueuePair::endpoint);
        Introduction::new(ends, self.ring.target(), rounds, mebibytes)
    }

    pub(super) fn connect(
        &mut self,
        priority: Priority,
        class: Class,
        theirs: &Introduction,
    ) -> Result<(), ProbeError> {
        let index = priority.index();
        let end = theirs.end(index).ok_or(ProbeError::Stranger)?;
        let path = Path {
            service_level: class.service_level,
            traffic_class: class.traffic_class,
            ..Path::default()
        };
        self.pairs[index].connect(&end, &path)?;
        self.remote = Some(theirs.ring().ok_or(ProbeError::Stranger)?);
        Ok(())
    }

    /// The times of so many round trips of 64 bytes.
    pub(super) async fn ping(
        &mut self,
        priority: Priority,
        rounds: u32,
    ) -> Result<Vec<Duration>, ProbeError> {
        let mut trips = Vec::new();
        for _ in 0..rounds {
            let begun = self.clock.now();
            self.post(priority, PING, SHORT, Some(MORE))?;
            self.announcement(priority).await?;
            trips.push(self.clock.now().saturating_since(begun));
        }
        Ok(trips)
    }

    /// The other side of it.
    pub(super) async fn echo(&mut self, priority: Priority, rounds: u32) -> Result<(), ProbeError> {
        for _ in 0..rounds {
            self.announcement(priority).await?;
            self.post(priority, PING, SHORT, Some(MORE))?;
        }
        Ok(())
    }

    /// The times of round trips on the anchor's pair while pieces are written on the residual's as fast as they are taken; and how long
    /// that took.
    pub(super) async fn ping_beside(
        &mut self,
        pieces: u64,
    ) -> Result<(Vec<Duration>, Duration), ProbeError> {
        self.poured = 0;
        let begun = self.clock.now();
        let (mut trips, mut posted, mut took) = (Vec::new(), 0, None);
        loop {
            let sent = self.clock.now();
            let step = if took.is_some() { LAST } else { MORE };
            self.post(Priority::Anchor, PING, SHORT, Some(step))?;
            while self.announced[Priority::Anchor.index()].is_empty() {
                while posted < pieces && posted - self.poured < WINDOW {
                    self.post(Priority::Residual, POUR, PIECE, None)?;
                    posted += 1;
                }
                self.collect().await?;
                if self.poured == pieces && took.is_none() {
                    took = Some(self.clock.now().saturating_since(begun));
                }
            }
            self.announced[Priority::Anchor.index()].clear();
            if step == MORE {
                trips.push(self.clock.now().saturating_since(sent));
            } else if let Some(took) = took {
                return Ok((trips, took));
            }
        }
    }

    /// The other side of it.
    pub(super) async fn echo_to_the_last(&mut self) -> Result<(), ProbeError> {
        loop {
            let step = self.announcement(Priority::Anchor).await?;
            self.post(Priority::Anchor, PING, SHORT, Some(step))?;
            if step == LAST {
                return Ok(());
            }
        }
    }

    /// Writes pieces as fast as they are taken; how long it took until the last was.
    pub(super) async fn pour(
        &mut self,
        priority: Priority,
        pieces: u64,
    ) -> Result<Duration, ProbeError> {
        self.poured = 0;
        let begun = self.clock.now();
        for posted in 0..pieces {
            while posted - self.poured >= WINDOW {
                self.collect().await?;
            }
            let is_last = posted + 1 == pieces;
            self.post(priority, POUR, PIECE, is_last.then_some(LAST))?;
        }
        while self.poured < pieces {
            self.collect().await?;
        }
        Ok(self.clock.now().saturating_since(begun))
    }

    /// The other side of it; how long it took, from the end of the step before.
    pub(super) async fn listen(&mut self, priority: Priority) -> Result<Duration, ProbeError> {
        let begun = self.clock.now();
        self.announcement(priority).await?;
        Ok(self.clock.now().saturating_since(begun))
    }

    fn post(
        &self,
        priority: Priority,
        work: u64,
        bytes: usize,
        announced: Option<u32>,
    ) -> Result<(), ProbeError> {
        let write = Write {
            work,
            then: None,
            from: self.staging.part(0..bytes),
            to: self.remote.ok_or(ProbeError::Stranger)?,
            immediate: announced,
            signalled: true,
        };
        Ok(self.pairs[priority.index()].post(&write)?)
    }

    async fn announcement(&mut self, priority: Priority) -> Result<u32, ProbeError> {
        loop {
            if let Some(immediate) = self.announced[priority.index()].pop_front() {
                return Ok(immediate);
            }
            self.collect().await?;
        }
    }

    /// Takes what has come, at least one completion.
    async fn collect(&mut self) -> Result<(), ProbeError> {
        self.found.clear();
        self.wakeups.next(&mut self.found).await?;
        for completion in &self.found {
            match completion.outcome {
                Outcome::Announced { immediate, .. } => {
                    let mut pairs = self.pairs.iter().zip(&mut self.announced);
                    if let Some((pair, announced)) = pairs.find(|(pair, _)| pair.is_of(completion))
                    {
                        pair.post_receives(1)?;
                        announced.push_back(immediate);
                    }
                }
                Outcome::Written { work: POUR } => self.poured += 1,
                Outcome::Written { .. } => {}
                Outcome::WriteFailed { failure, .. } | Outcome::ReceiveFailed { failure } => {
                    return Err(ProbeError::Work(ProbeFailure(failure)));
                }
            }
        }
        Ok(())
    }
}
