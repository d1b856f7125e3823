use lynx_units::Bytes;
use lynx_verbs::{Choice, Path};

use super::*;

fn carriers(transport: Transport) -> Carriers {
    Carriers {
        transport,
        choice: Choice::default(),
        paths: [Path::default(); 2],
        rails: 1,
        memory: Bytes::from_mib(64),
        lent: Bytes::ZERO,
    }
}

#[test]
fn where_links_are_to_be_encrypted_rdma_is_not_taken_unless_it_is_asked_for() {
    for (transport, tls) in [
        (Transport::Tcp, TlsMode::Off),
        (Transport::Auto, TlsMode::All),
    ] {
        let carriage = Carriage::open(&carriers(transport), tls).unwrap();
        assert!(carriage.adapter.is_none() && !carriage.only_rdma);
    }
}

#[cfg(not(feature = "rdma"))]
#[test]
fn a_build_without_rdma_does_without_it_unless_it_is_asked_for() {
    let open = |transport| Carriage::open(&carriers(transport), TlsMode::Off);
    let carriage = open(Transport::Auto).unwrap();
    assert!(carriage.adapter.is_none());
    let error = open(Transport::Rdma).unwrap_err();
    assert!(error.to_string().contains("the feature rdma"), "{error}");
}
