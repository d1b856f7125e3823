//! What strangers can make the agent hold.

use bytes::Bytes as Body;
use http::Request;
use lynx_proto::peer::v1::CheckRequest;
use lynx_protocol::CreditBook;
use lynx_protocol::receiver::ReceiverConfig;
use lynx_transport::{Dialler, ReceiverEvents, ReceiverHandle};
use tokio::net::TcpStream;

use super::peer::Peer;
use super::*;
use crate::counters::Pool;
use crate::method::Method;

/// Begins questions on a connection of its own and sends `each` bytes of each, of messages that are said to be longer;
/// the streams are to be kept.
async fn begin(
    agent: &Agent,
    count: usize,
    each: usize,
) -> Vec<(h2::client::ResponseFuture, h2::SendStream<Body>)> {
    let tcp = TcpStream::connect(agent.control).await.unwrap();
    let (mut client, connection) = h2::client::handshake(tcp).await.unwrap();
    tokio::spawn(connection);
    let mut begun = Vec::new();
    for _ in 0..count {
        client = client.ready().await.unwrap();
        let question = Request::post(format!(
            "http://{}/lynx.peer.v1.Peer/Transfer",
            agent.control
        ))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
        let (answer, mut stream) = client
            .send_request(question.body(()).unwrap(), false)
            .unwrap();
        let mut message = vec![0; each];
        message[..5].copy_from_slice(&[0, 0, 0x7a, 0x12, 0]);
        stream.send_data(message.into(), false).unwrap();
        begun.push((answer, stream));
    }
    begun
}

#[tokio::test]
async fn what_messages_take_is_bounded_over_all_connections_and_given_back() {
    let agent = Agent::start_with(|options| {
        options.message_memory = Bytes::from_kib(1024);
    })
    .await;
    let _engine = agent.ready().await;
    let mut peer = Peer::meet(&agent).await;
    let pool = || agent.counters.memory.of(Pool::Messages);
    let is_full = async {
        let mut begun = Vec::new();
        while pool().taken() < 1 << 19 {
            begun.extend(begin(&agent, 16, 16 << 10).await);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        begun
    };
    let mut begun = soon(is_full).await;
    begun.extend(begin(&agent, 63, 60 << 10).await);
    // One of them has found no room, and is told so.
    let refused = begun.drain(..).map(|(answer, stream)| async move {
        let answer = answer.await;
        drop(stream);
        answer
    });
    let (refused, _, rest) = soon(futures::future::select_all(refused.map(Box::pin))).await;
    let status = refused.unwrap().headers()["grpc-status"].clone();
    assert_eq!(status, "8", "RESOURCE_EXHAUSTED");
    assert!(pool().taken() <= 1 << 20, "{}", pool().taken());
    drop(rest);
    let is_given_back = async {
        while pool().taken() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    soon(is_given_back).await;
    // And there is room again.
    let fine = peer.ask(Method::Bf16, 10, 0);
    peer.transfer(&fine).await.unwrap();
}

/// Another link of this peer's, as a stranger would make it.
async fn link_again(peer: &mut Peer) -> (ReceiverHandle, ReceiverEvents) {
    let caller = Some(peer.identity.to_proto());
    let check = peer.client.check(CheckRequest { caller });
    let answer = soon(check).await.unwrap().into_inner();
    let config = LinkConfig::new(Clock::start(), peer.identity.to_peer_info()).unwrap();
    let address = answer.data_address.parse().unwrap();
    let connected = Dialler::new(address, config).try_connect().await.unwrap();
    let window = ReceiverConfig {
        window: [Bytes::from_mib(1); 2],
    };
    let book = CreditBook::new(window.window.into_iter().sum());
    connected.into_receiver(window, &book).unwrap()
}

#[tokio::test]
async fn no_more_links_are_kept_than_there_may_be_and_there_is_room_again() {
    let agent = Agent::start_with(|options| options.most_peers = 8).await;
    let _engine = agent.ready().await;
    let mut first = Peer::meet(&agent).await;
    let mut links = Vec::new();
    for _ in 0..20 {
        links.push(link_again(&mut first).await);
    }
    let is_bounded = |status: &Status| status.links.len() <= 1;
    assert!(is_bounded(&agent.status.borrow()));
    let over = async {
        let mut over = 0;
        for (_, events) in &mut links {
            let ended = tokio::time::timeout(Duration::from_millis(200), async {
                while events.next().await.is_some() {}
            });
            over += usize::from(ended.await.is_ok());
        }
        over
    };
    // Half of eight are for this address, one is the first.
    assert_eq!(over.await, 17);
    links.clear();
    let fine = first.ask(Method::Bf16, 10, 0);
    first.transfer(&fine).await.unwrap();
}
