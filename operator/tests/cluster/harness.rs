//! A namespace, an operator in this process, and patience.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::{DynamicObject, GroupVersionKind, NamespaceResourceScope};
use kube::discovery::ApiResource;
use kube::{Api, Client, Config, Resource};
use lynx_crds::LynxDeployment;
use lynx_operator::config::OperatorConfig;
use lynx_ports::HeldAddress;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);
const POLL: Duration = Duration::from_millis(100);

/// A namespace of one test.
pub(crate) struct World {
    pub(crate) client: Client,
    pub(crate) cluster: Config,
    pub(crate) namespace: String,
}

/// A replica of the operator.
pub(crate) struct Operator {
    pub(crate) http: SocketAddr,
    pub(crate) agents: SocketAddr,
    shutdown: CancellationToken,
    task: JoinHandle<()>,
    _held: [HeldAddress; 2],
}

static DEFINED: OnceCell<()> = OnceCell::const_new();

impl World {
    /// A fresh namespace in a cluster that knows LynxDeployments.
    pub(crate) async fn new(test: &str) -> Self {
        let config = Config::infer().await.expect(
            "no control plane: run this as `tests/cluster/control-plane run cargo test -p lynx-operator -- --ignored`, or `make test-cluster`",
        );
        let client = Client::try_from(config.clone()).unwrap();
        DEFINED
            .get_or_init(async || {
                lynx_operator::crd::apply(&client).await.unwrap();
            })
            .await;
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let namespace =
            serde_json::from_value(json!({"metadata": {"generateName": format!("{test}-")}}));
        let made = namespaces
            .create(&PostParams::default(), &namespace.unwrap())
            .await
            .unwrap();
        Self {
            client,
            cluster: config,
            namespace: made.metadata.name.unwrap(),
        }
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// An operator for this namespace.
    pub(crate) fn operator(&self, pod: &str) -> Operator {
        self.operator_with(pod, "")
    }

    /// The same, with more configuration.
    pub(crate) fn operator_with(&self, pod: &str, more: &str) -> Operator {
        self.operator_by(&self.cluster, pod, more)
    }

    /// The same, by another way to the API server.
    pub(crate) fn operator_by(&self, cluster: &Config, pod: &str, more: &str) -> Operator {
        let held = [(); 2].map(|()| HeldAddress::take().unwrap());
        let [http, agents] = held.each_ref().map(HeldAddress::address);
        let election = if more.contains("leaderElection") {
            ""
        } else {
            "leaderElection: {durationSeconds: 30, graceSeconds: 27}"
        };
        let service = if more.contains("agents:") {
            ""
        } else {
            "agents: {service: agents}"
        };
        let text = format!(
            "namespaces: [{}]\n{more}\n{service}\n{election}",
            self.namespace
        );
        let config = OperatorConfig::parse(&text, |name| {
            let value = match name {
                "POD_NAME" => pod.to_owned(),
                "POD_NAMESPACE" => self.namespace.clone(),
                // An address that a slice may have; nothing dials it.
                "POD_IP" => format!("10.9.8.{}", pod.len()),
                "LYNX_OPERATOR_LISTEN_HTTP" => http.to_string(),
                "LYNX_OPERATOR_LISTEN_AGENTS" => agents.to_string(),
                _ => return None,
            };
            Some(value)
        });
        let shutdown = CancellationToken::new();
        let run = lynx_operator::run::run(cluster.clone(), config.unwrap(), shutdown.clone());
        let task = tokio::spawn(async move { run.await.unwrap() });
        Operator {
            http,
            agents,
            shutdown,
            task,
            _held: held,
        }
    }

    /// Applies a LynxDeployment, as its user.
    pub(crate) async fn apply(&self, name: &str, spec: Value) -> LynxDeployment {
        let object = json!({
            "apiVersion": "lynx.dev/v1alpha1",
            "kind": "LynxDeployment",
            "metadata": {"name": name},
            "spec": spec,
        });
        let params = PatchParams::apply("user").force();
        let api = self.api::<LynxDeployment>();
        api.patch(name, &params, &Patch::Apply(&object))
            .await
            .unwrap()
    }

    /// The one Deployment of a role, once it is there.
    pub(crate) async fn deployment(&self, role: &str) -> Option<Deployment> {
        let labels = format!("lynx.dev/deployment=smol,lynx.dev/role={role}");
        let list = self.api::<Deployment>();
        let list = list.list(&ListParams::default().labels(&labels)).await;
        list.unwrap().items.pop()
    }

    /// Applies an object of any kind, in this world's namespace or in none, and its status where it has one.
    pub(crate) async fn put(&self, object: Value, namespaced: bool) {
        let text = |field: &Value| field.as_str().unwrap().to_owned();
        let kind = text(&object["kind"]);
        let (group, version) = match object["apiVersion"].as_str().unwrap().split_once('/') {
            Some((group, version)) => (group.to_owned(), version.to_owned()),
            None => (String::new(), text(&object["apiVersion"])),
        };
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(&group, &version, &kind));
        let api: Api<DynamicObject> = if namespaced {
            Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
        } else {
            Api::all_with(self.client.clone(), &resource)
        };
        let name = text(&object["metadata"]["name"]);
        let params = PatchParams::apply("user").force();
        api.patch(&name, &params, &Patch::Apply(&object))
            .await
            .unwrap();
        if object.get("status").is_some() {
            let patch = json!({"status": object["status"]});
            api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&patch))
                .await
                .unwrap();
        }
    }

    /// Changes an object, as somebody.
    pub(crate) async fn merge<K>(&self, name: &str, patch: Value)
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + DeserializeOwned
            + Clone
            + Debug
            + Serialize,
    {
        let params = PatchParams::default();
        let api = self.api::<K>();
        api.patch(name, &params, &Patch::Merge(&patch))
            .await
            .unwrap();
    }

    /// Removes the namespace; the test's objects go with it.
    pub(crate) async fn end(self) {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        namespaces
            .delete(&self.namespace, &DeleteParams::background())
            .await
            .unwrap();
    }
}

impl Operator {
    /// As a kubelet does it.
    pub(crate) async fn stop(self) {
        self.shutdown.cancel();
        self.task.await.unwrap();
    }

    /// The answer to a GET, head and all; empty before the server listens.
    pub(crate) async fn get(&self, path: &str) -> String {
        let Ok(mut stream) = TcpStream::connect(self.http).await else {
            return String::new();
        };
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    /// A figure of `/metrics`.
    pub(crate) async fn figure(&self, name: &str) -> u64 {
        let text = self.get("/metrics").await;
        text.lines()
            .filter(|line| line.starts_with(name))
            .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
            .sum()
    }

    /// Waits until it has looked at its deployment again.
    pub(crate) async fn looks_again(&self, after: u64) {
        eventually("another reconcile", async || {
            (self.figure("lynx_operator_reconciles_total").await > after).then_some(())
        })
        .await;
    }

    pub(crate) async fn leads(&self) {
        eventually("leadership", async || {
            self.get("/metrics")
                .await
                .contains("lynx_operator_leading 1")
                .then_some(())
        })
        .await;
    }
}

/// Asks until there is an answer.
pub(crate) async fn eventually<R>(what: &str, mut ask: impl AsyncFnMut() -> Option<R>) -> R {
    let asking = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(POLL).await;
        }
    };
    match tokio::time::timeout(PATIENCE, asking).await {
        Ok(answer) => answer,
        Err(_) => panic!("not within {PATIENCE:?}: {what}"),
    }
}

/// The smallest spec.
pub(crate) fn embedded() -> Value {
    json!({
        "model": {"name": "smol", "source": {"hostPath": {"path": "/var/lib/models/smol.gguf"}}},
        "engine": {"type": "Embedded"},
    })
}

/// The status and reason of a condition.
pub(crate) fn condition(object: &LynxDeployment, kind: &str) -> (String, String) {
    let conditions = object.status.iter().flat_map(|status| &status.conditions);
    conditions
        .filter(|one| one.type_ == kind)
        .map(|one| (one.status.clone(), one.reason.clone()))
        .next()
        .unwrap_or_default()
}
