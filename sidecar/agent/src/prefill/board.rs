//! What decode agents may know before they ask: what is cached here, and what is ahead of a new transfer.
//!
//! The role's loop writes, every listening peer reads at its own pace, and neither waits for the other: a reader that comes
//! late finds the present, not what was between. So nothing is kept for anybody.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::Stream;
use lynx_proto::engine::v1::CachedBlocks;
use lynx_proto::peer::v1::{Load, PeerNews, WatchRequest};
use tokio::sync::watch;
use tonic::Status;

use super::node::Node;
use super::serving::{Owed, Serving, Transfer};
use crate::prefix::{BlockName, Index, Journal, Position, Salt};

/// The shortest time between two messages to one peer.
pub(super) const PACE: Duration = Duration::from_millis(20);
/// The most names of one message: 32 KiB.
const MOST_NAMES: usize = 4096;
/// A prompt of fewer computed tokens says little about the time for one.
const ENOUGH_TOKENS: u64 = 16;

/// What is told.
#[derive(Debug)]
pub(super) struct Board {
    index: Index,
    shared: Arc<Mutex<Contents>>,
    changed: watch::Sender<()>,
}

#[derive(Debug)]
struct Contents {
    journal: Journal,
    load: Load,
    /// How often the load has changed.
    version: u64,
}

/// One peer's view.
#[derive(Debug)]
pub(super) struct Reader {
    shared: Arc<Mutex<Contents>>,
    changed: watch::Receiver<()>,
    position: Position,
    /// The load's version that was told.
    version: Option<u64>,
}

impl Board {
    /// Empty, with room for `limit` blocks.
    pub(super) fn new(salt: Salt, limit: usize) -> Self {
        Self {
            index: Index::new(salt, limit),
            shared: Arc::new(Mutex::new(Contents {
                journal: Journal::new(limit),
                load: Load::default(),
                version: 0,
            })),
            changed: watch::Sender::new(()),
        }
    }

    fn cached(&mut self, told: &CachedBlocks) {
        self.index.take(told, &mut lock(&self.shared).journal);
        self.changed.send_replace(());
    }

    fn post(&self, load: Load) {
        let mut contents = lock(&self.shared);
        if contents.load != load {
            contents.load = load;
            contents.version += 1;
            self.changed.send_replace(());
        }
    }

    fn reader(&self) -> Reader {
        Reader {
            shared: Arc::clone(&self.shared),
            changed: self.changed.subscribe(),
            position: Position::default(),
            version: None,
        }
    }
}

impl Reader {
    /// What is new; `None` where nothing is.
    fn next(&mut self) -> Option<PeerNews> {
        let contents = lock(&self.shared);
        let since = contents.journal.since(&mut self.position, MOST_NAMES);
        let is_new = self.version != Some(contents.version);
        self.version = Some(contents.version);
        let load = is_new.then_some(contents.load);
        if since.is_none() && load.is_none() {
            return None;
        }
        let since = since.unwrap_or_default();
        let names = |names: Vec<BlockName>| names.into_iter().map(|name| name.0).collect();
        Some(PeerNews {
            reset: since.reset,
            added: names(since.added),
            removed: names(since.removed),
            load,
        })
    }

    /// Message after message, until the engine behind all this is gone.
    pub(super) fn stream(self) -> impl Stream<Item = Result<PeerNews, Status>> + Send {
        futures::stream::unfold((self, false), |(mut reader, has_told)| async move {
            if has_told {
                tokio::time::sleep(PACE).await;
            }
            loop {
                // Before looking: what changes meanwhile is seen in the next round.
                reader.changed.mark_unchanged();
                if let Some(news) = reader.next() {
                    return Some((Ok(news), (reader, true)));
                }
                reader.changed.changed().await.ok()?;
            }
        })
    }
}

impl Node {
    /// A peer wants to hear.
    pub(super) fn watch(&self, request: &WatchRequest) -> Result<Reader, Status> {
        self.fits(request.caller.as_ref())?;
        Ok(self.board.reader())
    }

    /// The engine's cache has changed.
    pub(super) fn cached(&mut self, told: &CachedBlocks) {
        self.board.cached(told);
    }

    /// Tells what is ahead of a new transfer now.
    pub(super) fn post(&self) {
        let mut load = Load {
            draining: self.drain.is_draining(),
            token_time_ns: self.token_time_ns,
            ..Load::default()
        };
        for serving in self.serving.values() {
            if let Owed::Transfer(transfer) = &serving.owed {
                load.transfers += 1;
                load.queued_tokens += serving.uncomputed(transfer);
                load.pending_bytes += if transfer.delivered {
                    0
                } else {
                    transfer.handed.iter().sum()
                };
            }
        }
        self.board.post(load);
    }

    /// A transfer's prompt is computed: what that says of the engine's pace.
    pub(super) fn learn_pace(&mut self, request: u64) {
        let transfer = self.serving.get_mut(&request).and_then(Serving::transfer);
        let Some(took) = transfer.and_then(|transfer| transfer.pace.token_time_ns()) else {
            return;
        };
        // A mean of the last few.
        self.token_time_ns = match self.token_time_ns {
            0 => took,
            before => (before * 3 + took) / 4,
        };
    }
}

impl Serving {
    /// How many of the prompt's tokens are neither cached nor computed.
    fn uncomputed(&self, transfer: &Transfer) -> u64 {
        if self.done || self.finished {
            return 0;
        }
        let tokens = transfer.coding.descriptor().prompt_tokens;
        let computed = self.blocks.as_ref().map_or(0, |blocks| {
            blocks.published(blocks.shape().layers.saturating_sub(1))
        });
        u64::from(tokens.saturating_sub(computed))
    }
}

/// What a transfer's passes took.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    /// Whether more was computed than published, so that nothing can be said.
    pub(super) is_partial: bool,
    tokens: u64,
    ns: u64,
}

impl Pace {
    /// A pass over one layer.
    pub(super) fn add(&mut self, layer: u32, tokens: u32, ns: u64) {
        self.ns = self.ns.saturating_add(ns);
        if layer == 0 {
            self.tokens += u64::from(tokens);
        }
    }

    fn token_time_ns(&self) -> Option<u64> {
        let says_something = !self.is_partial && self.tokens >= ENOUGH_TOKENS && self.ns > 0;
        says_something.then(|| self.ns.div_ceil(self.tokens))
    }
}

fn lock(shared: &Mutex<Contents>) -> MutexGuard<'_, Contents> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
