//! What libibverbs says of this machine.

use lynx_verbs::{
    CallError, Device, Domain, Found, GidKind, Library, LinkLayer, MEMLOCK_ADVICE, Memlock, Mtu,
    Port, PortState,
};

use super::super::{Finding, Root};
use crate::run::chain;

/// What an agent registers at most unless it is configured otherwise: `transfer.rdma.memory` and `transfer.rdma.lent`.
const ENOUGH: u64 = (1 << 30) + (512 << 20);

/// Of libibverbs, which looks at this machine only, whatever the root is.
pub(super) fn examine(_: &Root) -> Vec<Finding> {
    let library = match Library::open() {
        Ok(library) => library,
        Err(error) => {
            return vec![Finding::note(
                "RDMA",
                chain(&error),
                "nothing, where TCP is fine",
            )];
        }
    };
    let mut findings = match library.survey() {
        Ok(devices) if devices.is_empty() => vec![Finding::note(
            "RDMA",
            "libibverbs is there, and no device is seen",
            "nothing, where TCP is fine; otherwise claim one in the pod's resources, and look whether /dev/infiniband is there",
        )],
        Ok(devices) => devices
            .iter()
            .flat_map(|found| device(&library, found))
            .collect(),
        Err(error) => vec![Finding::problem("RDMA", chain(&error), "check the driver")],
    };
    findings.push(memlock(Memlock::of_this_process()));
    findings
}

fn device(library: &Library, found: &Found) -> Vec<Finding> {
    let name = &found.name;
    match &found.device {
        Err(error) => vec![Finding::problem(
            "RDMA",
            format!("{name} can't be opened: {}", chain(error)),
            "check the rights on /dev/infiniband, and that rdma-core has this device's driver (ibverbs-providers)",
        )],
        Ok(device) => {
            let mut findings = vec![described(library, name, device)];
            findings.extend(device.ports.iter().flat_map(|each| port(name, each)));
            findings
        }
    }
}

fn described(library: &Library, name: &str, device: &Device) -> Finding {
    let domain = library
        .device(name)
        .and_then(|context| Domain::new(&context));
    let memory = match domain.map(|domain| domain.takes_dma_buf()) {
        Ok(true) => "takes dma-bufs, but links have GPU memory go through the host's yet",
        Ok(false) => "takes no dma-buf, so GPU memory goes through the host's",
        Err::<_, CallError>(_) => "has no protection domain left to try dma-buf",
    };
    let firmware = match device.firmware.as_str() {
        "" => "",
        version => &format!("firmware {version}, "),
    };
    Finding::good("RDMA", format!("{name}: {firmware}{memory}"))
}

fn port(name: &str, port: &Port) -> Vec<Finding> {
    let bytes = |mtu: Option<Mtu>| mtu.map_or("an unknown".to_owned(), |mtu| mtu.to_string());
    let layer = match port.link_layer {
        LinkLayer::Ethernet => "Ethernet",
        LinkLayer::InfiniBand => "InfiniBand",
        LinkLayer::Unknown => "an unknown link",
    };
    let number = port.number;
    let found = format!(
        "{name} port {number}: {layer}, MTU {} of {}",
        bytes(port.mtu),
        bytes(port.max_mtu)
    );
    let state = match port.state {
        PortState::Active if port.mtu < port.max_mtu => Finding::note(
            "RDMA",
            found,
            "give the interface, and all switches, an MTU of 4200 or more (9000): RoCE takes the largest power of two that fits",
        ),
        PortState::Active => Finding::good("RDMA", found),
        PortState::Coming => Finding::problem(
            "RDMA",
            format!("{found}; waits for its subnet manager"),
            "start a subnet manager (opensm, or the switch's)",
        ),
        PortState::Down => Finding::problem(
            "RDMA",
            format!("{found}; down"),
            "bring its network interface up, and its cable in",
        ),
    };
    let gids = port.gids.iter().map(|entry| match entry.kind {
        GidKind::RoceV1 => Finding::good("RDMA", format!("{entry}, which no router forwards")),
        _ => Finding::good("RDMA", entry.to_string()),
    });
    let mut findings = vec![state];
    findings.extend(gids);
    findings
}

fn memlock(memlock: Memlock) -> Finding {
    match memlock.holding() {
        Some(bytes) if bytes < ENOUGH => {
            Finding::problem("memlock", memlock.to_string(), MEMLOCK_ADVICE)
        }
        _ => Finding::good("memlock", memlock.to_string()),
    }
}
