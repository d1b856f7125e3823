//! Between code words in memory (group after group, see [`crate::scalar`]) and on the wire (in order of priority, each
//! only as long as it has lanes).

#![expect(
    clippy::cast_possible_truncation,
    reason = "planes are numbered 0 to 7"
)]

use core::ops::Range;

use crate::rows::Size;

/// The order of a tile's words on the wire.
#[derive(Clone, Copy, Debug)]
pub(super) enum Order<'a> {
    /// Plane after plane, in each group after group.
    PlaneMajor,
    /// These words of a tile of one run, as `group * 8 + plane`.
    Listed(&'a [u16]),
}

/// Writes the words with the places `range` to `out`, which is exactly as long as they are.
pub(super) fn pack(
    order: Order<'_>,
    range: Range<usize>,
    size: Size,
    words: &[u64],
    out: &mut [u8],
) {
    match order {
        Order::Listed(list) => {
            let words = list[range].iter().map(|word| words[usize::from(*word)]);
            put(words, size.lanes, out);
        }
        Order::PlaneMajor => {
            let mut rest = out;
            for (plane, groups) in planes(range, size) {
                let (out, after) = rest.split_at_mut(groups.len() * size.word_bytes());
                rest = after;
                let words = words.as_chunks::<8>().0[groups.start * size.runs()..].iter();
                let words = words.map(|planes| planes[plane % 8]);
                if size.runs() == 1 || size.has_whole_runs() {
                    put(words, size.lanes, out);
                } else {
                    put_runs(words, size, out);
                }
            }
        }
    }
}

/// The inverse of [`pack`]. Sets the `widths` of the groups whose words these are; lanes past the last become zero.
pub(super) fn unpack(
    order: Order<'_>,
    range: Range<usize>,
    size: Size,
    bytes: &[u8],
    (words, widths): (&mut [u64], &mut [u8]),
) {
    match order {
        Order::Listed(list) => {
            let mut list = list[range].iter();
            take(bytes, size.lanes, |bits| {
                if let Some(&word) = list.next() {
                    words[usize::from(word)] = bits;
                    // A channel's words come in ascending planes, so the last one counts.
                    widths[usize::from(word / 8)] = (word % 8) as u8 + 1;
                }
            });
        }
        Order::PlaneMajor => {
            let mut rest = bytes;
            for (plane, groups) in planes(range, size) {
                let (bytes, after) = rest.split_at(groups.len() * size.word_bytes());
                rest = after;
                let words = words.as_chunks_mut::<8>().0[groups.start * size.runs()..].iter_mut();
                let mut words = words.map(|planes| &mut planes[plane % 8]);
                if size.runs() == 1 || size.has_whole_runs() {
                    take(bytes, size.lanes, |bits| {
                        if let Some(word) = words.next() {
                            *word = bits;
                        }
                    });
                } else {
                    take_runs(bytes, size, words);
                }
                widths[groups].fill(plane as u8 + 1);
            }
        }
    }
}

/// A range of places in plane-major order, as planes and their groups. Only the first and the last can be parts of a plane.
fn planes(range: Range<usize>, size: Size) -> impl Iterator<Item = (usize, Range<usize>)> {
    let first = range.start / size.groups;
    (first..range.end.div_ceil(size.groups)).map(move |plane| {
        let start = plane * size.groups;
        let groups = range.start.max(start) - start..(range.end - start).min(size.groups);
        (plane, groups)
    })
}

/// Writes words of up to 64 lanes, or of whole runs.
fn put(words: impl Iterator<Item = u64>, lanes: usize, out: &mut [u8]) {
    if lanes > 56 {
        for (out, word) in out.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *out = word.to_le_bytes();
        }
    } else {
        let bytes = lanes.div_ceil(8);
        for (out, word) in out.chunks_exact_mut(bytes).zip(words) {
            out.copy_from_slice(&word.to_le_bytes()[..bytes]);
        }
    }
}

/// Reads words of up to 64 lanes, or of whole runs.
fn take(bytes: &[u8], lanes: usize, mut each: impl FnMut(u64)) {
    if lanes > 56 {
        for word in bytes.as_chunks::<8>().0 {
            each(u64::from_le_bytes(*word));
        }
    } else {
        for bytes in bytes.chunks_exact(lanes.div_ceil(8)) {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            each(u64::from_le_bytes(word));
        }
    }
}

/// Writes a plane's words of more than 64 lanes, of which the last isn't whole.
fn put_runs(words: impl Iterator<Item = u64>, size: Size, out: &mut [u8]) {
    let parts = out
        .chunks_exact_mut(size.word_bytes())
        .flat_map(|out| out.chunks_mut(8));
    for (out, word) in parts.zip(words) {
        out.copy_from_slice(&word.to_le_bytes()[..out.len()]);
    }
}

/// The inverse of [`put_runs`].
fn take_runs<'a>(bytes: &[u8], size: Size, words: impl Iterator<Item = &'a mut u64>) {
    let parts = bytes
        .chunks_exact(size.word_bytes())
        .flat_map(|bytes| bytes.chunks(8));
    for (bytes, word) in parts.zip(words) {
        let mut padded = [0; 8];
        padded[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_le_bytes(padded);
    }
}

/// Writes whole little-endian words; `out` has eight bytes a word.
pub(super) fn store(words: &[u64], out: &mut [u8]) {
    for (word, out) in words.iter().zip(out.as_chunks_mut::<8>().0) {
        *out = word.to_le_bytes();
    }
}

/// Reads little-endian words, the last one zero-padded.
pub(super) fn load(bytes: &[u8], words: &mut [u64]) {
    let (whole, rest) = bytes.as_chunks::<8>();
    for (word, bytes) in words.iter_mut().zip(whole) {
        *word = u64::from_le_bytes(*bytes);
    }
    if let (false, Some(word)) = (rest.is_empty(), words.get_mut(whole.len())) {
        let mut padded = [0; 8];
        padded[..rest.len()].copy_from_slice(rest);
        *word = u64::from_le_bytes(padded);
    }
}
