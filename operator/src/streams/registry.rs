//! Who has joined, what they last said, and what they are still to be told.
//!
//! Pure: time is an argument, and a message to an agent is a value that [`Registry::untold`] hands out. Level-triggered:
//! what an agent should know is recomputed and compared with what it was last told, so a lost message, a second stream of
//! the same pod and a new leader all end in the same place.

mod told;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lynx_governor::replicas::Load;
use lynx_proto::operator::v1::{
    Drain, FromOperator, Hello, PeerAddress, Peers, Policy, Report, Role,
};
use lynx_units::{BitRate, Timestamp};

use super::meter::Meter;
use super::window::Window;
use told::Told;

/// An agent that reported this long ago, and not since, counts as not ready: it reports every two seconds.
const SILENT_AFTER: Duration = Duration::from_secs(10);
/// A new leader waits so long for the prefill agents that it knows to be there before it tells decode agents of those that
/// have come: who is told of fewer peers than before gives the others up. Waiting costs little, since decode agents keep the peers that
/// they have, and an agent that dialled in vain pauses for up to five seconds before it dials again.
const COMING_BACK: Duration = Duration::from_secs(30);

/// A LynxDeployment, by its namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// One life of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(u64);

/// An agent that has joined.
#[derive(Clone, Debug)]
pub struct Agent {
    /// What it said it is.
    pub hello: Hello,
    /// What it said last.
    pub report: Report,
    /// When that was.
    pub heard: Timestamp,
    /// Whether it has reported on this stream: until then nothing is known of it.
    pub has_reported: bool,
    /// When it first reported to be ready, on this stream.
    pub ready_since: Option<Timestamp>,
    meter: Meter,
    stream: StreamId,
    told: Told,
}

/// A link as its decode end saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkSeen {
    /// Which links it is like.
    pub class: &'static str,
    /// Whether it can be used.
    pub up: bool,
    /// `tcp` or `rdma`.
    pub transport: String,
    /// What it carries at best; zero before it was measured.
    pub rate: BitRate,
    /// Why it is down, where it is.
    pub error: String,
}

/// The class of a link between two nodes, by their topology labels: `same`, `cross`, or "" where a label is missing.
pub fn link_class(ours: &str, theirs: &str) -> &'static str {
    if ours.is_empty() || theirs.is_empty() {
        ""
    } else if ours == theirs {
        "same"
    } else {
        "cross"
    }
}

/// Where pods are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// Whether only pods of one place pair.
    pub required: bool,
    /// By pod; a pod that isn't in here is in no place.
    pub of: BTreeMap<String, String>,
}

/// What all agents of a deployment are to know.
#[derive(Debug, Default)]
struct Fleet {
    agents: BTreeMap<String, Agent>,
    policy: Option<Policy>,
    /// Deadlines of the pods that are to take no new work.
    drains: BTreeMap<String, Duration>,
    window: Window,
    /// Prefill pods that were ready before this replica led and have not reported to it; `None` before anybody looked.
    awaited: Option<(BTreeSet<String>, Timestamp)>,
    places: Places,
    /// The last look at the deployment, as a W3C trace context.
    look: String,
}

/// All agents of all deployments.
#[derive(Debug, Default)]
pub struct Registry {
    fleets: BTreeMap<Key, Fleet>,
    streams: BTreeMap<StreamId, (Key, String)>,
    next_stream: u64,
}

impl Agent {
    /// Which half of a pair it is.
    pub fn role(&self) -> Role {
        self.hello.role()
    }

    /// Whether it takes work: it says so, and said so lately.
    pub fn is_ready(&self, now: Timestamp) -> bool {
        self.report.ready && !self.report.draining && !self.is_silent(now)
    }

    /// Whether it has stopped reporting.
    pub fn is_silent(&self, now: Timestamp) -> bool {
        now.saturating_since(self.heard) > SILENT_AFTER
    }

    fn take_load(&mut self) -> Load {
        #[expect(
            clippy::cast_precision_loss,
            reason = "bytes within 1e-15 of themselves"
        )]
        let pending_kv = self.report.pending_kv_bytes as f64;
        Load {
            ready_since: self.ready_since,
            running: f64::from(self.report.running),
            waiting: f64::from(self.report.waiting),
            pending_kv,
            verified: self.meter.verified(),
            time_to_anchor: self.meter.take_time_to_anchor(),
        }
    }

    /// Whether it has a link to anybody.
    pub fn is_linked(&self) -> bool {
        self.report.links.iter().any(|link| link.up)
    }

    /// Whether it drains and has nothing left.
    pub fn is_drained(&self) -> bool {
        self.report.draining && self.report.in_flight == 0
    }
}

impl Registry {
    /// A stream's first message. An older stream of the same pod is forgotten.
    pub fn join(&mut self, hello: Hello, now: Timestamp) -> StreamId {
        let stream = StreamId(self.next_stream);
        self.next_stream += 1;
        let key = Key {
            namespace: hello.namespace.clone(),
            name: hello.deployment.clone(),
        };
        let pod = hello.pod.clone();
        let agent = Agent {
            hello,
            report: Report::default(),
            heard: now,
            has_reported: false,
            ready_since: None,
            meter: Meter::new(now),
            stream,
            told: Told::default(),
        };
        let fleet = self.fleets.entry(key.clone()).or_default();
        if let Some(older) = fleet.agents.insert(pod.clone(), agent) {
            self.streams.remove(&older.stream);
        }
        self.streams.insert(stream, (key, pod));
        stream
    }

    /// A report; gives the deployment where something changed that its status or its replicas depend on.
    pub fn report(&mut self, stream: StreamId, report: Report, now: Timestamp) -> Option<Key> {
        let (key, pod) = self.streams.get(&stream)?;
        let fleet = self.fleets.get_mut(key)?;
        let agent = fleet.agents.get_mut(pod)?;
        fleet.window.add(&report);
        agent.meter.add(&report, now);
        let was = agent.is_ready(now);
        let drained = agent.is_drained();
        let linked = agent.is_linked();
        let error = std::mem::take(&mut agent.report.attach_error);
        agent.report = report;
        agent.heard = now;
        agent.has_reported = true;
        if let Some((awaited, _)) = &mut fleet.awaited {
            awaited.remove(pod);
        }
        let is = agent.is_ready(now);
        if is && agent.ready_since.is_none() {
            agent.ready_since = Some(now);
        }
        let changed = was != is
            || drained != agent.is_drained()
            || linked != agent.is_linked()
            || error != agent.report.attach_error;
        changed.then(|| key.clone())
    }

    /// The newest stream of a pod.
    pub fn stream_of(&self, key: &Key, pod: &str) -> Option<StreamId> {
        let agent = self.fleets.get(key)?.agents.get(pod)?;
        Some(agent.stream)
    }

    /// The stream is gone. Nothing happens where a newer one of the same pod took its place.
    pub fn leave(&mut self, stream: StreamId) -> Option<Key> {
        let (key, pod) = self.streams.remove(&stream)?;
        let fleet = self.fleets.get_mut(&key)?;
        fleet.agents.remove(&pod);
        Some(key)
    }

    /// Every stream is gone: this replica leads no more, or not yet.
    pub fn clear(&mut self) {
        self.fleets.clear();
        self.streams.clear();
    }

    /// The deployment is gone.
    pub fn forget(&mut self, key: &Key) {
        if let Some(fleet) = self.fleets.remove(key) {
            for agent in fleet.agents.values() {
                self.streams.remove(&agent.stream);
            }
        }
    }

    /// The agents of a deployment, by pod.
    pub fn agents(&self, key: &Key) -> impl Iterator<Item = (&str, &Agent)> {
        let fleet = self.fleets.get(key);
        fleet
            .into_iter()
            .flat_map(|fleet| &fleet.agents)
            .map(|(pod, agent)| (pod.as_str(), agent))
    }

    /// The links between ready or draining pairs, as their decode agents last saw them.
    pub fn links(&self, key: &Key, now: Timestamp) -> Vec<LinkSeen> {
        let Some(fleet) = self.fleets.get(key) else {
            return Vec::new();
        };
        let decode = fleet
            .agents
            .values()
            .filter(|agent| agent.role() == Role::Decode && !agent.is_silent(now));
        let seen =
            decode.flat_map(|agent| agent.report.links.iter().map(move |link| (agent, link)));
        seen.map(|(agent, link)| {
            let peer = fleet.agents.get(&link.peer);
            let theirs = peer.map_or("", |peer| fleet.places.place(peer));
            LinkSeen {
                class: link_class(fleet.places.place(agent), theirs),
                up: link.up,
                transport: link.transport.clone(),
                rate: BitRate::from_bits_per_second(link.rate_bps),
                error: link.error.clone(),
            }
        })
        .collect()
    }

    /// Whether a decode agent has a link to a prefill agent of its generation that takes work. `None`: it has one to a pod of which
    /// nothing is known, as where this replica has just begun to lead and that one's agent is on its way.
    pub fn is_paired(&self, key: &Key, decode: &Agent, now: Timestamp) -> Option<bool> {
        let fleet = self.fleets.get(key);
        let mut unknown = false;
        for link in decode.report.links.iter().filter(|link| link.up) {
            let peer = fleet.and_then(|fleet| fleet.agents.get(&link.peer));
            match peer.filter(|peer| peer.has_reported) {
                None => unknown = true,
                Some(peer) => {
                    let fits = peer.role() == Role::Prefill
                        && peer.hello.generation == decode.hello.generation;
                    if fits && peer.is_ready(now) {
                        return Some(true);
                    }
                }
            }
        }
        (!unknown).then_some(false)
    }

    /// The deployments that have agents.
    pub fn keys(&self) -> Vec<Key> {
        self.fleets.keys().cloned().collect()
    }

    /// How many agents there are in all.
    pub fn len(&self) -> usize {
        self.streams.len()
    }

    /// Whether a stream is the newest of its pod.
    pub fn knows(&self, stream: StreamId) -> bool {
        self.streams.contains_key(&stream)
    }

    /// Whether nobody has joined.
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// What was reported since the last call.
    pub fn take_window(&mut self, key: &Key) -> Window {
        self.fleets
            .get_mut(key)
            .map(|fleet| std::mem::take(&mut fleet.window))
            .unwrap_or_default()
    }

    /// What the agents that take work carry now, and what they measured since the last call; of prefill and decode.
    pub fn take_loads(&mut self, key: &Key, now: Timestamp) -> [Vec<Load>; 2] {
        let mut loads = [Vec::new(), Vec::new()];
        let agents = self.fleets.get_mut(key).into_iter();
        for agent in agents.flat_map(|fleet| fleet.agents.values_mut()) {
            let [prefill, decode] = &mut loads;
            match agent.role() {
                Role::Prefill if agent.is_ready(now) => prefill.push(agent.take_load()),
                Role::Decode if agent.is_ready(now) => decode.push(agent.take_load()),
                _ => {}
            }
        }
        loads
    }

    /// The policy that a deployment's agents are to have.
    pub fn set_policy(&mut self, key: &Key, policy: Policy) {
        if let Some(fleet) = self.fleets.get_mut(key) {
            fleet.policy = Some(policy);
        }
    }

    /// Where pods are, from now on.
    pub fn set_places(&mut self, key: &Key, places: Places) {
        self.fleets.entry(key.clone()).or_default().places = places;
    }

    /// The deployment is looked at, in the span of this W3C trace context: what its agents are told from now on comes from there.
    /// Not for a span that is sent nowhere, which nobody could find.
    pub fn set_look(&mut self, key: &Key, traceparent: String) {
        self.fleets.entry(key.clone()).or_default().look = traceparent;
    }

    /// The pods that are to take no new work, with the time they have; of the pods in `staying` it replaces what was said
    /// before. A pod that is being deleted is in neither: its drain goes on to its end.
    pub fn set_drains(
        &mut self,
        key: &Key,
        drains: BTreeMap<String, Duration>,
        staying: &BTreeSet<String>,
    ) {
        if let Some(fleet) = self.fleets.get_mut(key) {
            let agents = &fleet.agents;
            fleet
                .drains
                .retain(|pod, _| !staying.contains(pod) && agents.contains_key(pod));
            fleet.drains.extend(drains);
        }
    }

    /// The prefill pods that are ready. Those that were when this replica first looked are waited for: peers are told once all of them
    /// have reported, or are not ready any more, or have had the time to.
    pub fn await_agents(&mut self, key: &Key, pods: BTreeSet<String>, now: Timestamp) {
        let fleet = self.fleets.entry(key.clone()).or_default();
        match &mut fleet.awaited {
            Some((awaited, _)) => awaited.retain(|pod| pods.contains(pod)),
            None => fleet.awaited = Some((pods, now + COMING_BACK)),
        }
    }

    /// What the deployment's agents are to know and were not told yet; it counts as told from now on.
    pub fn untold(&mut self, key: &Key, now: Timestamp) -> Vec<(StreamId, FromOperator)> {
        let Some(fleet) = self.fleets.get_mut(key) else {
            return Vec::new();
        };
        let ready = fleet.ready_peers(now);
        let places = &fleet.places;
        let awaited = fleet.awaited.as_ref();
        let hold = awaited.is_some_and(|(pods, until)| !pods.is_empty() && now < *until);
        let mut messages = Vec::new();
        for (pod, agent) in &mut fleet.agents {
            let drain = fleet.drains.get(pod).map(|deadline| Drain {
                deadline_ms: u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX),
                cancel: false,
            });
            let peers = (agent.role() == Role::Decode && !hold).then(|| Peers {
                peers: places.peers_of(agent, ready.get(&agent.hello.generation)),
            });
            let peers = peers.or_else(|| agent.told.peers.clone());
            let wanted = Told {
                peers,
                policy: fleet.policy.clone(),
                drain,
            };
            let news = agent.told.news(&wanted, &fleet.look);
            messages.extend(news.into_iter().map(|message| (agent.stream, message)));
            agent.told = wanted;
        }
        messages
    }
}

impl Places {
    fn place<'a>(&'a self, agent: &'a Agent) -> &'a str {
        let known = self.of.get(&agent.hello.pod);
        known.map_or(agent.hello.topology.as_str(), String::as_str)
    }

    /// Those of `ready` that a decode agent may use, with the place that it is in itself.
    fn peers_of(&self, agent: &Agent, ready: Option<&Vec<PeerAddress>>) -> Vec<PeerAddress> {
        let here = self.place(agent);
        let fits =
            |peer: &&PeerAddress| !self.required || !here.is_empty() && peer.topology == here;
        let peers = ready.into_iter().flatten().filter(fits);
        peers
            .map(|peer| PeerAddress {
                here: here.to_owned(),
                ..peer.clone()
            })
            .collect()
    }
}

impl Fleet {
    /// The prefill agents that take work, by generation.
    fn ready_peers(&self, now: Timestamp) -> BTreeMap<String, Vec<PeerAddress>> {
        let mut peers: BTreeMap<String, Vec<PeerAddress>> = BTreeMap::new();
        let prefill = self
            .agents
            .iter()
            .filter(|(_, agent)| agent.role() == Role::Prefill && agent.is_ready(now));
        for (pod, agent) in prefill {
            let address = PeerAddress {
                pod: pod.clone(),
                address: agent.hello.peer_address.clone(),
                topology: self.places.place(agent).to_owned(),
                incarnation: agent.hello.incarnation.clone(),
                here: String::new(),
            };
            let generation = agent.hello.generation.clone();
            peers.entry(generation).or_default().push(address);
        }
        peers
    }
}

#[cfg(test)]
mod tests;
