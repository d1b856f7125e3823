//! What clients ask.

use lynx_agent::http::read_request;
use lynx_agent::requests::{Generate, Input, ModelInfo};
use serde_json::{Map, Value, json};

/// What the agent takes at a time.
const MOST: usize = 8;

/// A request of OpenAI's interface, a chat where the first byte is odd: refused with a sentence, or so many answers as an
/// agent takes, all within its bounds.
pub(crate) fn openai_request(bytes: &[u8]) {
    let Some((form, body)) = bytes.split_first() else {
        return;
    };
    let model = ModelInfo {
        name: "tiny".to_owned(),
        context_tokens: 4096,
        fingerprint: None,
    };
    let is_chat = form % 2 == 1;
    let read = read_request(is_chat, body, &model, MOST);
    match &read {
        Ok(generates) => {
            assert!((1..=MOST).contains(&generates.len()));
            generates.iter().for_each(|one| check(one, is_chat));
        }
        Err(message) => assert!(!message.is_empty()),
    }
    assert_eq!(read, read_request(is_chat, body, &model, MOST));
}

fn check(generate: &Generate, is_chat: bool) {
    match &*generate.input {
        Input::Text(text) => assert!(!is_chat && !text.is_empty()),
        Input::Tokens(tokens) => assert!(!is_chat && !tokens.ids.is_empty()),
        Input::Chat(chat) => assert!(is_chat && !chat.messages.is_empty()),
    }
    assert!((1..=4096).contains(&generate.max_tokens));
    assert!(generate.stop.len() <= 4);
    assert!(generate.stop.iter().all(|text| !text.is_empty()));
    let sampling = &generate.sampling;
    let numbers = [
        sampling.temperature,
        sampling.top_p,
        sampling.presence_penalty,
        sampling.frequency_penalty,
    ];
    let mut numbers = numbers.iter().chain(sampling.logit_bias.values());
    assert!(numbers.all(|number| number.abs() <= 100.0));
}

/// A request that goes on to an engine's own server: refused with a sentence, or an object that says whose it is, that nobody
/// else's cache is found by, and that is the client's otherwise.
pub(crate) fn relayed_request(body: &[u8]) {
    const OWN: [&str; 3] = ["kv_transfer_params", "cache_salt", "lynx"];
    let (written, choices) = match lynx_agent::http::relayed_request(body, 7, 0xabc) {
        Ok(read) => read,
        Err(message) => return assert!(!message.is_empty()),
    };
    assert!(choices > 0);
    // A number may be too large for whoever looks at its value.
    let read = |text: &[u8]| serde_json::from_slice::<Map<String, Value>>(text);
    let (Ok(mut before), Ok(mut after)) = (read(body), read(written.as_bytes())) else {
        return;
    };
    assert_eq!(
        after["kv_transfer_params"],
        json!({"lynx": {"client": "7"}})
    );
    let salt = after["cache_salt"].as_str().expect("a salt");
    let own = before.get("cache_salt").and_then(Value::as_str);
    assert_eq!(salt, format!("{}{:032x}", own.unwrap_or_default(), 0xabc));
    let ignores = before.get("lynx").and_then(|lynx| lynx.get("ignore_eos"));
    if ignores == Some(&Value::Bool(true)) {
        assert_eq!(
            after.insert("ignore_eos".to_owned(), Value::Null),
            Some(Value::Bool(true))
        );
        before.insert("ignore_eos".to_owned(), Value::Null);
    }
    for name in OWN {
        before.remove(name);
        after.remove(name);
    }
    assert_eq!(before, after);
}

/// Events of an engine's own server, in pieces of the first byte's length: however they are cut, the same passes, and what
/// has nothing to hide passes as it is.
pub(crate) fn relayed_events(bytes: &[u8]) {
    let Some((size, events)) = bytes.split_first() else {
        return;
    };
    let size = usize::from(*size).max(1);
    let passed = lynx_agent::http::relayed_events(events.chunks(size));
    assert_eq!(
        passed,
        lynx_agent::http::relayed_events([events].into_iter())
    );
    let name = b"kv_transfer_params";
    if !events.windows(name.len()).any(|part| part == name) {
        assert_eq!(passed, events);
    }
}
