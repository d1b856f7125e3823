//! Between code words in memory (group after group, see [`crate::scalar`]) and on the wire (in order of priority, each
//! only as long as it has lanes).

#![expect(
    clippy::cast_possible_truncation,
    reason = "planes are numbered 0 to 7"
)]

use core::ops::Range;

use super::simd;
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
            put(
                list[range].iter().map(|word| words[usize::from(*word)]),
                size,
                out,
            );
        }
        Order::PlaneMajor => {
            let mut rest = out;
            for (plane, groups) in planes(range, size) {
                let (out, after) = rest.split_at_mut(groups.len() * size.word_bytes());
                rest = after;
                let words = words.as_chunks::<8>().0[groups.start * size.runs()..].iter();
                put(words.map(|planes| planes[plane % 8]), size, out);
            }
        }
    }
}

/// The inverse of [`pack`]. Lanes past the last are anything.
pub(super) fn unpack(
    order: Order<'_>,
    range: Range<usize>,
    size: Size,
    bytes: &[u8],
    words: &mut [u64],
) {
    match order {
        Order::Listed(list) => {
            let list = &list[range];
            if size.has_whole_runs() {
                for (list, line) in list.chunks(8).zip(bytes.chunks(64)) {
                    // A single stream of bytes would be waited for at every page.
                    simd::prefetch(line, 2048);
                    for (word, bytes) in list.iter().zip(line.as_chunks().0) {
                        words[usize::from(*word)] = u64::from_le_bytes(*bytes);
                    }
                }
            } else {
                for (word, (at, len)) in list.iter().zip(parts(size)) {
                    words[usize::from(*word)] = get(bytes, at, len);
                }
            }
        }
        Order::PlaneMajor => {
            let mut rest = bytes;
            for (plane, groups) in planes(range, size) {
                let (bytes, after) = rest.split_at(groups.len() * size.word_bytes());
                rest = after;
                let runs = groups.start * size.runs()..groups.end * size.runs();
                let words = words.as_chunks_mut::<8>().0[runs].iter_mut();
                let words = words.map(|planes| &mut planes[plane % 8]);
                if size.has_whole_runs() {
                    for (word, bytes) in words.zip(bytes.as_chunks().0) {
                        *word = u64::from_le_bytes(*bytes);
                    }
                } else {
                    for (word, (at, len)) in words.zip(parts(size)) {
                        *word = get(bytes, at, len);
                    }
                }
            }
        }
    }
}

/// How many planes each group has among the first `present` words; absent groups keep theirs.
pub(super) fn widths(order: Order<'_>, present: usize, widths: &mut [u8]) {
    match order {
        Order::Listed(list) => {
            // A channel's words come in ascending planes, so the last one counts.
            for word in &list[..present] {
                widths[usize::from(word / 8)] = (word % 8) as u8 + 1;
            }
        }
        Order::PlaneMajor => {
            let groups = widths.len();
            for (group, width) in widths.iter_mut().enumerate() {
                *width = ((present + groups - 1 - group) / groups) as u8;
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

/// Writes run after run until `out` is full.
fn put(words: impl Iterator<Item = u64>, size: Size, out: &mut [u8]) {
    if size.has_whole_runs() {
        for (out, word) in out.as_chunks_mut().0.iter_mut().zip(words) {
            *out = word.to_le_bytes();
        }
        return;
    }
    for (word, (at, len)) in words.zip(parts(size)) {
        let Some(out) = out.get_mut(at..).filter(|out| !out.is_empty()) else {
            break;
        };
        // Eight bytes where there is room: what is too much is overwritten next, and a fixed length is fast.
        match out.first_chunk_mut() {
            Some(out) => *out = word.to_le_bytes(),
            None => out[..len].copy_from_slice(&word.to_le_bytes()[..len]),
        }
    }
}

/// The `len` bytes of a run at `at`, and anything above them.
fn get(bytes: &[u8], at: usize, len: usize) -> u64 {
    let bytes = &bytes[at..];
    if let Some(bytes) = bytes.first_chunk() {
        return u64::from_le_bytes(*bytes);
    }
    let mut padded = [0; 8];
    padded[..len].copy_from_slice(&bytes[..len]);
    u64::from_le_bytes(padded)
}

/// Where the runs of code words lie on the wire, and how many bytes they have there.
fn parts(size: Size) -> impl Iterator<Item = (usize, usize)> {
    let (runs, bytes) = (size.runs(), size.word_bytes());
    (0..).flat_map(move |word| {
        (0..runs).map(move |run| (word * bytes + run * 8, (bytes - run * 8).min(8)))
    })
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
