//! What an image consists of: a bill of materials in CycloneDX's format, beside the archive.
//!
//! From cargo's own resolution and not from the program: what is linked is what the lock file says. Without a time and a serial
//! number, so that the same image has the same bill.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use cargo_metadata::{CargoOpt, DependencyKind, Metadata, MetadataCommand, Package, PackageId};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Asks cargo for all packages, as they are for this kind of machine and with these features.
///
/// # Errors
/// cargo can't say.
pub(super) fn metadata(root: &Path, features: &[&str]) -> Result<Metadata> {
    let platform = format!("--filter-platform={}", host()?);
    MetadataCommand::new()
        .current_dir(root)
        .features(CargoOpt::SomeFeatures(
            features.iter().map(|feature| (*feature).into()).collect(),
        ))
        .other_options(vec!["--locked".into(), platform])
        .exec()
        .context("asking cargo for the packages")
}

/// This kind of machine, as the compiler calls it.
fn host() -> Result<String> {
    let output = std::process::Command::new("rustc").arg("-vV").output();
    let text = String::from_utf8(output.context("asking rustc for its host")?.stdout)?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc doesn't say its host")?.to_owned())
}

/// The bill of the image that runs `program` with `libraries`.
///
/// # Errors
/// No package has such a program, or a library can't be read.
pub(super) fn bill(
    metadata: &Metadata,
    program: &str,
    libraries: &BTreeSet<PathBuf>,
    digest: &str,
) -> Result<Value> {
    let has_it = |package: &&Package| {
        let mut targets = package.targets.iter();
        targets.any(|target| target.is_bin() && target.name == program)
    };
    let package = metadata.packages.iter().find(has_it);
    let package = package.with_context(|| format!("no package has a program {program}"))?;
    let mut components: Vec<_> = linked(metadata, &package.id)?
        .into_iter()
        .map(component)
        .collect();
    for library in libraries {
        let bytes = fs::read(library).with_context(|| format!("reading {}", library.display()))?;
        components.push(json!({
            "type": "file",
            "name": library.to_string_lossy(),
            "hashes": [{"alg": "SHA-256", "content": hex(&Sha256::digest(bytes))}],
        }));
    }
    let content = digest.trim_start_matches("sha256:");
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {
            "type": "container",
            "name": package.name.to_string(),
            "version": package.version.to_string(),
            "licenses": licences(package),
            "hashes": [{"alg": "SHA-256", "content": content}],
        }},
        "components": components,
    }))
}

/// The packages whose code is in a program: neither what tests need nor what only builds.
fn linked<'a>(metadata: &'a Metadata, root: &PackageId) -> Result<Vec<&'a Package>> {
    let resolve = metadata
        .resolve
        .as_ref()
        .context("cargo resolved nothing")?;
    let nodes: BTreeMap<_, _> = resolve.nodes.iter().map(|node| (&node.id, node)).collect();
    let mut found = BTreeSet::from([root]);
    let mut next = vec![root];
    while let Some(id) = next.pop() {
        let node = nodes.get(id).context("a package was not resolved")?;
        for dependency in &node.deps {
            let mut kinds = dependency.dep_kinds.iter();
            if kinds.any(|kind| kind.kind == DependencyKind::Normal)
                && found.insert(&dependency.pkg)
            {
                next.push(&dependency.pkg);
            }
        }
    }
    let mut packages: Vec<_> = metadata
        .packages
        .iter()
        .filter(|package| found.contains(&package.id) && package.id != *root)
        .collect();
    packages.sort_by_key(|package| (package.name.to_string(), package.version.clone()));
    Ok(packages)
}

fn component(package: &Package) -> Value {
    let mut component = json!({
        "type": "library",
        "name": package.name.to_string(),
        "version": package.version.to_string(),
        "licenses": licences(package),
    });
    // What lies in this repository has no address in a registry.
    if package.source.is_some() {
        let address = format!("pkg:cargo/{}@{}", package.name, package.version);
        component["purl"] = json!(address);
    }
    component
}

fn licences(package: &Package) -> Value {
    let licence = package.license.as_ref();
    // An older way to write "or".
    licence.map_or(
        json!([]),
        |text| json!([{"expression": text.replace('/', " OR ")}]),
    )
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_operator() -> Value {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let metadata = metadata(&root, &[]).unwrap();
        bill(&metadata, "lynx-operator", &BTreeSet::new(), "sha256:00").unwrap()
    }

    #[test]
    fn a_bill_has_what_is_linked_and_nothing_that_only_builds_or_tests() {
        let bill = of_operator();
        let components = bill["components"].as_array().unwrap();
        let named = |name: &str| components.iter().find(|one| one["name"] == name);
        let client = named("kube-client").unwrap();
        let address = client["purl"].as_str().unwrap();
        assert!(address.starts_with("pkg:cargo/kube-client@"), "{address}");
        assert!(named("lynx-governor").unwrap().get("purl").is_none());
        for absent in ["insta", "bolero", "prost-build", "lynx-operator"] {
            assert!(named(absent).is_none(), "{absent}");
        }
        let unlicensed = components.iter().find(|one| one["licenses"] == json!([]));
        assert_eq!(unlicensed, None);
    }

    #[test]
    fn the_bill_of_an_agent_with_rdma_has_what_loads_libibverbs_and_that_of_one_without_has_not() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let loads_it = |features: &[&str]| {
            let metadata = metadata(&root, features).unwrap();
            let bill = bill(&metadata, "lynx-agent", &BTreeSet::new(), "sha256:00").unwrap();
            let components = bill["components"].as_array().unwrap();
            components.iter().any(|one| one["name"] == "ibverbs-sys")
        };
        assert!(loads_it(&[super::super::RDMA]) && !loads_it(&[]));
    }

    #[test]
    fn the_same_image_has_the_same_bill() {
        assert_eq!(of_operator().to_string(), of_operator().to_string());
    }
}
