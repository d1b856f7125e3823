//! CRC32C of payload, at memory speed.

use crc_fast::{CrcAlgorithm, Digest};

/// The polynomial that RFC 3720 gives iSCSI.
const CRC32C: CrcAlgorithm = CrcAlgorithm::Crc32Iscsi;

/// The checksum of a payload that is there as a whole.
pub(crate) fn crc32c(payload: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(payload)
}

/// The checksum of a payload that comes in pieces.
///
/// Keeps the register alone, and not a [`Digest`], which carries its tables with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Running {
    register: u64,
}

impl Running {
    pub(crate) fn new() -> Self {
        Self {
            register: Digest::new(CRC32C).get_state(),
        }
    }

    pub(crate) fn add(&mut self, piece: &[u8]) {
        let mut digest = self.digest();
        digest.update(piece);
        self.register = digest.get_state();
    }

    /// Whether the pieces so far have this checksum.
    pub(crate) fn is(self, crc: u32) -> bool {
        self.digest().finalize() == u64::from(crc)
    }

    fn digest(self) -> Digest {
        Digest::new_with_init_state(CRC32C, self.register)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_crc_of_the_standard() {
        // The check value that every catalogue of checksums gives for CRC-32C.
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(b""), 0);
    }

    #[test]
    fn pieces_of_any_length_have_the_checksum_of_the_whole() {
        let payload: Vec<u8> = (0..10_000_u32).flat_map(u32::to_le_bytes).collect();
        for length in [1, 7, 64, 1000, 4096, 40_000] {
            let mut running = Running::new();
            payload.chunks(length).for_each(|piece| running.add(piece));
            assert!(running.is(crc32c(&payload)), "pieces of {length}");
            assert!(!running.is(crc32c(&payload) ^ 1));
        }
        assert!(Running::new().is(0));
    }
}
