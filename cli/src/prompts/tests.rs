//! Prompts are as many, as long and as repeatable as promised.

use std::collections::HashSet;
use std::fs;

use super::*;

/// A stand-in for a tokenizer: a token for each four bytes of a word, and one for a mark.
fn count(text: &str) -> usize {
    let words = text.split(|c: char| !c.is_alphanumeric());
    let marks = text.chars().filter(|c| c.is_ascii_punctuation()).count();
    words.map(|word| word.len().div_ceil(4)).sum::<usize>() + marks
}

fn without_a_system() -> Corpus {
    corpus_under(Path::new("/nonexistent"), 7)
}

#[test]
fn there_are_enough_prompts_of_every_kind() {
    let all = corpus(7);
    let names: HashSet<_> = all.sources.iter().map(Source::name).collect();
    assert_eq!(names.len(), all.sources.len(), "names are unique");
    let of = |kind| all.sources.iter().filter(|s| s.kind() == kind).count();
    assert!(of(Kind::Needle) >= 6);
    assert!(all.sources.len() + all.notes.len() >= 20);
    let first: HashSet<_> = all.sources[..4].iter().map(Source::kind).collect();
    assert_eq!(first.len(), 4, "the first four are one of each kind");
}

#[test]
fn missing_texts_are_noted_and_the_rest_is_there() {
    let corpus = without_a_system();
    assert!(corpus.sources.len() >= 19, "{}", corpus.sources.len());
    assert_eq!(corpus.notes.len(), 6, "five licences and Python");
    assert!(corpus.notes[0].contains("GPL-3"), "{}", corpus.notes[0]);
}

/// The prompt with one more word of its source, where there is one.
fn with_one_more_word(source: &Source, prompt: &Prompt) -> Option<String> {
    let hidden = |context: &str| match &source.needle {
        Some(needle) => needle.hidden_in(context),
        None => context.to_owned(),
    };
    let taken = prompt.context.len() - hidden("").len();
    let word = source.text[taken..].trim_start();
    let rest = word.trim_start_matches(|c: char| !c.is_whitespace());
    let longer = &source.text[..source.text.len() - rest.len()];
    (!word.is_empty()).then(|| joined(&hidden(longer), &prompt.question))
}

#[test]
fn a_prompt_fills_its_length_and_does_not_pass_it() {
    for source in &without_a_system().sources {
        for target in [512, 1024, 4096] {
            let prompt = source.prompt(target, &count).unwrap();
            assert_eq!(prompt.tokens, count(&prompt.text()));
            assert!(prompt.tokens <= target, "{}", prompt.name);
            if let Some(longer) = with_one_more_word(source, &prompt) {
                assert!(count(&longer) > target, "{}", prompt.name);
            }
            assert!(prompt.text().ends_with(&prompt.question));
        }
    }
}

#[test]
fn every_needle_is_hidden_once_and_not_in_the_question() {
    let mut depths = Vec::new();
    for source in without_a_system().sources {
        let prompt = source.prompt(2048, &count).unwrap();
        let Some(answer) = &prompt.answer else {
            assert_ne!(source.kind(), Kind::Needle);
            assert_eq!(prompt.is_answered_by("anything"), None);
            continue;
        };
        let places: Vec<_> = prompt
            .context
            .match_indices(&format!(" {answer}."))
            .collect();
        assert_eq!(places.len(), 1, "{}", prompt.name);
        depths.push(places[0].0 * 8 / prompt.context.len());
        assert!(!prompt.question.contains(answer.as_str()));
        assert_eq!(
            prompt.is_answered_by(&format!("It is {answer}.")),
            Some(true)
        );
        assert_eq!(prompt.is_answered_by("I do not know."), Some(false));
    }
    depths.sort_unstable();
    depths.dedup();
    assert!(depths.len() >= 6, "needles are spread: {depths:?}");
}

#[test]
fn a_seed_gives_the_same_prompts_again_and_another_seed_others() {
    let texts = |seed| -> Vec<String> {
        let corpus = corpus_under(Path::new("/nonexistent"), seed);
        let sources = corpus.sources.iter();
        sources
            .map(|s| s.prompt(512, &count).unwrap().text())
            .collect()
    };
    assert_eq!(texts(1), texts(1));
    let same = texts(1)
        .iter()
        .zip(texts(2))
        .filter(|(l, r)| *l == r)
        .count();
    assert!(same <= 4, "only Lynx's own texts may begin alike: {same}");
}

#[test]
fn a_question_that_does_not_fit_is_an_error() {
    let source = Source::own("mine", "some text".to_owned(), "What is this about?");
    let error = source.prompt(2, &count).unwrap_err();
    assert_eq!(error.target, 2);
    assert!(error.least > 2);
}

#[test]
fn another_question_leaves_the_needle_out() {
    let source = without_a_system().sources.swap_remove(0);
    assert_eq!(source.kind(), Kind::Needle);
    let prompt = source.asking("Who met?").prompt(1024, &count).unwrap();
    assert_eq!(
        (prompt.question.as_str(), &prompt.answer),
        ("Who met?", &None)
    );
    assert!(!prompt.context.contains("secret code"));
}

#[test]
fn a_short_text_is_used_whole() {
    let source = Source::own("mine", "grüße aus Köln".to_owned(), "?");
    let prompt = source.prompt(4096, &count).unwrap();
    assert_eq!(prompt.text(), "grüße aus Köln\n\n?");
}

#[test]
fn any_text_is_cut_at_a_character() {
    bolero::check!()
        .with_type::<(String, u8)>()
        .for_each(|(text, target)| {
            let source = Source::own("any", text.clone(), "?");
            // Every byte a token: the cut then falls anywhere.
            let prompt = source.prompt(usize::from(*target), &str::len);
            if let Ok(prompt) = prompt {
                assert!(prompt.tokens <= usize::from(*target));
                assert!(text.starts_with(&prompt.context));
            }
        });
}

#[test]
fn the_newest_python_library_is_found() {
    let usr = tempfile::tempdir().unwrap();
    for version in ["python3.9", "python3.11", "python3.12", "python2.7"] {
        let home = usr.path().join("lib").join(version);
        fs::create_dir_all(&home).unwrap();
        // 3.12 is an empty shell, as a removed package leaves it.
        if version != "python3.12" {
            fs::write(home.join("argparse.py"), "x = 1\n".repeat(2000)).unwrap();
        }
    }
    let corpus = corpus_under(usr.path(), 0);
    let names: Vec<_> = corpus.sources.iter().map(Source::name).collect();
    assert!(names.contains(&"python-argparse"));
    let missing = corpus.notes.iter().find(|note| note.contains("difflib"));
    assert!(missing.unwrap().contains("python3.11"));
}
