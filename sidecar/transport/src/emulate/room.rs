//! Room in front of the link, in bytes, that can shrink while it is in use.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The owner's side of the queue's room; readers take bytes from the [`semaphore`](Self::semaphore), whose waiters are served
/// in order, so that busy connections take turns packet by packet.
#[derive(Debug)]
pub(super) struct Room {
    semaphore: Arc<Semaphore>,
    capacity: usize,
    /// Bytes that are still in use and won't be given out again.
    surplus: usize,
}

impl Room {
    pub(super) fn new(capacity: usize) -> Self {
        let capacity = capacity.min(Semaphore::MAX_PERMITS / 2);
        Self {
            semaphore: Arc::new(Semaphore::new(capacity)),
            capacity,
            surplus: 0,
        }
    }

    pub(super) fn semaphore(&self) -> Arc<Semaphore> {
        Arc::clone(&self.semaphore)
    }

    /// Makes the room larger at once, or smaller as what is in use is given back.
    pub(super) fn resize(&mut self, capacity: usize) {
        let capacity = capacity.min(Semaphore::MAX_PERMITS / 2);
        let grown = capacity.saturating_sub(self.capacity);
        let revived = grown.min(self.surplus);
        self.surplus -= revived;
        self.semaphore.add_permits(grown - revived);
        self.surplus += self.capacity.saturating_sub(capacity);
        self.surplus -= self.semaphore.forget_permits(self.surplus);
        self.capacity = capacity;
    }

    /// Takes bytes back that are no longer in use.
    pub(super) fn give_back(&mut self, mut used: OwnedSemaphorePermit) {
        let gone = self.surplus.min(used.num_permits());
        if let Some(gone) = used.split(gone) {
            self.surplus -= gone.num_permits();
            gone.forget();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(room: &Room, bytes: u32) -> Option<OwnedSemaphorePermit> {
        room.semaphore().try_acquire_many_owned(bytes).ok()
    }

    #[test]
    fn a_room_shrinks_as_it_is_left_and_grows_at_once() {
        let mut room = Room::new(100);
        let used = take(&room, 70).unwrap();
        let also = take(&room, 20).unwrap();
        room.resize(50);
        assert!(take(&room, 1).is_none(), "90 of 50 are in use");
        room.give_back(also);
        assert!(take(&room, 1).is_none(), "70 of 50 are in use");
        room.resize(75);
        assert!(take(&room, 6).is_none(), "70 of 75 are in use");
        assert!(take(&room, 5).is_some());
        room.give_back(used);
        assert!(take(&room, 76).is_none());
        assert!(take(&room, 75).is_some());
    }

    #[derive(Clone, Copy, Debug, bolero::TypeGenerator)]
    enum Op {
        Take(u8),
        GiveBack(u8),
        Resize(u8),
    }

    /// Against sums: what is in use, and how much there may be.
    #[test]
    fn what_can_be_taken_is_what_is_not_in_use_whatever_happened_before() {
        bolero::check!().with_type::<Vec<Op>>().for_each(|ops| {
            let mut room = Room::new(100);
            let (mut capacity, mut used) = (100, Vec::new());
            for op in ops {
                match *op {
                    Op::Take(bytes) => used.extend(take(&room, bytes.into())),
                    Op::GiveBack(at) if !used.is_empty() => {
                        room.give_back(used.swap_remove(usize::from(at) % used.len()));
                    }
                    Op::GiveBack(_) => {}
                    Op::Resize(bytes) => {
                        capacity = usize::from(bytes);
                        room.resize(capacity);
                    }
                }
                let held: usize = used.iter().map(OwnedSemaphorePermit::num_permits).sum();
                let free = room.semaphore.available_permits();
                assert_eq!(free, capacity.saturating_sub(held), "{op:?}");
            }
        });
    }
}
