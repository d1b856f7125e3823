//! Everything that reads what a peer, a client, an engine or a file says, as functions of bytes.
//!
//! Each function takes any bytes and panics where the code under it breaks a promise: it is a fuzz target's body
//! (`fuzz/fuzz_targets`, under libFuzzer on a nightly compiler) and an ordinary test over the committed corpus
//! (`tests/corpus.rs`, on the pinned one). They live here and not in `fuzz/`, because that is a workspace of its own,
//! which no test of this one reaches. A function asserts what must hold for any input, and knows no expected outputs: those
//! are the rooms' own tests.

mod agent;
mod bytes;
mod client;
mod codec;
mod engine;
mod hostile;
mod operator;
mod peer;
pub mod seeds;
mod session;
mod tls;
mod wire;
mod words;

/// A function that reads bytes from outside, by name.
#[derive(Clone, Copy, Debug)]
pub struct Parser {
    /// The name of the fuzz target, and of its corpus below `fuzz/corpus`.
    pub name: &'static str,
    /// Reads the bytes; panics where a promise is broken.
    pub read: fn(&[u8]),
}

/// All of them, in the order of their names.
pub const ALL: [Parser; 25] = [
    parser("agent_config", agent::config),
    parser("certificates", tls::certificates),
    parser("chat_template", engine::chat_template),
    parser("decode_unit", codec::decode_unit),
    parser("deployment", operator::deployment),
    parser("descriptor", agent::descriptor),
    parser("environment", agent::environment),
    parser("frame", wire::frame),
    parser("gguf", engine::gguf),
    parser("operator_config", operator::config),
    parser("openai_request", client::openai_request),
    parser("peer_info", wire::peer_info),
    parser("peer_news", peer::news),
    parser("pool_layout", agent::pool_layout),
    parser("profile_json", codec::profile_json),
    parser("question", peer::question),
    parser("receiver", hostile::receiver),
    parser("relayed_events", client::relayed_events),
    parser("relayed_request", client::relayed_request),
    parser("report", operator::report),
    parser("sender", hostile::sender),
    parser("session", session::session),
    parser("tokenizer", engine::tokenizer),
    parser("traceparent", agent::traceparent),
    parser("words", words::words),
];

/// The parser of a fuzz target.
///
/// # Panics
/// Where none has the name: the target is misspelt.
pub fn read(name: &str, bytes: &[u8]) {
    let parser = ALL.iter().find(|parser| parser.name == name);
    parser.map(|parser| parser.read).expect("a parser's name")(bytes);
}

const fn parser(name: &'static str, read: fn(&[u8])) -> Parser {
    Parser { name, read }
}
