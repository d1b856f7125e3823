//! One layer of an image: files as a tar archive that depends on nothing but them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;

use anyhow::{Context, Result};
use flate2::{Compression, GzBuilder};
use tar::{Builder, EntryType, Header};

use super::blob::{Blob, BlobWriter, Hashed};

/// What a layer holds, by absolute path without the leading slash. Folders above come by themselves.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    entries: BTreeMap<String, (u32, Content)>,
}

#[derive(Debug)]
enum Content {
    Folder,
    Text(String),
    Copy(PathBuf),
}

/// Whether a layer is compressed. Weights don't get any smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    Plain,
    Gzip,
}

/// A layer as an image names it.
#[derive(Debug)]
pub(crate) struct Layer {
    pub(crate) blob: Blob,
    pub(crate) media_type: &'static str,
    /// The digest of what the blob is when it is unpacked.
    pub(crate) diff_id: String,
}

impl Tree {
    pub(crate) fn folder(&mut self, path: &str, mode: u32) {
        self.insert(path, mode, Content::Folder);
    }

    pub(crate) fn text(&mut self, path: &str, text: impl Into<String>) {
        self.insert(path, 0o644, Content::Text(text.into()));
    }

    /// A copy of a file of this machine; its owner, its times and its place here stay behind.
    pub(crate) fn copy(&mut self, path: &str, mode: u32, from: impl Into<PathBuf>) {
        self.insert(path, mode, Content::Copy(from.into()));
    }

    fn insert(&mut self, path: &str, mode: u32, content: Content) {
        for (end, _) in path.match_indices('/') {
            let above = path[..end].to_owned();
            self.entries
                .entry(above)
                .or_insert((0o755, Content::Folder));
        }
        self.entries.insert(path.to_owned(), (mode, content));
    }

    /// The layer, every file of which was last changed at `epoch`, in seconds since 1970.
    pub(crate) fn pack(&self, packing: Packing, epoch: u64) -> Result<Layer> {
        let blob = BlobWriter::new()?;
        let (media_type, blob, diff_id) = match packing {
            Packing::Plain => {
                let (blob, diff_id) = self.write(Hashed::new(blob), epoch)?.finish();
                ("application/vnd.oci.image.layer.v1.tar", blob, diff_id)
            }
            Packing::Gzip => {
                // The builder's own default header: no name, no time.
                let gzip = GzBuilder::new().write(blob, Compression::best());
                let (gzip, diff_id) = self.write(Hashed::new(gzip), epoch)?.finish();
                (
                    "application/vnd.oci.image.layer.v1.tar+gzip",
                    gzip.finish()?,
                    diff_id,
                )
            }
        };
        let blob = blob.finish()?;
        Ok(Layer {
            blob,
            media_type,
            diff_id,
        })
    }

    fn write<W: Write>(&self, out: W, epoch: u64) -> Result<W> {
        let mut archive = Builder::new(out);
        for (path, (mode, content)) in &self.entries {
            let mut header = Header::new_gnu();
            header.set_mode(*mode);
            header.set_mtime(epoch);
            match content {
                Content::Folder => {
                    header.set_entry_type(EntryType::Directory);
                    append(&mut archive, header, &format!("{path}/"), 0, io::empty())
                }
                Content::Text(text) => append(
                    &mut archive,
                    header,
                    path,
                    text.len() as u64,
                    text.as_bytes(),
                ),
                Content::Copy(from) => {
                    let file =
                        File::open(from).with_context(|| format!("opening {}", from.display()))?;
                    let size = file.metadata()?.len();
                    append(&mut archive, header, path, size, file)
                }
            }
            .with_context(|| format!("packing {path}"))?;
        }
        Ok(archive.into_inner()?)
    }
}

/// Adds an entry that belongs to root.
pub(crate) fn append<W: Write>(
    archive: &mut Builder<W>,
    mut header: Header,
    path: &str,
    size: u64,
    content: impl Read,
) -> io::Result<()> {
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(size);
    archive.append_data(&mut header, path, content)
}
