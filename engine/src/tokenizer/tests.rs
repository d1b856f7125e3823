//! The real vocabulary, and small ones made by hand for what it doesn't have.

use std::collections::HashSet;
use std::sync::Arc;

mod within;

use super::vocabulary::{Family, Kind, Vocabulary};
use super::*;
use crate::template::{ChatTemplate, Message};
use crate::testing::test_model_gguf;

fn vocabulary(family: Family, cut: &str, tokens: &[(&str, Kind, f64)]) -> Vocabulary {
    Vocabulary {
        family,
        cut: cut.to_owned(),
        tokens: tokens
            .iter()
            .map(|(token, ..)| (*token).to_owned())
            .collect(),
        kinds: tokens.iter().map(|(_, kind, _)| *kind).collect(),
        merges: Vec::new(),
        scores: tokens.iter().map(|(.., score)| *score).collect(),
        bos: None,
        eos: Some(0),
        unknown: None,
        add_bos: false,
        add_space: false,
    }
}

/// A tokenizer whose token 0 ends the output and whose token `b` is the byte `b`, for 1 to 255.
pub(crate) fn byte_tokenizer() -> Tokenizer {
    let names: Vec<String> = (0..=255_u8).map(|b| format!("<0x{b:02X}>")).collect();
    let tokens: Vec<_> = names
        .iter()
        .enumerate()
        .map(|(id, name)| match id {
            0 => ("</s>", Kind::Control, 0.0),
            _ => (name.as_str(), Kind::Byte, 0.0),
        })
        .collect();
    Tokenizer::from_vocabulary(&vocabulary(Family::Pieces, "", &tokens)).unwrap()
}

fn real() -> Tokenizer {
    Tokenizer::from_gguf(&test_model_gguf()).unwrap()
}

#[test]
fn texts_survive_the_round_trip() {
    let tokenizer = real();
    for text in [
        "",
        " ",
        "Hello, world!",
        "  two  spaces\n\n\tand tabs ",
        "naïve café – 中文, 日本語 🦀🏳️‍🌈",
        "let x = 0xFF_u32; // don't\r\n",
        "\u{0}\u{7f}\u{ad}\u{feff}",
    ] {
        let tokens = tokenizer.encode(text).unwrap();
        assert_eq!(tokenizer.decode(&tokens), text);
    }
    // This vocabulary lacks a few bytes: control characters, and some of characters far outside the first plane.
    let known: HashSet<u8> = tokenizer
        .pieces
        .iter()
        .filter_map(|piece| {
            if let [byte] = **piece {
                Some(byte)
            } else {
                None
            }
        })
        .collect();
    let is_known = |c: &char| c.to_string().bytes().all(|byte| known.contains(&byte));
    bolero::check!()
        .with_type::<String>()
        .with_iterations(500)
        .for_each(|text| {
            let text: String = text.chars().filter(is_known).collect();
            let tokens = tokenizer.encode(&text).unwrap();
            assert_eq!(tokenizer.decode(&tokens), text);
        });
}

#[test]
fn words_are_one_token_and_digits_each_their_own() {
    let tokenizer = real();
    let pieces = |text: &str| -> Vec<String> {
        let tokens = tokenizer.encode(text).unwrap();
        tokens.iter().map(|t| tokenizer.decode(&[*t])).collect()
    };
    assert_eq!(
        pieces("The capital of France"),
        ["The", " capital", " of", " France"]
    );
    assert_eq!(
        pieces("in 2024, I'll"),
        ["in", " ", "2", "0", "2", "4", ",", " I", "'ll"]
    );
}

#[test]
fn special_tokens_are_recognised_and_add_no_text() {
    let tokenizer = real();
    let tokens = tokenizer
        .encode("<|im_start|>user\nHi<|im_end|>\n")
        .unwrap();
    assert_eq!((tokens[0], tokens[tokens.len() - 2]), (1, 2));
    assert_eq!(tokenizer.decode(&tokens), "user\nHi\n");
    assert_eq!(tokenizer.ends(), [0, 2]);
    assert_eq!(tokenizer.special_texts().bos, "<|im_start|>");
    assert_eq!(
        tokenizer.prompt("Hi").unwrap(),
        tokenizer.encode("Hi").unwrap()
    );
}

#[test]
fn the_models_own_template_makes_a_conversation() {
    let gguf = test_model_gguf();
    let tokenizer = Tokenizer::from_gguf(&gguf).unwrap();
    let template = ChatTemplate::from_gguf(&gguf, tokenizer.special_texts()).unwrap();
    let message = |role: &str, content: &str| Message {
        role: role.to_owned(),
        content: content.to_owned(),
    };
    let prompt = template
        .render(&[message("system", "Be brief."), message("user", "Hi")])
        .unwrap();
    assert_eq!(
        prompt,
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    );
    let without_system = template.render(&[message("user", "Hi")]).unwrap();
    assert!(without_system.starts_with("<|im_start|>system\nYou are a helpful AI assistant"));
}

#[test]
fn a_table_of_bytes_decodes_as_the_crates_decoder_does() {
    let tokenizer = real();
    let decoder = tokenizers::pre_tokenizers::byte_level::ByteLevel::default();
    let mut token: TokenId = 17;
    for _ in 0..500 {
        let tokens: Vec<TokenId> = (0..8).map(|i| (token + i * 7919) % 49_135 + 17).collect();
        let names: Vec<String> = tokens
            .iter()
            .filter_map(|t| tokenizer.encoder.id_to_token(*t))
            .collect();
        let theirs = tokenizers::Decoder::decode_chain(&decoder, names)
            .unwrap()
            .concat();
        assert_eq!(tokenizer.decode(&tokens), theirs);
        token = (token * 31 + 11) % 49_000;
    }
}

/// The text of a stream, in what it gave out at each token and at the end.
fn streamed(stops: &[&str], bytes: &[u8]) -> Vec<String> {
    let stops = stops.iter().map(|s| (*s).to_owned()).collect();
    let mut stream = TextStream::new(Arc::new(byte_tokenizer()), stops);
    let mut texts: Vec<_> = bytes
        .iter()
        .map(|b| stream.push(TokenId::from(*b)))
        .collect();
    texts.push(stream.rest());
    texts
}

#[test]
fn a_character_is_streamed_when_it_is_complete() {
    assert_eq!(
        streamed(&[], "aé🦀".as_bytes()),
        ["a", "", "é", "", "", "", "🦀", ""]
    );
    assert_eq!(
        streamed(&[], b"\xf0\x9fz\xff"),
        ["", "", "\u{fffd}z", "\u{fffd}", ""]
    );
    assert_eq!(streamed(&[], b"a\xf0\x9f"), ["a", "", "", "\u{fffd}"]);
}

#[test]
fn a_possible_stop_string_is_held_back_until_it_is_decided() {
    assert_eq!(
        streamed(&["END", "stop"], b"xENEND y"),
        ["x", "", "", "EN", "", "", "", "", ""]
    );
    assert_eq!(streamed(&["END"], b"EN"), ["", "", "EN"]);
    assert_eq!(streamed(&["b", "abc"], b"abc"), ["", "a", "", ""]);
}

#[test]
fn a_stream_gives_the_text_of_all_tokens_together() {
    bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
        let bytes: Vec<u8> = bytes.iter().map(|b| (*b).max(1)).collect();
        let whole = String::from_utf8_lossy(&bytes).into_owned();
        assert_eq!(streamed(&[], &bytes).concat(), whole);
        if let Some(at) = whole.find("ab") {
            assert_eq!(streamed(&["ab"], &bytes).concat(), whole[..at]);
        }
    });
}

#[test]
fn sentencepiece_vocabularies_merge_the_best_union_first() {
    let tokens = [
        ("<unk>", Kind::Control, 0.0),
        ("<s>", Kind::Control, 0.0),
        ("<0xC3>", Kind::Byte, 0.0),
        ("<0xA9>", Kind::Byte, 0.0),
        ("\u{2581}", Kind::Normal, -9.0),
        ("a", Kind::Normal, -9.0),
        ("b", Kind::Normal, -9.0),
        ("c", Kind::Normal, -9.0),
        ("ab", Kind::Normal, -3.0),
        ("bc", Kind::Normal, -2.0),
        ("\u{2581}a", Kind::Normal, -1.0),
        ("\u{2581}abc", Kind::Normal, -4.0),
    ];
    let vocabulary = Vocabulary {
        bos: Some(1),
        unknown: Some(0),
        add_bos: true,
        add_space: true,
        ..vocabulary(Family::Pieces, "", &tokens)
    };
    let tokenizer = Tokenizer::from_vocabulary(&vocabulary).unwrap();
    // The space is put in front; its union with `a` wins, then `bc`, then all of it.
    assert_eq!(tokenizer.prompt("abc").unwrap(), [1, 11]);
    assert_eq!(tokenizer.encode("ab").unwrap(), [10, 6]);
    assert_eq!(tokenizer.encode("é").unwrap(), [4, 2, 3]);
    assert_eq!(tokenizer.decode(&[1, 11, 10, 2, 3]), " abc aé");
    assert_eq!(tokenizer.prompt("<s>abc").unwrap()[0], 1);
}

#[test]
fn an_unknown_way_to_cut_is_refused_by_name() {
    let vocabulary = vocabulary(Family::Bytes, "tekken", &[("a", Kind::Normal, 0.0)]);
    let error = Tokenizer::from_vocabulary(&vocabulary).unwrap_err();
    assert!(error.to_string().contains("tekken"), "{error}");
    assert!(error.to_string().contains("smollm"), "{error}");
}

#[test]
fn cuts_of_llama_3_and_qwen_2_differ_in_digits() {
    let tokens: Vec<String> = ["1", "2", "3", "4", "12", "123"].map(str::to_owned).into();
    for (cut, expected) in [("llama-bpe", &[5, 3][..]), ("qwen2", &[0, 1, 2, 3])] {
        let vocabulary = Vocabulary {
            kinds: vec![Kind::Normal; tokens.len()],
            tokens: tokens.clone(),
            merges: [("1", "2"), ("12", "3")]
                .map(|(a, b)| (a.to_owned(), b.to_owned()))
                .into(),
            ..vocabulary(Family::Bytes, cut, &[])
        };
        let tokenizer = Tokenizer::from_vocabulary(&vocabulary).unwrap();
        assert_eq!(tokenizer.encode("1234").unwrap(), expected, "{cut}");
    }
}
