//! Cards that read payload where it lies.

use std::io;
use std::sync::Arc;

use lynx_units::Priority;
use lynx_verbs::Lendable;

use super::{Adapter, Endpoint, Loss, Queue, Route, Sizes};

/// Cards whose queue pairs are lent memory: payload that lies there goes to the peer without a copy. It must stay as it is, and in its
/// place, until the [`SharedBytes`](crate::SharedBytes) that it was handed over as are dropped. A queue pair that can't have the memory copies.
#[derive(Debug)]
pub struct Lending {
    cards: Arc<dyn Adapter>,
    memory: Arc<dyn Lendable>,
}

impl Lending {
    /// These cards, and what they are lent: for reading alone, so nothing of it is of use to a peer.
    pub fn new(cards: Arc<dyn Adapter>, memory: Arc<dyn Lendable>) -> Self {
        Self { cards, memory }
    }

    fn lend(&self, mut queue: Box<dyn Queue>) -> Box<dyn Queue> {
        if let Err(why) = queue.lend(&self.memory) {
            self.cards.not_lent(&why);
        }
        queue
    }
}

impl Adapter for Lending {
    fn queue(&self, route: Route, on: Priority, sizes: Sizes) -> io::Result<Box<dyn Queue>> {
        let queue = self.cards.queue(route, on, sizes)?;
        Ok(self.lend(queue))
    }

    fn rail(&self, route: Route, on: Priority, sizes: Sizes) -> io::Result<Box<dyn Queue>> {
        let queue = self.cards.rail(route, on, sizes)?;
        Ok(self.lend(queue))
    }

    fn others(&self, first: &Endpoint) -> Vec<Route> {
        self.cards.others(first)
    }

    fn towards(&self, there: &Endpoint) -> Option<Route> {
        self.cards.towards(there)
    }

    fn not_lent(&self, why: &io::Error) {
        self.cards.not_lent(why);
    }

    fn lost(&self, loss: &Loss) {
        self.cards.lost(loss);
    }
}
