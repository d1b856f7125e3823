//! GPUs and RDMA adapters, as far as files tell of them.

use lynx_cuda::{Choice, Options, choose};

use super::{Finding, Grade, Root};

pub(super) fn examine(root: &Root) -> Vec<Finding> {
    let mut findings = vec![gpu(root)];
    if findings.iter().all(|found| found.grade == Grade::Good) {
        findings.push(kernels(&choose(&Options::default())));
    }
    let adapters = root.names("/sys/class/infiniband");
    if adapters.is_empty() {
        findings.push(Finding::note(
            "RDMA",
            "no adapter is seen: KV goes over TCP",
            "nothing, or claim one in the pod's resources",
        ));
    }
    for adapter in adapters {
        findings.extend(ports(root, &adapter));
    }
    findings
}

fn gpu(root: &Root) -> Finding {
    let driver = root.text("/proc/driver/nvidia/version");
    let version = driver.as_deref().and_then(|text| text.lines().next());
    let version = version.map(|line| line.trim_start_matches("NVRM version: ").to_owned());
    let devices = root.names("/dev");
    let is_gpu = |name: &&String| {
        name.strip_prefix("nvidia")
            .is_some_and(|number| number.parse::<u32>().is_ok())
    };
    let count = devices.iter().filter(is_gpu).count();
    match (version, count) {
        (Some(version), 0) => Finding::problem(
            "GPU",
            format!("the node has a driver ({version}), and this container no device"),
            "request the GPU for this container too, or share the engine's ResourceClaim; without one KV is split on the processor",
        ),
        (Some(version), count) => Finding::good("GPU", format!("{count} of {version}")),
        (None, _) => Finding::note(
            "GPU",
            "none is seen: KV is split on the processor, in host memory",
            "nothing, where the engine works on host memory",
        ),
    }
}

/// Whether the kernels would run.
fn kernels(choice: &Choice) -> Finding {
    let found = choice.to_string();
    match choice {
        Choice::Gpu(..) => Finding::good("kernels", format!("KV can be coded {found}")),
        Choice::Processor(_) => Finding::problem(
            "kernels",
            format!("KV is coded {found}"),
            "mend what is said; `kernels/cuda/compile --out` builds kernels, and NVRTC makes them where they run",
        ),
    }
}

fn ports(root: &Root, adapter: &str) -> Vec<Finding> {
    let of = format!("/sys/class/infiniband/{adapter}/ports");
    let port = |number: &String| {
        let state = root.text(&format!("{of}/{number}/state"))?;
        let rate = root
            .text(&format!("{of}/{number}/rate"))
            .unwrap_or_default();
        let found = format!("{adapter} port {number} is {state}, {rate}");
        Some(if state.contains("ACTIVE") {
            Finding::good("RDMA", found)
        } else {
            Finding::problem(
                "RDMA",
                found,
                "bring its network interface up, and its cable in",
            )
        })
    };
    root.names(&of).iter().filter_map(port).collect()
}
