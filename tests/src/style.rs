//! What a file of the repository may not contain.

/// Lines of a file of code above which it wants to be two.
pub const MAX_LINES: usize = 500;

/// What code's names end with: Rust, CUDA and C++.
const CODE: [&str; 5] = [".rs", ".cu", ".cuh", ".cpp", ".hpp"];

/// Texts that name a machine or put work off. In pieces, so that this file does not contain them.
const FORBIDDEN: [&str; 6] = [
    concat!("/ho", "me/"),
    concat!("/ro", "ot/"),
    concat!("/t", "mp/"),
    concat!("/wo", "rk/"),
    concat!("FIX", "ME"),
    concat!("TO", "DO"),
];

/// A test that does not run, without its reason.
const BARE_IGNORE: &str = concat!("#[ig", "nore]");

/// Every objection to a file's text, with its line.
pub fn objections(path: &str, text: &str) -> Vec<String> {
    let is_rust = path.ends_with(".rs");
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        for forbidden in FORBIDDEN.iter().filter(|words| line.contains(*words)) {
            found.push(format!("{path}:{number}: contains {forbidden}"));
        }
        if is_rust && line.contains(BARE_IGNORE) {
            found.push(format!(
                "{path}:{number}: an ignored test says why: #[ignore = \"needs ..\"]"
            ));
        }
    }
    let lines = text.lines().count();
    if CODE.iter().any(|end| path.ends_with(end)) && lines > MAX_LINES {
        found.push(format!(
            "{path}: {lines} lines, more than {MAX_LINES}: split it at a noun"
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_planted_mistake_is_found_where_it_is() {
        let path = concat!("let p = \"/t", "mp/x\";");
        let text = format!("//! Fine.\n{BARE_IGNORE}\n{path}\n");
        let found = objections("a.rs", &text);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("a.rs:2: an ignored test"));
        assert!(found[1].starts_with("a.rs:3: contains"));
        assert_eq!(
            objections("a.md", &text).len(),
            1,
            "only Rust has tests to ignore"
        );
    }

    #[test]
    fn a_reason_makes_an_ignored_test_acceptable() {
        assert!(objections("a.rs", "#[ignore = \"needs a CUDA device\"]\n").is_empty());
    }

    #[test]
    fn a_long_file_is_found_from_its_first_line_too_many() {
        for code in ["a.rs", "a.cu", "a.cuh"] {
            assert!(objections(code, &"\n".repeat(MAX_LINES)).is_empty());
            assert_eq!(objections(code, &"\n".repeat(MAX_LINES + 1)).len(), 1);
        }
        assert!(objections("a.md", &"\n".repeat(MAX_LINES + 1)).is_empty());
    }
}
