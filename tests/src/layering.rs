//! Which crate may know which.
//!
//! Every crate of the workspace states a rank and whether it is pure, in `[package.metadata.lynx]`. A crate may depend
//! on crates of a lower rank only, in its tests too; a pure crate may not reach the operating system through anything
//! that it links. A list of allowed arrows would say the same, but it would have to be edited for every new arrow, and
//! an edit is what such a list is there to prevent.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Reaching one of these means input, output or a clock.
pub const IMPURE: [&str; 4] = ["tokio", "mio", "socket2", "libc"];

/// What a crate of the workspace says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Declaration {
    /// Higher ranks may know lower ones.
    pub rank: u64,
    /// No input, no output, no clock, not even through dependencies.
    pub pure: bool,
}

/// A crate, of the workspace or from outside.
#[derive(Clone, Debug, Default)]
pub struct Crate {
    /// Its name, as printed.
    pub name: String,
    /// Whether it belongs to the workspace.
    pub member: bool,
    /// What it says of itself.
    pub declaration: Option<Declaration>,
    /// Keys of all crates it names: for itself, its build script or its tests.
    pub names: Vec<String>,
    /// Keys of the crates among them that it links.
    pub links: Vec<String>,
}

/// Crates by a key that tells two versions of one crate apart.
#[derive(Clone, Debug, Default)]
pub struct Graph(pub BTreeMap<String, Crate>);

/// A broken rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A member without a declaration.
    #[error(
        "{name} states no rank and purity: add rank = N and pure = true|false to its [package.metadata.lynx]"
    )]
    Undeclared {
        /// The crate.
        name: String,
    },
    /// An arrow that does not point down.
    #[error(
        "{from} (rank {from_rank}) -> {to} (rank {to_rank}): an arrow must point to a lower rank; move what is shared down"
    )]
    NotDown {
        /// The crate that depends.
        from: String,
        /// Its rank.
        from_rank: u64,
        /// The crate it depends on.
        to: String,
        /// That one's rank.
        to_rank: u64,
    },
    /// A pure crate that reaches the operating system.
    #[error("{} is pure but reaches {}: {}", path[0], path[path.len() - 1], path.join(" -> "))]
    Impure {
        /// From the crate to the one of [`IMPURE`], by a shortest way; never empty.
        path: Vec<String>,
    },
}

impl Graph {
    /// Every broken rule, in the order of the keys.
    pub fn violations(&self) -> Vec<Violation> {
        let members = self.0.iter().filter(|(_, known)| known.member);
        members
            .flat_map(|(key, known)| match known.declaration {
                None => vec![Violation::Undeclared {
                    name: known.name.clone(),
                }],
                Some(declaration) => {
                    let mut found = self.arrows_not_down(known, declaration.rank);
                    if declaration.pure {
                        found.extend(self.way_out(key).map(|path| Violation::Impure { path }));
                    }
                    found
                }
            })
            .collect()
    }

    fn arrows_not_down(&self, from: &Crate, from_rank: u64) -> Vec<Violation> {
        let targets = from.names.iter().filter_map(|key| self.0.get(key));
        targets
            .filter_map(|to| {
                let to_rank = to.declaration?.rank;
                (to_rank >= from_rank).then(|| Violation::NotDown {
                    from: from.name.clone(),
                    from_rank,
                    to: to.name.clone(),
                    to_rank,
                })
            })
            .collect()
    }

    /// The shortest way from a crate to one of [`IMPURE`], breadth first.
    fn way_out(&self, start: &str) -> Option<Vec<String>> {
        let mut seen = BTreeSet::from([start]);
        let mut queue = VecDeque::from([vec![start]]);
        while let Some(path) = queue.pop_front() {
            let last = self.0.get(*path.last()?)?;
            if IMPURE.contains(&last.name.as_str()) {
                let names = path.iter().filter_map(|key| self.0.get(*key));
                return Some(names.map(|known| known.name.clone()).collect());
            }
            for next in last.links.iter().filter(|key| self.0.contains_key(*key)) {
                if seen.insert(next) {
                    queue.push_back(path.iter().copied().chain([next.as_str()]).collect());
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str, rank: u64, pure: bool, links: &[&str]) -> (String, Crate) {
        let links: Vec<String> = links.iter().copied().map(String::from).collect();
        let known = Crate {
            name: name.into(),
            member: true,
            declaration: Some(Declaration { rank, pure }),
            names: links.clone(),
            links,
        };
        (name.into(), known)
    }

    fn outside(name: &str, links: &[&str]) -> (String, Crate) {
        let (key, known) = member(name, 0, false, links);
        let known = Crate {
            member: false,
            declaration: None,
            ..known
        };
        (key, known)
    }

    fn messages(crates: impl IntoIterator<Item = (String, Crate)>) -> Vec<String> {
        let violations = Graph(crates.into_iter().collect()).violations();
        violations.iter().map(Violation::to_string).collect()
    }

    #[test]
    fn a_ladder_is_accepted() {
        let crates = [
            member("units", 0, true, &[]),
            member("protocol", 1, true, &["units", "thiserror"]),
            member("driver", 2, false, &["protocol", "tokio"]),
            outside("thiserror", &[]),
            outside("tokio", &["mio"]),
            outside("mio", &["libc"]),
            outside("libc", &[]),
        ];
        assert_eq!(messages(crates), Vec::<String>::new());
    }

    #[test]
    fn each_planted_mistake_is_named_with_its_arrow() {
        let undeclared = {
            let (key, known) = member("stray", 0, false, &[]);
            let known = Crate {
                declaration: None,
                ..known
            };
            (key, known)
        };
        let crates = [
            member("units", 0, true, &["driver"]),
            member("protocol", 1, true, &["units", "innocent"]),
            member("sibling", 1, false, &["protocol"]),
            member("driver", 2, false, &[]),
            undeclared,
            outside("innocent", &["libc"]),
            outside("libc", &[]),
        ];
        assert_eq!(
            messages(crates),
            [
                "protocol is pure but reaches libc: protocol -> innocent -> libc",
                "sibling (rank 1) -> protocol (rank 1): an arrow must point to a lower rank; move what is shared down",
                "stray states no rank and purity: add rank = N and pure = true|false to its [package.metadata.lynx]",
                "units (rank 0) -> driver (rank 2): an arrow must point to a lower rank; move what is shared down",
            ]
        );
    }

    #[test]
    fn a_crate_for_tests_only_is_ranked_but_not_linked() {
        let (key, mut pure) = member("protocol", 1, true, &[]);
        pure.names = vec!["bolero".into()];
        let crates = [
            (key, pure),
            outside("bolero", &["libc"]),
            outside("libc", &[]),
        ];
        assert_eq!(messages(crates), Vec::<String>::new());
    }

    #[test]
    fn a_circle_among_dependencies_ends() {
        let crates = [
            member("protocol", 1, true, &["a"]),
            outside("a", &["b"]),
            outside("b", &["a"]),
        ];
        assert_eq!(messages(crates), Vec::<String>::new());
    }
}
