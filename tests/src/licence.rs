//! Which licences a dependency may have.
//!
//! A small reader of SPDX expressions over a list of allowed names. A full tool would also know advisories, but it has
//! to be compiled for minutes on a fresh machine before it says anything, and this much is what must never slip through.

/// What code under the Apache licence may be linked with, as far as met so far.
pub const ALLOWED: [&str; 14] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Whether an SPDX expression can be satisfied by allowed licences alone; `false` too where it can't be read.
/// The old form with a slash, as in `MIT/Apache-2.0`, means "or".
pub fn is_allowed(expression: &str) -> bool {
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    let mut words = spaced.split_whitespace().peekable();
    let allowed = either(&mut words);
    allowed == Some(true) && words.next().is_none()
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

/// One alternative, or several joined by OR.
fn either(words: &mut Words<'_>) -> Option<bool> {
    let mut allowed = all(words)?;
    while words.next_if_eq(&"OR").is_some() {
        allowed |= all(words)?;
    }
    Some(allowed)
}

/// One licence, or several joined by AND, which binds tighter.
fn all(words: &mut Words<'_>) -> Option<bool> {
    let mut allowed = one(words)?;
    while words.next_if_eq(&"AND").is_some() {
        allowed &= one(words)?;
    }
    Some(allowed)
}

fn one(words: &mut Words<'_>) -> Option<bool> {
    let word = words.next()?;
    match word {
        "(" => {
            let allowed = either(words)?;
            words.next_if_eq(&")").map(|_| allowed)
        }
        ")" | "OR" | "AND" | "WITH" => None,
        name => {
            if words.next_if_eq(&"WITH").is_some() {
                let with_exception = format!("{name} WITH {}", words.next()?);
                Some(ALLOWED.contains(&with_exception.as_str()))
            } else {
                Some(ALLOWED.contains(&name))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_is_allowed_if_allowed_licences_satisfy_it() {
        for (expression, allowed) in [
            ("MIT", true),
            ("GPL-3.0-only", false),
            ("MIT OR GPL-3.0-only", true),
            ("MIT AND GPL-3.0-only", false),
            ("MIT/Apache-2.0", true),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
            ("(MIT OR Apache-2.0) AND GPL-3.0-only", false),
            ("GPL-3.0-only OR MIT AND ISC", true),
            ("Apache-2.0 WITH LLVM-exception OR GPL-2.0-only", true),
            ("GPL-2.0-only WITH Classpath-exception-2.0", false),
            ("(MIT", false),
            ("MIT)", false),
            ("MIT ISC", false),
            ("MIT OR", false),
            ("", false),
        ] {
            assert_eq!(is_allowed(expression), allowed, "{expression:?}");
        }
    }
}
