//! Texts made from a seed: logs, records, tables, and reports of an organisation that never was.

use super::{Kind, SOURCE_BYTES, Seeded, Source};

const SERVICES: [&str; 8] = [
    "checkout",
    "catalogue",
    "payments",
    "mailer",
    "search",
    "gateway",
    "sessions",
    "billing",
];
const CITIES: [&str; 10] = [
    "Aarhus", "Bergen", "Coimbra", "Dresden", "Ghent", "Graz", "Leeds", "Lyon", "Porto", "Turku",
];
const PEOPLE: [&str; 12] = [
    "Amira", "Bruno", "Chiara", "Dmitri", "Eveline", "Farid", "Greta", "Hamza", "Ines", "Jonas",
    "Katya", "Lars",
];
const GOODS: [&str; 10] = [
    "brass hinge",
    "oak plank",
    "copper wire",
    "glass jar",
    "wool blanket",
    "steel bolt",
    "clay pot",
    "paper roll",
    "linen thread",
    "tin lamp",
];

/// One source of each kind of generated text.
pub(super) fn sources(seed: u64) -> Vec<Source> {
    type Maker = fn(&mut Seeded) -> String;
    let makers: [(Kind, &str, Maker, &str); 8] = [
        (
            Kind::Data,
            "log-access",
            access_log,
            "Which of the paths in this access log fail most often, and what would you look at first?",
        ),
        (
            Kind::Data,
            "log-services",
            service_log,
            "Write an incident report from this log: what happened, which services were involved, and what to do.",
        ),
        (
            Kind::Data,
            "json-orders",
            orders,
            "Describe the structure of these JSON records field by field, and give one record as an example.",
        ),
        (
            Kind::Data,
            "csv-sensors",
            sensors,
            "Explain the columns of this table and name three measurements that stand out.",
        ),
        (
            Kind::Data,
            "table-tests",
            test_table,
            "Which suites of this table need attention? Give reasons from the numbers.",
        ),
        (
            Kind::Prose,
            "minutes",
            minutes,
            "List the decisions that were taken in these meetings, with who is responsible for each.",
        ),
        (
            Kind::Prose,
            "inspections",
            inspections,
            "Summarise what the inspectors found, and which buildings should be repaired first.",
        ),
        (
            Kind::Code,
            "config",
            config,
            "Explain what this configuration does, section by section.",
        ),
    ];
    let sources = makers
        .into_iter()
        .map(|(kind, name, make, question)| Source {
            name: name.to_owned(),
            kind,
            text: make(&mut Seeded::new(seed, name)),
            question: question.to_owned(),
            needle: None,
        });
    sources.collect()
}

/// Pieces, numbered from 0, until there is enough text.
fn enough(mut piece: impl FnMut(usize) -> String) -> String {
    let mut text = String::with_capacity(SOURCE_BYTES + 1024);
    let mut number = 0;
    while text.len() < SOURCE_BYTES {
        text.push_str(&piece(number));
        number += 1;
    }
    text
}

/// A time of day that goes on by `step` seconds with each number.
fn clock(number: usize, step: usize) -> String {
    let seconds = number * step;
    let (hours, minutes) = (seconds / 3600 % 24, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02}", seconds % 60)
}

fn access_log(seeded: &mut Seeded) -> String {
    enough(|number| {
        let path = seeded.pick(&[
            "/",
            "/cart",
            "/login",
            "/api/items",
            "/api/orders",
            "/static/app.js",
        ]);
        let status = seeded.pick(&["200", "200", "200", "200", "304", "404", "500", "503"]);
        let method = seeded.pick(&["GET", "GET", "GET", "POST"]);
        let (host, bytes, millis) = (
            seeded.below(254) + 1,
            seeded.below(90_000),
            seeded.below(900),
        );
        format!(
            "10.2.7.{host} - - [14/Mar/2025:{} +0000] \"{method} {path} HTTP/1.1\" {status} {bytes} {millis}ms\n",
            clock(number, 3),
        )
    })
}

fn service_log(seeded: &mut Seeded) -> String {
    enough(|number| {
        let level = seeded.pick(&["INFO", "INFO", "INFO", "DEBUG", "WARN", "ERROR"]);
        let service = seeded.pick(&SERVICES);
        let request = seeded.between(0x1000, 0xffff);
        let millis = seeded.below(4000);
        let event = match level {
            "WARN" => format!(
                "slow reply from {}, took {millis} ms",
                seeded.pick(&SERVICES)
            ),
            "ERROR" => format!(
                "no reply from {} after {millis} ms, giving up",
                seeded.pick(&SERVICES)
            ),
            "DEBUG" => format!(
                "cache {} for key item:{}",
                seeded.pick(&["hit", "miss"]),
                seeded.below(5000)
            ),
            _ => format!(
                "request done in {millis} ms with status {}",
                seeded.pick(&["200", "201", "404"])
            ),
        };
        format!(
            "2025-03-14T{} {level:<5} {service}[{request:x}]: {event}\n",
            clock(number, 2)
        )
    })
}

fn orders(seeded: &mut Seeded) -> String {
    enough(|number| {
        format!(
            "{{\"order\": {}, \"customer\": \"{}\", \"city\": \"{}\", \"item\": \"{}\", \"count\": {}, \"price\": {}.{:02}, \"paid\": {}}}\n",
            40_000 + number * 7,
            seeded.pick(&PEOPLE),
            seeded.pick(&CITIES),
            seeded.pick(&GOODS),
            seeded.between(1, 40),
            seeded.between(1, 300),
            seeded.below(100),
            seeded.pick(&["true", "true", "false"]),
        )
    })
}

fn sensors(seeded: &mut Seeded) -> String {
    let rows = enough(|number| {
        format!(
            "{},{},{}.{},{},{}.{:02},{}\n",
            clock(number, 60),
            seeded.pick(&CITIES),
            seeded.between(4, 31),
            seeded.below(10),
            seeded.between(30, 95),
            seeded.between(980, 1035),
            seeded.below(100),
            seeded.pick(&["ok", "ok", "ok", "ok", "drift", "offline"]),
        )
    });
    format!("time,station,temperature_c,humidity_percent,pressure_hpa,state\n{rows}")
}

fn test_table(seeded: &mut Seeded) -> String {
    let rows = enough(|number| {
        format!(
            "| {}-{number} | {} | {} | {} | {}.{} s | {} |\n",
            seeded.pick(&SERVICES),
            seeded.between(20, 400),
            seeded.below(9),
            seeded.below(4),
            seeded.between(1, 90),
            seeded.below(10),
            seeded.pick(&["stable", "stable", "flaky", "new"]),
        )
    });
    format!(
        "| suite | passed | failed | skipped | time | state |\n|---|---|---|---|---|---|\n{rows}"
    )
}

/// Minutes of meetings: prose in which each paragraph has its own facts.
pub(super) fn minutes(seeded: &mut Seeded) -> String {
    enough(|number| {
        let subject = seeded.pick(&[
            "the new warehouse",
            "the delivery contracts",
            "the summer fair",
            "the heating of the hall",
            "the training of apprentices",
            "the catalogue for next year",
            "the state of the machines",
        ]);
        let (speaker, other, owner) = (
            seeded.pick(&PEOPLE),
            seeded.pick(&PEOPLE),
            seeded.pick(&PEOPLE),
        );
        let worry = seeded.pick(&[
            "the costs had grown faster than planned",
            "two suppliers had not answered yet",
            "the staff needed more time",
            "the permits would only come in autumn",
        ]);
        let wish = seeded.pick(&[
            "asked for a second offer",
            "suggested to wait for the figures of the quarter",
            "recalled that the same question had come up last year",
            "wanted to begin at once",
        ]);
        format!(
            "Meeting {} in {}. {speaker} opened the discussion of {subject} and said that {worry}. {other} {wish}. \
             After {} minutes it was agreed that {owner} would {} before the {} of next month, with a budget of {} euros.\n\n",
            number + 1,
            seeded.pick(&CITIES),
            seeded.between(5, 90),
            seeded.pick(&[
                "write a proposal",
                "call the supplier",
                "prepare a plan",
                "find a contractor"
            ]),
            seeded.pick(&["3rd", "7th", "12th", "18th", "25th"]),
            seeded.between(2, 90) * 50,
        )
    })
}

/// Reports of inspections: drier prose, a building each.
pub(super) fn inspections(seeded: &mut Seeded) -> String {
    enough(|number| {
        let part = seeded.pick(&[
            "roof",
            "cellar",
            "staircase",
            "facade",
            "east wing",
            "boiler room",
        ]);
        let state = seeded.pick(&[
            "in good order",
            "damp but sound",
            "worn and in need of paint",
            "cracked in two places",
            "repaired since the last visit",
            "not accessible on the day",
        ]);
        format!(
            "Building {} stands in {} and was built in {}. {} inspected its {part} and found it {state}. \
             The tenants reported {} in the last winter. Repairs are estimated at {} days of work for {} people; \
             the next visit is due in {} months.\n\n",
            number + 101,
            seeded.pick(&CITIES),
            seeded.between(1880, 1995),
            seeded.pick(&PEOPLE),
            seeded.pick(&[
                "no trouble",
                "leaking windows",
                "noise from the pipes",
                "a broken lock",
                "cold floors"
            ]),
            seeded.between(2, 30),
            seeded.between(2, 6),
            seeded.between(2, 36),
        )
    })
}

fn config(seeded: &mut Seeded) -> String {
    enough(|number| {
        format!(
            "[{}-{number}]\nlisten = \"0.0.0.0:{}\"\nreplicas = {}\nregion = \"{}\"\ntimeout_ms = {}\nretry = {{ attempts = {}, backoff_ms = {} }}\nlog = \"{}\"\nupstream = \"{}\"\n\n",
            seeded.pick(&SERVICES),
            seeded.between(2000, 9999),
            seeded.between(1, 12),
            seeded.pick(&CITIES).to_lowercase(),
            seeded.between(1, 60) * 250,
            seeded.between(1, 6),
            seeded.between(1, 40) * 25,
            seeded.pick(&["info", "warn", "debug"]),
            seeded.pick(&SERVICES),
        )
    })
}
