//! What stands between a socket and a full link.

use super::{Finding, Root};

/// Ethernet's, below which a frame carries little.
const ETHERNET: u64 = 1500;
/// What fills 25 Gbit/s over a round trip of 1 ms, and 10 Gbit/s over one of 2.5.
const BUFFER: u64 = 3 << 20;
/// Connections that may wait to be accepted.
const BACKLOG: u64 = 1024;

pub(super) fn examine(root: &Root) -> Vec<Finding> {
    let mut findings: Vec<_> = root
        .names("/sys/class/net")
        .iter()
        .filter_map(|name| interface(root, name))
        .collect();
    for (file, what) in [
        ("tcp_wmem", "a sending socket"),
        ("tcp_rmem", "a receiving socket"),
    ] {
        let most = root.number(&format!("/proc/sys/net/ipv4/{file}"), 2);
        findings.extend(most.map(|most| buffer(file, what, most)));
    }
    let backlog = root.number("/proc/sys/net/core/somaxconn", 0);
    findings.extend(backlog.and_then(few_waiting));
    let scaling = root.number("/proc/sys/net/ipv4/tcp_window_scaling", 0);
    if scaling == Some(0) {
        findings.push(Finding::problem(
            "sockets",
            "net.ipv4.tcp_window_scaling is 0: no connection has more than 64 KiB on its way",
            "sysctl -w net.ipv4.tcp_window_scaling=1",
        ));
    }
    findings
}

/// An interface that is up and leads to other machines.
fn interface(root: &Root, name: &str) -> Option<Finding> {
    let of = |file: &str| format!("/sys/class/net/{name}/{file}");
    let state = root.text(&of("operstate"))?;
    if name == "lo" || !matches!(state.as_str(), "up" | "unknown") {
        return None;
    }
    let mtu = root.number(&of("mtu"), 0)?;
    // In Mbit/s; -1, or an error, where the driver doesn't know.
    let speed = root.number(&of("speed"), 0);
    Some(judged(name, mtu, speed))
}

fn judged(name: &str, mtu: u64, speed: Option<u64>) -> Finding {
    let rate = speed.map_or(String::new(), |speed| format!(" at {speed} Mbit/s"));
    let found = format!("{name} is up{rate}, with an MTU of {mtu} bytes");
    if mtu < ETHERNET {
        Finding::note(
            "MTU",
            found,
            "an overlay's MTU is its network's less its headers (50 for VXLAN, 60 for WireGuard): a larger one is lost on the way, a smaller one costs rate",
        )
    } else if speed.is_some_and(|speed| speed >= 25_000) && mtu <= ETHERNET {
        Finding::note(
            "MTU",
            found,
            "use jumbo frames (MTU 9000) on the whole path: they halve what a gigabyte costs the processor",
        )
    } else {
        Finding::good("MTU", found)
    }
}

fn buffer(file: &str, what: &str, most: u64) -> Finding {
    let found = format!(
        "net.ipv4.{file} lets {what} have {:.1} MiB",
        mebibytes(most)
    );
    if most < BUFFER {
        let name = format!("net.ipv4.{file}");
        Finding::note(
            "sockets",
            found,
            format!(
                "sysctl -w {name}=\"4096 131072 16777216\": a link holds no more than this on its way, which 10 Gbit/s fill in {:.1} ms",
                milliseconds(most)
            ),
        )
    } else {
        Finding::good("sockets", found)
    }
}

fn few_waiting(backlog: u64) -> Option<Finding> {
    (backlog < BACKLOG).then(|| {
        Finding::note(
            "sockets",
            format!("net.core.somaxconn is {backlog}"),
            format!(
                "sysctl -w net.core.somaxconn={}: a burst of clients finds the door shut",
                4 * BACKLOG
            ),
        )
    })
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// At 10 Gbit/s.
#[expect(clippy::cast_precision_loss, reason = "for people")]
fn milliseconds(bytes: u64) -> f64 {
    bytes as f64 * 8.0 / 1e7
}

#[cfg(test)]
mod tests {
    use super::super::Grade;
    use super::*;

    #[test]
    fn an_mtu_is_judged_by_what_the_interface_carries() {
        assert_eq!(judged("eth0", 1500, Some(10_000)).grade, Grade::Good);
        assert_eq!(judged("eth0", 1500, Some(100_000)).grade, Grade::Note);
        assert_eq!(judged("eth0", 9000, Some(100_000)).grade, Grade::Good);
        assert_eq!(judged("flannel.1", 1450, None).grade, Grade::Note);
    }

    #[test]
    fn a_small_socket_buffer_comes_with_the_setting_that_raises_it() {
        let found = buffer("tcp_wmem", "a sending socket", 212_992);
        assert_eq!(found.grade, Grade::Note);
        assert!(found.remedy.contains("sysctl -w net.ipv4.tcp_wmem"));
        assert_eq!(buffer("tcp_rmem", "", 6 << 20).grade, Grade::Good);
        assert!(few_waiting(128).is_some() && few_waiting(4096).is_none());
    }
}
