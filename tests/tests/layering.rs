//! The layering rules, held against this workspace.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Node, Package};
use lynx_tests::layering::{Crate, Declaration, Graph};

#[test]
fn every_arrow_points_down_and_pure_crates_stay_pure() {
    let metadata = MetadataCommand::new().exec().unwrap();
    let violations = graph(&metadata).violations();
    let messages: Vec<_> = violations.iter().map(ToString::to_string).collect();
    assert!(messages.is_empty(), "\n{}", messages.join("\n"));
}

/// A test that reads nothing would pass: the two ends of the ladder must be there, with an arrow between.
#[test]
fn the_graph_that_is_checked_is_the_workspaces() {
    let metadata = MetadataCommand::new().exec().unwrap();
    let graph = graph(&metadata);
    let find = |name| {
        graph
            .0
            .iter()
            .find(|(_, known)| known.name == name)
            .unwrap()
    };
    let (units, known) = find("lynx-units");
    assert_eq!(
        known.declaration,
        Some(Declaration {
            rank: 0,
            pure: true
        })
    );
    let (_, command) = find("lynx");
    assert!(command.member && command.links.contains(units));
    assert!(graph.0.values().any(|known| known.name == "tokio"));
}

fn graph(metadata: &Metadata) -> Graph {
    let resolve = metadata.resolve.as_ref().unwrap();
    let crates = resolve.nodes.iter().map(|node| {
        let known = Crate {
            name: metadata[&node.id].name.to_string(),
            member: metadata.workspace_members.contains(&node.id),
            declaration: declaration(&metadata[&node.id]),
            names: keys(node, |_, _| true),
            links: keys(node, |kind, to| {
                // A procedural macro runs in the compiler and is not linked.
                kind == DependencyKind::Normal
                    && !metadata[to]
                        .targets
                        .iter()
                        .any(cargo_metadata::Target::is_proc_macro)
            }),
        };
        (node.id.repr.clone(), known)
    });
    Graph(crates.collect())
}

fn keys(
    node: &Node,
    wanted: impl Fn(DependencyKind, &cargo_metadata::PackageId) -> bool,
) -> Vec<String> {
    let dependencies = node.deps.iter();
    dependencies
        .filter(|to| to.dep_kinds.iter().any(|info| wanted(info.kind, &to.pkg)))
        .map(|to| to.pkg.repr.clone())
        .collect()
}

fn declaration(package: &Package) -> Option<Declaration> {
    let lynx = package.metadata.get("lynx")?;
    Some(Declaration {
        rank: lynx.get("rank")?.as_u64()?,
        pure: lynx.get("pure")?.as_bool()?,
    })
}
