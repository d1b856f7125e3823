//! How large a link's receive windows are.
//!
//! A window is memory that a peer may fill at any moment, so the links' windows together are what is budgeted. A number
//! that is fixed beforehand either leaves the ninth peer without a link or gives two peers an eighth each; one that follows
//! every change makes links anew all the time. So the number of links that the budget is divided by is a power of two.

use lynx_protocol::receiver::ReceiverConfig;
use lynx_units::Bytes;

use super::{Peers, State};

/// The budget is never divided by less: peers may come, and one link needs no more.
const FEWEST: usize = 8;
/// The largest window.
const LARGEST: Bytes = Bytes::from_mib(64);

/// The window for each class of every link, where so many peers share `budget`.
fn window(budget: Bytes, peers: usize) -> Bytes {
    let links = peers.max(FEWEST).next_power_of_two();
    let windows = u64::try_from(links).map_or(u64::MAX, |links| links.saturating_mul(2));
    Bytes::new(budget.get() / windows).clamp(ReceiverConfig::MIN_WINDOW, LARGEST)
}

impl Peers {
    /// The window of a link that is made now.
    pub(super) fn window(&self) -> Bytes {
        window(self.settings.budget, self.named.len())
    }

    /// Makes one link anew that was made when there were fewer peers, where there is one on which nothing is under way. The
    /// next one's turn comes when this one is up, so that there is always somebody to ask.
    pub(super) fn fit_windows(&mut self) {
        let window = self.window();
        let has_outgrown = self.peers.iter().find(|(id, peer)| {
            let is_idle = !self.pledges.values().any(|pledge| pledge.peer == **id);
            let is_up = matches!(peer.state, State::Up(_));
            is_idle && is_up && !peer.retired && peer.window > window
        });
        let Some((&id, _)) = has_outgrown else {
            return;
        };
        if let Some(peer) = self.peers.remove(&id) {
            tracing::info!(peer = %peer.address.address, %window, "linked anew, to make room for more peers");
            peer.task.abort();
        }
        self.dial();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_links_fit_into_the_budget_as_there_are_peers_while_windows_are_not_the_least() {
        let budget = Bytes::from_mib(256);
        for peers in 1..=128 {
            let each = window(budget, peers).get() * 2;
            assert!(each * peers as u64 <= budget.get(), "{peers}");
        }
        assert_eq!(window(budget, 8), Bytes::from_mib(16));
        assert_eq!(window(budget, 9), Bytes::from_mib(8));
        assert_eq!(window(budget, 128), ReceiverConfig::MIN_WINDOW);
        assert_eq!(window(budget, 129), ReceiverConfig::MIN_WINDOW);
    }

    #[test]
    fn no_window_is_larger_than_a_link_needs_or_smaller_than_it_can_use() {
        assert_eq!(window(Bytes::new(u64::MAX), 1), LARGEST);
        assert_eq!(
            window(Bytes::ZERO, usize::MAX / 2),
            ReceiverConfig::MIN_WINDOW
        );
    }
}
