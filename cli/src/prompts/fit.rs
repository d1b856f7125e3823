//! Cutting a context to a number of tokens, with a tokenizer that only counts.

use super::FitError;

/// No tokenizer in use makes tokens of prose longer than this on average; it bounds the text that is counted.
const MOST_BYTES_PER_TOKEN: usize = 16;

/// The longest prefix of `text`, in bytes and ending where a word ends, for which `tokens_of` stays within `target`.
pub(super) fn longest_prefix(
    text: &str,
    target: usize,
    tokens_of: impl Fn(usize) -> usize,
) -> Result<usize, FitError> {
    let least = tokens_of(0);
    if least > target {
        return Err(FitError { least, target });
    }
    let most = text.floor_char_boundary(target.saturating_mul(MOST_BYTES_PER_TOKEN));
    let mut ends: Vec<usize> = text[..most]
        .match_indices(char::is_whitespace)
        .map(|(at, _)| at)
        .collect();
    ends.push(most);
    // Token counts grow with the text but for a token here and there, which the last loop takes back.
    let mut fitting = ends.partition_point(|&end| tokens_of(end) <= target);
    while let Some(last) = fitting.checked_sub(1) {
        if tokens_of(ends[last]) <= target {
            return Ok(ends[last]);
        }
        fitting = last;
    }
    Ok(0)
}
