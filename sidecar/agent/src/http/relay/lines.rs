//! What an engine's own server answers, on its way to the client: looked at line by line, and mostly left alone.

use bytes::{Bytes, BytesMut};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::members::Members;
use crate::requests::Finish;

/// The longest line that is looked at, and the longest answer that is looked at as a whole.
pub(super) const LONGEST: usize = 1 << 20;
/// What connector and engine tell each other.
const TRANSFER: &str = "kv_transfer_params";

/// What is known of an answer by what has come of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// How its last choice ended.
    pub(super) finish: Option<Finish>,
    /// How many tokens it has, where the engine says so.
    pub(super) tokens: Option<u32>,
    /// Whether the engine said that something went wrong.
    pub(super) failed: bool,
    /// Whether its end has come.
    pub(super) is_done: bool,
}

/// Server-sent events as they come.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// The beginning of a line.
    begun: BytesMut,
    /// Whether the line under way is too long to be looked at.
    passing: bool,
    pub(super) seen: Seen,
}

/// The part of an answer, or of a piece of one, that is looked at.
#[derive(Debug, Deserialize)]
struct Said<'a> {
    #[serde(default, borrow)]
    choices: Vec<Choice<'a>>,
    usage: Option<Usage>,
    error: Option<IgnoredAny>,
}

#[derive(Debug, Deserialize)]
struct Choice<'a> {
    finish_reason: Option<&'a str>,
}

#[derive(Debug, Deserialize)]
struct Usage {
    completion_tokens: Option<u32>,
}

impl Seen {
    /// Takes a JSON object in; its text as the client may have it, where that is another one.
    pub(super) fn take(&mut self, object: &[u8]) -> Option<String> {
        const TELLING: [&[u8]; 5] = [
            b"\"finish_reason\":\"",
            b"\"finish_reason\": \"",
            b"\"usage\":",
            b"\"error\":",
            b"\"kv_transfer_params\":",
        ];
        if !TELLING.iter().any(|what| contains(object, what)) {
            return None;
        }
        if let Ok(said) = serde_json::from_slice::<Said<'_>>(object) {
            let mut reasons = said.choices.iter().filter_map(|one| one.finish_reason);
            let finish = reasons.next_back().map(|reason| match reason {
                "length" => Finish::Length,
                _ => Finish::Stop,
            });
            self.finish = finish.or(self.finish);
            let tokens = said.usage.and_then(|usage| usage.completion_tokens);
            self.tokens = tokens.or(self.tokens);
            self.failed |= said.error.is_some();
        }
        if !contains(object, TELLING[4]) {
            return None;
        }
        let mut members = Members::read(object).ok()?;
        members.get(TRANSFER)?;
        members.without(&[TRANSFER]);
        Some(members.write(&[]))
    }
}

impl Lines {
    /// What of the answer may go on, now that this has come: whole lines.
    pub(super) fn take(&mut self, chunk: Bytes) -> Bytes {
        let end = chunk.iter().rposition(|byte| *byte == b'\n');
        let Some(end) = end.map(|at| at + 1) else {
            return self.wait(chunk);
        };
        let rest = chunk.slice(end..);
        let lines = chunk.slice(..end);
        let lines = if self.begun.is_empty() {
            lines
        } else {
            let mut whole = std::mem::take(&mut self.begun);
            whole.extend_from_slice(&lines);
            whole.freeze()
        };
        let lines = self.edit(lines);
        let rest = self.wait(rest);
        if rest.is_empty() {
            return lines;
        }
        [lines, rest].concat().into()
    }

    /// Whether a line has begun to pass, and not ended.
    pub(super) const fn is_passing(&self) -> bool {
        self.passing
    }

    /// What is left once no more comes.
    pub(super) fn end(&mut self) -> Bytes {
        let rest = std::mem::take(&mut self.begun).freeze();
        self.edit(rest)
    }

    /// Keeps the beginning of a line until the rest of it is here, unless that takes too much.
    fn wait(&mut self, begun: Bytes) -> Bytes {
        if self.passing {
            return begun;
        }
        self.begun.extend_from_slice(&begun);
        if self.begun.len() <= LONGEST {
            return Bytes::new();
        }
        self.passing = true;
        std::mem::take(&mut self.begun).freeze()
    }

    fn edit(&mut self, lines: Bytes) -> Bytes {
        let mut edited: Option<Vec<u8>> = None;
        let mut at = 0;
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            let other = if std::mem::take(&mut self.passing) {
                None
            } else {
                self.line(line)
            };
            match (other, &mut edited) {
                (None, None) => {}
                (None, Some(edited)) => edited.extend_from_slice(line),
                (Some(other), edited) => edited
                    .get_or_insert_with(|| lines[..at].to_vec())
                    .extend_from_slice(format!("data: {other}\n").as_bytes()),
            }
            at += line.len();
        }
        edited.map_or(lines, Bytes::from)
    }

    /// What stands in the line's place, where it can't stay.
    fn line(&mut self, line: &[u8]) -> Option<String> {
        let data = line.strip_prefix(b"data:")?.trim_ascii();
        if data == b"[DONE]" {
            self.seen.is_done = true;
            return None;
        }
        self.seen.take(data)
    }
}

fn contains(bytes: &[u8], what: &[u8]) -> bool {
    // A text of which this is cheap to ask: what is not UTF-8 has nothing to be found.
    let texts = (std::str::from_utf8(bytes), std::str::from_utf8(what));
    matches!(texts, (Ok(bytes), Ok(what)) if bytes.contains(what))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = concat!(
        "data: {\"choices\":[{\"text\":\"\\\"error\\\":\",\"finish_reason\":null}]}\n\n",
        "data: {\"id\":\"a\",\"kv_transfer_params\":{\"secret\":1},\"choices\":[]}\r\n\r\n",
        ": a comment\n\n",
        "data: {\"choices\":[{\"text\":\"b\",\"finish_reason\":\"length\"}],\"usage\":null}\n\n",
        "data: {\"choices\":[],\"usage\":{\"completion_tokens\":2}}\n\n",
        "data: [DONE]\n\n",
    );

    fn passed(size: usize) -> (String, Seen) {
        let mut lines = Lines::default();
        let mut out = Vec::new();
        for chunk in STREAM.as_bytes().chunks(size) {
            out.extend(lines.take(Bytes::copy_from_slice(chunk)));
        }
        out.extend(lines.end());
        (String::from_utf8(out).unwrap(), lines.seen)
    }

    #[test]
    fn however_a_stream_is_cut_the_same_comes_out_and_is_seen() {
        let expected = STREAM.replace(
            "{\"id\":\"a\",\"kv_transfer_params\":{\"secret\":1},\"choices\":[]}\r\n",
            "{\"id\":\"a\",\"choices\":[]}\n",
        );
        for size in 1..STREAM.len() {
            let (out, seen) = passed(size);
            assert_eq!(out, expected, "in pieces of {size}");
            let whole = Seen {
                finish: Some(Finish::Length),
                tokens: Some(2),
                failed: false,
                is_done: true,
            };
            assert_eq!(seen, whole);
        }
    }

    #[test]
    fn what_needs_no_edit_is_not_copied_and_does_not_wait() {
        let mut lines = Lines::default();
        let chunk = Bytes::from_static(b"data: {\"choices\":[]}\n\n");
        let out = lines.take(chunk.clone());
        assert_eq!(out.as_ptr(), chunk.as_ptr());
    }

    #[test]
    fn a_line_that_is_too_long_passes_unseen_and_the_next_is_looked_at() {
        let mut lines = Lines::default();
        let long = vec![b'a'; LONGEST];
        assert!(lines.take(Bytes::from_static(b"data: ")).is_empty());
        assert_eq!(lines.take(long.into()).len(), LONGEST + 6);
        assert_eq!(lines.take(Bytes::from_static(b"bc")), "bc");
        let out = lines.take(Bytes::from_static(b"d\ndata: [DONE]\n"));
        assert_eq!(out, "d\ndata: [DONE]\n");
        assert!(lines.seen.is_done);
    }

    #[test]
    fn an_error_in_the_middle_is_seen() {
        let mut seen = Seen::default();
        assert_eq!(seen.take(br#"{"error": {"message": "broke"}}"#), None);
        assert!(seen.failed);
    }
}
