//! Bytes that the application holds, and the window waits for.

use std::ops::Deref;

use lynx_units::{Bytes, Priority};
use tokio::sync::mpsc;

use crate::receiving::Command;

/// The bytes of a complete segment, read from the socket to where they are. They count against the link's receive window
/// until they are dropped: an application that keeps them slows its peer down and bounds its own memory. The link uses the
/// memory of dropped ones again.
#[derive(Debug, Default)]
pub struct SegmentBytes {
    bytes: Vec<u8>,
    owed: Option<Owed>,
}

/// Who gets the window's bytes back.
#[derive(Debug)]
struct Owed {
    priority: Priority,
    /// Weak, so that bytes that outlive the handles don't keep the link up.
    commands: mpsc::WeakUnboundedSender<Command>,
}

impl SegmentBytes {
    pub(crate) fn new(
        bytes: Vec<u8>,
        priority: Priority,
        commands: mpsc::WeakUnboundedSender<Command>,
    ) -> Self {
        Self {
            bytes,
            owed: Some(Owed { priority, commands }),
        }
    }

    /// Takes the memory out. It no longer counts against the window: bounding it is now the caller's affair.
    pub fn into_vec(mut self) -> Vec<u8> {
        let bytes = std::mem::take(&mut self.bytes);
        self.pay_back(Bytes::of_slice(&bytes), None);
        bytes
    }

    fn pay_back(&mut self, bytes: Bytes, memory: Option<Vec<u8>>) {
        let Some(owed) = self.owed.take() else {
            return;
        };
        if let Some(commands) = owed.commands.upgrade() {
            // A link that is over needs neither window nor memory.
            drop(commands.send(Command::Release(owed.priority, bytes, memory)));
        }
    }
}

impl Deref for SegmentBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for SegmentBytes {
    fn drop(&mut self) {
        let memory = std::mem::take(&mut self.bytes);
        self.pay_back(Bytes::of_slice(&memory), Some(memory));
    }
}
