//! The whole link in simulated time, over a network that delays, stalls, cuts and corrupts.
//!
//! A failing seed prints the command that replays it. The modules: a [`network`] that is a wire shared by streams;
//! [`sending`] and [`receiving`] nodes, each a driver and an application that checks what it sees; a [`pair`] of them, and
//! a [`fan`] of many senders and one receiver; [`knobs`] that a seed turns; [`checks`] that hold for any run.

#![expect(
    clippy::unwrap_used,
    reason = "a simulation fails by panicking, and prints how to replay it"
)]

mod anchors;
mod buffer;
mod checks;
mod fan;
mod knobs;
mod network;
mod old;
mod pair;
mod process;
mod random;
mod receiving;
mod sending;
mod silence;
mod work;

use std::num::NonZero;
use std::ops::Range;
use std::thread;

use checks::{Endings, Of, check};
use knobs::Knob;
use random::Random;

/// Checks every seed with the knobs that it gets, on as many threads as there are cores.
fn each(of: Of, seeds: Range<u64>, knobs: impl Fn(u64) -> Vec<Knob> + Sync) -> Endings {
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let run = |first: usize| {
        let mut endings = Endings::default();
        for seed in seeds.clone().skip(first).step_by(threads) {
            check(of, seed, &knobs(seed), &mut endings);
        }
        endings
    };
    thread::scope(|scope| {
        let run = &run;
        let workers: Vec<_> = (0..threads)
            .map(|first| scope.spawn(move || run(first)))
            .collect();
        let mut all = Endings::default();
        for worker in workers {
            match worker.join() {
                Ok(endings) => all.join(endings),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        all
    })
}

/// A few knobs, or many.
fn some(seed: u64) -> Vec<Knob> {
    let mut random = Random::new(seed);
    let rarity = random.within(2, 8);
    let all = Knob::ALL.into_iter();
    all.filter(|_| random.one_in(rarity)).collect()
}

/// The same without those that end transfers.
fn some_harmless(seed: u64) -> Vec<Knob> {
    let mut knobs = some(seed);
    knobs.retain(|knob| knob.is_harmless());
    knobs
}

#[test]
fn an_undisturbed_link_completes_everything() {
    each(Of::Pair, 0..300, |_| Vec::new());
}

#[test]
fn each_disturbance_alone_is_survived() {
    for knob in Knob::ALL {
        each(Of::Pair, 0..300, |_| vec![knob]);
    }
}

#[test]
fn disturbances_that_end_nothing_end_nothing_together() {
    each(Of::Pair, 0..1000, some_harmless);
}

#[test]
fn disturbances_together_are_survived_and_reach_every_ending() {
    let mut endings = each(Of::Pair, 0..1000, |_| Knob::ALL.to_vec());
    endings.join(each(Of::Pair, 0..3000, some));
    let reached: Vec<_> = endings.0.keys().map(String::as_str).collect();
    assert_eq!(
        reached,
        [
            "application",
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
            "stale frame",
        ],
        "{endings:?}"
    );
}

#[test]
fn many_senders_to_one_receiver_survive_each_disturbance_alone() {
    for knob in Knob::ALL {
        each(Of::Fan, 0..30, |_| vec![knob]);
    }
}

#[test]
fn many_senders_to_one_receiver_survive_disturbances_together() {
    each(Of::Fan, 0..200, some_harmless);
    each(Of::Fan, 0..300, some);
    each(Of::Fan, 0..100, |_| Knob::ALL.to_vec());
}

#[test]
#[ignore = "replays LYNX_SEED of LYNX_RUN with LYNX_KNOBS, which a failing run prints"]
#[expect(clippy::disallowed_methods, reason = "a replay has no other input")]
fn replay() {
    let seed = std::env::var("LYNX_SEED").unwrap().parse().unwrap();
    let of = match std::env::var("LYNX_RUN").as_deref() {
        Ok("Fan") => Of::Fan,
        _ => Of::Pair,
    };
    let names = std::env::var("LYNX_KNOBS").unwrap_or_default();
    let named = |knob: &Knob| names.split(',').any(|name| name == format!("{knob:?}"));
    let knobs: Vec<Knob> = Knob::ALL.into_iter().filter(named).collect();
    check(of, seed, &knobs, &mut Endings::default());
}
