//! CRC32C (Castagnoli, reflected polynomial 0x82F63B78), a byte at a time.
//!
//! Headers are short, so a table is enough, and it keeps this crate free of dependencies that need an operating system.
//! Drivers compute the same function over payload with the processor's instruction.

const TABLE: [u32; 256] = {
    let mut table = [0u32; 256];
    let mut byte = 0u32;
    while byte < 256 {
        let mut crc = byte;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 {
                (crc >> 1) ^ 0x82F6_3B78
            } else {
                crc >> 1
            };
            bit += 1;
        }
        table[byte as usize] = crc;
        byte += 1;
    }
    table
};

/// The CRC32C of the concatenation of `parts`.
pub fn crc32c(parts: &[&[u8]]) -> u32 {
    let step = |crc: u32, &byte: &u8| (crc >> 8) ^ TABLE[usize::from(crc.to_le_bytes()[0] ^ byte)];
    !parts.iter().copied().flatten().fold(!0, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_gives_the_check_values_of_rfc_3720() {
        assert_eq!(crc32c(&[b"123456789"]), 0xE306_9283);
        assert_eq!(crc32c(&[&[0; 32]]), 0x8A91_36AA);
        assert_eq!(crc32c(&[&[0xFF; 32]]), 0x62A8_AB43);
        assert_eq!(crc32c(&[b"1234", b"", b"56789"]), 0xE306_9283);
    }

    #[test]
    fn it_is_the_function_that_drivers_compute() {
        bolero::check!()
            .with_type::<alloc::vec::Vec<u8>>()
            .for_each(|bytes| assert_eq!(crc32c(&[bytes]), ::crc32c::crc32c(bytes)));
    }
}
