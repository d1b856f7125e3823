//! What a model's file says: containers, vocabularies, templates.

use std::sync::Arc;

use lynx_engine::{ChatTemplate, Config, Gguf, Message, SpecialTexts, TextStream, Tokenizer};

use crate::bytes::Bytes;

/// A model's file: what is accepted has every tensor inside the file, and is judged without a panic.
pub(crate) fn gguf(bytes: &[u8]) {
    let Ok(gguf) = Gguf::from_bytes(bytes.to_vec()) else {
        return;
    };
    for tensor in gguf.tensors().values() {
        assert_eq!(gguf.tensor_bytes(tensor).len(), tensor.byte_len());
    }
    if let Ok(config) = Config::from_gguf(&gguf) {
        assert_eq!(config.group() * config.kv_heads, config.heads);
    }
}

/// A model's file as a tokenizer: what it makes of a text are its own tokens, and streamed they give the text that they
/// give at once.
pub(crate) fn tokenizer(bytes: &[u8]) {
    let Ok(gguf) = Gguf::from_bytes(bytes.to_vec()) else {
        return;
    };
    let Ok(tokenizer) = Tokenizer::from_gguf(&gguf) else {
        return;
    };
    let text = gguf.string("fuzz.text").unwrap_or("Hello, world 1234");
    let Ok(tokens) = tokenizer.prompt(text) else {
        return;
    };
    assert!(
        tokens
            .iter()
            .all(|&token| (token as usize) < tokenizer.len())
    );
    let whole = tokenizer.decode(&tokens);
    let mut stream = TextStream::new(Arc::new(tokenizer), Vec::new());
    let mut streamed: String = tokens.iter().map(|&token| stream.push(token)).collect();
    streamed.push_str(&stream.rest());
    assert_eq!(streamed, whole);
}

/// A chat template and what a client says: a text or an error, in bounded time.
pub(crate) fn chat_template(bytes: &[u8]) {
    let mut head = Bytes(bytes);
    let source = usize::from(head.u16());
    let text = String::from_utf8_lossy(head.0);
    let cut = text.floor_char_boundary(source.min(text.len()));
    let (source, said) = text.split_at(cut);
    let texts = SpecialTexts {
        bos: "<s>".to_owned(),
        eos: "</s>".to_owned(),
    };
    let Ok(template) = ChatTemplate::new(source, &texts) else {
        return;
    };
    let message = |role: &str| Message {
        role: role.to_owned(),
        content: said.to_owned(),
    };
    if let Err(error) = template.render(&[message("system"), message("user")]) {
        assert!(!error.to_string().is_empty());
    }
}
