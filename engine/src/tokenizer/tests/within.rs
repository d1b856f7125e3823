//! Prompts of bounded length: the tokens of the whole text, or none.

use std::cell::Cell;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::*;

/// What texts are made of that have everything in them: words, digits, spaces, marks, special tokens whole and in part.
const SCRAPS: [&str; 43] = [
    "\u{4}",
    "\u{6}",
    "\u{7f}",
    "a",
    "The",
    "don't",
    "'S",
    "1",
    "234",
    "\u{b2}",
    "\u{0664}",
    " ",
    "  ",
    "\n",
    "\r\n",
    "\t",
    "\u{a0}",
    "\u{3000}",
    ".",
    ",",
    "!?",
    "_",
    "|",
    "<",
    ">",
    "<|im_start|>",
    "<|im_end|>",
    "<|endoftext|>",
    "<|im_",
    "start|>",
    "<s>",
    "</s>",
    "\u{301}",
    "e\u{301}",
    "\u{1100}",
    "\u{1161}",
    "\u{4e2d}\u{6587}",
    "\u{3002}",
    "\u{3001}",
    "\u{ac00}",
    "\u{1f980}",
    "\u{200d}",
    "\u{2581}",
];

fn text(scraps: &[u8]) -> String {
    scraps
        .iter()
        .map(|scrap| SCRAPS[usize::from(*scrap) % SCRAPS.len()])
        .collect()
}

/// One of each way to cut, with tokens and merges that reach over as much as they may.
fn all() -> Vec<Tokenizer> {
    let mut all = vec![real()];
    let encoded = Vocabulary::from_gguf(&test_model_gguf()).unwrap();
    for cut in ["gpt-2", "llama-bpe", "qwen2"] {
        let vocabulary = Vocabulary {
            cut: cut.to_owned(),
            ..encoded.clone()
        };
        all.push(Tokenizer::from_vocabulary(&vocabulary).unwrap());
    }
    for (add_space, crossing) in [(true, false), (false, false), (true, true)] {
        let bytes: Vec<String> = (0..=255_u8).map(|b| format!("<0x{b:02X}>")).collect();
        let mut tokens: Vec<_> = ["<unk>", "<s>", "</s>"]
            .map(|token| (token, Kind::Control, 0.0))
            .into();
        tokens.extend(bytes.iter().map(|b| (b.as_str(), Kind::Byte, 0.0)));
        let normal = [
            "\u{2581}",
            "a",
            "T",
            "h",
            "e",
            "\u{2581}\u{2581}",
            "\u{2581}a",
            "\u{2581}T",
            "\u{2581}Th",
            "\u{2581}The",
            "he",
        ];
        tokens.extend(
            (0_u8..)
                .zip(normal)
                .map(|(i, t)| (t, Kind::Normal, -f64::from(i))),
        );
        if crossing {
            tokens.push(("a\u{2581}", Kind::Normal, 9.0));
            tokens.push(("a\u{2581}a", Kind::Normal, 10.0));
        }
        let vocabulary = Vocabulary {
            bos: Some(1),
            unknown: Some(0),
            add_bos: true,
            add_space,
            ..vocabulary(Family::Pieces, "", &tokens)
        };
        all.push(Tokenizer::from_vocabulary(&vocabulary).unwrap());
    }
    all
}

#[test]
fn parts_of_a_text_have_the_tokens_of_the_whole() {
    let all = all();
    bolero::check!()
        .with_type::<(Vec<u8>, u8)>()
        .with_iterations(2000)
        .for_each(|(scraps, length)| {
            let text = text(scraps);
            for tokenizer in &all {
                let (mut tokens, mut rest) = (Vec::new(), text.as_str());
                while !rest.is_empty() {
                    let (part, after) = tokenizer.cuts.split(rest, usize::from(*length % 16));
                    tokens.extend(tokenizer.encode(part).unwrap());
                    rest = after;
                }
                assert_eq!(tokens, tokenizer.encode(&text).unwrap(), "{text:?}");
            }
        });
}

#[test]
fn no_text_has_fewer_tokens_than_the_bound_says() {
    let all = all();
    bolero::check!()
        .with_type::<(Vec<u8>, String)>()
        .with_iterations(2000)
        .for_each(|(scraps, strange)| {
            let text = text(scraps) + strange;
            for tokenizer in &all {
                let tokens = tokenizer.encode(&text).unwrap();
                let squeezed = tokenizer.fewest.squeezed(&text);
                assert_eq!(tokenizer.encode(&squeezed).unwrap(), tokens, "{text:?}");
                assert!(tokenizer.fewest.of(&text) <= tokens.len(), "{text:?}");
                let all = tokenizer.prompt(&text).unwrap();
                let within = tokenizer.prompt_within(&text, all.len(), &|| true);
                assert_eq!(within.unwrap(), all);
                if let Some(most) = all.len().checked_sub(1) {
                    let refused = tokenizer.prompt_within(&text, most, &|| true);
                    let Err(PromptError::TooLong { at_least, .. }) = refused else {
                        panic!("{refused:?} of {text:?}");
                    };
                    assert!(most < at_least && at_least <= all.len(), "{text:?}");
                }
            }
        });
}

#[test]
fn megabytes_of_anything_are_refused_before_they_are_tokens() {
    let tokenizer = real();
    let asked = Cell::new(0);
    let is_wanted = || {
        asked.set(asked.get() + 1);
        true
    };
    for (scrap, at_least) in [
        ("1234567890", 4_000_000),
        ("A lynx at night. ", 200_000),
        ("a", 50_000),
        ("e\u{301}", 50_000),
        ("\u{4e2d}\u{6587}", 50_000),
    ] {
        let text = scrap.repeat(4_000_000 / scrap.len());
        let Err(PromptError::TooLong { at_least: told, .. }) =
            tokenizer.prompt_within(&text, 8191, &is_wanted)
        else {
            panic!("{scrap}");
        };
        assert!(told >= at_least, "{scrap}: {told}");
    }
    assert_eq!(asked.get(), 0, "nothing was encoded");
}

#[test]
fn megabytes_that_are_no_tokens_take_no_time_at_all() {
    let tokenizer = real();
    let text = format!("a{}b", "\u{4}\u{6}\u{13}".repeat(1_000_000));
    assert!(tokenizer.fewest.squeezed(&text).len() < 16);
    let tokens = tokenizer.prompt_within(&text, 8191, &|| true).unwrap();
    assert_eq!(tokens, tokenizer.encode("a\u{4}\u{6}b").unwrap());
}

#[test]
fn a_prompt_that_nobody_wants_any_more_is_left_between_two_parts() {
    let tokenizer = real();
    let text = "A lynx moves through deep snow at night. ".repeat(10_000);
    let left = Cell::new(3);
    let is_wanted = || {
        left.set(left.get() - 1);
        left.get() > 0
    };
    let refused = tokenizer.prompt_within(&text, usize::MAX, &is_wanted);
    assert!(matches!(refused, Err(PromptError::Unwanted)));
}

/// What this thread has had of the processor so far, however busy that is with others.
fn thread_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap()
}

#[test]
fn a_word_without_end_takes_no_longer_than_many_words() {
    let tokenizer = real();
    let time = |text: &str| {
        let begun = thread_time();
        tokenizer.encode(text).unwrap();
        thread_time() - begun
    };
    for scrap in ["a", "qxz", "\u{301}", "=-"] {
        let least = |bytes: usize| {
            let text = format!("a{}", scrap.repeat(bytes / scrap.len()));
            (0..3).map(|_| time(&text)).min().unwrap_or_default()
        };
        // Sixteen times as much would take 256 times as long, were it quadratic.
        let (short, long) = (least(8_000), least(128_000));
        assert!(
            long < short * 80 + Duration::from_millis(20),
            "{scrap}: {short:?}, {long:?}"
        );
    }
}
