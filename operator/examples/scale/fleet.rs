//! The deployments, and their pods and agents, played.

use std::collections::BTreeSet;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use lynx_crds::LynxDeployment;
use lynx_proto::operator::v1::control_client::ControlClient;
use lynx_proto::operator::v1::{FromAgent, Hello, Link, Report, Role, from_agent, from_operator};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::Channel;

use crate::POLL;
use crate::node::NAMESPACE;

const DECODE: usize = 4;
/// As agents do it.
const REPORT: Duration = Duration::from_secs(2);
const AT_ONCE: usize = 8;

/// Everything that isn't the operator.
pub(crate) struct Fleet {
    client: Client,
    count: usize,
    cast: Arc<Mutex<BTreeSet<String>>>,
}

impl Fleet {
    /// Plays whatever pods there will be.
    pub(crate) fn start(client: Client, agents: SocketAddr, count: usize) -> Self {
        let cast = Arc::new(Mutex::new(BTreeSet::new()));
        tokio::spawn(play(client.clone(), agents, Arc::clone(&cast)));
        Self {
            client,
            count,
            cast,
        }
    }

    pub(crate) fn ready(&self) -> usize {
        self.cast.lock().unwrap().len()
    }

    /// Makes all deployments.
    pub(crate) async fn create(&self) -> Result<(), kube::Error> {
        let writes = (0..self.count).map(|index| self.apply(index, 2));
        stream::iter(writes)
            .buffer_unordered(AT_ONCE)
            .try_collect::<()>()
            .await
    }

    async fn apply(&self, index: usize, prefill: i32) -> Result<(), kube::Error> {
        let name = format!("d{index}");
        let object = json!({
            "apiVersion": "lynx.dev/v1alpha1", "kind": "LynxDeployment", "metadata": {"name": name},
            "spec": {
                "model": {"name": "smol", "source": {"hostPath": {"path": "/var/lib/models/smol.gguf"}}},
                "engine": {"type": "Embedded"},
                "prefill": {"replicas": prefill},
                "decode": {"replicas": DECODE},
            },
        });
        let params = PatchParams::apply("user").force();
        let api: Api<LynxDeployment> = self.api();
        api.patch(&name, &params, &Patch::Apply(&object)).await?;
        Ok(())
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// Waits until every deployment says that all is as it should be, with so many prefill pods.
    pub(crate) async fn settled(
        &self,
        prefill: usize,
        patience: Duration,
    ) -> Result<(), Box<dyn Error>> {
        let begun = Instant::now();
        let api: Api<LynxDeployment> = self.api();
        let mut said = 0;
        loop {
            let list = api.list(&ListParams::default()).await?;
            let settled = list.iter().filter(|one| is_settled(one)).count();
            let pods = self.count * (prefill + DECODE);
            if settled == self.count && self.ready() >= pods {
                return Ok(());
            }
            let seconds = begun.elapsed().as_secs();
            if seconds >= said + 10 {
                said = seconds;
                println!("{seconds} s: {settled} deployments, {} pods", self.ready());
            }
            if begun.elapsed() > patience {
                return Err(format!("only {settled} deployments are settled").into());
            }
            tokio::time::sleep(POLL * 2).await;
        }
    }

    /// Gives every deployment another number of prefill pods, one after the other, and tells for every tenth how long it
    /// took until its Deployment had it.
    pub(crate) async fn change_each(
        &self,
        prefill: i32,
        pace: Duration,
    ) -> Result<Vec<Duration>, Box<dyn Error>> {
        let mut waits = Vec::new();
        for index in 0..self.count {
            let begun = Instant::now();
            self.apply(index, prefill).await?;
            if index % 10 == 0 {
                self.written(index, prefill).await?;
                waits.push(begun.elapsed());
            }
            tokio::time::sleep(pace).await;
        }
        Ok(waits)
    }

    async fn written(&self, index: usize, prefill: i32) -> Result<(), Box<dyn Error>> {
        let labels = format!("lynx.dev/deployment=d{index},lynx.dev/role=prefill");
        let api: Api<Deployment> = self.api();
        let config = watcher::Config::default().labels(&labels);
        let objects = watcher::watcher(api, config).applied_objects();
        let mut objects = std::pin::pin!(objects);
        while let Some(one) = objects.try_next().await? {
            if one.spec.and_then(|spec| spec.replicas) == Some(prefill) {
                return Ok(());
            }
        }
        Err("the watch ended".into())
    }
}

fn is_settled(object: &LynxDeployment) -> bool {
    let Some(status) = &object.status else {
        return false;
    };
    let is = |kind: &str, reason: &str| {
        let mut all = status.conditions.iter();
        all.any(|one| one.type_ == kind && one.reason == reason)
    };
    status.observed_generation == object.metadata.generation
        && is("Available", "Serving")
        && is("Progressing", "Complete")
}

/// Calls pods ready, and lets their agents speak.
async fn play(client: Client, agents: SocketAddr, cast: Arc<Mutex<BTreeSet<String>>>) {
    let pods: Api<Pod> = Api::namespaced(client, NAMESPACE);
    let config = watcher::Config::default().labels("lynx.dev/deployment");
    let changes = watcher::watcher(pods.clone(), config).default_backoff();
    let mut changes = std::pin::pin!(changes.touched_objects());
    let entries = Arc::new(tokio::sync::Semaphore::new(AT_ONCE));
    while let Some(change) = changes.next().await {
        let Ok(pod) = change else { continue };
        let name = pod.name_any();
        if pod.metadata.deletion_timestamp.is_some() {
            cast.lock().unwrap().remove(&name);
            pods.delete(&name, &DeleteParams::default().grace_period(0))
                .await
                .ok();
            continue;
        }
        let is_bound = pod
            .spec
            .as_ref()
            .is_some_and(|spec| spec.node_name.is_some());
        if !is_bound || !cast.lock().unwrap().insert(name.clone()) {
            continue;
        }
        let channel = dial(agents);
        let (pods, entries, cast) = (pods.clone(), Arc::clone(&entries), Arc::clone(&cast));
        tokio::spawn(async move {
            let turn = entries.acquire().await;
            let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
            let params = PatchParams::default();
            while pods
                .patch_status(&pod.name_any(), &params, &Patch::Merge(&status))
                .await
                .is_err()
            {
                tokio::time::sleep(POLL).await;
            }
            drop(turn);
            while cast.lock().unwrap().contains(&pod.name_any()) {
                speak(&pod, channel.clone()).await;
                tokio::time::sleep(REPORT).await;
            }
        });
    }
}

/// Each agent has a connection of its own: they are most of what the operator's memory is for.
fn dial(agents: SocketAddr) -> Channel {
    let endpoint = Channel::from_shared(format!("http://{agents}")).unwrap();
    endpoint.connect_lazy()
}

fn label(pod: &Pod, name: &str) -> String {
    pod.labels().get(name).cloned().unwrap_or_default()
}

/// One stream of an agent, until it ends.
async fn speak(pod: &Pod, channel: Channel) {
    let role = match label(pod, "lynx.dev/role").as_str() {
        "prefill" => Role::Prefill,
        _ => Role::Decode,
    };
    let hello = Hello {
        namespace: NAMESPACE.into(),
        deployment: label(pod, "lynx.dev/deployment"),
        pod: pod.name_any(),
        role: role.into(),
        generation: label(pod, "lynx.dev/generation"),
        peer_address: format!("{}:7400", pod.name_any()),
        ..Hello::default()
    };
    let (to, messages) = mpsc::unbounded_channel();
    let say = |kind| to.send(FromAgent { kind: Some(kind) }).is_ok();
    say(from_agent::Kind::Hello(hello));
    let joined = ControlClient::new(channel)
        .join(UnboundedReceiverStream::new(messages))
        .await;
    let Ok(joined) = joined else { return };
    let mut told = joined.into_inner();
    let mut links = Vec::new();
    let mut ticks = tokio::time::interval(REPORT);
    let mut draining = false;
    loop {
        tokio::select! {
            message = told.message() => match message {
                Ok(Some(message)) => match message.kind {
                    Some(from_operator::Kind::Peers(peers)) => {
                        links = peers.peers.into_iter().map(|peer| link(peer.pod)).collect();
                    }
                    Some(from_operator::Kind::Drain(drain)) => draining = !drain.cancel,
                    Some(from_operator::Kind::Policy(_)) | None => continue,
                },
                Ok(None) | Err(_) => return,
            },
            _ = ticks.tick() => {}
        }
        let report = Report {
            ready: !draining,
            draining,
            links: links.clone(),
            transfer_kv_bytes: 64 << 20,
            token_time_ns: 15_000_000,
            ..Report::default()
        };
        if !say(from_agent::Kind::Report(report)) {
            return;
        }
    }
}

fn link(peer: String) -> Link {
    Link {
        peer,
        up: true,
        transport: "tcp".into(),
        rate_bps: 1_000_000_000,
        ..Link::default()
    }
}
