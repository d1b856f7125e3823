//! What can go wrong, by name, each decided by the seed.

use std::time::Duration;

use lynx_protocol::receiver::ReceiverConfig;
use lynx_units::{BitRate, Bytes, Priority, Timestamp};

use super::fan::{Fan, Life};
use super::network::Path;
use super::old::OldFrames;
use super::pair::{Pair, Setup};
use super::process::Process;
use super::random::Random;
use super::work::{Job, LEVELS};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Knob {
    Delay,
    Jitter,
    /// One connection is slower than the other.
    Skew,
    RateSteps,
    /// What is sent waits in front of the wire in one row.
    Queue,
    Cut,
    Corruption,
    Stall,
    /// Nothing comes out of one connection any more.
    HalfOpen,
    SlowReceiver,
    TinyWindow,
    Cancellation,
    Rejection,
    ShortDeadlines,
    /// All deadlines are one.
    DeadlineStorm,
    SlowPrefill,
    PublishFailure,
    ManyTransfers,
    /// Segments of no bytes, and of as many as the window has.
    Extremes,
    /// Frames of an older epoch come in between.
    OldFrames,
    /// The two clocks differ.
    Clocks,
    /// A process runs at ticks only.
    LateWakeups,
    /// A process is stopped for a while.
    Pause,
    /// In a fan, links are lost and come again.
    ComingAndGoing,
}

impl Knob {
    pub(crate) const ALL: [Self; 24] = [
        Self::Delay,
        Self::Jitter,
        Self::Skew,
        Self::RateSteps,
        Self::Queue,
        Self::Cut,
        Self::Corruption,
        Self::Stall,
        Self::HalfOpen,
        Self::SlowReceiver,
        Self::TinyWindow,
        Self::Cancellation,
        Self::Rejection,
        Self::ShortDeadlines,
        Self::DeadlineStorm,
        Self::SlowPrefill,
        Self::PublishFailure,
        Self::ManyTransfers,
        Self::Extremes,
        Self::OldFrames,
        Self::Clocks,
        Self::LateWakeups,
        Self::Pause,
        Self::ComingAndGoing,
    ];

    /// Whether every transfer completes in spite of it.
    pub(crate) fn is_harmless(self) -> bool {
        !matches!(
            self,
            Self::Cut
                | Self::Corruption
                | Self::Stall
                | Self::HalfOpen
                | Self::Cancellation
                | Self::Rejection
                | Self::ShortDeadlines
                | Self::DeadlineStorm
                | Self::PublishFailure
                | Self::Pause
        )
    }
}

/// A seed's numbers, and which of them are used. Every number is drawn whether its knob is on or not, so that the same seed
/// with one knob less is the same run without that disturbance.
pub(crate) struct Draw<'a> {
    random: Random,
    knobs: &'a [Knob],
}

impl<'a> Draw<'a> {
    pub(crate) fn new(seed: u64, knobs: &'a [Knob]) -> Self {
        Self {
            random: Random::new(seed),
            knobs,
        }
    }

    pub(crate) fn within(&mut self, low: u64, high: u64) -> u64 {
        self.random.within(low, high)
    }

    /// Once in `n` times, where the knob is on.
    pub(crate) fn sometimes(&mut self, knob: Knob, n: u64) -> bool {
        self.random.one_in(n) && self.on(knob)
    }

    fn on(&self, knob: Knob) -> bool {
        self.knobs.contains(&knob)
    }

    /// Up to so many milliseconds, where the knob is on.
    pub(crate) fn millis(&mut self, knob: Knob, most: u64) -> Duration {
        let time = self.any_millis(most);
        if self.on(knob) { time } else { Duration::ZERO }
    }

    pub(crate) fn any_millis(&mut self, most: u64) -> Duration {
        Duration::from_micros(self.random.within(0, most * 1000))
    }

    pub(crate) fn moment(&mut self, most_millis: u64) -> Timestamp {
        Timestamp::from_origin(self.any_millis(most_millis))
    }

    /// The work of one link; `first` is the name of its first transfer.
    pub(crate) fn jobs(&mut self, first: u64) -> Vec<Job> {
        let few = self.within(1, 6);
        let many = self.within(50, 250);
        let number = if self.on(Knob::ManyTransfers) {
            many
        } else {
            few
        };
        let storm = self.any_millis(400) + Duration::from_micros(1);
        (first..first + number)
            .map(|transfer| {
                let mut job = self.job(transfer);
                if self.on(Knob::DeadlineStorm) {
                    // Also where they are offered at different times.
                    job.lifetime = storm.saturating_sub(job.open_at) + Duration::from_micros(1);
                }
                job
            })
            .collect()
    }

    fn job(&mut self, transfer: u64) -> Job {
        let many = self.on(Knob::ManyTransfers);
        let [units, bound] = if many { [2, 4_000] } else { [9, 60_000] };
        let units = u32::try_from(self.within(1, units)).unwrap();
        let bound = u32::try_from(self.within(1, bound)).unwrap();
        let mut job = Job::new(transfer, units, bound);
        job.open_at = self.any_millis(200);
        job.pace = self.millis(Knob::SlowPrefill, 40);
        let cancelled = self.sometimes(Knob::Cancellation, 2);
        let after = self.any_millis(200);
        job.cancel_at = cancelled.then_some(job.open_at + after);
        let lifetime = self.any_millis(400) + Duration::from_nanos(1);
        if self.on(Knob::ShortDeadlines) {
            job.lifetime = lifetime;
        }
        job.rejected = self.sometimes(Knob::Rejection, 3);
        let fails = self.sometimes(Knob::PublishFailure, 2);
        let at = u32::try_from(self.within(0, u64::from(units))).unwrap();
        job.fails_at = fails.then_some(at);
        let extreme = self.within(0, 6);
        if self.on(Knob::Extremes) {
            job.empty = extreme == 0;
            if extreme == 1 && !many {
                (job.units, job.bound) = (1, 1 << 20);
            }
        }
        job
    }

    /// A path, and its way back.
    pub(crate) fn paths(&mut self) -> [Path; 2] {
        let mut paths = [self.path(), self.path()];
        let side = usize::try_from(self.within(0, 3) / 2).unwrap();
        let from = self.moment(300);
        let stall = (from, from + self.any_millis(5000));
        paths[side].stall = self.on(Knob::Stall).then_some(stall);
        let bytes = if side == 0 { 1_000_000 } else { 2_000 };
        let byte = self.within(0, bytes);
        paths[side].corrupt = self.on(Knob::Corruption).then_some(byte);
        let dead = self.moment(300);
        let on = Priority::ALL[usize::try_from(self.within(0, 2)).unwrap()];
        paths[side].dead = self.on(Knob::HalfOpen).then_some((dead, on));
        paths
    }

    fn path(&mut self) -> Path {
        let rate = BitRate::from_megabits_per_second(self.within(20, 2000));
        let mut path = Path::new(rate, self.millis(Knob::Delay, 20));
        path.jitter = self.millis(Knob::Jitter, 5);
        path.queue = self.millis(Knob::Queue, 50);
        path.skew = [(); 2].map(|()| self.millis(Knob::Skew, 30));
        path.steps = (0..5)
            .map(|step| {
                let from = Timestamp::from_origin(Duration::from_millis(step * 50));
                let rate = BitRate::from_megabits_per_second(self.within(10, 2000));
                (from, rate)
            })
            .collect();
        if !self.on(Knob::RateSteps) {
            path.steps.clear();
        }
        path
    }

    pub(crate) fn process(&mut self) -> Process {
        let (from, stopped) = (self.moment(300), self.any_millis(3000));
        let stops = self.sometimes(Knob::Pause, 2);
        Process {
            stopped: stops.then_some((from, from + stopped)),
            tick: self.millis(Knob::LateWakeups, 8),
        }
    }

    pub(crate) fn old_frames(&mut self) -> OldFrames {
        let seed = self.within(0, u64::MAX);
        if self.on(Knob::OldFrames) {
            OldFrames::new(seed)
        } else {
            OldFrames::default()
        }
    }
}

/// A pair whose work and network a seed decides, within what the knobs allow.
pub(crate) fn pair(seed: u64, knobs: &[Knob]) -> (Pair, Vec<Job>) {
    let mut draw = Draw::new(seed, knobs);
    let jobs = draw.jobs(1);
    let mut setup = Setup::new(jobs.clone(), draw.paths(), seed);
    if draw.on(Knob::TinyWindow) {
        setup.config = ReceiverConfig {
            window: [ReceiverConfig::MIN_WINDOW; 2],
        };
    }
    let hours = draw.within(0, 1000);
    if draw.on(Knob::Clocks) {
        setup.ahead = Duration::from_secs(3600 * hours) + draw.any_millis(1000);
    }
    let mut pair = Pair::new(setup);
    let cut = draw.moment(300);
    pair.cut = draw.on(Knob::Cut).then_some(cut);
    pair.sending.process = draw.process();
    pair.receiving.process = draw.process();
    pair.sending.old = draw.old_frames();
    pair.receiving.old = draw.old_frames();
    pair.receiving.hold = draw.millis(Knob::SlowReceiver, 100);
    (pair, jobs)
}

/// A fan whose links, work and network a seed decides, and when it must be done where nothing in it does harm.
pub(crate) fn fan(seed: u64, knobs: &[Knob]) -> (Fan, Timestamp) {
    let mut draw = Draw::new(seed, knobs);
    let links = draw.within(2, 9);
    let mut next = 1;
    let lives: Vec<Vec<Life>> = (0..links).map(|_| lives(&mut draw, &mut next)).collect();
    let mut paths = draw.paths();
    for path in &mut paths {
        // Below it, 70 seconds are not enough for eight links.
        path.rate = path.rate.max(BitRate::from_megabits_per_second(100));
        for (_, rate) in &mut path.steps {
            *rate = (*rate).max(BitRate::from_megabits_per_second(50));
        }
    }
    let window = match draw.on(Knob::TinyWindow) {
        true => ReceiverConfig::MIN_WINDOW,
        false => Bytes::from_mib(2),
    };
    let bound = bound(&lives, &paths[0], &draw);
    let mut fan = Fan::new(lives, paths, window);
    fan.process = [draw.process(), draw.process()];
    fan.old_frames = draw.on(Knob::OldFrames).then_some(seed);
    fan.hold = draw.millis(Knob::SlowReceiver, 100);
    (fan, bound)
}

/// The lives of one link: one, or several with time in between.
fn lives(draw: &mut Draw<'_>, next: &mut u64) -> Vec<Life> {
    let restarts = draw.within(1, 4);
    let lives = if draw.on(Knob::ComingAndGoing) {
        restarts
    } else {
        1
    };
    let mut from = draw.moment(100);
    (0..lives)
        .map(|life| {
            let mut jobs = draw.jobs(*next);
            *next += jobs.len() as u64;
            for job in &mut jobs {
                job.open_at += from.since_origin();
                job.cancel_at = job.cancel_at.map(|at| at + from.since_origin());
            }
            let until = from + draw.any_millis(300);
            let whole = Life {
                from,
                until: (life + 1 < lives).then_some(until),
                jobs,
            };
            from = until + draw.any_millis(100);
            whole
        })
        .collect()
}

/// Twice the time that the wire needs for everything, and some for every transfer and each of the things that may hold it up.
fn bound(lives: &[Vec<Life>], path: &Path, draw: &Draw<'_>) -> Timestamp {
    let jobs = || lives.iter().flatten().flat_map(|life| &life.jobs);
    let bytes: u64 = jobs()
        .map(|job| u64::from(job.units) * u64::from(job.bound) * LEVELS.len() as u64)
        .sum();
    let rates = path.steps.iter().map(|&(_, rate)| rate);
    let slowest = rates.min().unwrap_or(path.rate).min(path.rate);
    let wire = slowest.time_for(Bytes::new(bytes)).unwrap();
    let begun = lives.iter().flatten().map(|life| life.from.since_origin());
    let offered = jobs().map(|job| job.open_at + job.pace * job.units);
    let last = begun.chain(offered).max().unwrap_or_default();
    let mut held_up = Duration::from_millis(500);
    for (knob, millis) in [
        (Knob::SlowReceiver, 2000),
        (Knob::Skew, 1000),
        (Knob::Delay, 1000),
    ] {
        if draw.on(knob) {
            held_up += Duration::from_millis(millis);
        }
    }
    Timestamp::from_origin(last + 2 * wire + held_up)
}
