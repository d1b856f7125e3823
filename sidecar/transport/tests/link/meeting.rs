//! How two sides come together, or say why not.

use std::net::SocketAddr;
use std::time::Duration;

use lynx_protocol::CreditBook;
use lynx_protocol::receiver::ReceiverConfig;
use lynx_transport::{Clock, DialError, Dialler, LinkConfig, ListenError, Listener, PeerInfo};
use lynx_units::{Bytes, Priority};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::mute;
use super::pair::{FAST, LOOPBACK, Pair, config, soon};

#[tokio::test]
async fn strangers_and_halves_of_links_do_a_listener_no_harm() {
    let clock = Clock::start();
    let mut listener = Listener::bind(LOOPBACK, config(clock, "prefill")).unwrap();
    let address = listener.address();
    let mut stranger = TcpStream::connect(address).await.unwrap();
    stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let _half = tokio::spawn(mute::connect(address, Priority::Anchor));
    let _silent = TcpStream::connect(address).await.unwrap();
    // Two that dial at once get a link each.
    let mut first = Dialler::new(address, config(clock, "one"));
    let mut second = Dialler::new(address, config(clock, "two"));
    let patience = Duration::from_secs(10);
    let accept_two = async { [listener.accept().await, listener.accept().await] };
    let (accepted, one, two) = tokio::join!(
        accept_two,
        first.connect(patience),
        second.connect(patience)
    );
    assert_eq!(one.unwrap().peer().name(), "prefill");
    assert_eq!(two.unwrap().peer().name(), "prefill");
    let mut names = accepted.map(|link| link.peer().name().to_owned());
    names.sort();
    assert_eq!(names, ["one", "two"]);
    // The stranger was hung up on, by TLS with an alert.
    let mut rest = Vec::new();
    soon(stranger.read_to_end(&mut rest)).await.ok();
    let most = if super::credentials().is_some() { 7 } else { 0 };
    assert!(rest.len() <= most, "{rest:?}");
}

#[tokio::test]
async fn a_peer_that_does_not_fit_is_refused_with_what_differs() {
    let clock = Clock::start();
    let prefill = PeerInfo::new("prefill")
        .with("codec", "1")
        .with("model", "a");
    let decode = PeerInfo::new("decode")
        .with("codec", "2")
        .with("model", "a");
    let mut listener = Listener::bind(LOOPBACK, LinkConfig::new(clock, prefill).unwrap()).unwrap();
    let mut dialler = Dialler::new(listener.address(), LinkConfig::new(clock, decode).unwrap());
    let error = tokio::select! {
        _ = listener.accept() => panic!("a peer that does not fit was taken"),
        dialled = dialler.connect(Duration::from_secs(5)) => dialled.unwrap_err(),
    };
    assert!(matches!(error, DialError::Refused { .. }), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("codec is 1 on prefill and 2 on decode"),
        "{text}"
    );
    assert!(!text.contains("model"), "{text}");
}

#[tokio::test]
async fn a_peer_that_is_not_there_is_named_after_the_patience() {
    let free = Listener::bind(LOOPBACK, config(Clock::start(), "x")).unwrap();
    let address = free.address();
    drop(free);
    let mut dialler = Dialler::new(address, config(Clock::start(), "y"));
    let error = dialler
        .connect(Duration::from_millis(200))
        .await
        .unwrap_err();
    assert!(error.is_retryable());
    assert!(error.to_string().contains(&address.to_string()), "{error}");
    assert!(dialler.epoch().0 > 1);
}

#[tokio::test]
async fn a_port_in_use_is_refused_with_what_to_do() {
    let first = Listener::bind(LOOPBACK, config(Clock::start(), "a")).unwrap();
    let address: SocketAddr = first.address();
    let error = Listener::bind(address, config(Clock::start(), "b")).unwrap_err();
    assert!(matches!(error, ListenError::InUse { .. }));
    let text = error.to_string();
    assert!(
        text.contains(&address.to_string()) && text.contains("choose another"),
        "{text}"
    );
}

#[tokio::test]
async fn a_full_book_refuses_the_link_and_says_what_to_raise() {
    let pair = Pair::new(FAST).await;
    let mut listener = Listener::bind(LOOPBACK, config(pair.clock, "p")).unwrap();
    let mut dialler = Dialler::new(listener.address(), config(pair.clock, "d"));
    let (_accepted, dialled) =
        tokio::join!(listener.accept(), dialler.connect(Duration::from_secs(5)));
    let book = CreditBook::new(Bytes::from_mib(8));
    let error = dialled
        .unwrap()
        .into_receiver(ReceiverConfig::default(), &book)
        .unwrap_err();
    assert!(error.to_string().contains("raise the budget"), "{error}");
}
