//! The whole way in: a listener, doors, gRPC, and agents with certificates as the operator issues them.

use std::net::SocketAddr;

use hyper_util::rt::TokioIo;
use lynx_proto::operator::v1::control_client::ControlClient;
use lynx_proto::operator::v1::control_server::ControlServer;
use lynx_proto::operator::v1::{FromAgent, Hello, Role, from_agent};
use lynx_tls::{Files, Loaded, UnixTime};
use tokio::sync::watch;
use tokio_rustls::TlsConnector;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

use super::*;
use crate::certificates::{Lives, State, follow};
use crate::clock::Clock;
use crate::streams::doors;
use crate::streams::service::{Hub, Service, Way};

/// An authority is followed after 200 s, and trusted for 20 s more: all certificates of these tests are valid now.
const LIVES: Lives = Lives {
    leaf_seconds: 3_000,
    authority_seconds: 300,
    overlap_seconds: 20,
};

fn now() -> i64 {
    UnixTime::now().as_secs().try_into().unwrap()
}

fn key(name: &str) -> Key {
    Key {
        namespace: "team".into(),
        name: name.into(),
    }
}

fn identity(name: &str) -> String {
    format!("spiffe://cluster.local/ns/team/lynx/{name}")
}

fn state(name: &str) -> State {
    follow(None, &identity(name), LIVES, now()).unwrap()
}

/// A listening operator.
struct World {
    hub: Arc<Hub>,
    doors: Arc<Doors>,
    address: SocketAddr,
    shutdown: CancellationToken,
    _leads: watch::Sender<bool>,
}

impl World {
    async fn new() -> Self {
        let (changed, _) = mpsc::unbounded_channel();
        let hub = Arc::new(Hub::new(changed, Clock::start()));
        let doors = Arc::new(Doors::default());
        let (leads, leading) = watch::channel(true);
        let shutdown = CancellationToken::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let service = ControlServer::new(Service::new(Arc::clone(&hub), leading));
        let served = tonic::transport::Server::builder()
            .add_service(service)
            .serve_with_incoming(incoming(listener, Arc::clone(&doors), shutdown.clone()));
        tokio::spawn(served);
        Self {
            hub,
            doors,
            address,
            shutdown,
            _leads: leads,
        }
    }

    fn open(&self, name: &str, state: &State) {
        self.hub.admit(&key(name), Way::Tls);
        let now = UnixTime::now();
        self.doors.follow(&key(name), state, LIVES, now).unwrap();
    }

    /// Joins as an agent of `name`, with these certificates at this door.
    async fn join(&self, name: &str, shown: &State, door: &str) -> Result<(), String> {
        let channel = self.dial(shown, door).await?;
        join(channel, name).await.map_err(|status| match status {
            Code::PermissionDenied => "another's".to_owned(),
            other => other.to_string(),
        })
    }

    async fn dial(&self, shown: &State, door: &str) -> Result<Channel, String> {
        let pems = [&shown.leaf.certificate, &shown.leaf.key, &shown.bundle()];
        let [chain, private, authorities] = pems.map(|pem| pem.as_bytes().to_vec());
        let files = Files::new(&chain, &private, &authorities);
        let config = Loaded::new(&files, Some(&shown.name), UnixTime::now())
            .unwrap()
            .client_by_host();
        let (address, host) = (self.address, doors::name(&key(door)));
        let connector = service_fn(move |_| {
            let (config, host) = (Arc::clone(&config), host.clone().try_into().unwrap());
            async move {
                let tcp = TcpStream::connect(address).await?;
                let stream = TlsConnector::from(config).connect(host, tcp).await?;
                Ok::<_, io::Error>(TokioIo::new(stream))
            }
        });
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        let dialled = endpoint.connect_with_connector(connector).await;
        dialled.map_err(|error| format!("{error:?}"))
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

async fn join(channel: Channel, name: &str) -> Result<(), Code> {
    let hello = Hello {
        namespace: "team".into(),
        deployment: name.into(),
        pod: "d".into(),
        role: Role::Decode.into(),
        generation: "g".into(),
        ..Hello::default()
    };
    let kind = Some(from_agent::Kind::Hello(hello));
    let said = tokio_stream::iter([FromAgent { kind }]);
    let joined = ControlClient::new(channel).join(said).await;
    joined.map(drop).map_err(|status| status.code())
}

#[tokio::test]
async fn agents_come_in_by_their_deployments_door_and_by_no_other() {
    let world = World::new().await;
    let (small, large) = (state("small"), state("large"));
    world.open("small", &small);
    world.open("large", &large);
    assert_eq!(world.join("small", &small, "small").await, Ok(()));
    assert_eq!(world.join("large", &large, "large").await, Ok(()));
    // By its own door, for another.
    let another = world.join("large", &small, "small").await;
    assert_eq!(another, Err("another's".to_owned()));
    // At another's door: it doesn't know the authority of who is there.
    let stranger = world.join("large", &small, "large").await.unwrap_err();
    assert!(stranger.contains("UnknownIssuer"), "{stranger}");
    // With another's authority and its own certificate.
    let mixed = State {
        leaf: small.leaf.clone(),
        authority: small.authority.clone(),
        next: Some(large.authority.clone()),
        ..small.clone()
    };
    assert!(world.join("large", &mixed, "large").await.is_err());
    // There is no such door.
    assert!(world.join("small", &small, "other").await.is_err());
}

#[tokio::test]
async fn in_clear_only_those_come_in_who_were_given_no_certificates() {
    let world = World::new().await;
    let small = state("small");
    world.open("small", &small);
    world.hub.admit(&key("plain"), Way::Clear);
    let endpoint = Endpoint::from_shared(format!("http://{}", world.address)).unwrap();
    let channel = endpoint.connect().await.unwrap();
    assert_eq!(join(channel.clone(), "plain").await, Ok(()));
    let refused = join(channel.clone(), "small").await;
    assert_eq!(refused, Err(Code::Unauthenticated));
    // The door of one says nothing of another, whatever that one asks for.
    assert!(world.join("plain", &small, "small").await.is_err());
    world.doors.close(&key("small"));
    world.hub.admit(&key("small"), Way::Clear);
    assert_eq!(join(channel, "small").await, Ok(()));
}

#[tokio::test]
async fn while_certificates_and_authorities_follow_each_other_no_agent_is_kept_out() {
    let world = World::new().await;
    let begun = now();
    let mut states = vec![state("small")];
    while states.len() < 4 {
        let last = states.last().unwrap();
        let next = follow(Some(last.clone()), &last.name, LIVES, last.due(LIVES));
        states.push(next.unwrap());
    }
    assert!(states[1].next.is_some() && states[2].former.is_some());
    assert!(states[3].former.is_none() && states[3].authority != states[0].authority);
    assert!(states[3].leaf.from <= begun + 280, "it is valid already");
    for (operator, agent) in [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 2),
        (2, 1),
        (2, 3),
        (3, 2),
        (3, 3),
    ] {
        world.open("small", &states[operator]);
        let joined = world.join("small", &states[agent], "small").await;
        assert_eq!(joined, Ok(()), "operator {operator}, agent {agent}");
    }
    // Who slept through it all is kept out, and so is what it shows.
    assert!(world.join("small", &states[0], "small").await.is_err());
}

#[tokio::test]
async fn whoever_says_nothing_holds_up_nobody() {
    let world = World::new().await;
    let small = state("small");
    world.open("small", &small);
    let mut silent = Vec::new();
    for _ in 0..AT_ONCE / 2 {
        silent.push(TcpStream::connect(world.address).await.unwrap());
    }
    assert_eq!(world.join("small", &small, "small").await, Ok(()));
}
