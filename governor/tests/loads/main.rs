//! The scaler on loads that never were: by day and night, in bursts, flapping, with reports lost and no room in the cluster.
//!
//! A [`world::World`] runs the two pools as queues, second by second, with pods that take minutes to start and to drain.
#![cfg(test)]

#[path = "../support/random.rs"]
mod random;
#[path = "../support/table.rs"]
mod table;
mod world;

use std::time::Duration;

use lynx_governor::replicas::{Bounds, Budget, Ratio, Settings, Targets};
use world::{Outcome, World};

const SEEDS: [u64; 3] = [1, 2, 3];
const HEADING: &str = "\
| load | changes an hour | once settled | up, down and up | anchors or answers late | for at most | pods over the work alone |
|---|--:|--:|--:|--:|--:|--:|
";

fn settings() -> Settings {
    Settings {
        prefill: Some(Bounds { min: 1, max: 24 }),
        decode: Bounds { min: 1, max: 48 },
        targets: Targets {
            running: Some(10.0),
            time_to_anchor: Some(Duration::from_millis(1500)),
            ..Targets::default()
        },
        ratio: Some(Ratio {
            min: (1, 8),
            max: (2, 1),
        }),
        budget: None,
        up: Duration::from_secs(15),
        down: Duration::from_secs(300),
    }
}

/// What one pod less or more must leave alone: the same load for hours.
fn steady() -> Vec<World> {
    [0.7, 2.0, 3.1, 5.0, 8.3, 14.0]
        .map(|load| World::new(settings(), move |_| load))
        .into()
}

fn square(low: f64, high: f64, half: usize) -> World {
    World::new(settings(), move |second| {
        if (second / half).is_multiple_of(2) {
            low
        } else {
            high
        }
    })
}

fn burst(settings: Settings) -> World {
    World::new(settings, |second| {
        if (3600..6000).contains(&second) {
            10.0
        } else {
            2.0
        }
    })
}

fn by_day(settings: Settings) -> World {
    World::new(settings, |second| {
        let turn = f64::from(u32::try_from(second).unwrap()) / 7200.0 * std::f64::consts::TAU;
        6.0 - 5.0 * libm::cos(turn)
    })
}

fn budgeted(gpus: u32) -> Settings {
    let budget = Budget {
        gpus,
        prefill: 2,
        decode: 1,
    };
    Settings {
        budget: Some(budget),
        ..settings()
    }
}

fn verified() -> Settings {
    let targets = Targets {
        verified: Some(260.0),
        time_to_anchor: settings().targets.time_to_anchor,
        ..Targets::default()
    };
    Settings {
        targets,
        ..settings()
    }
}

struct Row {
    name: &'static str,
    /// Whether the load is the same all the time.
    steady: bool,
    /// Seconds for which pods start, where the cluster has room for all that is asked for.
    start: Option<usize>,
    worlds: Vec<World>,
}

fn rows() -> Vec<Row> {
    let row = |name, steady, worlds| Row {
        name,
        steady,
        start: None,
        worlds,
    };
    let timed = |name, start, world: World| Row {
        start: Some(start),
        ..row(name, false, vec![world.start(start)])
    };
    let flapping = [20, 60, 170, 400, 900].map(|half| square(2.0, 6.0, half));
    let fewer = |world: World| world.begin(12, 24);
    vec![
        row("steady", true, steady()),
        row(
            "steady, 30 % of reports lost, and ten minutes of all",
            true,
            steady().into_iter().map(|world| world.lost(0.3)).collect(),
        ),
        row(
            "steady, too many pods at first",
            true,
            steady().into_iter().map(fewer).collect(),
        ),
        row("day and night", false, vec![by_day(settings())]),
        row(
            "day and night, by verified tokens",
            false,
            vec![by_day(verified())],
        ),
        row("day and night, 12 GPUs", false, vec![by_day(budgeted(12))]),
        timed("burst of five times", 120, burst(settings())),
        timed(
            "burst, pods take five minutes to start",
            300,
            burst(settings()),
        ),
        row("burst, 14 GPUs", false, vec![burst(budgeted(14))]),
        row(
            "burst, the cluster has places for 9 pods",
            false,
            vec![burst(settings()).places(9)],
        ),
        row(
            "flapping by three times, any period",
            false,
            flapping.into(),
        ),
    ]
}

fn run(row: &Row) -> Outcome {
    let worlds = row.worlds.iter();
    worlds
        .flat_map(|world| SEEDS.map(|seed| world.run(seed)))
        .reduce(|worst, next| worst.worse(&next))
        .unwrap()
}

fn line(load: &str, outcome: &Outcome) -> String {
    format!(
        "| {load} | {:.1} | {} | {} | {:.2} % | {} s | {:.1} |\n",
        outcome.changes_an_hour,
        outcome.changes_once_settled,
        outcome.swings,
        outcome.slow_share * 100.0,
        outcome.slow_for,
        outcome.pods_over_work,
    )
}

#[test]
fn the_pools_keep_their_promises_under_every_load_and_the_docs_say_how_well() {
    let mut table = table::Table::new("loads", HEADING);
    let mut broken = Vec::new();
    for row in rows() {
        let outcome = run(&row);
        table.add(&line(row.name, &outcome));
        let calm = !row.steady || outcome.changes_once_settled <= 1;
        // A burst without other limits: pods start up to three times, for what was seen and for what came of the wait.
        let met = row
            .start
            .is_none_or(|start| outcome.slow_for <= 3 * start + 120);
        if !(calm && met && outcome.swings == 0 && outcome.over_budget == 0) {
            broken.push(format!("{}: {outcome:?}", row.name));
        }
    }
    assert!(broken.is_empty(), "{table}\n{}", broken.join("\n"));
    table.compare();
}
