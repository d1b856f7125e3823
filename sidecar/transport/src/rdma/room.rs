//! How much memory may be registered at a time.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lynx_units::Bytes;

/// A bound, and what of it is taken.
#[derive(Debug)]
pub(super) struct Room {
    /// What sets the bound.
    setting: &'static str,
    most: Bytes,
    taken: AtomicU64,
}

/// Some of a [`Room`], until it is dropped.
#[derive(Debug)]
pub(super) struct Taken {
    room: Arc<Room>,
    bytes: u64,
}

impl Room {
    pub(super) fn new(setting: &'static str, most: Bytes) -> Arc<Self> {
        Arc::new(Self {
            setting,
            most,
            taken: AtomicU64::new(0),
        })
    }

    /// Takes so many bytes.
    pub(super) fn take(self: &Arc<Self>, bytes: u64) -> io::Result<Taken> {
        let fits = |taken: u64| Some(taken + bytes).filter(|sum| *sum <= self.most.get());
        let order = Ordering::Relaxed;
        let taken = self.taken.fetch_update(order, order, fits);
        taken.map_err(|taken| {
            io::Error::other(format!(
                "a connection needs {} of registered memory, and of {} there are {} in use: raise {}",
                Bytes::new(bytes),
                self.most,
                Bytes::new(taken),
                self.setting,
            ))
        })?;
        Ok(Taken {
            room: Arc::clone(self),
            bytes,
        })
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.room.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_can_be_taken_again_and_no_more_than_there_is() {
        let room = Room::new("transfer.rdma.memory", Bytes::from_mib(10));
        let one = room.take(5 << 20).unwrap();
        let other = room.take(5 << 20).unwrap();
        let error = room.take(1).unwrap_err().to_string();
        assert!(
            error.contains("10.0 MiB") && error.contains("transfer.rdma.memory"),
            "{error}"
        );
        drop(one);
        assert!(room.take(6 << 20).is_err());
        assert!(room.take(5 << 20).is_ok(), "which goes at once");
        drop(other);
        room.take(10 << 20).unwrap();
    }
}
