//! Where dependencies come from and under what licence.

use cargo_metadata::MetadataCommand;
use lynx_tests::licence;

#[test]
fn every_dependency_has_an_allowed_licence_and_comes_from_the_registry() {
    let metadata = MetadataCommand::new().exec().unwrap();
    let mut objections = Vec::new();
    for package in &metadata.packages {
        let name = format!("{} {}", package.name, package.version);
        match &package.license {
            Some(expression) if licence::is_allowed(expression) => {}
            Some(expression) => objections.push(format!("{name}: {expression}")),
            None => objections.push(format!("{name}: states no licence")),
        }
        let of_workspace = metadata.workspace_members.contains(&package.id);
        let from_registry = package
            .source
            .as_ref()
            .is_some_and(|source| source.is_crates_io());
        if !of_workspace && !from_registry {
            objections.push(format!("{name}: from {:?}", package.source));
        }
    }
    assert!(objections.is_empty(), "\n{}", objections.join("\n"));
    assert!(metadata.packages.len() > metadata.workspace_members.len());
}
