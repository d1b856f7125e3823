//! Addresses of RDMA ports.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// A global identifier: 16 bytes that on RoCE are an IPv6 address, or an IPv4 address mapped into one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The IP address that it is, with a mapped IPv4 address as such. Of an InfiniBand GID this means nothing.
    pub fn address(self) -> IpAddr {
        Ipv6Addr::from(self.0).to_canonical()
    }
}

impl fmt::Display for Gid {
    /// Eight groups of four hexadecimal digits, as in `/sys/class/infiniband`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups = Ipv6Addr::from(self.0).segments();
        let text: Vec<_> = groups.iter().map(|group| format!("{group:04x}")).collect();
        f.write_str(&text.join(":"))
    }
}

/// Which packets a GID stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GidKind {
    /// InfiniBand.
    InfiniBand,
    /// RoCE in Ethernet frames of its own, which no router forwards.
    RoceV1,
    /// RoCE in UDP.
    RoceV2,
    /// One that came after these, by its number.
    Other(u32),
}

impl From<u32> for GidKind {
    fn from(number: u32) -> Self {
        match number {
            0 => Self::InfiniBand,
            1 => Self::RoceV1,
            2 => Self::RoceV2,
            other => Self::Other(other),
        }
    }
}

impl fmt::Display for GidKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InfiniBand => f.write_str("InfiniBand"),
            Self::RoceV1 => f.write_str("RoCEv1"),
            Self::RoceV2 => f.write_str("RoCEv2"),
            Self::Other(number) => write!(f, "type {number}"),
        }
    }
}

/// One entry of a port's GID table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GidEntry {
    /// The device, such as `mlx5_0`.
    pub device: String,
    /// The port, counted from 1.
    pub port: u8,
    /// The place in the port's table.
    pub index: u8,
    /// The GID.
    pub gid: Gid,
    /// What packets it stands for.
    pub kind: GidKind,
    /// The network interface behind the port, where there is one.
    pub interface: Option<String>,
    /// The length of the network's prefix, where the interface has the GID's address.
    pub prefix: Option<u8>,
    /// Whether the port is active.
    pub active: bool,
}

impl GidEntry {
    /// Whether `peer` is in the network of this GID's address.
    pub fn reaches(&self, peer: IpAddr) -> bool {
        let Some(prefix) = self.prefix.map(u32::from) else {
            return false;
        };
        match (self.gid.address(), peer.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(peer)) => {
                let differ = own.to_bits() ^ peer.to_bits();
                differ.leading_zeros() >= prefix
            }
            (IpAddr::V6(own), IpAddr::V6(peer)) => {
                let differ = own.to_bits() ^ peer.to_bits();
                differ.leading_zeros() >= prefix
            }
            _ => false,
        }
    }
}

impl fmt::Display for GidEntry {
    /// As a choice is written, and then what it is: `mlx5_0:1:3 RoCEv2 10.0.0.1/24 on eth2`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}:{} {} ",
            self.device, self.port, self.index, self.kind
        )?;
        if self.kind == GidKind::InfiniBand {
            write!(f, "{}", self.gid)?;
        } else {
            write!(f, "{}", self.gid.address())?;
        }
        if let Some(prefix) = self.prefix {
            write!(f, "/{prefix}")?;
        }
        if let Some(interface) = &self.interface {
            write!(f, " on {interface}")?;
        }
        if !self.active {
            f.write_str(" (port not active)")?;
        }
        Ok(())
    }
}
