//! One peer's task against sockets that do what peers do at their worst.

use std::net::Ipv4Addr;

use lynx_kernels::Profile;
use lynx_proto::engine::v1::Role;
use lynx_transport::{Connected, Listener, PeerInfo, ReceiverEvent};
use lynx_units::Bytes;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::*;
use crate::pool::Layout;
use crate::testing;

#[test]
fn pauses_vary_by_a_half() {
    assert_eq!(shortened(LONGEST_PAUSE, u32::MAX), LONGEST_PAUSE);
    assert_eq!(shortened(LONGEST_PAUSE, 0), LONGEST_PAUSE / 2);
}

#[tokio::test]
async fn an_empty_host_is_the_one_that_was_called() {
    let address = resolve("127.0.0.1", ":70").await.unwrap();
    assert_eq!(address.to_string(), "127.0.0.1:70");
    let address = resolve("[::1]", ":70").await.unwrap();
    assert_eq!(address.to_string(), "[::1]:70");
    let address = resolve("nowhere", "127.0.0.2:71").await.unwrap();
    assert_eq!(address.to_string(), "127.0.0.2:71");
}

fn identity() -> Identity {
    let attach = testing::attach(Role::Decode, 4);
    let layout = Layout::parse(attach.layout.as_ref().unwrap()).unwrap();
    let profile = Profile::uniform(layout.shape()).unwrap();
    Identity::new("d", &attach, &layout, &profile, "")
}

/// Both ends of a link over the loopback.
async fn link(clock: Clock) -> [Connected; 2] {
    let config = |name| LinkConfig::new(clock, PeerInfo::new(name)).unwrap();
    let mut listener = Listener::bind((Ipv4Addr::LOCALHOST, 0).into(), config("p")).unwrap();
    let mut dialler = Dialler::new(listener.address(), config("d"));
    let (there, here) = tokio::join!(listener.accept(), dialler.try_connect());
    [here.unwrap(), there]
}

#[tokio::test]
async fn a_links_end_is_told_while_the_peer_leaves_a_check_unanswered() {
    let clock = Clock::start();
    let [here, there] = link(clock).await;
    let (sender, _events) = there.into_sender();
    let window = ReceiverConfig {
        window: [Bytes::from_kib(64); 2],
    };
    // Of the sizes that agents have.
    let book = CreditBook::new(Bytes::from_mib(8));
    let ticket = here.ticket().clone();
    let (receiver, events) = here.into_receiver(window, &book).unwrap();
    // It takes connections, and never says a word: an agent that is stopped.
    let mute = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = mute.local_addr().unwrap().to_string();
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let meeting = Meeting {
        channel: endpoint.connect_lazy(),
        link: receiver,
        ticket,
        carried: Carried {
            few_cards: None,
            by: "TCP",
            without_rdma: None,
        },
        draining: false,
    };
    let (news, mut told) = mpsc::unbounded_channel();
    let invitation = Invitation {
        peer: PeerId(0),
        address,
        identity: identity(),
        clock,
        security: Security::default(),
        carriage: Carriage::default(),
        window,
        book,
        links: Arc::default(),
        news: Tell(Arc::new(move |told| news.send(told).is_ok())),
    };
    let passing = tokio::spawn(async move { pass_on(&invitation, meeting, events).await });
    assert!(matches!(told.recv().await.unwrap().what, What::Up(_)));
    // The check is under way.
    let _silence = mute.accept().await.unwrap();
    drop(sender);
    let ended = tokio::time::timeout(PATIENCE / 2, told.recv()).await;
    let ended = ended.expect("nothing waits for the check").unwrap();
    assert!(matches!(
        ended.what,
        What::Link(_, ReceiverEvent::Broken(_)) | What::Down(_)
    ));
    assert!(passing.await.unwrap(), "somebody still listens");
}
