//! What clients ask.

use lynx_agent::http::read_request;
use lynx_agent::requests::{Generate, Input, ModelInfo};

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
