//! The rule, as a table.

use super::*;
use crate::gid::Gid;

/// `device:port:index kind address/prefix`, or without a prefix; `!` first for a port that is down.
fn entry(text: &str) -> GidEntry {
    let active = !text.starts_with('!');
    let mut words = text.trim_start_matches('!').split_whitespace();
    let choice: Choice = words.next().unwrap().parse().unwrap();
    let kind = match words.next().unwrap() {
        "ib" => GidKind::InfiniBand,
        "v1" => GidKind::RoceV1,
        _ => GidKind::RoceV2,
    };
    let (address, prefix) = match words.next().unwrap().split_once('/') {
        Some((address, prefix)) => (address.to_owned(), Some(prefix.parse().unwrap())),
        None => (text.rsplit(' ').next().unwrap().to_owned(), None),
    };
    let octets = match address.parse().unwrap() {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    };
    GidEntry {
        device: choice.device.unwrap(),
        port: choice.port.unwrap(),
        index: choice.index.unwrap(),
        gid: Gid(octets),
        kind,
        interface: None,
        prefix,
        active,
    }
}

fn two_cards() -> Vec<GidEntry> {
    [
        "mlx5_0:1:0 v1 fe80::1/64",
        "mlx5_0:1:1 v2 fe80::1/64",
        "mlx5_0:1:2 v1 10.0.0.1/24",
        "mlx5_0:1:3 v2 10.0.0.1/24",
        "mlx5_1:1:3 v2 10.1.0.1/31",
        "mlx5_2:1:3 v2 10.0.0.2/24",
        "mlx5_3:1:3 v2 2001:db8::1/64",
        "!mlx5_4:1:3 v2 10.4.0.1/24",
        "mlx5_5:1:0 ib fe80::5",
    ]
    .map(entry)
    .to_vec()
}

#[test]
fn the_rule_takes_the_peers_network_then_the_route() {
    let entries = two_cards();
    for (choice, peer, source, expected) in [
        (None, "10.0.0.9", None, "mlx5_0:1:3"),
        (None, "10.0.0.9", Some("10.0.0.2"), "mlx5_2:1:3"),
        (None, "10.0.0.9", Some("192.0.2.1"), "mlx5_0:1:3"),
        (None, "10.1.0.0", None, "mlx5_1:1:3"),
        (None, "10.7.0.0", Some("10.1.0.1"), "mlx5_1:1:3"),
        (None, "2001:db8::7", None, "mlx5_3:1:3"),
        (None, "::ffff:10.0.0.9", None, "mlx5_0:1:3"),
        (None, "fe80::9", None, "mlx5_0:1:1"),
        (Some("mlx5_2"), "10.0.0.9", None, "mlx5_2:1:3"),
        (Some("mlx5_2:1"), "10.0.0.9", None, "mlx5_2:1:3"),
        (Some("mlx5_0:1:2"), "203.0.113.1", None, "mlx5_0:1:2"),
        (Some("mlx5_5:1:0"), "10.0.0.9", None, "mlx5_5:1:0"),
        (Some("*:*:3"), "10.0.0.9", None, "mlx5_0:1:3"),
        (Some("*:1:2"), "203.0.113.1", None, "mlx5_0:1:2"),
        (Some("mlx5_0:*:2"), "203.0.113.1", None, "mlx5_0:1:2"),
    ] {
        let choice: Option<Choice> = choice.map(|text| text.parse().unwrap());
        let source = source.map(|text| text.parse().unwrap());
        let chosen = choose(&entries, choice.as_ref(), peer.parse().unwrap(), source).unwrap();
        let place = format!("{}:{}:{}", chosen.device, chosen.port, chosen.index);
        assert_eq!(place, expected, "for {choice:?} {peer} {source:?}");
    }
}

#[test]
fn what_fails_lists_what_there_is() {
    let entries = two_cards();
    let peer = "10.4.0.9".parse().unwrap();
    assert_eq!(choose(&[], None, peer, None), Err(ChooseError::Nothing));
    let none = choose(&entries, None, peer, None).unwrap_err().to_string();
    assert!(
        none.starts_with("no RoCEv2 address of an active port reaches 10.4.0.9: "),
        "{none}"
    );
    assert!(
        none.contains(
            "mlx5_4:1:3 RoCEv2 10.4.0.1/24 (port not active), mlx5_5:1:0 InfiniBand fe80:0000:"
        ),
        "{none}"
    );
    let choice = "mlx5_9".parse().unwrap();
    let missing = choose(&entries, Some(&choice), peer, None).unwrap_err();
    assert!(
        missing
            .to_string()
            .starts_with("there is no mlx5_9; there are: mlx5_0:1:0 RoCEv1 fe80::1/64, "),
        "{missing}"
    );
    let choice = "mlx5_5".parse().unwrap();
    let only_infiniband = choose(&entries, Some(&choice), peer, None).unwrap_err();
    assert!(
        only_infiniband
            .to_string()
            .ends_with("there are: mlx5_5:1:0 InfiniBand fe80:0000:0000:0000:0000:0000:0000:0005")
    );
}

#[test]
fn a_choice_is_read_as_it_is_printed() {
    for text in [
        "mlx5_0",
        "rxe0:2",
        "mlx5_0:1:255",
        "*",
        "*:2",
        "*:*:3",
        "mlx5_0:*:3",
    ] {
        assert_eq!(text.parse::<Choice>().unwrap().to_string(), text);
    }
    for text in ["", ":1", "a:0", "a:x", "a:1:256", "a:1:2:3", "a:"] {
        assert_eq!(
            text.parse::<Choice>(),
            Err(ChoiceError(text.to_owned())),
            "{text:?}"
        );
    }
}

#[test]
fn towards_this_machine_goes_from_this_machine() {
    let local = Ipv4Addr::LOCALHOST.into();
    assert_eq!(source_towards(local).unwrap(), local);
}

#[test]
fn other_rails_go_from_each_other_active_port_that_has_an_address_of_a_network() {
    let entries = two_cards();
    let of = |first: &str| {
        let first = entries
            .iter()
            .find(|entry| entry.to_string().starts_with(first));
        let found = others(&entries, first.unwrap().gid);
        found
            .iter()
            .map(|entry| entry.device.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(of("mlx5_0:1:3"), ["mlx5_1", "mlx5_2", "mlx5_3"]);
    assert_eq!(of("mlx5_2:1:3"), ["mlx5_0", "mlx5_1", "mlx5_3"]);
}
