//! The custom resource definition as a file, for people and for `kubectl apply`.

use crate::folder::Folder;

/// `crds/yaml`: one file for each resource.
pub(crate) fn folder() -> Folder {
    let text = format!(
        "# Made by `cargo xtask crds` from the types in crds/src. Apply it with kubectl apply --server-side.\n{}",
        lynx_crds::yaml()
    );
    Folder {
        path: "crds/yaml",
        is_shared: false,
        files: vec![("lynxdeployments.yaml".to_owned(), text)],
    }
}
