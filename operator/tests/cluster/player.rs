//! Kubelets and agents of a deployment, played: pods come up, agents join, report, link and drain as real ones do.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use lynx_proto::operator::v1::{Hello, Link, Report, Role, from_operator};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::agents::Agent;
use crate::harness::World;

const TICK: Duration = Duration::from_millis(100);
/// An engine of this image never comes up.
pub(crate) const BROKEN: &str = "lynx.dev/broken:1";

/// The fewest that worked at any moment since somebody last asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fewest {
    pub(crate) prefill: usize,
    pub(crate) decode: usize,
    /// The most pods that there were.
    pub(crate) pods: usize,
}

const NOTHING: Fewest = Fewest {
    prefill: usize::MAX,
    decode: usize::MAX,
    pods: 0,
};

struct Played {
    role: Role,
    generation: String,
    stream: Option<Agent>,
    /// Each agent dials by itself: nobody waits for another's stream.
    dialling: Option<JoinHandle<Option<Agent>>>,
    peers: BTreeSet<String>,
    draining: bool,
}

/// Plays until it is dropped.
pub(crate) struct Player {
    fewest: Arc<Mutex<Fewest>>,
    agents: Arc<Mutex<std::net::SocketAddr>>,
    task: JoinHandle<()>,
}

impl Player {
    pub(crate) fn start(world: &World, agents: std::net::SocketAddr) -> Self {
        let fewest = Arc::new(Mutex::new(NOTHING));
        let address = Arc::new(Mutex::new(agents));
        let mut stage = Stage {
            pods: world.api(),
            namespace: world.namespace.clone(),
            agents: Arc::clone(&address),
            fewest: Arc::clone(&fewest),
            cast: BTreeMap::new(),
        };
        let task = tokio::spawn(async move {
            loop {
                stage.tick().await;
                tokio::time::sleep(TICK).await;
            }
        });
        Self {
            fewest,
            agents: address,
            task,
        }
    }

    /// Agents dial another operator from now on.
    pub(crate) fn dial(&self, agents: std::net::SocketAddr) {
        *self.agents.lock().unwrap() = agents;
    }

    /// The fewest since the last call.
    pub(crate) fn fewest(&self) -> Fewest {
        std::mem::replace(&mut *self.fewest.lock().unwrap(), NOTHING)
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Played {
    /// Begins to dial, or takes the stream that has come of it.
    async fn dials(&mut self, agents: std::net::SocketAddr, hello: Hello) {
        match self.dialling.take() {
            Some(dialling) if dialling.is_finished() => self.stream = dialling.await.unwrap(),
            Some(dialling) => self.dialling = Some(dialling),
            None => {
                let dial = async move { Agent::dial(agents, hello).await.ok() };
                self.dialling = Some(tokio::spawn(dial));
            }
        }
    }
}

struct Stage {
    pods: Api<Pod>,
    namespace: String,
    agents: Arc<Mutex<std::net::SocketAddr>>,
    fewest: Arc<Mutex<Fewest>>,
    cast: BTreeMap<String, Played>,
}

impl Stage {
    async fn tick(&mut self) {
        let params = ListParams::default().labels("lynx.dev/deployment=smol");
        let pods = self.pods.list(&params).await.unwrap();
        let there: BTreeSet<_> = pods.iter().map(ResourceExt::name_any).collect();
        self.cast.retain(|name, _| there.contains(name));
        let count = pods.items.len();
        for pod in pods {
            if !self.cast.contains_key(&pod.name_any()) && !is_broken(&pod) {
                self.enters(&pod).await;
            }
        }
        let names: Vec<_> = self.cast.keys().cloned().collect();
        for name in names {
            self.speaks(&name).await;
        }
        self.count(count);
    }

    /// The kubelet calls it ready.
    async fn enters(&mut self, pod: &Pod) {
        let name = pod.name_any();
        let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        let patched = self
            .pods
            .patch_status(&name, &PatchParams::default(), &Patch::Merge(&status))
            .await;
        if patched.is_err() {
            return;
        }
        let label = |name: &str| pod.labels().get(name).cloned().unwrap_or_default();
        let role = match label("lynx.dev/role").as_str() {
            "prefill" => Role::Prefill,
            _ => Role::Decode,
        };
        let played = Played {
            role,
            generation: label("lynx.dev/generation"),
            stream: None,
            dialling: None,
            peers: BTreeSet::new(),
            draining: false,
        };
        self.cast.insert(name, played);
    }

    /// The agent hears what it is told, and reports.
    async fn speaks(&mut self, name: &str) {
        let agents = *self.agents.lock().unwrap();
        let linked: Vec<_> = self.partners(name);
        let namespace = self.namespace.clone();
        let Some(played) = self.cast.get_mut(name) else {
            return;
        };
        if played.stream.is_none() {
            let hello = Hello {
                namespace,
                deployment: "smol".into(),
                pod: name.into(),
                role: played.role.into(),
                generation: played.generation.clone(),
                peer_address: format!("{name}:7400"),
                ..Hello::default()
            };
            played.dials(agents, hello).await;
        }
        let Some(stream) = &mut played.stream else {
            return;
        };
        let heard = match stream.heard().await {
            Ok(heard) => heard,
            Err(_) => {
                played.stream = None;
                return;
            }
        };
        for kind in heard {
            match kind {
                from_operator::Kind::Peers(peers) => {
                    played.peers = peers.peers.into_iter().map(|peer| peer.pod).collect();
                }
                from_operator::Kind::Drain(drain) => played.draining = !drain.cancel,
                from_operator::Kind::Policy(_) => {}
            }
        }
        let links = linked.into_iter().map(|peer| Link {
            peer,
            up: true,
            transport: "tcp".into(),
            rate_bps: 1_000_000_000,
            ..Link::default()
        });
        let said = stream.try_report(Report {
            ready: !played.draining,
            draining: played.draining,
            links: links.collect(),
            ..Report::default()
        });
        if !said {
            played.stream = None;
        }
    }

    /// The prefill pods that a decode pod is told of. All must be of its own generation.
    fn partners(&self, name: &str) -> Vec<String> {
        let Some(decode) = self.cast.get(name) else {
            return Vec::new();
        };
        let known = decode
            .peers
            .iter()
            .filter_map(|peer| self.cast.get_key_value(peer));
        known
            .map(|(peer, prefill)| {
                assert_eq!(
                    prefill.generation, decode.generation,
                    "two generations pair"
                );
                peer.clone()
            })
            .collect()
    }

    /// Who works: agents keep their peers where there is no operator.
    fn count(&self, pods: usize) {
        let takes = |played: &Played| !played.draining;
        let of = |role: Role| {
            let all = self.cast.iter();
            all.filter(move |(_, played)| played.role == role && takes(played))
        };
        let known = |name: &String| self.cast.get(name).is_some_and(takes);
        let decode = of(Role::Decode).filter(|(_, decode)| decode.peers.iter().any(known));
        let prefill = of(Role::Prefill)
            .filter(|(name, _)| of(Role::Decode).any(|(_, decode)| decode.peers.contains(*name)));
        let mut fewest = self.fewest.lock().unwrap();
        fewest.prefill = fewest.prefill.min(prefill.count());
        fewest.decode = fewest.decode.min(decode.count());
        fewest.pods = fewest.pods.max(pods);
    }
}

fn is_broken(pod: &Pod) -> bool {
    let spec = pod.spec.as_ref().unwrap();
    spec.containers[0].image.as_deref() == Some(BROKEN)
}
