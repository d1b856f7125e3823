//! Agents, played by the test.

use std::net::SocketAddr;
use std::sync::Arc;

use futures::StreamExt as _;
use hyper_util::rt::TokioIo;
use lynx_crds::LynxDeployment;
use lynx_proto::operator::v1::control_client::ControlClient;
use lynx_proto::operator::v1::{
    FromAgent, FromOperator, Hello, Link, Report, Role, from_agent, from_operator,
};
use lynx_tls::Loaded;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status, Streaming};
use tower::service_fn;

use crate::harness::{Operator, World, condition, embedded, eventually};

/// A stream of one pod.
pub(crate) struct Agent {
    to: mpsc::UnboundedSender<FromAgent>,
    from: Streaming<FromOperator>,
}

impl Agent {
    pub(crate) async fn join(operator: &Operator, hello: Hello) -> Result<Self, Status> {
        Self::dial(operator.agents, hello).await
    }

    pub(crate) async fn dial(address: SocketAddr, hello: Hello) -> Result<Self, Status> {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        let channel = endpoint.connect().await;
        Self::over(channel.map_err(unreachable)?, hello).await
    }

    /// By TLS, with the certificates that the operator issued, at the deployment's door.
    pub(crate) async fn secured(
        operator: &Operator,
        shown: &Loaded,
        hello: Hello,
    ) -> Result<Self, Status> {
        let (address, config) = (operator.agents, shown.client_by_host());
        let door = format!("{}.{}.lynx-operator", hello.deployment, hello.namespace);
        let connector = service_fn(move |_| {
            let (config, door) = (Arc::clone(&config), door.clone().try_into().unwrap());
            async move {
                let tcp = TcpStream::connect(address).await?;
                let stream = TlsConnector::from(config).connect(door, tcp).await?;
                Ok::<_, std::io::Error>(TokioIo::new(stream))
            }
        });
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        let channel = endpoint.connect_with_connector(connector).await;
        Self::over(channel.map_err(unreachable)?, hello).await
    }

    async fn over(channel: Channel, hello: Hello) -> Result<Self, Status> {
        let mut client = ControlClient::new(channel);
        let (to, messages) = mpsc::unbounded_channel();
        let kind = Some(from_agent::Kind::Hello(hello));
        to.send(FromAgent { kind }).unwrap();
        let from = client.join(UnboundedReceiverStream::new(messages)).await?;
        Ok(Self {
            to,
            from: from.into_inner(),
        })
    }

    /// Joins once the operator leads and knows the deployment.
    pub(crate) async fn joined(operator: &Operator, hello: Hello) -> Self {
        eventually("a stream", async || {
            Self::join(operator, hello.clone()).await.ok()
        })
        .await
    }

    pub(crate) fn report(&self, report: Report) {
        let kind = Some(from_agent::Kind::Report(report));
        self.to.send(FromAgent { kind }).unwrap();
    }

    /// The same, where the stream may be over: false then.
    pub(crate) fn try_report(&self, report: Report) -> bool {
        let kind = Some(from_agent::Kind::Report(report));
        self.to.send(FromAgent { kind }).is_ok()
    }

    /// What was said since the last call; an error once the stream is over.
    pub(crate) async fn heard(&mut self) -> Result<Vec<from_operator::Kind>, Status> {
        let mut heard = Vec::new();
        loop {
            let soon = std::time::Duration::from_millis(1);
            match tokio::time::timeout(soon, self.from.message()).await {
                Err(_) => return Ok(heard),
                Ok(Ok(Some(message))) => heard.extend(message.kind),
                Ok(Ok(None)) => return Err(Status::unavailable("over")),
                Ok(Err(status)) => return Err(status),
            }
        }
    }

    /// The next message that `wanted` takes.
    pub(crate) async fn hears<R>(
        &mut self,
        wanted: impl Fn(from_operator::Kind) -> Option<R>,
    ) -> R {
        let next = async {
            loop {
                let message = self.from.next().await.unwrap().unwrap();
                if let Some(found) = message.kind.and_then(&wanted) {
                    return found;
                }
            }
        };
        let patience = std::time::Duration::from_secs(180);
        tokio::time::timeout(patience, next).await.unwrap()
    }
}

fn unreachable(error: tonic::transport::Error) -> Status {
    Status::unavailable(error.to_string())
}

pub(crate) fn hello(world: &World, pod: &str, role: Role) -> Hello {
    Hello {
        namespace: world.namespace.clone(),
        deployment: "smol".into(),
        pod: pod.into(),
        role: role.into(),
        generation: "g".into(),
        peer_address: "10.1.2.3:7400".into(),
        ..Hello::default()
    }
}

pub(crate) fn ready() -> Report {
    Report {
        ready: true,
        ..Report::default()
    }
}

#[tokio::test]
#[ignore = "needs a control plane: make test-cluster"]
async fn agents_learn_of_each_other_and_the_status_of_their_links() {
    let world = World::new("agents").await;
    let operator = world.operator("a");
    operator.leads().await;
    eventually("a refusal", async || {
        let stranger = Agent::join(&operator, hello(&world, "d", Role::Decode)).await;
        (stranger.err()?.code() == Code::NotFound).then_some(())
    })
    .await;

    world.apply("smol", embedded()).await;
    let mut decode = Agent::joined(&operator, hello(&world, "d", Role::Decode)).await;
    let policy = decode
        .hears(|kind| match kind {
            from_operator::Kind::Policy(policy) => Some(policy),
            _ => None,
        })
        .await;
    assert_eq!(policy.max_draft_tokens, 64);
    assert_eq!(
        policy.widths[0].anchor_eighths, 32,
        "four bits before a link is measured"
    );

    let prefill = Agent::joined(&operator, hello(&world, "p", Role::Prefill)).await;
    prefill.report(ready());
    let peers = decode
        .hears(|kind| match kind {
            from_operator::Kind::Peers(peers) if !peers.peers.is_empty() => Some(peers),
            _ => None,
        })
        .await;
    assert_eq!(peers.peers[0].pod, "p");
    assert_eq!(peers.peers[0].address, "10.1.2.3:7400");

    let link = Link {
        peer: "p".into(),
        up: true,
        transport: "tcp".into(),
        rate_bps: 100_000_000,
        ..Link::default()
    };
    let report = Report {
        links: vec![link],
        transfer_kv_bytes: 64 << 20,
        token_time_ns: 15_000_000,
        ..ready()
    };
    let api = world.api::<LynxDeployment>();
    let object = eventually("the link's status", async || {
        prefill.report(ready());
        decode.report(report.clone());
        let object = api.get("smol").await.unwrap();
        let measured = condition(&object, "LinkReady").0 == "True";
        (measured && condition(&object, "AnchorAdapted").0 == "True").then_some(object)
    })
    .await;
    let status = object.status.unwrap();
    assert_eq!(status.link.unwrap().summary, "100 Mbit/s TCP");
    assert!(status.anchor.is_some());
    operator.stop().await;
    world.end().await;
}

#[tokio::test]
#[ignore = "needs a control plane: make test-cluster"]
async fn a_replica_that_does_not_lead_sends_agents_away() {
    let world = World::new("followers").await;
    let first = world.operator("a");
    first.leads().await;
    let second = world.operator("bb");
    eventually("readiness", async || {
        second.get("/readyz").await.contains("200 OK").then_some(())
    })
    .await;
    // On a machine with other things to do, the lease may go from one to the other.
    eventually("a replica that does not lead", async || {
        for replica in [&second, &first] {
            let refused = Agent::join(replica, hello(&world, "d", Role::Decode)).await;
            if refused.err().map(|status| status.code()) == Some(Code::Unavailable) {
                return Some(());
            }
        }
        None
    })
    .await;
    first.stop().await;
    second.stop().await;
    world.end().await;
}
