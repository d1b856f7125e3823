//! What the kernel's files say of a fabric: congestion control, signs of loss, and where an adapter sits.

use super::super::{Finding, Root};

/// Mellanox's counters that grow where packets are lost.
const LOSS: [&str; 3] = ["out_of_sequence", "packet_seq_err", "local_ack_timeout_err"];

pub(super) fn examine(root: &Root) -> Vec<Finding> {
    let adapters = root.names("/sys/class/infiniband");
    adapters
        .iter()
        .flat_map(|adapter| {
            let mut findings = vec![place(root, adapter)];
            findings.extend(loss(root, adapter));
            let interfaces = root.names(&format!("/sys/class/infiniband/{adapter}/device/net"));
            findings.extend(
                interfaces
                    .iter()
                    .flat_map(|interface| congestion(root, interface)),
            );
            findings
        })
        .collect()
}

/// The NUMA node, which the agent's and the engine's processors, and the GPU, should share.
fn place(root: &Root, adapter: &str) -> Finding {
    let node = root.text(&format!("/sys/class/infiniband/{adapter}/device/numa_node"));
    match node.as_deref() {
        None | Some("-1") => Finding::good("RDMA", format!("{adapter} is on no NUMA node")),
        Some(node) => Finding::good("RDMA", format!("{adapter} is on NUMA node {node}")),
    }
}

fn loss(root: &Root, adapter: &str) -> Vec<Finding> {
    let ports = format!("/sys/class/infiniband/{adapter}/ports");
    let of_port = |number: &String| {
        let grown: Vec<_> = LOSS
            .iter()
            .filter_map(|counter| {
                let file = format!("{ports}/{number}/hw_counters/{counter}");
                let count = root.number(&file, 0).filter(|count| *count > 0)?;
                Some(format!("{counter} {count}"))
            })
            .collect();
        (!grown.is_empty()).then(|| {
            Finding::note(
                "RDMA",
                format!("{adapter} port {number} has seen packets lost: {}", grown.join(", ")),
                "look whether these still grow; then check PFC and ECN along the path (docs/rdma.md)",
            )
        })
    };
    root.names(&ports).iter().filter_map(of_port).collect()
}

/// ECN of RoCE as Mellanox's driver has it, and how to ask for PFC, which no file tells.
fn congestion(root: &Root, interface: &str) -> Vec<Finding> {
    let ecn = format!("/sys/class/net/{interface}/ecn");
    let enabled = |role: &str| {
        let folder = format!("{ecn}/{role}/enable");
        let priorities = root.names(&folder);
        let on = priorities
            .into_iter()
            .filter(|priority| root.text(&format!("{folder}/{priority}")).as_deref() == Some("1"));
        on.collect::<Vec<_>>().join(",")
    };
    let ask = format!(
        "dcb pfc show dev {interface} on the node says of PFC; the switch has to agree with both"
    );
    if !root.has(&ecn) {
        return vec![Finding::note(
            "RDMA",
            format!("{interface}'s driver has no files about ECN"),
            ask,
        )];
    }
    let (notifies, reacts) = (enabled("roce_np"), enabled("roce_rp"));
    if notifies.is_empty() && reacts.is_empty() {
        return vec![Finding::note(
            "RDMA",
            format!("{interface} has ECN off for all priorities"),
            format!("turn it on for the priorities of RoCE, or rely on PFC: {ask}"),
        )];
    }
    vec![Finding::good(
        "RDMA",
        format!(
            "{interface} tells of congestion on priorities {notifies}, and slows down on {reacts}"
        ),
    )]
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::machine;
    use super::*;

    fn told(files: &[(&str, &str)]) -> Vec<String> {
        let (_directory, root) = machine(files);
        examine(&root)
            .into_iter()
            .map(|finding| finding.found)
            .collect()
    }

    #[test]
    fn place_loss_and_congestion_control_are_told() {
        let device = "sys/class/infiniband/mlx5_0/";
        let file = |path: &str| format!("{device}{path}");
        let found = told(&[
            (&file("device/numa_node"), "1\n"),
            (&file("device/net/eth2/mtu"), "9000\n"),
            (&file("ports/1/hw_counters/out_of_sequence"), "17\n"),
            (&file("ports/1/hw_counters/packet_seq_err"), "0\n"),
            ("sys/class/net/eth2/ecn/roce_np/enable/3", "1\n"),
            ("sys/class/net/eth2/ecn/roce_np/enable/4", "0\n"),
            ("sys/class/net/eth2/ecn/roce_rp/enable/3", "1\n"),
        ]);
        assert_eq!(
            found,
            [
                "mlx5_0 is on NUMA node 1",
                "mlx5_0 port 1 has seen packets lost: out_of_sequence 17",
                "eth2 tells of congestion on priorities 3, and slows down on 3",
            ]
        );
    }

    #[test]
    fn what_no_file_says_is_not_guessed() {
        let found = told(&[
            ("sys/class/infiniband/mlx5_0/device/net/eth2/mtu", "9000\n"),
            ("sys/class/infiniband/mlx5_1/device/net/eth3/mtu", "9000\n"),
            ("sys/class/net/eth3/ecn/roce_np/enable/3", "0\n"),
        ]);
        assert_eq!(
            found,
            [
                "mlx5_0 is on no NUMA node",
                "eth2's driver has no files about ECN",
                "mlx5_1 is on no NUMA node",
                "eth3 has ECN off for all priorities",
            ]
        );
        assert_eq!(told(&[]), [""; 0]);
    }
}
