//! How much pinned memory is in use, and whose it is: a budget, without the memory.
//!
//! Pinned memory can't be swapped out, so that an agent must not take as much as it likes. A slot is the GPU's while a copy is
//! under way, the holder's (a link that sends, a merge that reads) after, and free again when the holder lets go: only then is
//! it given to another copy. Teardown refuses new slots and is over when none is held, which is when memory may be
//! unpinned: unpinning what an adapter or a GPU still reads would be a fault of theirs.

use std::collections::BTreeMap;

/// A piece of pinned memory, by a number that is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(u64);

/// Who may touch a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Gpu,
    Holder,
}

/// The budget and its slots.
#[derive(Clone, Debug)]
pub struct Staging {
    budget: usize,
    used: usize,
    next: u64,
    slots: BTreeMap<Slot, (Owner, usize)>,
    closing: bool,
}

/// What can't be done with a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StagingError {
    /// Not now: ask again when a slot was let go.
    #[error(
        "{wanted} bytes of pinned memory don't fit into {free} free ones; more come when segments were sent"
    )]
    Full {
        /// How many were asked for.
        wanted: usize,
        /// How many there are.
        free: usize,
    },
    /// Never: the budget is smaller.
    #[error("{wanted} bytes of pinned memory exceed the whole budget of {budget}: raise it")]
    TooLarge {
        /// How many were asked for.
        wanted: usize,
        /// The budget.
        budget: usize,
    },
    /// Nothing is given any more.
    #[error("the pinned memory is being given back")]
    Closing,
    /// The slot is free, or in other hands.
    #[error("that piece of pinned memory is not in these hands")]
    NotYours,
}

impl Staging {
    /// Nothing in use of `budget` bytes.
    pub const fn new(budget: usize) -> Self {
        Self {
            budget,
            used: 0,
            next: 0,
            slots: BTreeMap::new(),
            closing: false,
        }
    }

    /// A slot for a copy that begins now.
    ///
    /// # Errors
    /// Where it doesn't fit, now or ever, or after [`Self::close`].
    pub fn begin(&mut self, bytes: usize) -> Result<Slot, StagingError> {
        if self.closing {
            return Err(StagingError::Closing);
        }
        if bytes > self.budget {
            return Err(StagingError::TooLarge {
                wanted: bytes,
                budget: self.budget,
            });
        }
        let free = self.budget - self.used;
        if bytes > free {
            return Err(StagingError::Full {
                wanted: bytes,
                free,
            });
        }
        let slot = Slot(self.next);
        self.next += 1;
        self.used += bytes;
        self.slots.insert(slot, (Owner::Gpu, bytes));
        Ok(slot)
    }

    /// The copy's event has come: what it brought may be read.
    ///
    /// # Errors
    /// Where no copy is under way in the slot.
    pub fn complete(&mut self, slot: Slot) -> Result<(), StagingError> {
        match self.slots.get_mut(&slot) {
            Some((owner @ Owner::Gpu, _)) => {
                *owner = Owner::Holder;
                Ok(())
            }
            _ => Err(StagingError::NotYours),
        }
    }

    /// The holder needs it no more.
    ///
    /// # Errors
    /// Where a copy is still under way in it, or it was let go before.
    pub fn release(&mut self, slot: Slot) -> Result<(), StagingError> {
        match self.slots.get(&slot) {
            Some(&(Owner::Holder, bytes)) => {
                self.slots.remove(&slot);
                self.used -= bytes;
                Ok(())
            }
            _ => Err(StagingError::NotYours),
        }
    }

    /// Gives no more slots.
    pub const fn close(&mut self) {
        self.closing = true;
    }

    /// Whether the memory may be unpinned.
    pub fn is_over(&self) -> bool {
        self.closing && self.slots.is_empty()
    }

    /// Bytes in use.
    pub const fn used(&self) -> usize {
        self.used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same, with a list and no sums.
    #[derive(Default)]
    struct Model {
        copying: Vec<(Slot, usize)>,
        held: Vec<(Slot, usize)>,
        closing: bool,
    }

    impl Model {
        fn used(&self) -> usize {
            self.copying.iter().chain(&self.held).map(|it| it.1).sum()
        }
    }

    #[test]
    fn a_slot_is_in_one_hand_at_a_time_and_the_budget_holds() {
        const BUDGET: usize = 100;
        for seed in 1u64..200 {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let mut random = |below: usize| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                usize::try_from(state >> 33).unwrap() % below
            };
            let (mut staging, mut model) = (Staging::new(BUDGET), Model::default());
            for _ in 0..100 {
                match random(8) {
                    0..3 => {
                        let wanted = random(120);
                        let fits = model.used() + wanted <= BUDGET && !model.closing;
                        let got = staging.begin(wanted);
                        assert_eq!(got.is_ok(), fits);
                        model.copying.extend(got.ok().map(|slot| (slot, wanted)));
                    }
                    3..5 if !model.copying.is_empty() => {
                        let it = model.copying.swap_remove(random(model.copying.len()));
                        assert_eq!(staging.release(it.0), Err(StagingError::NotYours));
                        assert_eq!(staging.complete(it.0), Ok(()));
                        model.held.push(it);
                    }
                    5..7 if !model.held.is_empty() => {
                        let it = model.held.swap_remove(random(model.held.len()));
                        assert_eq!(staging.complete(it.0), Err(StagingError::NotYours));
                        assert_eq!(staging.release(it.0), Ok(()));
                        assert_eq!(staging.release(it.0), Err(StagingError::NotYours));
                    }
                    7 if random(20) == 0 => {
                        staging.close();
                        model.closing = true;
                    }
                    _ => {}
                }
                assert_eq!(staging.used(), model.used());
                assert_eq!(
                    staging.is_over(),
                    model.closing
                        && model.used() == 0
                        && model.copying.is_empty()
                        && model.held.is_empty()
                );
            }
        }
    }

    #[test]
    fn what_never_fits_is_told_from_what_does_not_fit_now() {
        let mut staging = Staging::new(10);
        assert!(matches!(
            staging.begin(11),
            Err(StagingError::TooLarge { .. })
        ));
        let slot = staging.begin(10).unwrap();
        assert_eq!(
            staging.begin(1),
            Err(StagingError::Full { wanted: 1, free: 0 })
        );
        staging.close();
        assert!(!staging.is_over());
        staging.complete(slot).unwrap();
        staging.release(slot).unwrap();
        assert!(staging.is_over());
        assert_eq!(staging.begin(1), Err(StagingError::Closing));
    }
}
