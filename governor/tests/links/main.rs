//! The width's controller on links that never were: steady, stepping, flapping, dark, noisy, and with reports lost.
//!
//! A [`world::World`] runs it over an hour of requests and adds up what they cost by the cost model, on the true link and
//! with the true acceptance. Beside it stand two who need not guess: the best fixed width, chosen by hindsight for each
//! class, and the clairvoyant, who knows each
//! moment's link as it will be, and the acceptance, and has the width for a request of mean size follow at once.
#![cfg(test)]

#[path = "../support/random.rs"]
mod random;
#[path = "../support/table.rs"]
mod table;
mod trace;
mod world;

use lynx_policy::{Objective, Prior};
use trace::Trace;
use world::{Outcome, Truth, World};

const SEEDS: [u64; 3] = [1, 2, 3];
const HEADING: &str = "\
| link | objective | over the clairvoyant | over the best fixed width | changes in any minute | in an hour |
|---|---|--:|--:|--:|--:|
";
/// Seconds for which each state of a flapping link lasts.
const FLAPS: [usize; 9] = [1, 3, 8, 20, 31, 45, 65, 150, 400];

/// A row of the table: one kind of world, both objectives, all seeds.
struct Row {
    name: &'static str,
    steady: bool,
    worlds: Vec<World>,
}

fn row(name: &'static str, steady: bool, worlds: impl IntoIterator<Item = World>) -> Row {
    let worlds = worlds.into_iter().collect();
    Row {
        name,
        steady,
        worlds,
    }
}

/// 50 Mbit/s to 20 Gbit/s: 64 MiB of BF16 take eleven seconds to 27 ms.
fn steady() -> impl Iterator<Item = Trace> {
    [50.0, 200.0, 800.0, 3000.0, 20_000.0]
        .map(Trace::steady)
        .into_iter()
}

fn rows() -> Vec<Row> {
    let plain = |trace: Trace| World::new([trace]);
    let fast_and_slow = || Trace::steps(&[4000.0, 150.0, 4000.0]);
    let truths = [
        Truth::scaled(Prior::UNIFORM, 0.3),
        Truth::scaled(Prior::UNIFORM, 3.0),
        Truth::profile(),
        Truth::cliff(4),
    ];
    vec![
        row("steady", true, steady().map(plain)),
        row(
            "steady, estimates off by a half",
            true,
            steady().map(|trace| plain(trace).noise(0.5)),
        ),
        row(
            "steady, half of the reports lost, and three minutes of all",
            true,
            steady().map(|trace| plain(trace).lost(0.5)),
        ),
        row(
            // But for the fastest link: nothing is drafted there, so nothing can be learnt, and nothing depends on it.
            "steady, acceptance unlike the prior",
            true,
            steady()
                .take(4)
                .flat_map(|trace| truths.map(|truth| plain(trace.clone()).truth(truth))),
        ),
        row(
            "one step down, one up",
            false,
            [
                plain(fast_and_slow()),
                plain(Trace::steps(&[150.0, 4000.0, 150.0])),
            ],
        ),
        row(
            "saw-tooth of a factor of 50",
            false,
            [40, 120, 600].map(|period| plain(Trace::saw(100.0, 5000.0, period))),
        ),
        row(
            "blackouts of 3 to 40 s",
            false,
            [200.0, 1000.0, 5000.0].map(|rate| plain(Trace::blackouts(rate))),
        ),
        row(
            "flapping by a factor of 40, any period",
            false,
            FLAPS.map(|half| plain(Trace::flapping(100.0, 4000.0, half))),
        ),
        row(
            "flapping, noisy, reports lost",
            false,
            FLAPS.map(|half| {
                plain(Trace::flapping(100.0, 4000.0, half))
                    .noise(0.5)
                    .lost(0.3)
            }),
        ),
        row(
            "wandering",
            false,
            [100.0, 1000.0].map(|rate| plain(Trace::wandering(rate)).noise(0.2)),
        ),
        row(
            "two classes, one steady and one stepping",
            false,
            [World::new([Trace::steady(10_000.0), fast_and_slow()])],
        ),
        row(
            "two classes, one steady and one flapping",
            false,
            FLAPS.map(|half| {
                World::new([Trace::steady(200.0), Trace::flapping(100.0, 4000.0, half)])
            }),
        ),
    ]
}

/// The worst of all its worlds and seeds, for one objective.
fn run(row: &Row, objective: Objective) -> Outcome {
    let mut worst = Outcome::default();
    for world in &row.worlds {
        for seed in SEEDS {
            worst = worst.worse(&world.run(objective, seed));
        }
    }
    worst
}

fn line(link: &str, objective: &str, outcome: &Outcome) -> String {
    format!(
        "| {link} | {objective} | {:+.1} % | {:+.1} % | {} | {} |\n",
        outcome.over_clairvoyant * 100.0,
        outcome.over_fixed * 100.0,
        outcome.most_in_a_minute,
        outcome.changes_an_hour,
    )
}

#[test]
fn the_width_keeps_its_promises_on_every_trace_and_the_docs_say_how_well() {
    let mut table = table::Table::new("links", HEADING);
    let mut broken = Vec::new();
    for row in rows() {
        for (name, objective) in [
            ("verified", Objective::Verified),
            ("first tokens", Objective::FirstTokens),
        ] {
            let outcome = run(&row, objective);
            table.add(&line(row.name, name, &outcome));
            let kept = (!row.steady || outcome.over_clairvoyant <= 0.05)
                && outcome.over_fixed <= 0.10
                && outcome.most_in_a_minute <= 1;
            if !kept {
                broken.push(format!("{}, {name}: {outcome:?}", row.name));
            }
        }
    }
    assert!(broken.is_empty(), "{table}\n{}", broken.join("\n"));
    table.compare();
}
