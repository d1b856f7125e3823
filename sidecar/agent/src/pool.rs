//! An engine's KV pool: a file that both processes map, memory of a GPU that both have opened, or blocks that the engine codes by
//! itself.
//!
//! The engine says in messages which blocks may be touched when ([`session`](crate::session)); here is what makes a mistake in
//! them an error instead of a wrong token. A block that one request may write is no other request's, what isn't published
//! can't be read, and what isn't granted can't be written. Not a copy of the pool: a prompt's KV is as large as what goes on
//! the wire, and would take longer to copy than to split.

mod by_engine;
mod device;
mod guard;
mod layout;
mod mapping;
mod room;
mod staging;
mod table;
mod tiles;

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use lynx_proto::engine::v1;
use lynx_transport::rdma::Lendable;
use rustix::fs::{CWD, Mode, OFlags, openat};
use tokio::sync::watch;

use self::by_engine::ByEngine;
pub use self::by_engine::{AskError, EngineValues};
pub(crate) use self::by_engine::{Outbox, Unasked};
use self::device::OnGpu;
pub use self::device::{GpuError, GpuOptions, GpuUnit, GpuValues, Lent};
pub use self::layout::{Layout, LayoutError};
use self::mapping::Mapping;
pub use self::staging::Piece;
use self::staging::Staging;
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
    /// What is known to be wrong with it. Dropped last: whoever listens knows by that that the memory is closed.
    lost: watch::Sender<Option<Lost>>,
}

/// Where the blocks are.
#[derive(Debug)]
enum Memory {
    Host(Mapping),
    Gpu(Box<OnGpu>),
    Engine(Box<ByEngine>),
}

/// A pool is of no use any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// Pages of its file are missing.
    #[error(
        "pages of the pool's file are missing: the engine must keep it at its full size, all of it allocated, until its stream ends"
    )]
    Pages,
    /// The engine that codes it doesn't answer.
    #[error("the engine has not answered a Split or a Merge in time")]
    Silent,
}

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
    /// More than one place for blocks.
    #[error("the engine codes by itself: leave pool.file and pool.gpu out beside pool.staging")]
    AndStaging,
    /// A file through which not even one unit passes.
    #[error(
        "the staging file {} has {bytes} bytes: give it, and allocate, what pool.staging says, and at least {wanted} for this model",
        path.display()
    )]
    ShortStaging {
        /// The file.
        path: PathBuf,
        /// How long it is, or is said to be.
        bytes: u64,
        /// How long it must be.
        wanted: usize,
    },
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
        if pool.blocks == 0 {
            return Err(PoolError::Empty);
        }
        let wanted = layout.bytes(pool.blocks)?;
        let (path, file, bytes) = open_file(directory, &pool.file, access)?;
        if bytes < wanted as u64 {
            return Err(PoolError::Short {
                path,
                bytes,
                blocks: pool.blocks,
                wanted,
            });
        }
        let mapping = Mapping::new(&file, wanted, access == Access::Write);
        let mapping = mapping.map_err(|source| PoolError::Io { path, source })?;
        Ok(Self::of(Memory::Host(mapping), layout, pool.blocks))
    }

    /// Maps the file through which an engine that codes by itself hands units over, which must lie in `directory` itself. It is asked
    /// over `outbox`.
    ///
    /// # Errors
    /// Where there is no such file, or it is too small for this KV.
    pub(crate) fn by_engine(
        directory: &Path,
        pool: &v1::Pool,
        staging: &v1::Staging,
        layout: Layout,
        outbox: Outbox,
    ) -> Result<Self, PoolError> {
        if pool.blocks == 0 {
            return Err(PoolError::Empty);
        }
        if !pool.file.is_empty() || pool.gpu.is_some() {
            return Err(PoolError::AndStaging);
        }
        let wanted = by_engine::largest_unit(layout.shape()) * 2;
        let (path, file, bytes) = open_file(directory, &staging.file, Access::Write)?;
        let bytes = bytes.min(staging.bytes);
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        if bytes < staging.bytes || length < wanted {
            return Err(PoolError::ShortStaging {
                path,
                bytes,
                wanted,
            });
        }
        let mapping = Mapping::new(&file, length, true);
        let mapping = mapping.map_err(|source| PoolError::Io { path, source })?;
        let staging = Staging::new(mapping, length);
        let engine = ByEngine::new(staging, layout.shape(), outbox);
        Ok(Self::of(
            Memory::Engine(Box::new(engine)),
            layout,
            pool.blocks,
        ))
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
            lost: watch::Sender::new(None),
        }
    }

    /// The GPU on which this agent codes its KV, for people; `None` where it doesn't.
    pub fn gpu(&self) -> Option<&str> {
        match &self.memory {
            Memory::Host(_) | Memory::Engine(_) => None,
            Memory::Gpu(gpu) => Some(gpu.name()),
        }
    }

    /// Where its KV is coded, for people.
    pub fn coded_on(&self) -> &str {
        match &self.memory {
            Memory::Host(_) => "the processor",
            Memory::Gpu(gpu) => gpu.name(),
            Memory::Engine(_) if self.layout.is_half() => {
                "the engine's own process; its FP16 rounded to BF16"
            }
            Memory::Engine(_) => "the engine's own process",
        }
    }

    /// Where segments of its KV lie until they are sent, to be lent to those that send them; none where each has memory of its own. Those that a
    /// GPU makes lie there from the first time on that somebody asks.
    pub(crate) fn lendable(&self) -> Option<Arc<dyn Lendable>> {
        match &self.memory {
            Memory::Engine(engine) => Some(engine.lendable()),
            Memory::Gpu(gpu) => gpu.lendable(),
            Memory::Host(_) => None,
        }
    }

    /// Whether its engine codes by itself.
    pub(crate) fn is_by_engine(&self) -> bool {
        matches!(self.memory, Memory::Engine(_))
    }

    /// What the engine answers to a question of this pool's.
    pub(crate) fn answered(&self, coded: v1::Coded) -> Result<(), Unasked> {
        match &self.memory {
            Memory::Engine(engine) => engine.answered(coded),
            Memory::Host(_) | Memory::Gpu(_) => Err(Unasked::Job),
        }
    }

    /// The engine is gone: nobody waits for its answers any more.
    pub(crate) fn end(&self) {
        if let Memory::Engine(engine) = &self.memory {
            engine.end();
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
        let lost = match &self.memory {
            Memory::Host(mapping) => mapping.is_lost().then_some(Lost::Pages),
            Memory::Gpu(_) => None,
            Memory::Engine(engine) if engine.is_lost() => Some(Lost::Pages),
            Memory::Engine(engine) => engine.is_silent().then_some(Lost::Silent),
        };
        if let Some(lost) = lost {
            self.lost.send_replace(Some(lost));
            return Err(lost);
        }
        Ok(())
    }

    /// Waits until somebody has found that it is of no use any more.
    pub(crate) async fn lost(&self) -> Lost {
        let mut lost = self.lost.subscribe();
        let found = lost.wait_for(Option::is_some).await;
        // The sender lives as long as `self`.
        found.ok().and_then(|lost| *lost).unwrap_or(Lost::Pages)
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

/// A regular file of the directory itself, by its plain name: its path and its length too.
fn open_file(
    directory: &Path,
    name: &str,
    access: Access,
) -> Result<(PathBuf, File, u64), PoolError> {
    let plain = !matches!(name, "" | "." | "..");
    if !plain || name.contains(['/', '\0']) {
        return Err(PoolError::Name(name.to_owned()));
    }
    let path = directory.join(name);
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
    Ok((path, file, metadata.len()))
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
