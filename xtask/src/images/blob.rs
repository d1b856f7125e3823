//! Bytes that are named by their hash, kept in a file: a model's layer can be larger than memory.

use std::fs::File;
use std::io::{self, Seek, Write};

use sha2::{Digest, Sha256};

/// A piece of an image.
#[derive(Debug)]
pub(crate) struct Blob {
    /// Its bytes, to be read from the start.
    pub(crate) file: File,
    /// `sha256:` and the hash in hexadecimal.
    pub(crate) digest: String,
    /// Its length in bytes.
    pub(crate) size: u64,
}

impl Blob {
    /// A blob of these bytes.
    pub(crate) fn of(bytes: &[u8]) -> io::Result<Self> {
        let mut writer = BlobWriter::new()?;
        writer.write_all(bytes)?;
        writer.finish()
    }
}

/// Writes a blob.
#[derive(Debug)]
pub(crate) struct BlobWriter {
    hashed: Hashed<File>,
}

impl BlobWriter {
    pub(crate) fn new() -> io::Result<Self> {
        let hashed = Hashed::new(tempfile::tempfile()?);
        Ok(Self { hashed })
    }

    pub(crate) fn finish(self) -> io::Result<Blob> {
        let size = self.hashed.written;
        let (mut file, digest) = self.hashed.finish();
        file.rewind()?;
        Ok(Blob { file, digest, size })
    }
}

impl Write for BlobWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.hashed.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.hashed.flush()
    }
}

/// Hashes what passes through.
#[derive(Debug)]
pub(crate) struct Hashed<W> {
    inner: W,
    hash: Sha256,
    written: u64,
}

impl<W: Write> Hashed<W> {
    pub(crate) fn new(inner: W) -> Self {
        let (hash, written) = (Sha256::new(), 0);
        Self {
            inner,
            hash,
            written,
        }
    }

    /// What is below, and the digest of all that was written.
    pub(crate) fn finish(self) -> (W, String) {
        (self.inner, digest(&self.hash.finalize()))
    }
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.hash.update(&bytes[..count]);
        self.written += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

fn digest(hash: &[u8]) -> String {
    hash.iter().fold(String::from("sha256:"), |text, byte| {
        format!("{text}{byte:02x}")
    })
}
