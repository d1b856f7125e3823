//! The prefill agents that a decode agent may use: links to all of them, and which one is next.
//!
//! Each peer has a task that checks whether the two fit, dials, passes on what happens on the link, and dials again when it
//! is lost. Everything else is here, without waiting: the decode role owns this, and hands in the [`News`] that tasks
//! send it. It refuses to know requests; it only counts what is under way with each peer.
//!
//! A peer is an address in one incarnation. A peer that is no longer named keeps its link until its last transfer has
//! ended: it is being drained, not gone.
//!
//! Links share the receive memory evenly ([`share`]). Where there come to be more peers than their windows leave room for,
//! links are made anew with smaller ones, one at a time and when nothing is under way on them.

mod choosing;
mod meeting;
mod share;
mod told;
mod watching;

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;

use lynx_proto::operator::v1::{Link, PeerAddress};
use lynx_proto::peer::v1::PeerNews;
use lynx_protocol::CreditBook;
use lynx_protocol::receiver::{ReceiverConfig, ReceiverStats};
use lynx_transport::{Clock, LinkStats, ReceiverEvent, ReceiverHandle, Ticket};
use lynx_units::{BitRate, Bytes, Epoch, Timestamp, TransferId};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::AbortHandle;
use tonic::transport::Channel;

pub(crate) use self::choosing::Ask;
use self::choosing::Pledge;
pub use self::choosing::{Chosen, asked_first};
use self::told::Told;
use crate::carriage::{Carriage, Carried, few_cards};
use crate::counters::{Counters, Pool};
use crate::identity::Identity;
use crate::security::Security;

/// What all links have in common.
#[derive(Clone, Debug)]
pub struct LinkSettings {
    /// What the links' deadlines are told by.
    pub clock: Clock,
    /// The receive windows of all links together.
    pub budget: Bytes,
    /// Who may be a peer.
    pub security: Security,
    /// What carries links.
    pub carriage: Carriage,
    /// Where links are counted.
    pub counters: Arc<Counters>,
    /// This node's value of the deployment's topology label; empty where there is none.
    pub topology: String,
    /// How many cached blocks are remembered of each peer.
    pub prefix_blocks: usize,
}

/// Who is told of peers.
#[derive(Clone)]
struct Tell(Arc<dyn Fn(News) -> bool + Send + Sync>);

impl fmt::Debug for Tell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tell")
    }
}

/// One peer in one incarnation, as long as this process lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(u64);

/// What a peer's task tells.
#[derive(Debug)]
pub struct News {
    /// Whose.
    pub peer: PeerId,
    /// What.
    pub what: What,
}

/// What happened with a peer.
#[derive(Debug)]
pub enum What {
    /// There is a link.
    Up(Meeting),
    /// Something happened on the link of this epoch.
    Link(Epoch, ReceiverEvent),
    /// The link of this epoch is over.
    Down(Epoch),
    /// There is no link, and why.
    Unreachable(String),
    /// Whether it takes new work.
    Draining(bool),
    /// What it has cached, and what is ahead of a new transfer there. The next is told once the permit is dropped.
    Told(Box<PeerNews>, OwnedSemaphorePermit),
}

/// A peer that was met: it fits, and its link is up.
#[derive(Clone, Debug)]
pub struct Meeting {
    /// For peer control.
    pub channel: Channel,
    /// This end of the link.
    pub link: ReceiverHandle,
    /// What names the link over peer control.
    pub ticket: Ticket,
    /// What carries it.
    pub carried: Carried,
    /// Whether it takes no new work.
    pub draining: bool,
}

/// All peers.
#[derive(Debug)]
pub struct Peers {
    settings: LinkSettings,
    book: Arc<CreditBook>,
    news: Tell,
    /// Who this agent is; without an engine it is nobody, and has no links.
    identity: Option<Identity>,
    named: Vec<PeerAddress>,
    peers: BTreeMap<PeerId, Peer>,
    next: u64,
    /// What each transfer under way has yet to bring.
    pledges: BTreeMap<TransferId, Pledge>,
    /// Different for each agent, and for each choice.
    draw: u64,
}

#[derive(Debug)]
struct Peer {
    address: PeerAddress,
    state: State,
    /// What it says of itself.
    told: Told,
    /// Transfers ever begun.
    begun: u64,
    /// It has refused a transfer, or broken off: not to be asked before this.
    avoided_until: Option<Timestamp>,
    /// No longer named: gone with its last transfer.
    retired: bool,
    /// The receive window of its link, for each class.
    window: Bytes,
    task: AbortHandle,
}

#[derive(Debug)]
enum State {
    Down(String),
    Up(Meeting),
}

impl Peers {
    /// No peers. `news` hands on what their tasks tell, and says whether somebody still listens.
    pub fn new(
        settings: LinkSettings,
        news: impl Fn(News) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self {
            book: CreditBook::new(settings.budget),
            settings,
            news: Tell(Arc::new(news)),
            identity: None,
            named: Vec::new(),
            peers: BTreeMap::new(),
            next: 0,
            pledges: BTreeMap::new(),
            // Each hasher of the standard library is keyed at random.
            draw: RandomState::new().build_hasher().finish(),
        }
    }

    /// Who this agent is from now on. Another identity than before ends every link: nothing says that the peers still fit.
    pub fn set_identity(&mut self, identity: Option<Identity>) {
        if self.identity == identity {
            return;
        }
        self.identity = identity;
        for peer in std::mem::take(&mut self.peers).into_values() {
            peer.task.abort();
        }
        self.dial();
    }

    /// Who this agent is.
    pub fn identity(&self) -> Option<&Identity> {
        self.identity.as_ref()
    }

    /// These are all peers from now on.
    pub fn set_named(&mut self, named: Vec<PeerAddress>) {
        self.named = named;
        for peer in self.peers.values_mut() {
            let named = self.named.iter().find(|named| same(named, &peer.address));
            peer.retired = named.is_none();
            if let Some(named) = named {
                // Where it is may have become known.
                peer.address = named.clone();
            }
        }
        self.drop_retired();
        self.dial();
        self.fit_windows();
    }

    /// Where this agent is, as seen from a peer: the operator knows it better than the configuration.
    fn place<'a>(&'a self, peer: &'a Peer) -> &'a str {
        match peer.address.here.as_str() {
            "" => &self.settings.topology,
            here => here,
        }
    }

    fn dial(&mut self) {
        let Some(identity) = &self.identity else {
            return;
        };
        let window = self.window();
        for address in &self.named {
            if self.peers.values().any(|peer| same(&peer.address, address)) {
                continue;
            }
            let peer = PeerId(self.next);
            self.next += 1;
            let invitation = meeting::Invitation {
                peer,
                address: address.address.clone(),
                identity: identity.clone(),
                clock: self.settings.clock,
                security: self.settings.security.clone(),
                carriage: self.settings.carriage.clone(),
                window: ReceiverConfig {
                    window: [window; 2],
                },
                book: Arc::clone(&self.book),
                links: Arc::clone(&self.settings.counters.links),
                news: self.news.clone(),
            };
            let task = tokio::spawn(meeting::keep_linked(invitation)).abort_handle();
            let state = State::Down("not met yet".to_owned());
            self.peers.insert(
                peer,
                Peer {
                    address: address.clone(),
                    state,
                    told: Told::new(self.settings.prefix_blocks),
                    begun: 0,
                    avoided_until: None,
                    retired: false,
                    window,
                    task,
                },
            );
        }
    }

    /// Notes what a task tells. An event of a link goes back to the caller, unless nobody knows that link any more.
    pub fn handle(&mut self, news: News) -> Option<LinkNews> {
        let peer = self.peers.get_mut(&news.peer)?;
        let of_this_link = |epoch: Epoch| match &peer.state {
            State::Up(meeting) => meeting.link.epoch() == epoch,
            State::Down(_) => false,
        };
        match news.what {
            What::Link(epoch, event) if of_this_link(epoch) => {
                if let ReceiverEvent::Broken(reason) = &event {
                    // Nobody is to choose it from now on.
                    peer.state = State::Down(reason.to_string());
                }
                Some(LinkNews {
                    on: (news.peer, epoch),
                    event: Some(event),
                })
            }
            What::Down(epoch) if of_this_link(epoch) => {
                peer.state = State::Down("the link is lost".to_owned());
                Some(LinkNews {
                    on: (news.peer, epoch),
                    event: None,
                })
            }
            What::Link(..) | What::Down(_) => None,
            What::Up(meeting) => {
                let (address, by) = (&peer.address.address, meeting.carried.by);
                match &meeting.carried.without_rdma {
                    None => tracing::info!(peer = %address, by, "linked"),
                    Some(why) => tracing::warn!(peer = %address, by, "linked, without RDMA: {why}"),
                }
                if let Some(few) = meeting.carried.few_cards {
                    tracing::warn!(peer = %address, "the link is slower than it may be: {}", few_cards(few));
                }
                peer.state = State::Up(meeting);
                peer.told = Told::new(self.settings.prefix_blocks);
                peer.avoided_until = None;
                self.fit_windows();
                None
            }
            What::Unreachable(why) => {
                if !matches!(&peer.state, State::Down(before) if *before == why) {
                    tracing::warn!(peer = %peer.address.address, "no link: {why}");
                }
                peer.state = State::Down(why);
                None
            }
            What::Draining(now) => {
                if let State::Up(meeting) = &mut peer.state {
                    meeting.draining = now;
                }
                None
            }
            What::Told(told, _next) => {
                if let (State::Up(meeting), Some(load)) = (&mut peer.state, &told.load) {
                    meeting.draining = load.draining;
                }
                let has_load = told.load.is_some();
                peer.told.hear(*told);
                if has_load {
                    self.reported(news.peer);
                }
                None
            }
        }
    }

    /// The link with this peer, in whatever epoch it is.
    pub fn link(&self, peer: PeerId) -> Option<&ReceiverHandle> {
        match &self.peers.get(&peer)?.state {
            State::Up(meeting) => Some(&meeting.link),
            State::Down(_) => None,
        }
    }

    /// The figures of the links that are up.
    pub fn stats(&self) -> impl Iterator<Item = (PeerId, LinkStats<ReceiverStats>)> {
        self.peers
            .iter()
            .filter_map(|(id, peer)| Some((*id, peer.stats()?)))
    }

    /// What the best measured link carries; zero before the first measurement.
    pub fn best_rate(&self) -> BitRate {
        let rates = self.stats().map(|(_, stats)| stats.estimate.rate);
        rates.max().unwrap_or(BitRate::ZERO)
    }

    /// Counts what of the receive memory links have taken.
    pub fn count_memory(&self) {
        let budget = self.book.budget();
        let taken = budget - self.book.left();
        let pool = self.settings.counters.memory.of(Pool::Receive);
        pool.set(taken.get(), budget.get());
    }

    /// All links, for people and for the operator.
    pub fn links(&self) -> Vec<Link> {
        let named = self.peers.values().filter(|peer| !peer.retired);
        let transport = self.settings.security.transport();
        named.map(|peer| peer.link(transport)).collect()
    }

    fn drop_retired(&mut self) {
        let pledges = &self.pledges;
        self.peers.retain(|id, peer| {
            let stays = !peer.retired || pledges.values().any(|pledge| pledge.peer == *id);
            if !stays {
                peer.task.abort();
            }
            stays
        });
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        for peer in self.peers.values() {
            peer.task.abort();
        }
    }
}

/// What happened on one life of a link.
#[derive(Debug)]
pub struct LinkNews {
    /// The link: of which peer, in which epoch.
    pub on: (PeerId, Epoch),
    /// What happened; `None` for its end.
    pub event: Option<ReceiverEvent>,
}

impl Peer {
    fn name(&self) -> &str {
        if self.address.pod.is_empty() {
            &self.address.address
        } else {
            &self.address.pod
        }
    }

    fn stats(&self) -> Option<LinkStats<ReceiverStats>> {
        match &self.state {
            State::Up(meeting) => Some(meeting.link.stats()),
            State::Down(_) => None,
        }
    }

    fn link(&self, transport: &str) -> Link {
        let estimate = self.stats().unwrap_or_default().estimate;
        let (up, transport, error) = match &self.state {
            State::Up(Meeting { carried, .. }) => {
                let why = carried.without_rdma.clone();
                (true, carried.by, why.unwrap_or_default())
            }
            State::Down(why) => (false, transport, why.clone()),
        };
        Link {
            peer: self.name().to_owned(),
            up,
            transport: transport.to_owned(),
            rate_bps: estimate.rate.bits_per_second(),
            round_trip_ns: estimate
                .round_trip
                .map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)),
            error,
        }
    }
}

fn same(one: &PeerAddress, other: &PeerAddress) -> bool {
    one.address == other.address && one.incarnation == other.incarnation
}
