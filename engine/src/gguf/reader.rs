//! A cursor over untrusted bytes that says what it was reading when the bytes ran out.

use super::GgufError;

/// A position in a file. Nothing is read past the end, and no length is believed before it is compared with what is left.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    pub(super) fn position(&self) -> usize {
        self.position
    }

    pub(super) fn take(&mut self, length: u64, what: &str) -> Result<&'a [u8], GgufError> {
        let rest = self.bytes.get(self.position..).unwrap_or_default();
        let taken = usize::try_from(length)
            .ok()
            .and_then(|length| rest.get(..length))
            .ok_or_else(|| GgufError::Truncated {
                what: what.to_owned(),
                need: length,
                left: rest.len() as u64,
            })?;
        self.position += taken.len();
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], GgufError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N as u64, what)?);
        Ok(array)
    }

    pub(super) fn u32(&mut self, what: &str) -> Result<u32, GgufError> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, what: &str) -> Result<u64, GgufError> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// A count of items that take at least `item` bytes each: refused if the rest of the file cannot hold them, so that a
    /// caller may reserve memory for as many.
    pub(super) fn count(&mut self, item: u64, what: &str) -> Result<usize, GgufError> {
        let count = self.u64(what)?;
        let left = self.bytes.len().saturating_sub(self.position) as u64;
        let need = count.saturating_mul(item);
        match usize::try_from(count) {
            Ok(count) if need <= left => Ok(count),
            _ => Err(GgufError::Truncated {
                what: what.to_owned(),
                need,
                left,
            }),
        }
    }

    pub(super) fn string(&mut self, what: &str) -> Result<String, GgufError> {
        let length = self.u64(what)?;
        let bytes = self.take(length, what)?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(error) => Err(malformed(what, format!("a text is not UTF-8 ({error})"))),
        }
    }
}

pub(super) fn malformed(what: &str, problem: impl Into<String>) -> GgufError {
    GgufError::Malformed {
        what: what.to_owned(),
        problem: problem.into(),
    }
}
