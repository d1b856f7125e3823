//! Links that fall silent, and what comes after them.

use std::time::Duration;

use lynx_protocol::CreditBook;
use lynx_protocol::limits::SILENCE_LIMIT;
use lynx_protocol::receiver::ReceiverConfig;
use lynx_protocol::sender;
use lynx_units::{BitRate, Bytes, Epoch, Priority, Timestamp};

use super::checks::END;
use super::knobs::{self, Knob};
use super::network::Path;
use super::old::OldFrames;
use super::pair::{Pair, Setup};
use super::random::Random;
use super::work::Job;

/// Cuts one way of a pair, whole or one connection of it, and sees when the two sides notice.
fn is_noticed(seed: u64, forward: bool, only: Option<Priority>) {
    let (mut pair, _) = knobs::pair(seed, &[Knob::SlowPrefill, Knob::Delay]);
    let cut = Timestamp::from_origin(Duration::from_millis(40));
    let way = if forward {
        &mut pair.forward
    } else {
        &mut pair.backward
    };
    match only {
        None => way.stall_for_ever(cut),
        Some(on) => way.kill(cut, on),
    }
    pair.run(END);
    let (Some((_, first)), Some((_, second))) = (&pair.sending.broken, &pair.receiving.broken)
    else {
        assert!(
            pair.sending.broken.is_none() && pair.receiving.broken.is_none(),
            "one side has not noticed"
        );
        // It was over before.
        return;
    };
    // What was on its way still came: at most 20 ms.
    let latest = cut + SILENCE_LIMIT + Duration::from_millis(20);
    assert!(*first.min(second) <= latest, "{first:?} {second:?}");
    let latest = latest + SILENCE_LIMIT;
    assert!(*first.max(second) <= latest, "{first:?} {second:?}");
}

#[test]
fn a_silent_path_is_noticed_within_two_seconds() {
    for seed in 0..100 {
        for forward in [true, false] {
            is_noticed(seed, forward, None);
        }
    }
}

#[test]
fn a_half_open_link_is_noticed_within_two_seconds() {
    for seed in 0..100 {
        for forward in [true, false] {
            for on in Priority::ALL {
                is_noticed(seed, forward, Some(on));
            }
        }
    }
}

/// Runs the same work in an epoch, with what the sides still hear of the epoch before.
fn epoch(jobs: &[Job], book: &std::sync::Arc<CreditBook>, epoch: u32, seed: u64) -> Pair {
    let rate = BitRate::from_megabits_per_second(200);
    let paths = [(); 2].map(|()| Path::new(rate, Duration::from_millis(1)));
    let mut setup = Setup::new(jobs.to_vec(), paths, seed);
    setup.config = ReceiverConfig {
        window: [Bytes::from_mib(1); 2],
    };
    setup.book = std::sync::Arc::clone(book);
    setup.epoch = Epoch(epoch);
    let mut pair = Pair::new(setup);
    pair.sending.old = OldFrames::new(seed);
    pair.receiving.old = OldFrames::new(!seed);
    pair
}

#[test]
fn transfers_that_lost_their_link_complete_in_a_new_epoch_while_old_frames_still_come() {
    for seed in 0..200 {
        // Room for one link: the first one's memory has to come back.
        let book = CreditBook::new(Bytes::from_mib(2));
        let jobs = [Job::new(1, 8, 60_000), Job::new(2, 8, 60_000)];
        let mut first = epoch(&jobs, &book, 1, seed);
        let cut = Random::new(seed).within(0, 60_000);
        first.cut = Some(Timestamp::from_origin(Duration::from_micros(cut)));
        first.run(END);
        for (event, _) in first.sending.ended.values() {
            assert!(
                matches!(event, sender::Event::Failed(_, reason) if reason.code().is_retryable())
            );
        }
        assert!(first.sending.broken.is_some());
        drop(first);
        let mut second = epoch(&jobs, &book, 2, seed);
        second.run(END);
        let stale = second.receiving.receiver.stats().stale_frames;
        assert!(stale > 0, "no old frame came in seed {seed}");
        let mut ends = second.sending.ended.values();
        assert!(ends.all(|(event, _)| matches!(event, sender::Event::Complete(_))));
    }
}
