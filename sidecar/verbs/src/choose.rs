//! Which GID of this machine a link to a peer goes from.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::str::FromStr;

use crate::gid::{Gid, GidEntry, GidKind};

/// What an operator wants: `mlx5_0`, `mlx5_0:1` or `mlx5_0:1:3`, that is device, port, index of the GID. `*` is any device, or any
/// port; what is left out at the end is any, too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// The device.
    pub device: Option<String>,
    /// The port.
    pub port: Option<u8>,
    /// The index of the GID; where it is left out, the rule decides among the port's.
    pub index: Option<u8>,
}

/// A choice that can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} names no RDMA device: write DEVICE, DEVICE:PORT or DEVICE:PORT:GID, such as mlx5_0:1:3, with * for any device or port"
)]
pub struct ChoiceError(String);

/// Any device, any port.
const ANY: &str = "*";

impl FromStr for Choice {
    type Err = ChoiceError;

    fn from_str(text: &str) -> Result<Self, ChoiceError> {
        let wrong = || ChoiceError(text.to_owned());
        let mut parts = text.split(':');
        let device = parts.next().filter(|device| !device.is_empty());
        let device = device.ok_or_else(wrong)?;
        let mut number = || {
            let part = parts.next().filter(|part| *part != ANY);
            part.map(|part| part.parse().map_err(|_| wrong()))
                .transpose()
        };
        let (port, index) = (number()?, number()?);
        if port == Some(0) || parts.next().is_some() {
            return Err(wrong());
        }
        Ok(Self {
            device: (device != ANY).then(|| device.to_owned()),
            port,
            index,
        })
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.device.as_deref().unwrap_or(ANY))?;
        match (self.port, self.index) {
            (Some(port), _) => write!(f, ":{port}")?,
            (None, Some(_)) => write!(f, ":{ANY}")?,
            (None, None) => {}
        }
        match self.index {
            Some(index) => write!(f, ":{index}"),
            None => Ok(()),
        }
    }
}

impl Choice {
    fn fits(&self, entry: &GidEntry) -> bool {
        self.device
            .as_ref()
            .is_none_or(|device| *device == entry.device)
            && self.port.is_none_or(|port| port == entry.port)
            && self.index.is_none_or(|index| index == entry.index)
    }
}

/// No GID can be used; the message lists what there is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChooseError {
    /// No device has any.
    #[error(
        "this machine has no RDMA device with an address: check the driver and, in a pod, the device plugin"
    )]
    Nothing,
    /// The chosen one isn't there.
    #[error("there is no {choice}; there are: {there}")]
    NotThere {
        /// What was wanted.
        choice: Choice,
        /// What there is.
        there: String,
    },
    /// None reaches the peer.
    #[error(
        "no RoCEv2 address of an active port reaches {peer}: name a device, or give one an address in the peer's network; there are: {there}"
    )]
    NoneReaches {
        /// The peer.
        peer: IpAddr,
        /// What there is.
        there: String,
    },
}

/// The GID for a link to `peer`, out of all that this machine has.
///
/// A choice with an index that one GID alone fits wins whatever that is. Otherwise it is, out of those that the choice fits, or all, a RoCEv2 GID of an active port: one
/// in the peer's network, or else the one that has `source`, the address that this machine's routes would use
/// ([`source_towards`]), which is how a routed fabric with a network for each cable works. Of several in the peer's
/// network, the one with `source` is taken, or the first. RoCEv1 and InfiniBand GIDs have to be chosen: an IP address says nothing of
/// what they reach.
///
/// # Errors
/// Where there is none.
pub fn choose<'a>(
    entries: &'a [GidEntry],
    choice: Option<&Choice>,
    peer: IpAddr,
    source: Option<IpAddr>,
) -> Result<&'a GidEntry, ChooseError> {
    let peer = peer.to_canonical();
    if entries.is_empty() {
        return Err(ChooseError::Nothing);
    }
    let fitting: Vec<_> = entries
        .iter()
        .filter(|entry| choice.is_none_or(|choice| choice.fits(entry)))
        .collect();
    if let Some(choice) = choice {
        match fitting[..] {
            [] => {
                return Err(ChooseError::NotThere {
                    choice: choice.clone(),
                    there: list(entries.iter()),
                });
            }
            [entry] if choice.index.is_some() => return Ok(entry),
            _ => {}
        }
    }
    let usable = |entry: &&&GidEntry| entry.kind == GidKind::RoceV2 && entry.active;
    let is_source = |entry: &&&GidEntry| {
        source.is_some_and(|source| entry.gid.address() == source.to_canonical())
    };
    let of_network = |entry: &&&GidEntry| usable(entry) && entry.reaches(peer);
    let found = fitting
        .iter()
        .find(|entry| of_network(entry) && is_source(entry))
        .or_else(|| fitting.iter().find(of_network))
        .or_else(|| {
            fitting
                .iter()
                .find(|entry| usable(entry) && is_source(entry))
        });
    found.copied().ok_or_else(|| ChooseError::NoneReaches {
        peer,
        there: list(fitting.iter().copied()),
    })
}

/// The GIDs for more rails of a link whose first goes from `first`: one of each other active port with RoCEv2, in the order of the
/// entries. Without an address of a network there is none: which peers it reaches couldn't be told.
pub fn others<'a>(entries: &'a [GidEntry], first: Gid) -> Vec<&'a GidEntry> {
    let port = |entry: &'a GidEntry| (entry.device.as_str(), entry.port);
    let of_first = entries.iter().filter(|entry| entry.gid == first);
    let mut taken: Vec<_> = of_first.map(port).collect();
    let is_of_network = |entry: &&GidEntry| match entry.gid.address() {
        IpAddr::V4(address) => !address.is_link_local(),
        IpAddr::V6(address) => !address.is_unicast_link_local(),
    };
    let usable = |entry: &&GidEntry| entry.kind == GidKind::RoceV2 && entry.active;
    let mut found = Vec::new();
    for entry in entries.iter().filter(usable).filter(is_of_network) {
        if !taken.contains(&port(entry)) {
            taken.push(port(entry));
            found.push(entry);
        }
    }
    found
}

fn list<'a>(entries: impl Iterator<Item = &'a GidEntry>) -> String {
    let texts: Vec<_> = entries.map(ToString::to_string).collect();
    texts.join(", ")
}

/// The address that this machine's routes would use towards `peer`. Sends nothing.
///
/// # Errors
/// Where there is no route.
pub fn source_towards(peer: IpAddr) -> io::Result<IpAddr> {
    // Connecting a UDP socket looks up the route and no more; the port is never used.
    const DISCARD: u16 = 9;
    let any: IpAddr = match peer {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect((peer, DISCARD))?;
    Ok(socket.local_addr()?.ip().to_canonical())
}

#[cfg(test)]
mod tests;
