//! Places of connections: a bounded number, and no more than half of them for any one address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// So many places.
#[derive(Clone, Debug)]
pub(super) struct Places {
    taken: Arc<Mutex<HashMap<IpAddr, usize>>>,
    most: usize,
}

/// A place, until this is dropped.
#[derive(Debug)]
pub struct Place {
    taken: Arc<Mutex<HashMap<IpAddr, usize>>>,
    from: IpAddr,
}

impl Places {
    pub(super) fn new(most: usize) -> Self {
        let taken = Arc::default();
        Self { taken, most }
    }

    /// A place for a connection from there; `None` where there is none for it.
    pub(super) fn take(&self, from: IpAddr) -> Option<Place> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = taken.values().sum();
        let own = taken.get(&from).copied().unwrap_or_default();
        if all >= self.most || own >= self.most.div_ceil(2) {
            return None;
        }
        taken.insert(from, own + 1);
        drop(taken);
        let taken = Arc::clone(&self.taken);
        Some(Place { taken, from })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = taken.get_mut(&self.from) {
            *own -= 1;
            if *own == 0 {
                taken.remove(&self.from);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_address_has_more_than_half_of_the_places_and_each_is_given_back() {
        let places = Places::new(4);
        let [one, two, three] = [1, 2, 3].map(|last| IpAddr::from([10, 0, 0, last]));
        let mut held: Vec<_> = (0..2).map(|_| places.take(one).unwrap()).collect();
        assert!(places.take(one).is_none());
        held.extend([two, two].map(|from| places.take(from).unwrap()));
        assert!(places.take(three).is_none());
        held.pop();
        held.push(places.take(three).unwrap());
        held.clear();
        assert!(places.taken.lock().unwrap().is_empty());
    }
}
