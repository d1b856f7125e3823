//! What is made of requests and answers, without servers: for whoever wants to try all kinds of bytes.

use bytes::Bytes;

use super::lines::Lines;
use super::question::Question;

/// The body that the engine gets of this one for the client `client`, with `unique` as its salt, and how many answers it wants.
///
/// # Errors
/// The message that its client would get.
pub fn relayed_request(body: &[u8], client: u64, unique: u128) -> Result<(String, usize), String> {
    match Question::read(body) {
        Ok(question) => Ok((question.write(client, unique), question.choices)),
        Err(error) => Err(error.message().to_owned()),
    }
}

/// What the client gets of events that come in these pieces.
pub fn relayed_events<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut lines = Lines::default();
    let mut passed = Vec::new();
    for piece in pieces {
        passed.extend_from_slice(&lines.take(Bytes::copy_from_slice(piece)));
    }
    passed.extend_from_slice(&lines.end());
    passed
}
