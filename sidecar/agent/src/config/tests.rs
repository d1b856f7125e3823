use super::*;

fn none(_: &str) -> Option<String> {
    None
}

fn mistakes(yaml: &str) -> Vec<(String, String)> {
    let found = Config::parse(yaml, &none).unwrap_err();
    found
        .iter()
        .map(|mistake| (mistake.at.clone(), mistake.what.clone()))
        .collect()
}

#[test]
fn nothing_said_is_every_default_and_so_is_the_printed_file() {
    let empty = Config::parse("", &none).unwrap();
    assert_eq!(empty.role, Role::Decode);
    assert_eq!(empty.transfer.deadline, Duration::from_secs(60));
    assert_eq!(empty.transfer.receive_buffer, Bytes::from_mib(256));
    let printed = default_file();
    assert_eq!(Config::parse(&printed, &none).unwrap(), empty, "{printed}");
    insta::assert_snapshot!(printed);
}

#[test]
fn a_whole_file_is_read() {
    let yaml = "
        role: decode
        pod: {name: decode-0, namespace: default, ip: 10.0.0.7}
        deployment: {name: smol, generation: abc, topology: rack-1}
        listen: {http: '[::]:80'}
        engine: {socket: /a/b.sock, sharedDirectory: /dev/shm, http: 'http://127.0.0.1:8000/', queue: 8}
        peers: ['prefill-0.smol:7400', '[fd00::1]:7400']
        operator: {address: 'http://operator:9090/'}
        transfer:
          fidelity: int8
          objective: verified
          anchor: {mode: fixed, bits: 3.5}
          profile: /etc/profile.json
          maxDraftTokens: 16
          allowProvisional: false
          deadline: 250ms
          receiveBuffer: 1Gi
          transport: rdma
          rdma: {device: mlx5_1, port: 1, gidIndex: 3, rails: 2, memory: 2Gi, anchor: {serviceLevel: 3, trafficClass: 104}}
        http: {maxBody: 64Ki, admin: true}
        drain: {deadline: 1h5m}
        telemetry: {otlpEndpoint: 'http://collector:4317', sampling: 0.25, logFormat: json, log: debug}";
    let config = Config::parse(yaml, &none).unwrap();
    assert_eq!(config.peers, ["prefill-0.smol:7400", "[fd00::1]:7400"]);
    let http = config.engine.http.as_ref().map(Authority::as_str);
    assert_eq!(http, Some("127.0.0.1:8000"));
    let operator = config.operator.as_ref().unwrap();
    assert_eq!(operator.address, "http://operator:9090");
    assert_eq!(
        config.transfer.anchor,
        Anchor::Fixed(Width::from_eighths(28).unwrap())
    );
    assert_eq!(config.transfer.deadline, Duration::from_millis(250));
    let carriers = &config.carriers;
    assert_eq!(carriers.transport, Transport::Rdma);
    assert_eq!(carriers.choice.to_string(), "mlx5_1:1:3");
    assert_eq!(carriers.memory, Bytes::new(2 << 30));
    assert_eq!(carriers.rails, 2);
    let classes = carriers
        .paths
        .map(|path| (path.service_level, path.traffic_class));
    assert_eq!(classes, [(3, 104), (0, 0)]);
    assert_eq!(config.transfer.receive_buffer, Bytes::new(1 << 30));
    assert_eq!(config.drain_deadline, Duration::from_secs(3900));
    assert!(config.http.admin && !config.transfer.allow_provisional);
    assert_eq!(
        config.telemetry_settings().instance.as_deref(),
        Some("decode-0")
    );
}

#[test]
fn a_variable_wins_over_the_file() {
    let environment = |name: &str| match name {
        "LYNX_TRANSFER_ANCHOR_MIN_BITS" => Some("2".to_owned()),
        "LYNX_ENGINE_SHARED_DIRECTORY" => Some("/memory".to_owned()),
        "LYNX_PEERS" => Some("a:1, b:2".to_owned()),
        "LYNX_POD_IP" => Some(String::new()),
        _ => None,
    };
    let yaml = "{transfer: {anchor: {minBits: 4}}, peers: ['c:3'], pod: {ip: 10.1.2.3}}";
    let config = Config::parse(yaml, &environment).unwrap();
    let bounds = Bounds::new(Width::from_bits(2).unwrap(), Width::from_bits(5).unwrap());
    assert_eq!(config.transfer.anchor, Anchor::Adaptive(bounds.unwrap()));
    assert_eq!(config.engine.shared_directory, Path::new("/memory"));
    assert_eq!(config.peers, ["a:1", "b:2"]);
    assert!(config.pod.ip.is_some(), "an empty variable says nothing");
}

#[test]
fn all_mistakes_are_told_at_once() {
    let environment = |name: &str| (name == "LYNX_ROLE").then(|| "both".to_owned());
    let yaml = "
        rol: decode
        peers: [nowhere, 'a:1']
        listen: {http: 8080}
        engine: {queue: 0, socket: []}
        transfer: {deadline: 30, anchor: {minBits: 6, maxBits: 4, with: 3}, receiveBuffer: 64MB}
        telemetry: hello
        operator: {address: 'ftp://there'}";
    let found = Config::parse(yaml, &environment).unwrap_err();
    insta::assert_snapshot!(found);
}

#[test]
fn fields_that_do_not_fit_together_are_told() {
    let found = mistakes("{role: prefill, peers: ['a:1'], operator: {address: 'http://o:1'}}");
    let at: Vec<&str> = found.iter().map(|(at, _)| at.as_str()).collect();
    assert_eq!(at, ["peers", "deployment.name", "pod.ip"]);
    let found = mistakes("{transfer: {transport: tcp, rdma: {gidIndex: 3}}}");
    assert_eq!(found[0].0, "transfer.rdma.device");
    let found = mistakes("{role: prefill, listen: {http: '0.0.0.0:7400'}}");
    assert_eq!(found[0].0, "listen.peer");
    assert!(found[0].1.contains("listen.http"), "{found:?}");
    // A decode agent doesn't listen there.
    Config::parse("{listen: {http: '0.0.0.0:7400'}}", &none).unwrap();
}

#[test]
fn a_tab_is_told_with_its_line_and_json_may_have_them() {
    let found = mistakes("listen:\n\thttp: 127.0.0.1:1\n");
    assert!(found[0].1.contains("line 2"), "{found:?}");
    Config::parse("{\n\t\"role\": \"decode\"\n}", &none).unwrap();
}

#[test]
fn values_out_of_range_are_refused() {
    for yaml in [
        "{transfer: {deadline: 0s}}",
        "{transfer: {deadline: 1m30}}",
        "{transfer: {deadline: 100000h}}",
        "{transfer: {deadline: 99999999999999999999s}}",
        "{transfer: {receiveBuffer: 0}}",
        "{transfer: {transport: infiniband}}",
        "{transfer: {rdma: {device: 'mlx5_0:1'}}}",
        "{transfer: {rdma: {port: 0}}}",
        "{transfer: {rdma: {gidIndex: 256}}}",
        "{transfer: {rdma: {rails: 5}}}",
        "{transfer: {rdma: {anchor: {serviceLevel: 8}}}}",
        "{transfer: {rdma: {residual: {trafficClass: 256}}}}",
        "{transfer: {receiveBuffer: 99999999999999Gi}}",
        "{transfer: {anchor: {bits: 0.5}}}",
        "{transfer: {anchor: {bits: 8.125}}}",
        "{transfer: {maxDraftTokens: 65}}",
        "{transfer: {maxDraftTokens: -1}}",
        "{telemetry: {sampling: 1.5}}",
        "{telemetry: {sampling: NaN}}",
        "{telemetry: {otlpEndpoint: 'http://a/b'}}",
        "{telemetry: {log: ''}}",
        "{telemetry: {log: inof}}",
        "{http: {admin: yes please}}",
        "{engine: {http: '127.0.0.1:8000'}}",
        "{engine: {http: 'https://127.0.0.1:8000'}}",
        "{engine: {http: 'http://127.0.0.1:8000/v1'}}",
        "{engine: {http: 'http://me@127.0.0.1:8000'}}",
        "{pod: {name: ''}}",
        "{pod: {name: 'a b'}}",
        "{pod: {ip: localhost}}",
        "{engine: {sharedDirectory: ''}}",
        "{peers: [':1']}",
        "{peers: ['a:0']}",
        "{peers: ['user@a:1']}",
        "{peers: 'a:1'}",
        "[]",
        "{role: decode, role: prefill}",
        "{",
    ] {
        assert_eq!(mistakes(yaml).len(), 1, "{yaml}");
    }
    let long = format!("{{engine: {{socket: /{}}}}}", "a".repeat(100));
    assert_eq!(mistakes(&long).len(), 1);
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let found = Config::load(Some(Path::new("/nowhere/lynx.yaml"))).unwrap_err();
    assert!(found.to_string().contains("/nowhere/lynx.yaml"), "{found}");
}

#[test]
fn a_byte_order_mark_is_no_mistake() {
    let config = Config::parse("\u{feff}role: prefill", &none).unwrap();
    assert_eq!(config.role, Role::Prefill);
}

/// Such a value was as good as none: the default was taken in its place.
#[test]
fn a_variable_that_is_no_text_is_a_mistake() {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt as _;

    let environment = |name: &str| match name {
        "LYNX_POD_NAME" => Some(OsString::from_vec(b"a\xffb".to_vec())),
        "LYNX_ROLE" => Some(OsString::from("prefill")),
        _ => None,
    };
    let found: Vec<Mistake> = read::no_texts(&environment).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].at, "pod.name (LYNX_POD_NAME)");
    assert!(found[0].what.contains("not UTF-8"), "{}", found[0].what);
}

#[test]
fn what_is_too_long_or_nested_too_deeply_is_refused_before_it_is_parsed() {
    let deep = |open: &str| open.repeat(200_000 / open.len());
    for yaml in [
        deep("["),
        deep("{a: "),
        deep("- "),
        deep("? "),
        deep("[{"),
        format!("{}a: 1", " ".repeat(100_000)),
        "# ".repeat(1 << 20),
    ] {
        let found = mistakes(&yaml);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].0, "the file", "{found:?}");
    }
}

#[test]
fn any_text_is_a_configuration_or_says_what_is_wrong() {
    bolero::check!().with_type::<String>().for_each(|text| {
        if let Err(found) = Config::parse(text, &none) {
            assert!(found.iter().all(|mistake| !mistake.what.is_empty()));
        }
        // Any text as a field's value, too.
        for name in ["LYNX_PEERS", "LYNX_TRANSFER_DEADLINE", "LYNX_ENGINE_SOCKET"] {
            let only = |asked: &str| (asked == name).then(|| text.clone());
            drop(Config::parse("", &only));
        }
    });
}

#[test]
fn encryption_is_never_half_asked_for() {
    let found = mistakes("{tls: {mode: all}}");
    assert_eq!(found[0].0, "tls.directory");
    let found = mistakes("{operator: {address: 'https://o:1'}, deployment: {name: d}}");
    assert_eq!(found[0].0, "operator.address");
    let yaml = "{tls: {mode: control, directory: /tls}, operator: {address: 'https://o:1'}, deployment: {name: d}}";
    assert_eq!(
        Config::parse(yaml, &none).unwrap().tls.mode,
        TlsMode::Control
    );
    let found =
        mistakes("{operator: {address: 'http://o:1', name: o.team}, deployment: {name: d}}");
    assert_eq!(found[0].0, "operator.name");
}
