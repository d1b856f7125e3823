//! What two sides tell each other before they write, and how.

use std::fmt;

use crate::gid::Gid;

/// One end of a queue pair, as the other end has to know it. How it is sent there is the caller's affair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The number of the queue pair: 24 bits.
    pub number: u32,
    /// The number that its first packet will carry: 24 bits.
    pub first_packet: u32,
    /// The GID that it sends from.
    pub gid: Gid,
    /// InfiniBand's address within a subnet; 0 on RoCE.
    pub lid: u16,
    /// The most that its port takes in a packet.
    pub mtu: Mtu,
}

/// Memory that a peer may write into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The address of its first byte, in the peer's terms.
    pub address: u64,
    /// How many bytes there are.
    pub bytes: u64,
    /// The key that the peer's device wants to be shown.
    pub key: u32,
}

/// The payload of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Mtu {
    /// 256 bytes.
    B256 = 1,
    /// 512 bytes.
    B512 = 2,
    /// 1024 bytes.
    B1024 = 3,
    /// 2048 bytes.
    B2048 = 4,
    /// 4096 bytes.
    B4096 = 5,
}

impl Mtu {
    /// From the number in `ibv_mtu`, 1 to 5; none for others.
    pub fn from_number(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::B256),
            2 => Some(Self::B512),
            3 => Some(Self::B1024),
            4 => Some(Self::B2048),
            5 => Some(Self::B4096),
            _ => None,
        }
    }

    /// The number in `ibv_mtu`.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// How many bytes it is.
    pub fn bytes(self) -> u32 {
        128 << self.number()
    }
}

impl fmt::Display for Mtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.bytes())
    }
}

/// How a queue pair's packets travel, and how patient it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// 0 to 7. On RoCE it becomes the priority of VLAN-tagged frames; on InfiniBand a switch maps it to a lane.
    pub service_level: u8,
    /// The IP header's byte of DSCP (its upper six bits) and ECN. Switches that trust DSCP queue by it.
    pub traffic_class: u8,
    /// Routers that a packet may pass.
    pub hops: u8,
    /// How long an answer may take: 4.096 µs times two to this power, 1 to 31.
    pub timeout: u8,
    /// How often a packet without an answer is sent again: 0 to 7.
    pub retries: u8,
    /// How often an announcement without a receive is sent again: 0 to 6; 7 is without end.
    pub receive_retries: u8,
}

impl Default for Path {
    /// The lowest class, 64 hops, and some seconds until a silent peer is given up (2^16 × 4.096 µs = 0.27 s, eight times, of which
    /// devices may take up to four times as long).
    fn default() -> Self {
        Self {
            service_level: 0,
            traffic_class: 0,
            hops: 64,
            timeout: 16,
            retries: 7,
            receive_retries: 7,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mtus_are_the_powers_of_two_that_verbs_number() {
        let sizes: Vec<_> = (0..7)
            .map(|n| Mtu::from_number(n).map(Mtu::bytes))
            .collect();
        let expected = [256, 512, 1024, 2048, 4096].map(Some);
        assert_eq!(sizes, [&[None], &expected[..], &[None]].concat());
    }
}
