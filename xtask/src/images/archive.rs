//! An image as one file: an OCI image layout in a tar archive, which `ctr image import`, `podman load` and
//! `skopeo copy oci-archive:` read.

use std::collections::BTreeMap;
use std::io::{Read, Write};

use anyhow::Result;
use serde_json::{Value, json};
use tar::{Builder, Header};

use super::blob::Blob;
use super::layer::{Layer, append};

const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// An image, ready to be written.
#[derive(Debug)]
pub(crate) struct Image {
    /// The repository, as in `lynx.dev/agent`.
    pub(crate) repository: String,
    /// As in `0.1.0`.
    pub(crate) tag: String,
    /// What a container of it runs, if it is there to be run.
    pub(crate) entrypoint: Vec<String>,
    /// `org.opencontainers.image.` and so on.
    pub(crate) labels: BTreeMap<String, String>,
    /// From the lowest up.
    pub(crate) layers: Vec<Layer>,
}

/// What was written.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Written {
    /// The manifest's: what a registry calls the image by.
    pub(crate) digest: String,
    /// What a registry stores, in bytes.
    pub(crate) size: u64,
}

impl Image {
    /// The name under which a pod asks for it.
    pub(crate) fn name(&self) -> String {
        format!("{}:{}", self.repository, self.tag)
    }

    /// Writes the archive.
    ///
    /// # Errors
    /// What reading the layers or writing to `out` says.
    pub(crate) fn write(self, out: impl Write, epoch: u64) -> Result<Written> {
        let config = blob_of(&self.config(epoch)?)?;
        let manifest = blob_of(&self.manifest(&config))?;
        let index = self.index(&manifest);
        let digest = manifest.digest.clone();

        let mut blobs = BTreeMap::new();
        let layers = self.layers.into_iter().map(|layer| layer.blob);
        for blob in layers.chain([config, manifest]) {
            blobs.insert(blob.digest.replace(':', "/"), blob);
        }
        let size = blobs.values().map(|blob| blob.size).sum();

        let mut archive = Builder::new(out);
        for (name, blob) in blobs {
            add(
                &mut archive,
                &format!("blobs/{name}"),
                blob.size,
                blob.file,
                epoch,
            )?;
        }
        for (name, value) in [
            ("index.json", index),
            ("oci-layout", json!({ "imageLayoutVersion": "1.0.0" })),
        ] {
            let text = value.to_string();
            add(
                &mut archive,
                name,
                text.len() as u64,
                text.as_bytes(),
                epoch,
            )?;
        }
        archive.into_inner()?.flush()?;
        Ok(Written { digest, size })
    }

    fn config(&self, epoch: u64) -> Result<Value> {
        let created = jiff::Timestamp::from_second(i64::try_from(epoch)?)?.to_string();
        let diff_ids: Vec<&str> = self
            .layers
            .iter()
            .map(|layer| layer.diff_id.as_str())
            .collect();
        let mut config = json!({ "Labels": self.labels });
        if !self.entrypoint.is_empty() {
            config["Entrypoint"] = json!(self.entrypoint);
            config["Env"] = json!(["PATH=/usr/bin"]);
            config["User"] = json!("65532:65532");
            config["WorkingDir"] = json!("/");
        }
        Ok(json!({
            "architecture": architecture(),
            "config": config,
            "created": created,
            "history": vec![json!({ "created": created, "created_by": "cargo xtask images" }); diff_ids.len()],
            "os": "linux",
            "rootfs": { "type": "layers", "diff_ids": diff_ids },
        }))
    }

    fn manifest(&self, config: &Blob) -> Value {
        let layers = self.layers.iter();
        json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": descriptor(CONFIG, config),
            "layers": layers.map(|layer| descriptor(layer.media_type, &layer.blob)).collect::<Vec<_>>(),
        })
    }

    fn index(&self, manifest: &Blob) -> Value {
        let mut entry = descriptor(MANIFEST, manifest);
        entry["platform"] = json!({ "architecture": architecture(), "os": "linux" });
        // The first is the layout's own, which has room for a tag only; the second is where containerd and Docker look
        // for the whole name.
        entry["annotations"] = json!({
            "org.opencontainers.image.ref.name": self.tag,
            "io.containerd.image.name": self.name(),
        });
        json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [entry] })
    }
}

fn blob_of(value: &Value) -> Result<Blob> {
    Ok(Blob::of(value.to_string().as_bytes())?)
}

fn descriptor(media_type: &str, blob: &Blob) -> Value {
    json!({ "mediaType": media_type, "digest": blob.digest, "size": blob.size })
}

fn add<W: Write>(
    archive: &mut Builder<W>,
    path: &str,
    size: u64,
    content: impl Read,
    epoch: u64,
) -> Result<()> {
    let mut header = Header::new_gnu();
    header.set_mode(0o644);
    header.set_mtime(epoch);
    Ok(append(archive, header, path, size, content)?)
}

/// This machine's architecture as images call it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
