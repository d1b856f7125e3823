//! How long anchors take, and what is known of the wire.

use std::time::Duration;

use lynx_units::{BitRate, Bytes, Priority, Timestamp, TransferId};

use super::checks::END;
use super::fan::{Fan, Life};
use super::network::Path;
use super::pair::{Pair, Setup};
use super::random::Random;
use super::work::Job;

/// A pair over a path of this rate with this delay each way.
fn pair(jobs: Vec<Job>, path: &Path) -> Pair {
    let paths = [path.clone(), path.clone()];
    Pair::new(Setup::new(jobs, paths, 1).roomy())
}

/// How long the anchor of a transfer takes that is published at `start`, with another's residuals under way or alone.
fn anchor_time(path: &Path, start: Duration, bulk: bool) -> (Duration, Pair) {
    let mut urgent = Job::new(100, 4, 50_000);
    urgent.open_at = start;
    urgent.lifetime = Duration::from_secs(30);
    let mut jobs = vec![urgent];
    if bulk {
        let mut bulk = Job::new(
            1,
            rate_units(path.rate, start + Duration::from_millis(500)),
            50_000,
        );
        bulk.lifetime = Duration::from_secs(60);
        jobs.push(bulk);
    }
    let mut pair = pair(jobs, path);
    pair.run(start + Duration::from_millis(300));
    let anchor = pair.receiving.anchors[&TransferId(100)];
    (anchor - Timestamp::from_origin(start), pair)
}

#[test]
fn a_slow_prefill_does_not_make_the_link_look_slow() {
    let rate = BitRate::from_megabits_per_second(800);
    let delay = Duration::from_micros(100);
    // 200 kB every 40 ms: a twentieth of what the link carries.
    let mut job = Job::new(1, 30, 50_000);
    job.pace = Duration::from_millis(40);
    job.lifetime = Duration::from_secs(60);
    let mut pair = pair(vec![job], &Path::new(rate, delay));
    pair.run(END);
    let sides = [
        pair.sending.sender.estimate().rate,
        pair.receiving.receiver.estimate().rate,
    ];
    for known in sides {
        let (known, wire) = (known.bits_per_second(), rate.bits_per_second());
        assert!(known.abs_diff(wire) <= wire / 4, "{known} of {wire}");
    }
}

/// Units of 200 kB for more than this time, less than half of which is anchors.
fn rate_units(rate: BitRate, time: Duration) -> u32 {
    let bytes = rate.bytes_in(time).get();
    u32::try_from(bytes / 200_000 + 1).unwrap()
}

#[test]
fn an_anchor_waits_behind_bulk_for_little_more_than_the_window_of_the_link() {
    for megabits in [20, 100, 1000] {
        for micros in [100, 5_000] {
            let rate = BitRate::from_megabits_per_second(megabits);
            let delay = Duration::from_micros(micros);
            let path = Path::new(rate, delay);
            let start = Duration::from_millis(600);
            let (alone, _) = anchor_time(&path, start, false);
            let (behind, pair) = anchor_time(&path, start, true);
            let link = pair.sending.sender.estimate();
            let chunk = rate.time_for(Bytes::new(link.chunk().into())).unwrap();
            // What may be in flight, and the chunk that is being written.
            let bound = 2 * delay * 5 / 4 + 3 * chunk;
            assert!(
                behind <= alone + bound,
                "{rate} {delay:?}: {behind:?} and {alone:?} alone"
            );

            let (known, true_rate) = (link.rate.bits_per_second(), rate.bits_per_second());
            assert!(
                known.abs_diff(true_rate) <= true_rate / 10,
                "{} of {rate}",
                link.rate
            );
            let round_trip = link.round_trip.unwrap();
            assert!(round_trip >= 2 * delay && round_trip <= 2 * delay + Duration::from_millis(1));
            let received = pair.receiving.receiver.stats().received.into_iter().sum();
            let goodput = BitRate::from_delivery(received, pair.time - Timestamp::ORIGIN);
            assert!(
                goodput.bits_per_second() >= true_rate / 100 * 97,
                "{goodput} of {rate}"
            );
        }
    }
}

#[test]
fn an_anchor_waits_no_longer_however_long_the_bulk_has_been_under_way() {
    let rate = BitRate::from_megabits_per_second(20);
    // On a long path an anchor waits behind what is in flight twice: its offer does, and so does it.
    for (micros, windows) in [(100, 1), (2_000, 1), (5_000, 2)] {
        let delay = Duration::from_micros(micros);
        let mut path = Path::new(rate, delay);
        path.queue = Duration::from_millis(100);
        let (alone, _) = anchor_time(&path, Duration::from_secs(1), false);
        for seconds in [1, 12, 24] {
            let (behind, pair) = anchor_time(&path, Duration::from_secs(seconds), true);
            let link = pair.sending.sender.estimate();
            let chunk = rate.time_for(Bytes::new(link.chunk().into())).unwrap();
            // What may be in flight, and the chunk that is being written.
            let bound = (2 * delay * 5 / 4 + 3 * chunk) * windows;
            assert!(
                behind <= alone + bound,
                "after {seconds} s of bulk {behind:?}, and {alone:?} alone: {link:?}"
            );
            let received = pair.receiving.receiver.stats().received.into_iter().sum();
            let goodput = BitRate::from_delivery(received, pair.time - Timestamp::ORIGIN);
            assert!(
                goodput.bits_per_second() >= rate.bits_per_second() / 100 * 98,
                "{goodput} of {rate}"
            );
        }
    }
}

/// A wire that many senders share, and when one of them has something urgent.
struct Shared {
    rate: BitRate,
    delay: Duration,
    bulk: u64,
    /// Their anchors are through by then, and their residuals are not.
    start: Duration,
}

impl Shared {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let bulk = random.within(1, 8);
        Self {
            rate: BitRate::from_megabits_per_second(random.within(50, 400)),
            delay: Duration::from_micros(random.within(50, 3000)),
            bulk,
            start: Duration::from_millis(450 * (bulk + 1)),
        }
    }

    /// How long the anchor takes, and what the wire needs for all that the others may still send when it begins.
    fn anchor(&self, bulk: u64) -> (Duration, Duration) {
        let mut urgent = Job::new(100, 20, 50_000);
        urgent.open_at = self.start;
        let units = rate_units(self.rate, Duration::from_millis(1_100));
        let job = |link| Job::new(link, units, 50_000);
        let mut lives: Vec<_> = (1..=bulk)
            .map(|link| vec![Life::whole(vec![job(link)])])
            .collect();
        lives.push(vec![Life::whole(vec![urgent])]);
        let paths = [(); 2].map(|()| Path::new(self.rate, self.delay));
        let mut fan = Fan::new(lives, paths, Bytes::from_mib(64));
        fan.run(self.start);
        let residual = Priority::Residual.index();
        let links = fan.links.iter().flatten();
        let granted: Bytes = links
            .map(|link| {
                let received = link.receiving.receiver.stats().received[residual];
                link.receiving.granted[residual] - received
            })
            .sum();
        fan.run(self.start + Duration::from_secs(5));
        let link = fan.links.last().and_then(Option::as_ref).unwrap();
        let anchor = link.receiving.anchors[&TransferId(100)];
        let time = anchor - Timestamp::from_origin(self.start);
        (time, self.rate.time_for(granted).unwrap())
    }
}

#[test]
fn an_anchor_waits_behind_any_number_of_senders_for_what_one_may_send() {
    let shared = Shared {
        rate: BitRate::from_megabits_per_second(100),
        delay: Duration::from_micros(500),
        bulk: 3,
        start: Duration::from_millis(1800),
    };
    let (alone, _) = shared.anchor(0);
    for links in [1, 3] {
        // All links together have two windows granted, and some of that in flight.
        let (behind, _) = shared.anchor(links);
        assert!(
            behind <= alone + Duration::from_millis(15),
            "{behind:?} behind {links} links, and {alone:?} alone"
        );
    }
}

#[test]
fn an_anchor_does_not_share_the_wire_with_residuals_of_other_senders() {
    for seed in 0..16 {
        let shared = Shared::new(seed);
        let (alone, _) = shared.anchor(0);
        let (behind, granted) = shared.anchor(shared.bulk);
        // Until the offer has arrived, the others are granted more; by fair shares, the anchor would take as many times as
        // long as there are links.
        let bound = granted * 5 / 4 + shared.delay * 2;
        assert!(
            behind <= alone + bound,
            "seed {seed}: {behind:?} behind {} links at {}, and {alone:?} alone: more than {bound:?} later",
            shared.bulk,
            shared.rate
        );
    }
}
