//! Certificates for the nodes of a test, and strangers.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    clippy::allow_attributes,
    reason = "each test program uses a part of it, and what can't be set up has failed"
)]

use std::path::Path;

use lynx_tls::authority::{Authority, Request, write};
use serde_json::{Value, json};

/// What the deployment under test is called.
pub(crate) const NAME: &str = "spiffe://test/ns/a/lynx/b";

/// A directory of certificates for every agent of a deployment.
pub(crate) fn issued(authority: &Authority) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    write(
        directory.path(),
        &authority.issue(&Request::new(NAME)).unwrap(),
    )
    .unwrap();
    directory
}

/// Has an agent encrypt everything.
pub(crate) fn encrypt(config: &mut Value, directory: &Path) {
    config["tls"] = json!({"mode": "all", "directory": directory});
}
