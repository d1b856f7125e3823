use super::*;

/// A machine of these files.
pub(super) fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
    let directory = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = directory.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let root = Root::at(directory.path());
    (directory, root)
}

fn config() -> Config {
    let directory = "engine: {socket: /no/such/socket, sharedDirectory: /no/such}\nlisten: {http: \"127.0.0.1:1\"}";
    Config::parse(directory, &|_| None).unwrap()
}

#[tokio::test]
async fn a_machine_with_everything_wrong_is_told_what_to_do_about_each() {
    let (_directory, root) = machine(&[
        (
            "sys/devices/system/clocksource/clocksource0/current_clocksource",
            "hpet\n",
        ),
        ("sys/class/net/eth0/operstate", "up\n"),
        ("sys/class/net/eth0/mtu", "1450\n"),
        ("sys/class/net/lo/operstate", "unknown\n"),
        ("sys/class/net/lo/mtu", "65536\n"),
        ("proc/sys/net/ipv4/tcp_wmem", "4096\t16384\t262144\n"),
        ("proc/sys/net/ipv4/tcp_window_scaling", "0\n"),
        ("proc/sys/net/core/somaxconn", "128\n"),
        (
            "proc/driver/nvidia/version",
            "NVRM version: NVIDIA 570\nGCC\n",
        ),
        ("sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN\n"),
        ("sys/class/infiniband/mlx5_0/ports/1/rate", "400 Gb/sec\n"),
    ]);
    let findings = examine(&root, &config(), &["127.0.0.1:1".to_owned()]).await;
    let subjects: Vec<_> = findings
        .iter()
        .filter(|found| {
            found.grade != Grade::Good && found.subject != "limits" && found.subject != "memlock"
        })
        .map(|found| found.subject)
        .collect();
    assert_eq!(
        subjects,
        [
            "clocks",
            "clocks",
            "MTU",
            "sockets",
            "sockets",
            "sockets",
            "huge pages",
            "GPU",
            "RDMA",
            "engine",
            "engine",
            "agent",
            "TLS",
            "peer"
        ]
    );
    for found in findings.iter().filter(|found| found.grade != Grade::Good) {
        assert!(!found.remedy.is_empty(), "{found:?}");
    }
}

#[test]
fn the_report_counts_what_is_to_be_done() {
    let findings = [
        Finding::good("MTU", "eth0 is up, with an MTU of 9000 bytes"),
        Finding::problem(
            "engine",
            "nobody listens at /run/lynx/engine.sock",
            "start the agent again",
        ),
    ];
    let mut out = Vec::new();
    write(&mut out, &findings).unwrap();
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "   ok  MTU           eth0 is up, with an MTU of 9000 bytes\n  \
           FIX  engine        nobody listens at /run/lynx/engine.sock\n                     -> start the agent again\n\n\
         1 to fix, 0 to note, 1 in order\n"
    );
}
