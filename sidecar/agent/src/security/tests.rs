//! Who gets to speak to peer control, and what the others are told.

use std::time::Duration;

use futures::StreamExt as _;
use lynx_tls::authority::Authority;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tonic::transport::Endpoint;

use super::connection::Connection;
use super::*;
use crate::run::chain;
use crate::testing::soon;

const NAME: &str = "spiffe://test/ns/a/lynx/b";

async fn listening() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    (listener, address)
}

/// What a client is told that does not get in.
async fn refusal(address: String, to: To, credentials: &Credentials) -> String {
    let endpoint = Endpoint::from_shared(address).unwrap();
    let refused = soon(connect(endpoint, to, Some(credentials))).await;
    chain(&refused.unwrap_err())
}

#[tokio::test]
async fn a_caller_is_known_by_its_certificate() {
    let credentials = Authority::new().unwrap().credentials(NAME).unwrap();
    let (listener, address) = listening().await;
    let mut incoming = Box::pin(incoming(listener, Some(credentials.clone())));
    let endpoint = Endpoint::from_shared(address).unwrap();
    let connecting = connect(endpoint, To::Peer, Some(&credentials));
    let (connection, channel) = soon(async { tokio::join!(incoming.next(), connecting) }).await;
    channel.unwrap();
    match connection.unwrap().unwrap() {
        Connection::Tls(_, caller) => assert_eq!(caller.identity.unwrap().primary(), NAME),
        Connection::Plain(_) => panic!("it is in clear"),
    }
}

#[tokio::test]
async fn strangers_and_strange_hosts_are_told_what_to_change() {
    let authority = Authority::new().unwrap();
    let credentials = authority.credentials(NAME).unwrap();
    let (listener, address) = listening().await;
    let _incoming = incoming(listener, Some(credentials.clone()));
    let stranger = Authority::new().unwrap().credentials(NAME).unwrap();
    let refused = refusal(address.clone(), To::Peer, &stranger).await;
    assert!(
        refused.contains("isn't signed by an authority in ca.crt"),
        "{refused}"
    );
    let other = authority.credentials("spiffe://test/ns/a/lynx/c").unwrap();
    let refused = refusal(address.clone(), To::Peer, &other).await;
    assert!(refused.contains("is another deployment's"), "{refused}");
    // A service is known by its host name, and this one has none.
    let refused = refusal(address, To::Host, &credentials).await;
    assert!(
        refused.contains("peer's certificate is refused"),
        "{refused}"
    );
}

#[tokio::test]
async fn one_that_speaks_in_clear_is_turned_away_in_its_own_tongue() {
    let credentials = Authority::new().unwrap().credentials(NAME).unwrap();
    let (listener, address) = listening().await;
    let _incoming = incoming(listener, Some(credentials.clone()));
    let mut plain = TcpStream::connect(&address["http://".len()..])
        .await
        .unwrap();
    plain
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        .await
        .unwrap();
    let mut told = Vec::new();
    soon(plain.read_to_end(&mut told)).await.unwrap();
    // SETTINGS, and GOAWAY with INADEQUATE_SECURITY.
    assert_eq!((told.len(), told[12], told[25]), (26, 7, 12));
}

#[tokio::test]
async fn a_service_in_clear_is_named_as_such() {
    let credentials = Authority::new().unwrap().credentials(NAME).unwrap();
    let (listener, address) = listening().await;
    tokio::spawn(async move {
        let (mut tcp, _) = listener.accept().await.unwrap();
        tcp.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.unwrap();
        tcp.read_to_end(&mut Vec::new()).await.ok();
    });
    let refused = refusal(address, To::Peer, &credentials).await;
    assert!(refused.contains("what comes is not TLS"), "{refused}");
}

#[tokio::test]
async fn silent_connections_end_by_themselves_and_hold_up_nobody() {
    let credentials = Authority::new().unwrap().credentials(NAME).unwrap();
    let (listener, address) = listening().await;
    let mut incoming = Box::pin(incoming(listener, Some(credentials.clone())));
    let mut silent = TcpStream::connect(&address["http://".len()..])
        .await
        .unwrap();
    silent.write_all(&[22]).await.unwrap();
    let endpoint = Endpoint::from_shared(address).unwrap();
    let connecting = connect(endpoint, To::Peer, Some(&credentials));
    let (connection, channel) = soon(async { tokio::join!(incoming.next(), connecting) }).await;
    assert!(connection.is_some() && channel.is_ok());
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(Duration::from_secs(10), silent.read_to_end(&mut rest));
    drop(ended.await.expect("a deadline ends it"));
}
