//! One priority of one link: what was granted, what came, what was consumed. All counts are cumulative over the epoch.

use lynx_units::Bytes;

use crate::limits::MIN_CHUNK;

/// A receive window. Bytes granted and not yet released never exceed its size.
#[derive(Debug)]
pub(crate) struct Window {
    size: u64,
    received: u64,
    released: u64,
    /// What the sender has been told, and what it will be told with the next [`announce`](Self::announce).
    announced: u64,
    limit: u64,
}

impl Window {
    /// The least that is granted ahead of what has come: a sender can always cut a chunk from half of it.
    pub(crate) const MIN_AHEAD: Bytes = Bytes::new(4 * MIN_CHUNK as u64);

    pub(crate) const fn new(size: Bytes) -> Self {
        Self {
            size: size.get(),
            received: 0,
            released: 0,
            announced: 0,
            limit: 0,
        }
    }

    /// Bytes came; `false` where the sender may not have sent them.
    #[must_use]
    pub(crate) fn receive(&mut self, bytes: Bytes) -> bool {
        let received = self.received.saturating_add(bytes.get());
        if received > self.announced {
            return false;
        }
        self.received = received;
        true
    }

    /// Bytes that came are no longer held.
    pub(crate) fn release(&mut self, bytes: Bytes) {
        self.released = self.released.saturating_add(bytes.get()).min(self.received);
    }

    /// Whether [`raise`](Self::raise) would grant more.
    pub(crate) fn can_raise(&self, ahead: Bytes) -> bool {
        self.target(ahead) > self.limit
    }

    /// Grants as much as the size allows, and at most `ahead` beyond what has come.
    pub(crate) fn raise(&mut self, ahead: Bytes) {
        self.limit = self.limit.max(self.target(ahead));
    }

    /// Whether the sender should hear of the limit: it rose by a quarter of what may be outstanding, or rose at all while
    /// the sender may be about to run dry. Where neither holds, the sender has half of it left, which is never less than a
    /// chunk, so silence can't block it.
    pub(crate) fn is_due(&self, ahead: Bytes) -> bool {
        let span = ahead.max(Self::MIN_AHEAD).get().min(self.size);
        let rise = self.limit - self.announced;
        let left = self.announced - self.received;
        rise > 0 && (rise >= span / 4 || left < span / 2)
    }

    /// The limit, as the sender is told now.
    pub(crate) fn announce(&mut self) -> Bytes {
        self.announced = self.limit;
        Bytes::new(self.announced)
    }

    /// What the sender has been told last.
    pub(crate) const fn announced(&self) -> Bytes {
        Bytes::new(self.announced)
    }

    fn target(&self, ahead: Bytes) -> u64 {
        let ahead = ahead.max(Self::MIN_AHEAD).get();
        let by_memory = self.released.saturating_add(self.size);
        by_memory.min(self.received.saturating_add(ahead))
    }
}
