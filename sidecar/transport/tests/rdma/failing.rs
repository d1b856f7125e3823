//! What a card's failure does, and what of a peer stays known.

use std::sync::Arc;

use lynx_protocol::{Code, CreditBook};
use lynx_tls::authority::Authority;
use lynx_transport::emulate::Fabric;
use lynx_transport::{Carrier, ReceiverEvent};
use lynx_units::Bytes;

use super::choosing::{connected, plain};
use super::pair::soon;

#[tokio::test]
async fn who_the_peer_is_stays_known_when_bytes_leave_its_tls() {
    let fabric = Fabric::new(3);
    let name = "spiffe://test/ns/team/lynx/small";
    let credentials = Authority::new().unwrap().credentials(name).unwrap();
    let means = || {
        let config = plain().with_credentials(Some(credentials.clone()));
        config.with_adapter(Some(fabric.adapter()))
    };
    for end in connected([means(), means()]).await {
        assert_eq!(end.carrier(), Carrier::Rdma);
        assert_eq!(end.identity().unwrap().primary(), name);
    }
}

#[tokio::test]
async fn a_card_that_fails_ends_the_link_with_what_it_says() {
    let fabric = Fabric::new(6);
    let means = || plain().with_adapter(Some(fabric.adapter()));
    let [near, far] = connected([means(), means()]).await;
    let book = CreditBook::new(Bytes::from_mib(64));
    let window = lynx_protocol::receiver::ReceiverConfig {
        window: [Bytes::from_mib(16); 2],
    };
    let (_receiver, mut received) = near.into_receiver(window, &book).unwrap();
    let (_sender, _sent) = far.into_sender();
    fabric.fail();
    match soon(received.next()).await {
        Some(ReceiverEvent::Broken(reason)) => {
            assert_eq!(reason.code(), Code::Disconnected);
            assert!(reason.text().contains("retry counter"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    drop(Arc::clone(&book));
}
