//! The whole link in simulated time, over a network that delays, stalls, cuts and corrupts.
//!
//! A failing seed prints the command that replays it.

#![expect(
    clippy::unwrap_used,
    reason = "a simulation fails by panicking, and prints how to replay it"
)]

mod fan;
mod knobs;
mod network;
mod pair;
mod random;
mod receiving;
mod sending;
mod work;

use std::collections::BTreeMap;
use std::time::Duration;

use fan::Fan;
use knobs::Knob;
use lynx_protocol::CreditBook;
use lynx_protocol::limits::SILENCE_LIMIT;
use lynx_protocol::receiver::ReceiverConfig;
use lynx_protocol::{receiver, sender};
use lynx_units::{BitRate, Bytes, Epoch, Timestamp, TransferId};
use network::Path;
use pair::{Cut, Pair};
use work::Job;

/// Longest run: the longest lifetime of a transfer and some more.
const END: Duration = Duration::from_secs(70);

/// Prints how to repeat a run that panics.
struct Replay<'a>(u64, &'a [Knob]);

impl Drop for Replay<'_> {
    #[expect(
        clippy::print_stderr,
        reason = "the command is for whoever reads the failed test"
    )]
    fn drop(&mut self) {
        if std::thread::panicking() {
            let knobs: Vec<String> = self.1.iter().map(|knob| format!("{knob:?}")).collect();
            eprintln!(
                "replay: LYNX_SEED={} LYNX_KNOBS={} cargo test -p lynx-protocol --test simulation -- --ignored replay",
                self.0,
                knobs.join(",")
            );
        }
    }
}

/// What runs came to, by name.
type Endings = BTreeMap<String, u32>;

fn check(seed: u64, knobs: &[Knob], endings: &mut Endings) {
    let replay = Replay(seed, knobs);
    let (mut pair, jobs) = knobs::pair(seed, knobs);
    pair.run(END);
    assert!(
        pair.is_done(),
        "not done after {END:?}: {:?}",
        pair.sending.ended
    );
    for job in &jobs {
        let Some(&opened) = pair.sending.opened.get(&job.transfer) else {
            assert!(pair.sending.broken.is_some(), "never opened");
            continue;
        };
        let (event, at) = &pair.sending.ended[&job.transfer];
        assert!(
            *at <= opened + job.lifetime,
            "the sending side missed a deadline"
        );
        let complete = matches!(event, sender::Event::Complete(_));
        if complete {
            let (event, _) = &pair.receiving.ended[&job.transfer];
            assert!(matches!(event, receiver::Event::Complete(_)));
        }
        if knobs.iter().all(|knob| knob.is_harmless()) {
            assert!(complete, "{event:?} over a harmless network");
        }
    }
    for (transfer, (_, at)) in &pair.receiving.ended {
        assert!(
            *at <= pair.receiving.deadlines[transfer],
            "the receiving side missed a deadline"
        );
    }
    count(&pair, endings);
    drop(replay);
}

fn count(pair: &Pair, endings: &mut Endings) {
    let mut add = |name: String, n: u64| {
        if n > 0 {
            *endings.entry(name).or_default() += 1;
        }
    };
    for (event, _) in pair.sending.ended.values() {
        match event {
            sender::Event::Complete(_) => add("complete".into(), 1),
            sender::Event::Cancelled(..) => add("cancelled".into(), 1),
            sender::Event::Failed(_, reason) => add(reason.code().name().into(), 1),
            sender::Event::Accepted(_) | sender::Event::Broken(_) => {}
        }
    }
    let broken = [&pair.sending.broken, &pair.receiving.broken];
    for (reason, _) in broken.into_iter().flatten() {
        add(format!("broken: {}", reason.code().name()), 1);
    }
    let (sent, received) = (pair.sending.sender.stats(), pair.receiving.receiver.stats());
    add("late frame".into(), sent.late_frames + received.late_frames);
    add("late chunk".into(), received.late_chunks);
    add("corrupt chunk".into(), received.corrupt);
    assert_eq!(
        (
            received.duplicates,
            sent.stale_frames + received.stale_frames
        ),
        (0, 0)
    );
}

#[test]
fn an_undisturbed_link_completes_everything() {
    (0..100).for_each(|seed| check(seed, &[], &mut Endings::new()));
}

#[test]
fn each_disturbance_alone_is_survived() {
    for knob in Knob::ALL {
        (0..40).for_each(|seed| check(seed, &[knob], &mut Endings::new()));
    }
}

#[test]
fn disturbances_together_are_survived_and_reach_every_ending() {
    let mut endings = Endings::new();
    (0..260).for_each(|seed| check(seed, &Knob::ALL, &mut endings));
    for seed in 0..260 {
        let mut random = random::Random::new(seed);
        let knobs: Vec<Knob> = Knob::ALL.into_iter().filter(|_| random.one_in(3)).collect();
        check(seed, &knobs, &mut endings);
    }
    let reached: Vec<_> = endings.keys().map(String::as_str).collect();
    assert_eq!(
        reached,
        [
            "broken: corrupt",
            "broken: disconnected",
            "broken: silent",
            "cancelled",
            "complete",
            "corrupt",
            "corrupt chunk",
            "deadline",
            "disconnected",
            "late chunk",
            "late frame",
            "rejected",
            "silent",
        ],
        "{endings:?}"
    );
}

#[test]
#[ignore = "replays LYNX_SEED with LYNX_KNOBS, which a failing run prints"]
#[expect(clippy::disallowed_methods, reason = "a replay has no other input")]
fn replay() {
    let seed = std::env::var("LYNX_SEED").unwrap().parse().unwrap();
    let names = std::env::var("LYNX_KNOBS").unwrap_or_default();
    let named = |knob: &Knob| names.split(',').any(|name| name == format!("{knob:?}"));
    let knobs: Vec<Knob> = Knob::ALL.into_iter().filter(named).collect();
    check(seed, &knobs, &mut Endings::new());
}

#[test]
fn a_silent_path_is_noticed_within_two_seconds() {
    for seed in 0..20 {
        for side in 0..2 {
            let (mut pair, _) = knobs::pair(seed, &[Knob::SlowPrefill, Knob::Delay]);
            let cut = Timestamp::from_origin(Duration::from_millis(40));
            let way = if side == 0 {
                &mut pair.forward
            } else {
                &mut pair.backward
            };
            way.stall_for_ever(cut);
            pair.run(END);
            if pair.sending.broken.is_none() {
                // It was over before.
                continue;
            }
            let (_, first) = pair.sending.broken.clone().unwrap();
            let (_, second) = pair.receiving.broken.clone().unwrap();
            let latest = cut + SILENCE_LIMIT + Duration::from_millis(20);
            assert!(first.min(second) <= latest, "{first:?} {second:?}");
            assert!(
                first.max(second) <= latest + SILENCE_LIMIT,
                "{first:?} {second:?}"
            );
        }
    }
}

#[test]
fn transfers_that_lost_their_link_complete_in_a_new_epoch() {
    let config = ReceiverConfig {
        window: [Bytes::from_mib(1); 2],
    };
    // Room for one link: the first one's memory has to come back.
    let book = CreditBook::new(Bytes::from_mib(2));
    let jobs = vec![Job::new(1, 8, 60_000), Job::new(2, 8, 60_000)];
    let rate = BitRate::from_megabits_per_second(200);
    let run = |epoch, cut| {
        let paths = [(); 2].map(|()| path(rate, Duration::from_millis(1)));
        let mut pair = Pair::with_book(jobs.clone(), paths, (config, &book), epoch, 1);
        pair.cut = cut;
        pair.run(END);
        pair.sending.ended.into_values().map(|(event, _)| event)
    };
    let cut = Cut {
        at: Duration::from_millis(20),
    };
    for event in run(Epoch(1), Some(cut)) {
        assert!(matches!(event, sender::Event::Failed(_, reason) if reason.code().is_retryable()));
    }
    let mut again = run(Epoch(2), None);
    assert!(again.all(|event| matches!(event, sender::Event::Complete(_))));
}

/// A path of this rate with this delay each way.
fn path(rate: BitRate, delay: Duration) -> Path {
    Path {
        rate,
        delay,
        jitter: Duration::ZERO,
        steps: Vec::new(),
        stall: None,
        corrupt: None,
    }
}

/// How long the anchor of a transfer takes that is published when another's residuals are under way, or alone.
fn anchor_time(rate: BitRate, delay: Duration, bulk: bool) -> (Duration, Pair) {
    let start = Duration::from_millis(600);
    let mut urgent = Job::new(100, 4, 50_000);
    urgent.open_at = start;
    urgent.lifetime = Duration::from_secs(30);
    let mut jobs = vec![urgent];
    if bulk {
        let mut bulk = Job::new(1, rate_units(rate), 50_000);
        bulk.lifetime = Duration::from_secs(60);
        jobs.push(bulk);
    }
    let config = ReceiverConfig {
        window: [Bytes::from_mib(64); 2],
    };
    let book = CreditBook::new(Bytes::from_mib(128));
    let paths = [path(rate, delay), path(rate, delay)];
    let mut pair = Pair::with_book(jobs, paths, (config, &book), Epoch(1), 1);
    pair.run(Duration::from_millis(900));
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
    let config = ReceiverConfig {
        window: [Bytes::from_mib(64); 2],
    };
    let book = CreditBook::new(Bytes::from_mib(128));
    let paths = [path(rate, delay), path(rate, delay)];
    let mut pair = Pair::with_book(vec![job], paths, (config, &book), Epoch(1), 1);
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

/// Units of 200 kB for more than a second, less than half of which is anchors.
fn rate_units(rate: BitRate) -> u32 {
    let bytes = rate.bytes_in(Duration::from_millis(1_100)).get();
    u32::try_from(bytes / 200_000 + 1).unwrap()
}

#[test]
fn an_anchor_waits_behind_bulk_for_little_more_than_the_window_of_the_link() {
    for megabits in [20, 100, 1000] {
        for micros in [100, 5_000] {
            let rate = BitRate::from_megabits_per_second(megabits);
            let delay = Duration::from_micros(micros);
            let (alone, _) = anchor_time(rate, delay, false);
            let (behind, pair) = anchor_time(rate, delay, true);
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
fn an_anchor_does_not_share_the_wire_with_residuals_of_other_senders() {
    let rate = BitRate::from_megabits_per_second(100);
    let path = path(rate, Duration::from_micros(500));
    let time = |bulk_links: u32| {
        // Their anchors are through by then, and their residuals are not.
        let start = Duration::from_millis(450) * (bulk_links + 1);
        let mut urgent = Job::new(100, 20, 50_000);
        urgent.open_at = start;
        let bulk = |link| vec![Job::new(link, rate_units(rate), 50_000)];
        let mut work: Vec<_> = (1..=u64::from(bulk_links)).map(bulk).collect();
        work.push(vec![urgent]);
        let mut fan = Fan::new(work, &path);
        fan.run(start + Duration::from_millis(400));
        let (_, receiving) = fan.links.last().unwrap();
        receiving.anchors[&TransferId(100)] - Timestamp::from_origin(start)
    };
    let alone = time(0);
    for links in [1, 3] {
        // When the anchor comes, all links together have two windows granted, and some of that in flight. By fair shares the
        // anchor would take two and four times as long.
        let behind = time(links);
        assert!(
            behind <= alone + Duration::from_millis(15),
            "{behind:?} and {alone:?} alone"
        );
    }
}
