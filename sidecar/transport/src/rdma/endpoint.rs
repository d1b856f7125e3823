//! Where a queue pair is, and where it may be written to.

use std::net::Ipv6Addr;

/// What one side tells the other of a queue pair and of the ring that is written through it. Over RDMA whoever knows it can
/// write there until the queue pair is connected, and its peer can afterwards: it travels with the link's Hello, and is never
/// printed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Endpoint {
    /// The queue pair's number, 24 bits.
    pub queue_pair: u32,
    /// The number of the first packet that it sends, 24 bits.
    pub packet: u32,
    /// The port's global identifier: with RoCE v2 its IP address, IPv4 ones mapped.
    pub gid: [u8; 16],
    /// The port's local identifier; zero with RoCE.
    pub lid: u16,
    /// Bytes in a packet, as the port has it.
    pub mtu: u16,
    /// The ring's first byte.
    pub address: u64,
    /// What a write must show.
    pub key: u32,
    /// The ring's length in bytes.
    pub ring: u32,
}

impl Endpoint {
    const BYTES: usize = 44;
    /// What an endpoint adds to a Hello.
    pub(crate) const ENCODED: usize = "endpoint=\n".len() + 2 * Self::BYTES;

    /// As lower-case hexadecimal digits.
    pub(crate) fn encode(&self) -> String {
        let parts: [&[u8]; 8] = [
            &self.queue_pair.to_le_bytes(),
            &self.packet.to_le_bytes(),
            &self.gid,
            &self.lid.to_le_bytes(),
            &self.mtu.to_le_bytes(),
            &self.address.to_le_bytes(),
            &self.key.to_le_bytes(),
            &self.ring.to_le_bytes(),
        ];
        let bytes = parts.iter().flat_map(|part| part.iter());
        bytes.map(|byte| format!("{byte:02x}")).collect()
    }

    /// Reads what [`encode`](Self::encode) wrote; `None` where it did not.
    pub(crate) fn decode(text: &str) -> Option<Self> {
        let digits: Vec<u8> = text
            .chars()
            .map(|digit| u8::try_from(digit.to_digit(16)?).ok())
            .collect::<Option<_>>()?;
        let bytes: Vec<u8> = digits
            .chunks(2)
            .map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit))
            .collect();
        let bytes: [u8; Self::BYTES] = bytes
            .try_into()
            .ok()
            .filter(|_| digits.len().is_multiple_of(2))?;
        let mut rest: &[u8] = &bytes;
        Some(Self {
            queue_pair: u32::from_le_bytes(take(&mut rest)?),
            packet: u32::from_le_bytes(take(&mut rest)?),
            gid: take(&mut rest)?,
            lid: u16::from_le_bytes(take(&mut rest)?),
            mtu: u16::from_le_bytes(take(&mut rest)?),
            address: u64::from_le_bytes(take(&mut rest)?),
            key: u32::from_le_bytes(take(&mut rest)?),
            ring: u32::from_le_bytes(take(&mut rest)?),
        })
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, more) = rest.split_first_chunk()?;
    *rest = more;
    Some(*first)
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "queue pair of {}", Ipv6Addr::from(self.gid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Endpoint {
        pub(crate) const fn of_tests() -> Self {
            Self {
                queue_pair: 0x12_3456,
                packet: 7,
                gid: Ipv6Addr::LOCALHOST.octets(),
                lid: 3,
                mtu: 4096,
                address: u64::MAX - 5,
                key: 9,
                ring: 1 << 24,
            }
        }
    }

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        let endpoint = Endpoint::of_tests();
        let text = endpoint.encode();
        assert_eq!(format!("endpoint={text}\n").len(), Endpoint::ENCODED);
        assert_eq!(Endpoint::decode(&text), Some(endpoint));
        let print = format!("{endpoint:?}");
        assert_eq!(print, "queue pair of ::1");
        for bad in [
            "",
            "0",
            &text[1..],
            &text[2..],
            &format!("{text}00"),
            &text.replace('1', "g"),
        ] {
            assert_eq!(Endpoint::decode(bad), None, "{bad}");
        }
    }
}
