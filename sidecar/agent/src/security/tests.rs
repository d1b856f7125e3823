//! Who gets to speak to peer control, and what the others are told.

use std::time::Duration;

use futures::StreamExt as _;
use lynx_tls::Plane;
use lynx_tls::authority::{Authority, Request, write};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tonic::transport::Endpoint;

use super::connection::Connection;
use super::*;
use crate::run::chain;
use crate::testing::soon;

const NAME: &str = "spiffe://test/ns/a/lynx/b";
/// What a server of HTTP/2 says first, without any setting.
const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];

async fn listening() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    (listener, address)
}

/// An agent's, of these files.
fn secure(credentials: Credentials) -> Security {
    Security::new(credentials, true)
}

/// What a client is told that does not get in.
async fn refusal(address: String, to: To, security: &Security) -> String {
    let endpoint = Endpoint::from_shared(address).unwrap();
    let before = security.control_failures().get();
    let refused = soon(connect(endpoint, to, security)).await;
    let refused = chain(&refused.unwrap_err());
    assert_eq!(security.control_failures().get(), before + 1, "{refused}");
    refused
}

/// Waits until one who was turned away is counted, which it is told before.
async fn counted(security: &Security) {
    let counted = async {
        while security.control_failures().get() == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    soon(counted).await;
}

/// Of peer control's connections, the first that is taken, while `dialling` goes on. It speaks first, as HTTP/2 does.
async fn taken(
    incoming: &mut (impl futures::Stream<Item = std::io::Result<Connection>> + Unpin),
    dialling: impl Future<Output = Result<tonic::transport::Channel, tonic::transport::Error>>,
) -> Connection {
    let taking = async {
        let mut connection = incoming.next().await.unwrap().unwrap();
        connection.write_all(&SETTINGS).await.unwrap();
        connection
    };
    let (connection, channel) = soon(async { tokio::join!(taking, dialling) }).await;
    channel.unwrap();
    connection
}

#[tokio::test]
async fn a_caller_is_known_by_its_certificate() {
    let security = secure(Authority::new().unwrap().credentials(NAME).unwrap());
    let (listener, address) = listening().await;
    let mut incoming = Box::pin(incoming(listener, &security, 8));
    let endpoint = Endpoint::from_shared(address).unwrap();
    match taken(&mut incoming, connect(endpoint, To::Peer, &security)).await {
        Connection::Tls(_, caller, _) => assert_eq!(caller.identity.unwrap().primary(), NAME),
        Connection::Plain(..) => panic!("it is in clear"),
    }
    assert_eq!(security.control_failures().get(), 0);
}

#[tokio::test]
async fn strangers_and_strange_hosts_are_told_what_to_change() {
    let authority = Authority::new().unwrap();
    let security = secure(authority.credentials(NAME).unwrap());
    let (listener, address) = listening().await;
    let _incoming = incoming(listener, &security, 8);
    let stranger = secure(Authority::new().unwrap().credentials(NAME).unwrap());
    let refused = refusal(address.clone(), To::Peer, &stranger).await;
    assert!(
        refused.contains("isn't signed by an authority in ca.crt"),
        "{refused}"
    );
    let other = secure(authority.credentials("spiffe://test/ns/a/lynx/c").unwrap());
    let refused = refusal(address.clone(), To::Peer, &other).await;
    assert!(refused.contains("is another deployment's"), "{refused}");
    // A service is known by its host name, and this one has none.
    let good = secure(authority.credentials(NAME).unwrap());
    let refused = refusal(address, To::Host, &good).await;
    assert!(
        refused.contains("peer's certificate is refused"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_service_is_known_by_the_name_that_was_told_wherever_it_is_dialled() {
    let authority = Authority::new().unwrap();
    let agent = secure(authority.credentials(NAME).unwrap());
    let directory = tempfile::tempdir().unwrap();
    let files = authority.issue(&Request::new("small.team.lynx-operator"));
    write(directory.path(), &files.unwrap()).unwrap();
    let service = Credentials::open(directory.path(), Some(NAME), UnixTime::now()).unwrap();
    let (listener, address) = listening().await;
    let to = |name: &str| To::Named(name.to_owned().try_into().unwrap());
    let shake = async || {
        let (tcp, _) = listener.accept().await.unwrap();
        let server = service.current().server(Plane::Control);
        TlsAcceptor::from(server).accept(tcp).await
    };
    let dialled = refusal(address.clone(), to("other.team.lynx-operator"), &agent);
    let (taken, refused) = tokio::join!(shake(), dialled);
    assert!(taken.is_err());
    let words = "peer's certificate is refused";
    assert!(refused.contains(words), "{refused}");
    let served = async {
        let mut taken = shake().await.unwrap();
        taken.write_all(&SETTINGS).await.unwrap();
        taken
    };
    let endpoint = Endpoint::from_shared(address).unwrap();
    let dialled = connect(endpoint, to("small.team.lynx-operator"), &agent);
    let (_taken, channel) = soon(async { tokio::join!(served, dialled) }).await;
    channel.unwrap();
}

/// By TLS 1.3 the side that dials is done before its own certificate is judged.
#[tokio::test]
async fn a_caller_that_is_not_trusted_is_told_so_and_counted_on_both_sides() {
    let (own, strange) = (Authority::new().unwrap(), Authority::new().unwrap());
    let security = secure(own.credentials(NAME).unwrap());
    let (listener, address) = listening().await;
    let _incoming = incoming(listener, &security, 8);
    let directory = tempfile::tempdir().unwrap();
    let files = strange.issue(&Request::new(NAME)).unwrap();
    let files = files.with_authority(&own.certificate_pem());
    write(directory.path(), &files).unwrap();
    let stranger = Credentials::open(directory.path(), None, UnixTime::now()).unwrap();
    let refused = refusal(address, To::Peer, &secure(stranger)).await;
    let words = "the peer does not trust this side's certificate";
    assert!(refused.contains(words), "{refused}");
    counted(&security).await;
}

#[tokio::test]
async fn one_that_speaks_in_clear_is_turned_away_in_its_own_tongue() {
    let security = secure(Authority::new().unwrap().credentials(NAME).unwrap());
    let (listener, address) = listening().await;
    let _incoming = incoming(listener, &security, 8);
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
    counted(&security).await;
}

#[tokio::test]
async fn a_service_in_clear_is_named_as_such() {
    let security = secure(Authority::new().unwrap().credentials(NAME).unwrap());
    let (listener, address) = listening().await;
    tokio::spawn(async move {
        let (mut tcp, _) = listener.accept().await.unwrap();
        tcp.write_all(&SETTINGS).await.unwrap();
        tcp.read_to_end(&mut Vec::new()).await.ok();
    });
    let refused = refusal(address, To::Peer, &security).await;
    assert!(refused.contains("what comes is not TLS"), "{refused}");
}

#[tokio::test]
async fn silent_connections_end_by_themselves_and_hold_up_nobody() {
    let security = secure(Authority::new().unwrap().credentials(NAME).unwrap());
    let (listener, address) = listening().await;
    let mut incoming = Box::pin(incoming(listener, &security, 8));
    let mut silent = TcpStream::connect(&address["http://".len()..])
        .await
        .unwrap();
    silent.write_all(&[22]).await.unwrap();
    let endpoint = Endpoint::from_shared(address).unwrap();
    taken(&mut incoming, connect(endpoint, To::Peer, &security)).await;
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(Duration::from_secs(10), silent.read_to_end(&mut rest));
    drop(ended.await.expect("a deadline ends it"));
}

#[tokio::test]
async fn who_shows_no_certificate_is_told_that_one_is_wanted() {
    let authority = Authority::new().unwrap();
    let mut request = Request::new(NAME);
    request.names.push("lynx.test".to_owned());
    let own = authority.credentials_of(&request, UnixTime::now()).unwrap();
    let security = secure(own);
    let (listener, address) = listening().await;
    let _incoming = incoming(listener, &security, 8);
    let mut roots = rustls::RootCertStore::empty();
    roots.add(authority.certificate()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = config.with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let tcp = TcpStream::connect(&address["http://".len()..])
        .await
        .unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let name = "lynx.test".try_into().unwrap();
    let mut stream = soon(connector.connect(name, tcp)).await.unwrap();
    let refused = soon(stream.read_u8()).await.unwrap_err().to_string();
    assert!(refused.contains("CertificateRequired"), "{refused}");
    counted(&security).await;
}

/// Who has opened more silent connections than there may be handshakes is no reason for anybody else to wait.
#[tokio::test]
async fn a_flood_of_silent_connections_delays_no_handshake() {
    let secured = secure(Authority::new().unwrap().credentials(NAME).unwrap());
    for security in [secured, Security::default()] {
        let (listener, address) = listening().await;
        let mut incoming = Box::pin(incoming(listener, &security, 8));
        let mut flood = Vec::new();
        for _ in 0..400 {
            flood.push(
                TcpStream::connect(&address["http://".len()..])
                    .await
                    .unwrap(),
            );
        }
        let start = tokio::time::Instant::now();
        let endpoint = Endpoint::from_shared(address).unwrap();
        taken(&mut incoming, connect(endpoint, To::Peer, &security)).await;
        assert!(start.elapsed() < Duration::from_secs(2));
        // In clear, too, silence ends.
        for mut silent in flood {
            let mut rest = [0; 64];
            let ended = tokio::time::timeout(Duration::from_secs(10), silent.read(&mut rest));
            drop(ended.await.expect("a deadline ends it"));
        }
    }
}

#[tokio::test]
async fn there_are_no_more_connections_than_places_and_each_is_given_back() {
    let security = Security::default();
    let (listener, address) = listening().await;
    let mut incoming = Box::pin(incoming(listener, &security, 4));
    let dial = || async {
        let mut tcp = TcpStream::connect(&address["http://".len()..])
            .await
            .unwrap();
        tcp.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            .await
            .unwrap();
        tcp
    };
    // Half of them from one address.
    let mut dialled = [dial().await, dial().await];
    let mut held = Vec::new();
    for _ in &dialled {
        held.push(soon(incoming.next()).await.unwrap().unwrap());
    }
    let mut third = dial().await;
    drop(soon(third.read(&mut [0])).await);
    let mut heard = [0; 24];
    soon(held[0].read_exact(&mut heard)).await.unwrap();
    assert_eq!(&heard[..3], b"PRI");
    held.clear();
    soon(dialled[0].read(&mut [0])).await.ok();
    dial().await;
    soon(incoming.next()).await.unwrap().unwrap();
}
