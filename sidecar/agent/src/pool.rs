//! An engine's KV pool: a file that both processes map, or memory of a GPU that both have opened.
//!
//! The engine says in messages which blocks may be touched when ([`session`](crate::session)); here is what makes a mistake in
//! them an error instead of a wrong token. A block that one request may write is no other request's, what isn't published
//! can't be read, and what isn't granted can't be written. Not a copy of the pool: a prompt's KV is as large as what goes on
//! the wire, and would take longer to copy than to split.

mod device;
mod guard;
mod layout;
mod mapping;
mod table;
mod tiles;

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use lynx_proto::engine::v1;
use rustix::fs::{CWD, Mode, OFlags, openat};
use tokio::sync::watch;

use self::device::OnGpu;
pub use self::device::{GpuError, GpuOptions, GpuValues};
pub use self::layout::{Layout, LayoutError};
use self::mapping::Mapping;
pub(crate) use self::table::Grant;
pub use self::table::{AccessError, Readable, TableError, Values, ValuesMut, Writable};
pub use self::tiles::{Sink, Source};

/// What an agent does with a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads what a prefill engine has published.
    Read,
    /// Writes what a decode engine waits for.
    Write,
}

/// A pool that is mapped, or open.
#[derive(Debug)]
pub struct Pool {
    memory: Memory,
    layout: Layout,
    blocks: u32,
    /// Blocks that requests have, by number.
    claims: Mutex<HashMap<u32, Held>>,
    /// Whether it is known that pages are missing. Dropped last: whoever listens knows by that that the memory is closed.
    lost: watch::Sender<bool>,
}

/// Where the blocks are.
#[derive(Debug)]
enum Memory {
    Host(Mapping),
    Gpu(Box<OnGpu>),
}

/// Pages of a pool's file are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "pages of the pool's file are missing: the engine must keep it at its full size, all of it allocated, until its stream ends"
)]
pub struct Lost;

/// What a request wants with a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Claim {
    Read,
    Write,
}

/// Who has a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    Readers(usize),
    Writer,
}

/// Why a pool can't be used.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// The message has none.
    #[error("the engine gave no pool: it must send one in Attach")]
    Missing,
    /// A name that leads elsewhere.
    #[error(
        "the pool's file {0:?} is not a plain name: it must lie directly in the shared directory"
    )]
    Name(String),
    /// Memory of a GPU that can't be used.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// No blocks at all.
    #[error("the pool has no blocks")]
    Empty,
    /// The layout can't have so many blocks.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The system refuses.
    #[error(
        "can't map the pool's file {}: {source}; is the shared directory mounted in both containers?", path.display()
    )]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Something else than a file of memory.
    #[error("the pool's file {} is no regular file", path.display())]
    NoFile {
        /// The file.
        path: PathBuf,
    },
    /// A file that is too short.
    #[error(
        "the pool's file {} has {bytes} bytes, and its {blocks} blocks take {wanted}: it must have its full size before Attach",
        path.display()
    )]
    Short {
        /// The file.
        path: PathBuf,
        /// How long it is.
        bytes: u64,
        /// How many blocks it is to hold.
        blocks: u32,
        /// How long it must be.
        wanted: usize,
    },
}

impl Pool {
    /// Maps the file that an engine names, which must lie in `directory` itself.
    ///
    /// # Errors
    /// Where there is no such file, or it can't hold what it is to hold.
    pub fn open(
        directory: &Path,
        pool: &v1::Pool,
        layout: Layout,
        access: Access,
    ) -> Result<Self, PoolError> {
        let plain = !matches!(pool.file.as_str(), "" | "." | "..");
        if !plain || pool.file.contains(['/', '\0']) {
            return Err(PoolError::Name(pool.file.clone()));
        }
        if pool.blocks == 0 {
            return Err(PoolError::Empty);
        }
        let path = directory.join(&pool.file);
        let wanted = layout.bytes(pool.blocks)?;
        let failed = |source| PoolError::Io {
            path: path.clone(),
            source,
        };
        let mode = match access {
            Access::Read => OFlags::RDONLY,
            Access::Write => OFlags::RDWR,
        };
        // Not blocking: a pipe of that name must not hold the agent up before it is seen to be one.
        let flags = mode | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let opened = openat(CWD, &path, flags, Mode::empty());
        let file = File::from(opened.map_err(|error| failed(error.into()))?);
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(PoolError::NoFile { path });
        }
        if metadata.len() < wanted as u64 {
            return Err(PoolError::Short {
                path,
                bytes: metadata.len(),
                blocks: pool.blocks,
                wanted,
            });
        }
        let mapping = Mapping::new(&file, wanted, access == Access::Write).map_err(failed)?;
        Ok(Self::of(Memory::Host(mapping), layout, pool.blocks))
    }

    /// Opens what an engine names of a GPU's memory. A driver may take a second to be asked. `descriptor` has what the engine has
    /// handed over, by name.
    ///
    /// # Errors
    /// Where this agent can't code on that GPU, or the memory isn't there, or can't hold what it is to hold.
    pub fn import(
        pool: &v1::Pool,
        gpu: &v1::GpuPool,
        layout: Layout,
        options: &GpuOptions,
        descriptor: impl Fn(&[u8]) -> Option<OwnedFd>,
    ) -> Result<Self, PoolError> {
        if pool.blocks == 0 {
            return Err(PoolError::Empty);
        }
        if !pool.file.is_empty() {
            return Err(GpuError::AndFile.into());
        }
        let wanted = layout.bytes(pool.blocks)?;
        let memory = OnGpu::open(gpu, &layout, wanted, options, descriptor)?;
        Ok(Self::of(Memory::Gpu(Box::new(memory)), layout, pool.blocks))
    }

    fn of(memory: Memory, layout: Layout, blocks: u32) -> Self {
        Self {
            memory,
            layout,
            blocks,
            claims: Mutex::default(),
            lost: watch::Sender::new(false),
        }
    }

    /// Where its KV is coded, for people; `None` on the processor.
    pub fn gpu(&self) -> Option<&str> {
        match &self.memory {
            Memory::Host(_) => None,
            Memory::Gpu(gpu) => Some(gpu.name()),
        }
    }

    /// Comes when the memory is closed: nothing of this process touches it any more.
    pub(crate) fn closed(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut lost = self.lost.subscribe();
        async move { while lost.changed().await.is_ok() {} }
    }

    /// Where its KV lies.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// How many blocks it has.
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Whether all that was read of it until now was there, and all that was written is.
    ///
    /// # Errors
    /// It wasn't. The pool is of no use any more, and nor is what was read of it.
    pub fn intact(&self) -> Result<(), Lost> {
        let Memory::Host(mapping) = &self.memory else {
            return Ok(());
        };
        if mapping.is_lost() {
            self.lost.send_replace(true);
            return Err(Lost);
        }
        Ok(())
    }

    /// Waits until somebody has found pages missing.
    pub(crate) async fn lost(&self) -> Lost {
        // The sender lives as long as `self`.
        drop(self.lost.subscribe().wait_for(|lost| *lost).await);
        Lost
    }

    /// Whether no request has a block.
    #[cfg(test)]
    pub(crate) fn is_unclaimed(&self) -> bool {
        let claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        claims.is_empty()
    }

    /// Notes what a request has these blocks for.
    ///
    /// # Errors
    /// The first block that another request has for another purpose, or that is named twice to be written.
    fn claim(&self, blocks: &[u32], claim: Claim) -> Result<(), u32> {
        let mut claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        for (done, block) in blocks.iter().enumerate() {
            let held = match (claims.get(block), claim) {
                (None, Claim::Read) => Held::Readers(1),
                (None, Claim::Write) => Held::Writer,
                (Some(Held::Readers(others)), Claim::Read) => Held::Readers(others + 1),
                (Some(_), _) => {
                    unclaim(&mut claims, &blocks[..done], claim);
                    return Err(*block);
                }
            };
            claims.insert(*block, held);
        }
        Ok(())
    }

    fn give_back(&self, blocks: &[u32], claim: Claim) {
        let mut claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        unclaim(&mut claims, blocks, claim);
    }
}

fn unclaim(claims: &mut HashMap<u32, Held>, blocks: &[u32], claim: Claim) {
    for block in blocks {
        match (claims.get_mut(block), claim) {
            (Some(Held::Readers(others)), Claim::Read) if *others > 1 => *others -= 1,
            _ => drop(claims.remove(block)),
        }
    }
}

#[cfg(test)]
mod claims;
#[cfg(test)]
mod tests;
