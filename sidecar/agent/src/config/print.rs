//! The file that says what is said without one.

use std::fmt::Write as _;

use super::fields::{FIELDS, path, variable};

/// Every field with its default, its meaning, what is allowed, and its variable. It is itself a configuration.
pub fn default_file() -> String {
    let mut text = "# Every field of lynx-agent's configuration, as it is unless said otherwise.\n\
         # A variable wins over the file.\n"
        .to_owned();
    let mut open: Vec<&str> = Vec::new();
    for field in FIELDS {
        let mut parts: Vec<&str> = field.path.split('.').collect();
        let Some(name) = parts.pop() else { continue };
        let same = open.iter().zip(&parts).take_while(|(a, b)| a == b).count();
        for (depth, part) in parts.iter().enumerate().skip(same) {
            line(&mut text, depth, &format!("{part}:"));
        }
        let depth = parts.len();
        open = parts;
        line(&mut text, depth, &format!("# {}", field.about));
        let variable = variable(field.path);
        line(
            &mut text,
            depth,
            &format!("# {variable}: {}.", field.allowed),
        );
        let default = match (field.default, field.path) {
            ("", path::PEERS) => "[]".to_owned(),
            ("", _) => "\"\"".to_owned(),
            // A colon would be a mapping's.
            (text, _) if text.contains(':') => format!("\"{text}\""),
            (text, _) => text.to_owned(),
        };
        line(&mut text, depth, &format!("{name}: {default}"));
    }
    text
}

fn line(text: &mut String, depth: usize, line: &str) {
    // Writing to a String can't fail.
    writeln!(text, "{:1$}{line}", "", depth * 2).ok();
}
