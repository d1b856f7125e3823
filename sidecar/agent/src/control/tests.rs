use std::net::{Ipv4Addr, SocketAddr};

use lynx_proto::operator::v1::control_server::{Control, ControlServer};
use lynx_proto::operator::v1::{
    Drain as DrainOrder, FromOperator, Peers as PeerList, Report, Role,
};
use lynx_units::Width;
use tokio::net::TcpListener;
use tokio::task::{AbortHandle, JoinHandle};
use tokio_stream::wrappers::{TcpListenerStream, UnboundedReceiverStream};
use tonic::{Request, Response, Streaming};

use super::*;

/// The span that everything here comes from.
const LOOK: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// One agent's stream, as the operator has it.
struct Joined {
    from: Streaming<FromAgent>,
    to: mpsc::UnboundedSender<Result<FromOperator, Refused>>,
}

impl Joined {
    async fn hear(&mut self) -> from_agent::Kind {
        self.from.message().await.unwrap().unwrap().kind.unwrap()
    }

    async fn report(&mut self) -> Report {
        match self.hear().await {
            from_agent::Kind::Report(report) => report,
            other @ from_agent::Kind::Hello(_) => panic!("{other:?}"),
        }
    }

    fn say(&self, kind: from_operator::Kind) {
        let traceparent = LOOK.to_owned();
        let kind = Some(kind);
        self.to
            .send(Ok(FromOperator { kind, traceparent }))
            .unwrap();
    }
}

struct Service(mpsc::UnboundedSender<Joined>);

#[tonic::async_trait]
impl Control for Service {
    type JoinStream = UnboundedReceiverStream<Result<FromOperator, Refused>>;

    async fn join(
        &self,
        request: Request<Streaming<FromAgent>>,
    ) -> Result<Response<Self::JoinStream>, Refused> {
        let (to, stream) = mpsc::unbounded_channel();
        let from = request.into_inner();
        self.0.send(Joined { from, to }).unwrap();
        Ok(Response::new(UnboundedReceiverStream::new(stream)))
    }
}

/// An operator that listens at `address`.
struct Operator {
    address: SocketAddr,
    streams: mpsc::UnboundedReceiver<Joined>,
    task: AbortHandle,
}

impl Operator {
    async fn start(address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, streams) = mpsc::unbounded_channel();
        let server = tonic::transport::Server::builder()
            .add_service(ControlServer::new(Service(sender)))
            .serve_with_incoming(TcpListenerStream::new(listener));
        let task = tokio::spawn(server).abort_handle();
        Self {
            address,
            streams,
            task,
        }
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// An agent's side.
struct Agent {
    status: watch::Sender<Status>,
    attachment: watch::Sender<Attachment>,
    counters: Arc<Counters>,
    drain: Drain,
    told: Told,
    task: JoinHandle<()>,
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn agent(operator: SocketAddr) -> Agent {
    let (sinks, told) = told();
    let status = watch::Sender::new(Status::default());
    let attachment = watch::Sender::new(Attachment::default());
    let (counters, drain) = (Arc::<Counters>::default(), Drain::new());
    let sources = Sources {
        status: status.subscribe(),
        attachment: attachment.subscribe(),
        counters: Arc::clone(&counters),
        drain: drain.clone(),
    };
    let hello = Hello {
        deployment: "demo".to_owned(),
        role: Role::Decode.into(),
        ..Hello::default()
    };
    let operator = crate::config::Operator {
        address: format!("http://{operator}"),
        name: None,
    };
    Agent {
        status,
        attachment,
        counters,
        drain,
        told,
        task: tokio::spawn(run(operator, Security::default(), hello, sources, sinks)),
    }
}

fn any() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
}

fn peers(pod: &str) -> from_operator::Kind {
    let peer = PeerAddress {
        pod: pod.to_owned(),
        ..PeerAddress::default()
    };
    from_operator::Kind::Peers(PeerList { peers: vec![peer] })
}

#[tokio::test]
async fn what_the_operator_tells_is_there_for_those_who_watch() {
    let mut operator = Operator::start(any()).await;
    let mut agent = agent(operator.address);
    let mut stream = operator.streams.recv().await.unwrap();
    let hello = stream.hear().await;
    assert!(matches!(hello, from_agent::Kind::Hello(hello) if hello.deployment == "demo"));
    stream.say(peers("prefill-0"));
    stream.say(from_operator::Kind::Policy(Policy {
        max_draft_tokens: 7,
        ..Policy::default()
    }));
    let mut order = DrainOrder {
        deadline_ms: 60_000,
        cancel: false,
    };
    stream.say(from_operator::Kind::Drain(order));
    agent.drain.begun().await;
    order.cancel = true;
    stream.say(from_operator::Kind::Drain(order));
    while agent.drain.is_draining() {
        tokio::task::yield_now().await;
    }
    let told = agent.told.peers.wait_for(Option::is_some).await.unwrap();
    assert_eq!(told.as_ref().unwrap()[0].pod, "prefill-0");
    drop(told);
    let told = agent.told.policy.wait_for(Option::is_some).await.unwrap();
    assert_eq!(told.as_ref().unwrap().max_draft_tokens, 7);
    let look = agent.told.look.borrow();
    let (traceparent, _) = lynx_telemetry::inject(&look);
    assert_eq!(traceparent, LOOK);
}

#[tokio::test]
async fn a_change_is_reported_at_once_and_counts_since_the_last_report() {
    let mut operator = Operator::start(any()).await;
    let agent = agent(operator.address);
    let four = Width::from_bits(4).unwrap();
    agent.counters.drafts.verified(four, 100, 90);
    let mut stream = operator.streams.recv().await.unwrap();
    stream.hear().await;
    let first = stream.report().await;
    assert!(!first.ready && first.drafted_tokens == 0, "{first:?}");
    agent.counters.drafts.verified(four, 5, 4);
    agent.counters.transfers_begun.add(2);
    agent.counters.transfer_kv_bytes.add(300);
    let start = tokio::time::Instant::now();
    agent.status.send_modify(|status| status.ready = true);
    let second = stream.report().await;
    let drafted = [second.drafts, second.drafted_tokens, second.accepted_tokens];
    assert!(second.ready && drafted == [1, 5, 4], "{second:?}");
    assert_eq!(second.drafts_by_width.len(), 1);
    assert_eq!(second.drafts_by_width[0].anchor_eighths, 32);
    assert_eq!(second.transfer_kv_bytes, 150);
    assert!(
        start.elapsed() < REPORT_INTERVAL,
        "it waits for no interval"
    );
    agent.attachment.send_modify(|attachment| {
        attachment.error = Some("another layout".to_owned());
    });
    let third = stream.report().await;
    assert_eq!(third.attach_error, "another layout");
    let work = agent.drain.enter();
    agent.drain.begin(Duration::from_secs(60));
    let report = stream.report().await;
    assert!(report.draining && report.in_flight == 1);
    drop(work);
    assert_eq!(stream.report().await.in_flight, 0);
}

#[tokio::test]
async fn without_the_operator_the_last_word_stays_and_the_agent_joins_again() {
    let mut operator = Operator::start(any()).await;
    let mut agent = agent(operator.address);
    let stream = operator.streams.recv().await.unwrap();
    stream.say(peers("prefill-0"));
    agent.told.peers.wait_for(Option::is_some).await.unwrap();
    let address = operator.address;
    stream
        .to
        .send(Err(Refused::unavailable("not the leader")))
        .unwrap();
    let mut stream = operator.streams.recv().await.unwrap();
    assert!(matches!(stream.hear().await, from_agent::Kind::Hello(_)));
    drop((stream, operator));
    let told = agent.told.peers.borrow_and_update().clone().unwrap();
    assert_eq!(told[0].pod, "prefill-0");
    let mut operator = loop {
        // The old server's connections may hold the port for a moment.
        if TcpListener::bind(address).await.is_ok() {
            break Operator::start(address).await;
        }
        tokio::task::yield_now().await;
    };
    let stream = operator.streams.recv().await.unwrap();
    stream.say(peers("prefill-1"));
    agent.told.peers.changed().await.unwrap();
    let told = agent.told.peers.borrow().clone().unwrap();
    assert_eq!(told[0].pod, "prefill-1");
}
