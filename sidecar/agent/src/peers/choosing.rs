//! The next peer: what is known of all of them, for [`choice`](crate::choice) to judge.

use std::time::Duration;

use lynx_proto::peer::v1::PeerNews;
use lynx_transport::{ReceiverHandle, Ticket};
use lynx_units::{BitRate, Bytes, Timestamp, TransferId};
use tonic::transport::Channel;

use super::told::{Ahead, Told};
use super::{Peer, PeerId, Peers, State};
use crate::choice::{self, Candidate, Distance, Wanted};
use crate::prefix::{self, BlockName, Salt};

/// How long a peer that has refused or broken off a transfer is left alone, unless it is linked anew.
const AVOIDANCE: Duration = Duration::from_secs(2);

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask<'a> {
    /// The prompt's tokens.
    pub(crate) prompt_tokens: u32,
    /// Its whole blocks.
    pub(crate) prompt: &'a [BlockName],
    /// What is to be sent, about.
    pub(crate) bytes: Bytes,
    /// Peers that were tried in vain.
    pub(crate) tried: &'a [PeerId],
}

/// A peer that was chosen for a transfer.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// Which.
    pub peer: PeerId,
    /// Its pod, or its address where it has no name.
    pub name: String,
    /// For peer control.
    pub channel: Channel,
    /// This end of the link.
    pub link: ReceiverHandle,
    /// What names the link over peer control.
    pub ticket: Ticket,
    /// How far away it is.
    pub(crate) distance: Distance,
    /// How many of the prompt's tokens it says that its engine has cached.
    pub cached_tokens: u32,
}

/// What a transfer under way has yet to bring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pledge {
    pub(super) peer: PeerId,
    ahead: Ahead,
    /// Whether the peer has told of its load since the transfer began.
    is_reported: bool,
}

/// Which of some peers would be asked for a prompt of these blocks, by what each of them has told of itself: its place among
/// them. For whoever wants to try all kinds of news.
pub fn asked_first(told: Vec<Vec<PeerNews>>, prompt: &[u64], prompt_tokens: u32) -> Option<usize> {
    /// Blocks that are remembered of each.
    const REMEMBERED: usize = 64;
    let prompt: Vec<_> = prompt.iter().copied().map(BlockName).collect();
    let candidates = told.into_iter().enumerate().map(|(peer, news)| {
        let mut told = Told::new(REMEMBERED);
        news.into_iter().for_each(|one| told.hear(one));
        let ahead = told.ahead(Ahead::default(), Ahead::default());
        Candidate {
            peer,
            distance: Distance::Unknown,
            cached_tokens: told.cached_tokens(&prompt),
            queued_tokens: ahead.tokens,
            token_time: told.token_time(),
            pending: ahead.bytes,
            rate: None,
            transfers: 0,
            begun: 0,
        }
    });
    let wanted = Wanted {
        prompt_tokens,
        bytes: Bytes::from_mib(1),
    };
    choice::choose(&wanted, &candidates.collect::<Vec<_>>(), 0)
}

impl Peers {
    /// Whether there is a peer that could send KV.
    pub fn any(&self, now: Timestamp) -> bool {
        self.peers.values().any(|peer| peer.is_usable(now))
    }

    /// The names of a prompt's blocks, as this agent's peers know them; none without an identity.
    pub(crate) fn names(&self, prompt: &[u32]) -> Vec<BlockName> {
        let identity = self.identity.as_ref();
        identity.map_or_else(Vec::new, |identity| {
            prefix::names(Salt::of(identity), prompt)
        })
    }

    /// The peer from which the KV is expected first, which this transfer counts for from now on. `None` where no link is
    /// up, or only links to peers that take no new work or were tried.
    pub(crate) fn choose(
        &mut self,
        transfer: TransferId,
        ask: &Ask<'_>,
        now: Timestamp,
    ) -> Option<Chosen> {
        let usable = self.peers.iter().filter(|(_, peer)| peer.is_usable(now));
        let untried = usable.filter(|(id, _)| !ask.tried.contains(id));
        let candidates: Vec<_> = untried
            .map(|(id, peer)| self.candidate(*id, peer, ask))
            .collect();
        let wanted = Wanted {
            prompt_tokens: ask.prompt_tokens,
            bytes: ask.bytes,
        };
        self.draw = self.draw.wrapping_add(1);
        let id = choice::choose(&wanted, &candidates, self.draw)?;
        let chosen = candidates.iter().find(|one| one.peer == id)?;
        let cached_tokens = chosen.cached_tokens.min(ask.prompt_tokens);
        let distance = chosen.distance;
        let peer = self.peers.get_mut(&id)?;
        let State::Up(meeting) = &peer.state else {
            return None;
        };
        let ahead = Ahead {
            tokens: u64::from(ask.prompt_tokens - cached_tokens),
            bytes: ask.bytes,
        };
        peer.begun += 1;
        let pledge = Pledge {
            peer: id,
            ahead,
            is_reported: false,
        };
        self.pledges.insert(transfer, pledge);
        Some(Chosen {
            peer: id,
            name: peer.name().to_owned(),
            channel: meeting.channel.clone(),
            link: meeting.link.clone(),
            ticket: meeting.ticket.clone(),
            distance,
            cached_tokens,
        })
    }

    fn candidate(&self, id: PeerId, peer: &Peer, ask: &Ask<'_>) -> Candidate<PeerId> {
        let (mut own, mut unreported, mut transfers) = (Ahead::default(), Ahead::default(), 0);
        for pledge in self.pledges.values().filter(|pledge| pledge.peer == id) {
            own.add(pledge.ahead);
            transfers += 1;
            if !pledge.is_reported {
                unreported.add(pledge.ahead);
            }
        }
        let ahead = peer.told.ahead(own, unreported);
        let rate = peer.stats().map(|stats| stats.estimate.rate);
        Candidate {
            peer: id,
            distance: Distance::between(self.place(peer), &peer.address.topology),
            cached_tokens: peer.told.cached_tokens(ask.prompt),
            queued_tokens: ahead.tokens,
            token_time: peer.told.token_time(),
            pending: ahead.bytes,
            rate: rate.filter(|rate| *rate > BitRate::ZERO),
            transfers,
            begun: peer.begun,
        }
    }

    /// The peer has told of its load.
    pub(super) fn reported(&mut self, peer: PeerId) {
        let pledges = self.pledges.values_mut();
        for pledge in pledges.filter(|pledge| pledge.peer == peer) {
            pledge.is_reported = true;
        }
    }

    /// So much of a transfer is here.
    pub(crate) fn arrived(&mut self, transfer: TransferId, bytes: Bytes) {
        if let Some(pledge) = self.pledges.get_mut(&transfer) {
            pledge.ahead.bytes = pledge.ahead.bytes.saturating_sub(bytes);
        }
    }

    /// The peer's engine is done with a transfer's prompt.
    pub(crate) fn computed(&mut self, transfer: TransferId) {
        if let Some(pledge) = self.pledges.get_mut(&transfer) {
            pledge.ahead.tokens = 0;
        }
    }

    /// A transfer has ended.
    pub fn release(&mut self, transfer: TransferId) {
        self.pledges.remove(&transfer);
        self.drop_retired();
        self.fit_windows();
    }

    /// Leaves a peer alone for a while that has refused a transfer, or broken it off.
    pub fn avoid(&mut self, peer: PeerId, now: Timestamp) {
        if let Some(peer) = self.peers.get_mut(&peer) {
            peer.avoided_until = Some(now + AVOIDANCE);
        }
    }
}

impl Peer {
    fn is_usable(&self, now: Timestamp) -> bool {
        let is_open = matches!(&self.state, State::Up(meeting) if !meeting.draining);
        !self.retired && is_open && self.avoided_until.is_none_or(|until| until <= now)
    }
}
