//! Who is kept out, on both ways, and what each side is told.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use futures::StreamExt as _;
use lynx_agent::security::{Security, To, connect, incoming};
use lynx_ports::HeldAddress;
use lynx_tls::authority::{Authority, Request, write};
use lynx_tls::{Credentials, UnixTime};
use lynx_transport::{Clock, Dialler, LinkConfig, Listener, PeerInfo};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tonic::transport::Endpoint;

use super::certificates::{NAME, encrypt, issued};
use super::node::{Node, examined, figure};

/// What is said of a certificate of another authority by whoever refuses it, and to whom it is.
const REFUSED: &str = "isn't signed by an authority in ca.crt";
const NOT_TRUSTED: &str = "the peer does not trust this side's certificate";

/// What a side has that is to work with another one.
fn credentials(directory: &Path, peer_name: Option<&str>) -> Security {
    let opened = Credentials::open(directory, peer_name, UnixTime::now());
    Security::new(opened.unwrap(), true)
}

/// A certificate of one authority, from somebody who trusts another's peers as well.
fn two_faced(own: &Authority, trusted: &Authority) -> Security {
    let directory = tempfile::tempdir().unwrap();
    let files = own.issue(&Request::new(NAME)).unwrap();
    let files = files.with_authority(&trusted.certificate_pem());
    write(directory.path(), &files).unwrap();
    credentials(directory.path(), None)
}

fn link(security: &Security) -> LinkConfig {
    let config = LinkConfig::new(Clock::start(), PeerInfo::new("a stranger")).unwrap();
    config.with_credentials(security.data().cloned())
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let rest = error.source().map(chain).unwrap_or_default();
    format!("{error}: {rest}")
}

/// What peer control and the links' port tell whoever dials them with this.
async fn refusals(control: SocketAddr, data: SocketAddr, security: &Security) -> [String; 2] {
    let endpoint = Endpoint::from_shared(format!("http://{control}")).unwrap();
    let refused = connect(endpoint, To::Peer, security).await.unwrap_err();
    let mut dialler = Dialler::new(data, link(security));
    let dialled = dialler.connect(Duration::from_secs(10)).await;
    [chain(&refused), dialled.unwrap_err().to_string()]
}

/// Peer control of somebody else, that only shakes hands; where it is.
async fn control_of(security: Security) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut incoming = Box::pin(incoming(listener, &security, 8));
        while incoming.next().await.is_some() {}
    });
    address
}

/// Peer control in clear, as far as HTTP/2's first words.
async fn control_in_clear() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            drop(stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await);
            drop(tokio::io::copy(&mut stream, &mut tokio::io::sink()).await);
        }
    });
    address
}

/// The links' port of somebody else.
fn data_of(security: &Security) -> SocketAddr {
    let mut listener = Listener::bind("127.0.0.1:0".parse().unwrap(), link(security)).unwrap();
    let address = listener.address();
    tokio::spawn(async move {
        loop {
            drop(listener.accept().await);
        }
    });
    address
}

/// Prefill and decode agent of one authority. The prefill agent announces links where a stranger takes them; of the decode
/// agent's peers, it alone is none.
struct World {
    prefill: Node,
    decode: Node,
    control: SocketAddr,
    data: SocketAddr,
    _held: [HeldAddress; 2],
}

fn world(certificates: &Path, announced: SocketAddr, mut peers: Vec<SocketAddr>) -> World {
    let held = [(); 2].map(|()| HeldAddress::take().unwrap());
    let [control, data] = held.each_ref().map(HeldAddress::address);
    let listen = json!({"peer": control, "data": data, "announcedData": announced});
    let mut prefill = json!({"listen": listen});
    encrypt(&mut prefill, certificates);
    peers.push(control);
    let mut decode = json!({"listen": {}, "peers": peers});
    encrypt(&mut decode, certificates);
    let [prefill, decode] = [("prefill", prefill), ("decode", decode)]
        .map(|(role, config): (_, Value)| Node::start(role, config));
    World {
        prefill,
        decode,
        control,
        data,
        _held: held,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn strangers_are_refused_on_both_planes_and_both_ways_and_each_side_says_why() {
    let (own, strange) = (Authority::new().unwrap(), Authority::new().unwrap());
    let (certificates, others) = (issued(&own), issued(&strange));
    let stranger = credentials(others.path(), None);
    let elsewhere = credentials(certificates.path(), Some("spiffe://test/ns/a/lynx/other"));
    let [distrusted, distrusting, clear] = [
        control_of(stranger.clone()).await,
        control_of(elsewhere).await,
        control_in_clear().await,
    ];
    let announced = data_of(&stranger);
    let peers = vec![distrusted, distrusting, clear];
    let world = world(certificates.path(), announced, peers);

    // The decode agent dials strangers.
    for (peer, words) in [
        (distrusted, REFUSED),
        (
            distrusting,
            "says that this side's certificate isn't one of its deployment",
        ),
        (clear, "what comes is not TLS"),
        (world.control, REFUSED),
    ] {
        world.decode.says(&format!("peer={peer}"), words);
    }
    let data = format!("no secure link with the peer at {announced}");
    world.decode.says(&format!("peer={}", world.control), &data);

    // Strangers dial the prefill agent.
    let [control, data] = refusals(world.control, world.data, &stranger).await;
    assert!(control.contains(REFUSED), "{control}");
    assert!(data.contains(REFUSED), "{data}");
    let [control, data] = refusals(world.control, world.data, &two_faced(&strange, &own)).await;
    assert!(control.contains(NOT_TRUSTED), "{control}");
    assert!(data.contains(NOT_TRUSTED), "{data}");
    let clear = Dialler::new(world.data, link(&Security::default()))
        .try_connect()
        .await;
    let clear = clear.unwrap_err().to_string();
    assert!(clear.contains("takes only encrypted links"), "{clear}");

    // The doctor says of either the same as they.
    let control = world.control.to_string();
    let said = examined(certificates.path(), &control).await;
    let data = format!("links at {announced} can't be made");
    let of_data = said.lines().find(|line| line.contains(&data));
    assert!(of_data.is_some_and(|line| line.contains(REFUSED)), "{said}");
    let said = examined(others.path(), &control).await;
    let of_control = said.lines().find(|line| line.contains(&control));
    assert!(
        of_control.is_some_and(|line| line.contains(REFUSED)),
        "{said}"
    );

    let failures = |plane| format!("lynx_tls_handshake_failures_total{{plane=\"{plane}\"}}");
    for node in [&world.decode, &world.prefill] {
        for plane in ["control", "data"] {
            assert!(figure(&node.http, &failures(plane)).await > 0.0, "{plane}");
        }
    }
    assert_eq!(
        figure(&world.prefill.http, "lynx_links_opened_total").await,
        0.0
    );
    assert_eq!(
        figure(&world.decode.http, "lynx_links_opened_total").await,
        0.0
    );
}
