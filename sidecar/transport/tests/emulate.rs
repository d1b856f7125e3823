//! The emulated link with real sockets.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail as tests do")]

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use lynx_transport::Clock;
use lynx_transport::emulate::{Direction, LinkOptions, Relay, RelayError};
use lynx_units::{BitRate, Bytes};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// A relay in front of a listener of our own, and the two ends of one connection through it.
struct Link {
    relay: Relay,
    client: TcpStream,
    server: TcpStream,
}

async fn link(options: LinkOptions) -> Link {
    let listener = TcpListener::bind(LOOPBACK).await.unwrap();
    let relay = Relay::start(LOOPBACK, listener.local_addr().unwrap(), options).unwrap();
    let (client, server) = tokio::join!(TcpStream::connect(relay.address()), listener.accept());
    Link {
        relay,
        client: client.unwrap(),
        server: server.unwrap().0,
    }
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length)
        .map(|i| (i * 31 % 251).to_le_bytes()[0])
        .collect()
}

async fn send_and_receive(from: &mut TcpStream, to: &mut TcpStream, sent: &[u8]) -> Vec<u8> {
    let mut received = vec![0; sent.len()];
    let (write, read) = tokio::join!(from.write_all(sent), to.read_exact(&mut received));
    write.unwrap();
    read.unwrap();
    received
}

#[tokio::test]
async fn bytes_pass_unchanged_both_ways_and_a_close_follows_them() {
    let rate = BitRate::from_megabits_per_second(1000);
    let mut link = link(LinkOptions::new(rate).with_delay(Duration::from_millis(1))).await;
    let sent = pattern(1 << 20);
    assert_eq!(
        send_and_receive(&mut link.client, &mut link.server, &sent).await,
        sent
    );
    assert_eq!(
        send_and_receive(&mut link.server, &mut link.client, &sent).await,
        sent
    );
    link.server.shutdown().await.unwrap();
    assert_eq!(link.client.read(&mut [0; 16]).await.unwrap(), 0);
}

#[tokio::test]
async fn a_link_is_never_faster_than_its_rate_nor_shorter_than_its_delay() {
    let rate = BitRate::from_megabits_per_second(80);
    let delay = Duration::from_millis(5);
    let mut link = link(LinkOptions::new(rate).with_delay(delay)).await;
    let clock = Clock::start();
    let sent = pattern(1_000_000);
    send_and_receive(&mut link.server, &mut link.client, &sent).await;
    let took = clock.now().since_origin();
    // 100 ms at the rate. The other bound is for a bench: a busy machine may be late.
    assert!(took >= Duration::from_millis(104), "{took:?}");
    let rtt_start = clock.now();
    link.client.write_all(b"?").await.unwrap();
    link.server.read_exact(&mut [0]).await.unwrap();
    link.server.write_all(b"!").await.unwrap();
    link.client.read_exact(&mut [0]).await.unwrap();
    assert!(clock.now() - rtt_start >= delay * 2 - Duration::from_micros(200));
}

#[tokio::test]
async fn a_stopped_link_pushes_back_and_goes_on_when_it_has_a_rate_again() {
    let mut link = link(LinkOptions::new(BitRate::ZERO)).await;
    let sent = pattern(8 << 20);
    // Without a rate the sender gets rid of its own kernel's buffer and little more.
    let mut accepted = 0;
    let full = Duration::from_millis(50);
    while let Ok(write) = tokio::time::timeout(full, link.server.write(&sent[accepted..])).await {
        accepted += write.unwrap();
    }
    assert!(accepted < sent.len(), "no back-pressure");
    link.relay.set_rate(BitRate::from_megabits_per_second(2000));
    let rest = sent[accepted..].to_vec();
    let mut received = vec![0; sent.len()];
    let (write, read) = tokio::join!(
        link.server.write_all(&rest),
        link.client.read_exact(&mut received)
    );
    write.unwrap();
    read.unwrap();
    assert_eq!(received, sent);
}

#[tokio::test]
async fn a_corrupted_link_flips_one_bit_where_it_was_told() {
    let mut link = link(LinkOptions::new(BitRate::from_megabits_per_second(1000))).await;
    link.relay
        .corrupt(Direction::FromTarget, Bytes::new(100_000));
    let sent = pattern(200_000);
    let received = send_and_receive(&mut link.server, &mut link.client, &sent).await;
    let wrong: Vec<usize> = (0..sent.len())
        .filter(|&i| sent[i] != received[i])
        .collect();
    assert_eq!(wrong, [100_000]);
}

#[tokio::test]
async fn a_cut_ends_both_sides() {
    let mut link = link(LinkOptions::new(BitRate::from_megabits_per_second(100))).await;
    link.client.write_all(b"?").await.unwrap();
    link.server.read_exact(&mut [0]).await.unwrap();
    link.relay.cut();
    for end in [&mut link.client, &mut link.server] {
        let ended = end.read(&mut [0]).await;
        assert!(
            matches!(&ended, Ok(0))
                || ended.is_err_and(|e| e.kind() == io::ErrorKind::ConnectionReset)
        );
    }
}

#[tokio::test]
async fn a_port_in_use_is_refused_with_what_to_do() {
    let taken = TcpListener::bind(LOOPBACK).await.unwrap();
    let address = taken.local_addr().unwrap();
    let options = LinkOptions::new(BitRate::from_megabits_per_second(1));
    let error = Relay::start(address, address, options).unwrap_err();
    assert!(matches!(error, RelayError::Listen { .. }));
    let text = error.to_string();
    assert!(
        text.contains(&address.to_string()) && text.contains("port 0"),
        "{text}"
    );
}
