//! What RDMA this machine has.

use std::collections::HashMap;
use std::path::Path as FilePath;
use std::{fs, io};

use ibverbs_sys as sys;

use crate::context::{Context, TableEntry};
use crate::endpoint::Mtu;
use crate::error::CallError;
use crate::gid::GidEntry;
use crate::interfaces::{self, Address};
use crate::library::Library;

/// A device that libibverbs lists.
#[derive(Debug)]
pub struct Found {
    /// Its name, such as `mlx5_0`.
    pub name: String,
    /// What it says of itself, or why it can't be asked.
    pub device: Result<Device, CallError>,
}

/// What a device says of itself.
#[derive(Clone, Debug)]
pub struct Device {
    /// The version of its firmware; empty where it has none.
    pub firmware: String,
    /// Its ports.
    pub ports: Vec<Port>,
}

/// A port of a device.
#[derive(Clone, Debug)]
pub struct Port {
    /// Its number, counted from 1.
    pub number: u8,
    /// Whether it can be used.
    pub state: PortState,
    /// What it is connected with.
    pub link_layer: LinkLayer,
    /// The payload of its packets now.
    pub mtu: Option<Mtu>,
    /// The most that it could have.
    pub max_mtu: Option<Mtu>,
    /// Its addresses.
    pub gids: Vec<GidEntry>,
}

/// Whether a port can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortState {
    /// It can.
    Active,
    /// The cable or the interface is down.
    Down,
    /// On the way to active; on InfiniBand it waits for the subnet manager.
    Coming,
}

/// What a port is connected with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkLayer {
    /// Ethernet: RoCE.
    Ethernet,
    /// InfiniBand.
    InfiniBand,
    /// The device doesn't say.
    Unknown,
}

impl Library {
    /// Every device of this machine.
    ///
    /// # Errors
    /// Where the devices can't even be listed.
    pub fn survey(&self) -> Result<Vec<Found>, CallError> {
        let networks = Networks::read().map_err(|source| CallError {
            what: "list this machine's addresses",
            source,
        })?;
        let names = self.names()?.into_iter();
        let devices = names.map(|name| {
            let device = self
                .device(&name)
                .and_then(|context| device(&context, &networks));
            Found { name, device }
        });
        Ok(devices.collect())
    }

    /// The GIDs of all devices that can be asked, which [`choose`](crate::choose) chooses from.
    ///
    /// # Errors
    /// Where the devices can't be listed.
    pub fn gids(&self) -> Result<Vec<GidEntry>, CallError> {
        let found = self.survey()?.into_iter();
        let devices = found.filter_map(|found| found.device.ok());
        let ports = devices.flat_map(|device| device.ports);
        Ok(ports.flat_map(|port| port.gids).collect())
    }
}

fn device(context: &Context, networks: &Networks) -> Result<Device, CallError> {
    let attributes = context.attributes()?;
    let firmware = attributes.fw_ver.iter().take_while(|c| **c != 0);
    let firmware: Vec<u8> = firmware.map(|c| c.cast_unsigned()).collect();
    let ports = 1..=attributes.phys_port_cnt;
    Ok(Device {
        firmware: String::from_utf8_lossy(&firmware).into_owned(),
        ports: ports
            .map(|number| port(context, number, networks))
            .collect::<Result<_, _>>()?,
    })
}

fn port(context: &Context, number: u8, networks: &Networks) -> Result<Port, CallError> {
    let attributes = context.port(number)?;
    let state = match attributes.state {
        sys::ibv_port_state::IBV_PORT_ACTIVE => PortState::Active,
        sys::ibv_port_state::IBV_PORT_INIT | sys::ibv_port_state::IBV_PORT_ARMED => {
            PortState::Coming
        }
        _ => PortState::Down,
    };
    let entries = context.table(number, attributes.gid_tbl_len).into_iter();
    let gids = entries.map(|entry| networks.entry(context.name(), number, &entry, state));
    Ok(Port {
        number,
        state,
        link_layer: match u32::from(attributes.link_layer) {
            sys::IBV_LINK_LAYER_ETHERNET => LinkLayer::Ethernet,
            sys::IBV_LINK_LAYER_INFINIBAND => LinkLayer::InfiniBand,
            _ => LinkLayer::Unknown,
        },
        mtu: Mtu::from_number(attributes.active_mtu),
        max_mtu: Mtu::from_number(attributes.max_mtu),
        gids: gids.collect(),
    })
}

/// The interfaces of this network namespace, and their addresses.
struct Networks {
    addresses: Vec<Address>,
    interfaces: HashMap<u32, String>,
}

impl Networks {
    fn read() -> io::Result<Self> {
        let mut interfaces = HashMap::new();
        let entries = fs::read_dir("/sys/class/net").into_iter().flatten();
        for entry in entries.flatten() {
            if let Some(index) = index_of(&entry.path()) {
                interfaces.insert(index, entry.file_name().to_string_lossy().into_owned());
            }
        }
        Ok(Self {
            addresses: interfaces::addresses()?,
            interfaces,
        })
    }

    fn entry(&self, device: &str, port: u8, entry: &TableEntry, state: PortState) -> GidEntry {
        let interface = self.interfaces.get(&entry.interface);
        let address = entry.gid.address();
        let known = self.addresses.iter().find(|known| {
            known.address == address && interface.is_none_or(|name| *name == known.interface)
        });
        GidEntry {
            device: device.to_owned(),
            port,
            index: entry.index,
            gid: entry.gid,
            kind: entry.kind,
            interface: interface.cloned(),
            prefix: known.map(|known| known.prefix),
            active: state == PortState::Active,
        }
    }
}

fn index_of(interface: &FilePath) -> Option<u32> {
    let text = fs::read_to_string(interface.join("ifindex")).ok()?;
    text.trim().parse().ok()
}
