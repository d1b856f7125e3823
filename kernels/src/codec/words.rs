//! Between code words in memory (64 lanes each, the last run padded) and on the wire (only the bytes that have lanes).

use crate::rows::Size;

/// Writes `words`, `runs` to a code word, as `word_bytes` bytes a code word. `out` is exactly as long as that takes.
pub(super) fn pack(words: &[u64], size: Size, out: &mut [u8]) {
    let (runs, bytes) = (size.runs(), size.word_bytes());
    if bytes == runs * 8 {
        store(words, out);
    } else {
        for (word, out) in words.chunks_exact(runs).zip(out.chunks_exact_mut(bytes)) {
            for (run, out) in word.iter().zip(out.chunks_mut(8)) {
                out.copy_from_slice(&run.to_le_bytes()[..out.len()]);
            }
        }
    }
}

/// The inverse of [`pack`]; the padding becomes zero.
pub(super) fn unpack(bytes: &[u8], size: Size, words: &mut [u64]) {
    let (runs, word_bytes) = (size.runs(), size.word_bytes());
    if word_bytes == runs * 8 {
        load(bytes, words);
    } else {
        for (word, bytes) in words
            .chunks_exact_mut(runs)
            .zip(bytes.chunks_exact(word_bytes))
        {
            load(bytes, word);
        }
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
