//! What a peer says of itself.

use std::time::Duration;

use lynx_proto::peer::v1::{Load, PeerNews};
use lynx_units::Bytes;

use crate::prefix::{BlockName, Known};

/// The last news of a peer.
#[derive(Debug)]
pub(super) struct Told {
    blocks: Known,
    load: Load,
}

/// Work that is before a new transfer's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ahead {
    /// Tokens to be computed.
    pub(super) tokens: u64,
    /// Bytes to be sent.
    pub(super) bytes: Bytes,
}

impl Ahead {
    pub(super) fn add(&mut self, other: Self) {
        self.tokens = self.tokens.saturating_add(other.tokens);
        let bytes = self.bytes.get().saturating_add(other.bytes.get());
        self.bytes = Bytes::new(bytes);
    }
}

impl Told {
    /// Nothing yet; room for `blocks` blocks.
    pub(super) fn new(blocks: usize) -> Self {
        Self {
            blocks: Known::new(blocks),
            load: Load::default(),
        }
    }

    pub(super) fn hear(&mut self, news: PeerNews) {
        if news.reset {
            self.blocks.clear();
            self.load = Load::default();
        }
        self.blocks.add(news.added.into_iter().map(BlockName));
        self.blocks.remove(news.removed.into_iter().map(BlockName));
        if let Some(load) = news.load {
            self.load = load;
        }
    }

    /// How many of a prompt's first tokens it has.
    pub(super) fn cached_tokens(&self, prompt: &[BlockName]) -> u32 {
        self.blocks.tokens_of(prompt)
    }

    /// What is ahead of a new transfer, where `own` of it is this agent's, and `unreported` of that so new that the peer's last
    /// word can't have it.
    pub(super) fn ahead(&self, own: Ahead, unreported: Ahead) -> Ahead {
        let mut told = Ahead {
            tokens: self.load.queued_tokens,
            bytes: Bytes::new(self.load.pending_bytes),
        };
        told.add(unreported);
        // What this agent waits for is there, whatever the peer has said last.
        Ahead {
            tokens: told.tokens.max(own.tokens),
            bytes: told.bytes.max(own.bytes),
        }
    }

    /// What its engine takes for a token; `None` where it hasn't said.
    pub(super) fn token_time(&self) -> Option<Duration> {
        let time = self.load.token_time_ns;
        (time > 0).then(|| Duration::from_nanos(time))
    }
}
