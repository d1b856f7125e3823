//! Bytes as hexadecimal digits in files.

/// Two lower-case digits a byte.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The inverse of [`to_hex`]; `None` for anything else.
pub(crate) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let bytes = pairs
        .iter()
        .map(|&[high, low]| Some(digit(high)? * 16 + digit(low)?));
    if rest.is_empty() {
        bytes.collect()
    } else {
        None
    }
}
