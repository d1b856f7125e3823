//! What the system tells of a process.

use std::path::PathBuf;

use anyhow::{Context as _, Result};

use super::number_after;

/// A process that is looked at.
#[derive(Debug)]
pub(super) struct Process {
    name: String,
    folder: PathBuf,
}

/// How it was at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) resident_bytes: u64,
    pub(super) threads: usize,
    pub(super) files: usize,
}

impl Process {
    pub(super) fn new(name: String, id: u32) -> Result<Self> {
        let folder = PathBuf::from(format!("/proc/{id}"));
        std::fs::metadata(&folder).with_context(|| format!("looking at {name}"))?;
        Ok(Self { name, folder })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn sample(&self) -> Result<Sample> {
        let gone = || format!("{} has ended", self.name);
        let status = std::fs::read_to_string(self.folder.join("status")).with_context(gone)?;
        let files = std::fs::read_dir(self.folder.join("fd")).with_context(gone)?;
        Ok(Sample {
            resident_bytes: number_after(&status, "VmRSS:")? << 10,
            threads: usize::try_from(number_after(&status, "Threads:")?)?,
            files: files.count(),
        })
    }
}
