//! Cards that links lose and go on without.

use std::io;
use std::sync::Arc;

use lynx_transport::rdma::{Adapter, Endpoint, Loss, Queue, Route, Sizes};
use lynx_units::Priority;

use crate::counters::Links;

/// Cards, each loss of which is told in the log and counted: a link that has lost one is slower, and otherwise as it was.
#[derive(Debug)]
pub(super) struct Telling {
    cards: Arc<dyn Adapter>,
    links: Arc<Links>,
}

impl Telling {
    pub(super) fn new(cards: &Arc<dyn Adapter>, links: &Arc<Links>) -> Self {
        Self {
            cards: Arc::clone(cards),
            links: Arc::clone(links),
        }
    }
}

impl Adapter for Telling {
    fn queue(&self, route: Route, on: Priority, sizes: Sizes) -> io::Result<Box<dyn Queue>> {
        self.cards.queue(route, on, sizes)
    }

    fn rail(&self, route: Route, on: Priority, sizes: Sizes) -> io::Result<Box<dyn Queue>> {
        self.cards.rail(route, on, sizes)
    }

    fn others(&self, first: &Endpoint) -> Vec<Route> {
        self.cards.others(first)
    }

    fn towards(&self, there: &Endpoint) -> Option<Route> {
        self.cards.towards(there)
    }

    fn lost(&self, loss: &Loss) {
        let Loss { card, left, why } = loss;
        tracing::warn!(
            %card,
            left,
            "a link has lost a card and goes on by the others, until it is made anew: {why}"
        );
        self.links.lost_rail();
        self.cards.lost(loss);
    }
}
