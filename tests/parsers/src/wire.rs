//! What a peer's connection says.

use lynx_protocol::wire::{Decoded, FRAME_MARK, HEADER_LEN, crc32c, decode};
use lynx_transport::PeerInfo;

/// Any bytes, decoded as frames: what decodes survives being written and read again.
pub(crate) fn frame(bytes: &[u8]) {
    check(bytes);
    check(&sealed(bytes));
}

fn check(bytes: &[u8]) {
    match decode(bytes) {
        Ok(Decoded::Incomplete { at_least }) => assert!(at_least > bytes.len()),
        Ok(Decoded::Packet { packet, len }) => {
            assert!(len <= bytes.len());
            let mut again = Vec::new();
            packet
                .encode(&mut again)
                .expect("what was read can be written");
            let len = again.len();
            assert_eq!(decode(&again), Ok(Decoded::Packet { packet, len }));
        }
        Err(_) => {}
    }
}

/// Gives bytes the mark, the length and the checksum of a frame, so that the fuzzer gets past them.
pub(crate) fn sealed(bytes: &[u8]) -> Vec<u8> {
    let mut frame = bytes.to_vec();
    frame.resize(frame.len().max(HEADER_LEN), 0);
    let body = u32::try_from(frame.len() - HEADER_LEN).unwrap_or(u32::MAX);
    frame[0] = FRAME_MARK;
    frame[1] %= 16;
    frame[8..12].copy_from_slice(&body.to_le_bytes());
    let crc = crc32c(&[&frame[..12], &frame[HEADER_LEN..]]);
    frame[12..16].copy_from_slice(&crc.to_le_bytes());
    frame
}

/// A peer's information: it does not differ from itself, and what has been written once is read and written as the same.
/// (A second line `ticket` is no fact, so that one may be lost the first time.)
pub(crate) fn peer_info(bytes: &[u8]) {
    let again = |bytes: &[u8]| {
        let (info, besides) = PeerInfo::decode(bytes);
        assert_eq!(info.difference(&info), None);
        info.encode(&besides)
    };
    let written = again(&again(bytes));
    assert_eq!(again(&written), written);
}
