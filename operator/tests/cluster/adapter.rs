//! Figures of pods for autoscalers, as an adapter of Prometheus' serves them: as custom.metrics.k8s.io, behind the API server.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::routing::get;
use axum::{Json, Router};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::server::TlsStream;

use crate::harness::World;

const API: &str = "/apis/custom.metrics.k8s.io/v1beta2";
const NAME: &str = "v1beta2.custom.metrics.k8s.io";
/// How long a handshake may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// One figure, the same of every pod.
#[derive(Clone)]
struct Figure {
    client: Client,
    name: &'static str,
    value: u32,
}

/// Serves until it is ended.
pub(crate) struct Adapter {
    client: Client,
    task: JoinHandle<()>,
}

impl Adapter {
    /// Every pod has this figure, and no other.
    pub(crate) async fn serve(world: &World, name: &'static str, value: u32) -> Self {
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = tcp.local_addr().unwrap().port();
        let figure = Figure {
            client: world.client.clone(),
            name,
            value,
        };
        let router = Router::new()
            .route(API, get(resources))
            .route(
                &format!("{API}/namespaces/{{namespace}}/pods/{{pods}}/{{figure}}"),
                get(figures),
            )
            .with_state(figure);
        let listener = Listener {
            tcp,
            acceptor: acceptor(),
        };
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "adapter"},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        });
        world.put(service, true).await;
        let registration = json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": NAME},
            "spec": {
                "group": "custom.metrics.k8s.io", "version": "v1beta2",
                "groupPriorityMinimum": 100, "versionPriority": 100, "insecureSkipTLSVerify": true,
                "service": {"name": "adapter", "namespace": world.namespace, "port": port},
            },
        });
        world.put(registration, false).await;
        Self {
            client: world.client.clone(),
            task,
        }
    }

    /// A registration of who isn't there would keep namespaces from going.
    pub(crate) async fn end(self) {
        let registrations: Api<APIService> = Api::all(self.client.clone());
        let params = DeleteParams::default();
        registrations.delete(NAME, &params).await.unwrap();
        self.task.abort();
    }
}

/// What there is to ask for.
async fn resources(State(figure): State<Figure>) -> Json<Value> {
    Json(json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "custom.metrics.k8s.io/v1beta2",
        "resources": [{
            "name": format!("pods/{}", figure.name), "singularName": "", "namespaced": true,
            "kind": "MetricValueList", "verbs": ["get"],
        }],
    }))
}

async fn figures(
    State(figure): State<Figure>,
    Path((namespace, _, asked)): Path<(String, String, String)>,
    Query(query): Query<HashMap<String, String>>,
) -> Json<Value> {
    let selector = query.get("labelSelector").cloned().unwrap_or_default();
    let pods: Api<Pod> = Api::namespaced(figure.client.clone(), &namespace);
    let pods = pods.list(&ListParams::default().labels(&selector)).await;
    let known = pods
        .unwrap()
        .items
        .into_iter()
        .filter(|_| asked == figure.name);
    let items = known.map(|pod| {
        json!({
            "describedObject":
                {"kind": "Pod", "apiVersion": "/v1", "namespace": namespace, "name": pod.name_any()},
            "metric": {"name": figure.name},
            "timestamp": k8s_openapi::jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            "value": figure.value.to_string(),
        })
    });
    Json(json!({
        "kind": "MetricValueList", "apiVersion": "custom.metrics.k8s.io/v1beta2", "metadata": {},
        "items": items.collect::<Vec<_>>(),
    }))
}

/// The API server asks by TLS, and is told to take any certificate.
fn acceptor() -> TlsAcceptor {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["localhost".into()]).unwrap();
    let certificate = certificate.self_signed(&key).unwrap();
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    Arc::new(config).into()
}

struct Listener {
    tcp: TcpListener,
    acceptor: TlsAcceptor,
}

impl axum::serve::Listener for Listener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let Ok((tcp, from)) = self.tcp.accept().await else {
                continue;
            };
            if let Ok(Ok(stream)) = timeout(PATIENCE, self.acceptor.accept(tcp)).await {
                return (stream, from);
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.tcp.local_addr()
    }
}
