//! Who gets no link, and with which words.

use std::sync::Arc;
use std::time::Duration;

use lynx_protocol::Code;
use lynx_tls::authority::{Authority, Request};
use lynx_tls::{Credentials, Plane, UnixTime};
use lynx_transport::emulate::Direction;
use lynx_transport::{Clock, Dialler, LinkConfig, Listener, PeerInfo};
use lynx_units::{Bytes, TransferId};
use rustls::version::TLS12;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::NAME;
use super::pair::{FAST, LOOPBACK, Pair, soon, usual};

fn config(name: &str, credentials: Option<&Credentials>) -> LinkConfig {
    let config = LinkConfig::new(Clock::start(), PeerInfo::new(name)).unwrap();
    config.with_credentials(credentials.cloned())
}

/// What a side that dials is told by one that listens and does not take it.
async fn refusal(listens: Option<&Credentials>, dials: Option<&Credentials>) -> String {
    let mut listener = Listener::bind(LOOPBACK, config("prefill", listens)).unwrap();
    let mut dialler = Dialler::new(listener.address(), config("decode", dials));
    let error = tokio::select! {
        _ = listener.accept() => panic!("it was taken"),
        dialled = soon(dialler.connect(Duration::from_secs(10))) => dialled.unwrap_err(),
    };
    assert!(!error.is_retryable(), "{error}");
    error.to_string()
}

#[tokio::test]
async fn each_stranger_is_told_what_to_change() {
    let authority = Authority::new().unwrap();
    let good = authority.credentials(NAME).unwrap();
    let stranger = Authority::new().unwrap().credentials(NAME).unwrap();
    let other = authority
        .credentials("spiffe://test/ns/team/lynx/large")
        .unwrap();
    // Good when it was read, an hour and a half ago.
    let then = UnixTime::since_unix_epoch(Duration::from_secs(UnixTime::now().as_secs() - 5400));
    let expired = Request::new(NAME).expired();
    let expired = authority.credentials_of(&expired, then).unwrap();
    for (listens, dials, words) in [
        (
            Some(&good),
            Some(&stranger),
            "isn't signed by an authority in ca.crt",
        ),
        (
            Some(&good),
            Some(&expired),
            "this side's certificate isn't valid now",
        ),
        (Some(&expired), Some(&good), "it has expired: renew it"),
        (
            Some(&good),
            Some(&other),
            "spiffe://test/ns/team/lynx/large is wanted",
        ),
        (
            Some(&good),
            None,
            "takes only encrypted links: set tls.mode to all",
        ),
        (
            None,
            Some(&good),
            "speaks without TLS: set the same tls.mode",
        ),
    ] {
        let refused = refusal(listens, dials).await;
        assert!(refused.contains(words), "{refused}");
    }
}

/// A certificate that the dialling side takes, and the listening side doesn't: with a name of its own to look for.
#[tokio::test]
async fn a_client_of_another_deployment_is_told_so_by_the_listener() {
    let authority = Authority::new().unwrap();
    let good = authority.credentials(NAME).unwrap();
    let mut both = Request::new("spiffe://test/a-name-of-its-own");
    both.names.push("lynx.test".to_owned());
    let directory = tempfile::tempdir().unwrap();
    let files = authority.issue(&both).unwrap();
    lynx_tls::authority::write(directory.path(), &files).unwrap();
    let other = Credentials::open(directory.path(), Some(NAME), UnixTime::now()).unwrap();
    let refused = refusal(Some(&good), Some(&other)).await;
    assert!(refused.contains("isn't one of its deployment"), "{refused}");
}

#[tokio::test]
async fn who_shows_no_certificate_or_speaks_tls_1_2_or_another_protocol_is_kept_out() {
    let authority = Authority::new().unwrap();
    let mut request = Request::new(NAME);
    request.names.push("lynx.test".to_owned());
    let good = authority.credentials_of(&request, UnixTime::now()).unwrap();
    let mut listener = Listener::bind(LOOPBACK, config("prefill", Some(&good))).unwrap();
    let address = listener.address();
    let accepting = tokio::spawn(async move { listener.accept().await });
    let mut roots = RootCertStore::empty();
    roots.add(authority.certificate()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let client = |versions: &[&'static rustls::SupportedProtocolVersion]| {
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_protocol_versions(versions).unwrap();
        let builder = builder.with_root_certificates(roots.clone());
        Arc::new(builder.with_no_client_auth())
    };
    let name = || "lynx.test".try_into().unwrap();
    let connect = |config| async move {
        let tcp = TcpStream::connect(address).await.unwrap();
        let mut stream = TlsConnector::from(config).connect(name(), tcp).await?;
        stream.write_all(b"hello").await?;
        stream.read_u8().await
    };
    soon(connect(client(&[&TLS12]))).await.unwrap_err();
    let nobody = soon(connect(client(&[&rustls::version::TLS13]))).await;
    let nobody = nobody.unwrap_err();
    assert!(
        nobody.to_string().contains("CertificateRequired"),
        "{nobody}"
    );
    // A client of the control plane at the data port.
    let lost = good.current().client(Plane::Control);
    soon(connect(lost)).await.unwrap_err();
    assert!(!accepting.is_finished());
}

#[tokio::test]
async fn a_handshake_that_trickles_is_ended_by_its_deadline_and_holds_up_nobody() {
    let good = Authority::new().unwrap().credentials(NAME).unwrap();
    let mut listener = Listener::bind(LOOPBACK, config("prefill", Some(&good))).unwrap();
    let address = listener.address();
    let mut slow = TcpStream::connect(address).await.unwrap();
    let trickle = tokio::spawn(async move {
        // A record of 512 bytes, one byte at a time: each within any deadline of a single read.
        let mut bytes = vec![22, 3, 1, 2, 0, 1, 0, 1, 0xfc];
        bytes.resize(512, 0);
        let mut each = tokio::time::interval(Duration::from_millis(100));
        for byte in bytes {
            each.tick().await;
            if slow.write_all(&[byte]).await.is_err() {
                return true;
            }
        }
        false
    });
    let mut dialler = Dialler::new(address, config("decode", Some(&good)));
    let (_accepted, dialled) = tokio::join!(listener.accept(), dialler.try_connect());
    dialled.unwrap();
    let ended = tokio::select! {
        _ = listener.accept() => panic!("it was taken"),
        ended = soon(trickle) => ended.unwrap(),
    };
    assert!(ended, "it was let trickle to its end");
}

#[tokio::test]
async fn a_flood_of_silent_connections_keeps_no_peer_out() {
    let good = Authority::new().unwrap().credentials(NAME).unwrap();
    let mut listener = Listener::bind(LOOPBACK, config("prefill", Some(&good))).unwrap();
    let address = listener.address();
    let flood = tokio::spawn(async move {
        let mut silent = Vec::new();
        for _ in 0..600 {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        silent
    });
    let silent = tokio::select! {
        _ = listener.accept() => panic!("a silent one is no peer"),
        silent = soon(flood) => silent.unwrap(),
    };
    let mut dialler = Dialler::new(address, config("decode", Some(&good)));
    let (_accepted, dialled) = tokio::join!(listener.accept(), soon(dialler.try_connect()));
    dialled.unwrap();
    drop(silent);
}

#[tokio::test]
async fn a_bit_that_is_changed_on_the_way_ends_the_link_on_both_sides() {
    let mut pair = Pair::new(FAST).await;
    pair.open(TransferId(1), &usual(), Duration::from_secs(20))
        .await;
    pair.relay
        .corrupt(Direction::FromTarget, Bytes::from_kib(200));
    pair.publish_all(TransferId(1), &usual());
    let reason = pair.received_failure(TransferId(1)).await;
    assert_eq!(reason.code(), Code::Disconnected, "{reason}");
    assert!(reason.text().contains("TLS: "), "{reason}");
    let reason = pair.sent_failure(TransferId(1)).await;
    assert!(reason.text().contains("the peer refuses TLS"), "{reason}");
}
