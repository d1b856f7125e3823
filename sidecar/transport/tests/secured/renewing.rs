//! A certificate that is renewed while links are up.

use std::time::Duration;

use lynx_protocol::CreditBook;
use lynx_protocol::receiver::ReceiverConfig;
use lynx_tls::authority::{Authority, Request, write};
use lynx_tls::{Credentials, Reload, UnixTime};
use lynx_transport::{Clock, Dialler, LinkConfig, Listener, PeerInfo, ReceiverEvent};
use lynx_units::{Bytes, TransferId, UnitIndex};

use super::NAME;
use super::pair::{LOOPBACK, payload, soon, usual};

/// Renews the authority as well, so that a link of after can't be one of before: the bundle holds both for a while.
#[tokio::test]
async fn a_link_outlives_the_renewal_of_everything_and_a_new_one_uses_the_new_issue() {
    let (old, new) = (Authority::new().unwrap(), Authority::new().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let request = Request::new(NAME);
    write(directory.path(), &old.issue(&request).unwrap()).unwrap();
    let now = UnixTime::now();
    let credentials = Credentials::open(directory.path(), None, now).unwrap();
    let clock = Clock::start();
    let config = |name, credentials: &Credentials| {
        let config = LinkConfig::new(clock, PeerInfo::new(name)).unwrap();
        config.with_credentials(Some(credentials.clone()))
    };
    let mut listener = Listener::bind(LOOPBACK, config("prefill", &credentials)).unwrap();
    let mut dialler = Dialler::new(listener.address(), config("decode", &credentials));
    let (accepted, dialled) = tokio::join!(listener.accept(), dialler.try_connect());
    let dialled = dialled.unwrap();
    assert_eq!(dialled.ticket(), accepted.ticket());
    assert_eq!(accepted.identity().unwrap().primary(), NAME);
    let (sender, _sent) = accepted.into_sender();
    let book = CreditBook::new(Bytes::from_mib(256));
    let (receiver, mut received) = dialled
        .into_receiver(ReceiverConfig::default(), &book)
        .unwrap();

    // Half of a transfer, the renewal, and the other half.
    let shape = usual();
    let transfer = TransferId(1);
    let deadline = clock.now() + Duration::from_secs(20);
    sender.open(shape.open(transfer, deadline)).unwrap();
    let offered = soon(received.next()).await.unwrap();
    assert!(matches!(offered, ReceiverEvent::Offered { .. }));
    receiver.accept(transfer, shape.plan()).unwrap();
    let publish = |units: std::ops::Range<u32>| {
        for unit in units.map(UnitIndex) {
            let segments = (0..5).map(lynx_units::SegmentIndex);
            let segments = segments.map(|segment| payload(&shape, transfer, unit, segment));
            sender.publish(transfer, unit, segments.collect()).unwrap();
        }
    };
    publish(0..3);
    let bundle = old
        .issue(&request)
        .unwrap()
        .with_authority(&new.certificate_pem());
    write(directory.path(), &bundle).unwrap();
    assert_eq!(credentials.reload(now), Reload::Changed);
    write(directory.path(), &new.issue(&request).unwrap()).unwrap();
    assert_eq!(credentials.reload(now), Reload::Changed);
    publish(3..6);
    loop {
        match soon(received.next()).await.unwrap() {
            ReceiverEvent::Complete(_) => break,
            ReceiverEvent::Failed(_, reason) => panic!("{reason}"),
            _ => {}
        }
    }

    // One that still has only the old issue is kept out; one that has the new is not.
    let stale = old.credentials(NAME).unwrap();
    let mut late = Dialler::new(listener.address(), config("late", &stale));
    let refused = tokio::select! {
        _ = listener.accept() => panic!("an old certificate was taken"),
        refused = late.try_connect() => refused.unwrap_err().to_string(),
    };
    assert!(refused.contains("ca.crt"), "{refused}");
    let fresh = new.credentials(NAME).unwrap();
    let mut next = Dialler::new(listener.address(), config("next", &fresh));
    let (_accepted, dialled) = tokio::join!(listener.accept(), next.try_connect());
    dialled.unwrap();
}
