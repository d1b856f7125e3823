//! Variables that begin like this agent's and are none: misspelt ones are mistakes, the others are told of.
//!
//! Not every stranger is a mistake: Kubernetes gives each container the addresses of its namespace's services as variables,
//! and a service may well be called `lynx-something`; other Lynx programs have variables of their own.

use super::fields::{FIELDS, variable};
use super::mistakes::Mistake;

/// How variables of Lynx begin.
const PREFIX: &str = "LYNX_";
/// How many letters a name may differ from a field's and be taken for it.
const TYPO: usize = 2;
/// Variables of Lynx's other programs and of its build.
const OTHERS: &[&str] = &["LYNX_OPERATOR_", "LYNX_CACHE", "LYNX_SEED", "LYNX_KNOBS"];

/// What is to be said of strangers.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Strangers {
    /// Those that are a field's variable, misspelt.
    pub(super) misspelt: Vec<Mistake>,
    /// Those that are nothing.
    pub(super) ignored: Vec<String>,
}

/// Looks at the names of all variables.
pub(super) fn find(names: impl IntoIterator<Item = String>) -> Strangers {
    let known: Vec<String> = FIELDS.iter().map(|field| variable(field.path)).collect();
    let mut found = Strangers::default();
    for name in names {
        let is_stranger = name.starts_with(PREFIX) && !known.contains(&name);
        if !is_stranger || is_a_service(&name) || known_elsewhere(&name, &known) {
            continue;
        }
        let meant = known.iter().find(|known| is_typo(&name, known));
        match meant {
            Some(meant) => found.misspelt.push(Mistake {
                what: format!("there is no such variable; {meant} may be meant"),
                at: name,
            }),
            None => found.ignored.push(name),
        }
    }
    found.ignored.sort_unstable();
    found.misspelt.sort_unstable_by(|a, b| a.at.cmp(&b.at));
    found
}

/// Another program's, unless it is one of this agent's with the same beginning.
fn known_elsewhere(name: &str, known: &[String]) -> bool {
    let elsewhere = OTHERS.iter().any(|other| name.starts_with(other));
    elsewhere && !known.iter().any(|known| is_typo(name, known))
}

/// What Kubernetes tells of a service: `LYNX_A_SERVICE_HOST`, `LYNX_A_PORT_80_TCP_ADDR`.
fn is_a_service(name: &str) -> bool {
    name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || name.ends_with("_PORT")
        || name.contains("_PORT_") && (name.contains("_TCP") || name.contains("_UDP"))
}

fn is_typo(name: &str, known: &str) -> bool {
    // Of a short name two letters are half.
    let allowed = if known.len() < PREFIX.len() + 6 {
        1
    } else {
        TYPO
    };
    name.len().abs_diff(known.len()) <= allowed && distance(name, known) <= allowed
}

/// Levenshtein's: insertions, deletions and replacements from one to the other.
fn distance(one: &str, other: &str) -> usize {
    let other = other.as_bytes();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (above, &byte) in one.as_bytes().iter().enumerate() {
        let mut diagonal = above;
        row[0] = above + 1;
        for (at, &letter) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != byte);
            diagonal = row[at + 1];
            row[at + 1] = replaced.min(diagonal + 1).min(row[at] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(names: &[&str]) -> Strangers {
        find(names.iter().map(|name| (*name).to_owned()))
    }

    #[test]
    fn a_misspelt_variable_is_a_mistake_that_names_what_was_meant() {
        let found = of(&["LYNX_TRANSFER_DEADLIN", "LYNX_ENGINE_QEUE", "LYNX_PEER"]);
        let told: Vec<&str> = found.misspelt.iter().map(|m| m.what.as_str()).collect();
        assert!(told[0].contains("LYNX_ENGINE_QUEUE"), "{told:?}");
        assert!(told[1].contains("LYNX_PEERS"), "{told:?}");
        assert!(told[2].contains("LYNX_TRANSFER_DEADLINE"), "{told:?}");
        assert_eq!(found.ignored, Vec::<String>::new());
    }

    #[test]
    fn what_is_nothing_is_told_of_and_what_is_anothers_is_not() {
        let found = of(&[
            "PATH",
            "LYNX_ROLE",
            "LYNX_WHATEVER",
            "LYNX_OPERATOR_ADDRESS",
            "LYNX_OPERATOR_AGENTS_SERVICE",
            "LYNX_SMOL_SERVICE_HOST",
            "LYNX_PORT",
            "LYNX_SMOL_PORT_80_TCP_ADDR",
        ]);
        assert_eq!(found.ignored, ["LYNX_WHATEVER"]);
        assert_eq!(found.misspelt, []);
    }

    /// The variables of the containers called `agent`, in whatever object.
    fn of_agents(value: &serde_norway::Value, found: &mut Vec<String>) {
        if let Some(items) = value.as_sequence() {
            items.iter().for_each(|item| of_agents(item, found));
        }
        let Some(fields) = value.as_mapping() else {
            return;
        };
        if fields.get("name").and_then(serde_norway::Value::as_str) == Some("agent") {
            let env = fields.get("env").and_then(serde_norway::Value::as_sequence);
            let names = env
                .into_iter()
                .flatten()
                .filter_map(|one| one.get("name")?.as_str());
            found.extend(names.map(str::to_owned));
        }
        fields.values().for_each(|value| of_agents(value, found));
    }

    /// The operator gave agents a variable for a transport, which no agent knew, and each said so at its start.
    #[test]
    fn the_operator_sets_no_variable_that_is_none() {
        let folder = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../operator/src/build/snapshots"
        );
        let mut names = Vec::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
            let (_, documents) = text[3..].split_once("\n---\n").unwrap();
            for document in serde_norway::Deserializer::from_str(documents) {
                let object = serde::Deserialize::deserialize(document).unwrap();
                of_agents(&object, &mut names);
            }
        }
        assert!(
            names.iter().any(|name| name == "LYNX_POD_NAME"),
            "{names:?}"
        );
        assert_eq!(find(names), Strangers::default());
    }

    #[test]
    fn distances_are_those_of_the_textbook() {
        for (one, other, expected) in [
            ("", "", 0),
            ("kitten", "sitting", 3),
            ("flaw", "lawn", 2),
            ("abc", "", 3),
        ] {
            assert_eq!(distance(one, other), expected);
            assert_eq!(distance(other, one), expected);
        }
    }
}
