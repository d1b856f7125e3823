//! Cards that links lose and go on without, and memory that cards can't read.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lynx_transport::rdma::{Adapter, Endpoint, Loss, Queue, Route, Sizes};
use lynx_units::Priority;
use tokio::time::Instant;

use crate::counters::Links;
use crate::seldom::{Seldom, more};

/// Cards, each loss of which is told in the log and counted: a link that has lost one is slower, and otherwise as it was. So is one whose payload
/// has to be copied, which is told.
#[derive(Debug)]
pub(super) struct Telling {
    cards: Arc<dyn Adapter>,
    links: Arc<Links>,
    /// Of queue pairs that can't be lent memory.
    copies: Mutex<Seldom>,
}

impl Telling {
    pub(super) fn new(cards: &Arc<dyn Adapter>, links: &Arc<Links>) -> Self {
        Self {
            cards: Arc::clone(cards),
            links: Arc::clone(links),
            copies: Mutex::new(Seldom::new(Duration::from_secs(60))),
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

    fn not_lent(&self, why: &io::Error) {
        let mut copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(unsaid) = copies.happened(Instant::now()) {
            let more = more(unsaid);
            tracing::warn!(
                more,
                "a link copies payload that its card could read where it lies: {why}"
            );
        }
        self.cards.not_lent(why);
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
