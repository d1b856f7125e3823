//! The file and the variables as texts by path, before anything is made of them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use serde_norway::Value;

use super::fields::{FIELDS, find, path, variable};
use super::mistakes::Mistake;

/// What was said about a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Said {
    /// One for a scalar, any number for a list.
    pub(super) texts: Vec<String>,
    /// Where.
    pub(super) at: String,
}

/// What was said, and what could not be understood.
#[derive(Debug, Default)]
pub(super) struct Raw {
    pub(super) said: BTreeMap<&'static str, Said>,
    pub(super) mistakes: Vec<Mistake>,
}

/// The longest file: every field ten times over. A parser is not to be fed what can be no configuration.
pub(super) const MAX_BYTES: usize = 256 << 10;
/// The deepest nesting that is parsed: the fields have four levels, and a parser's time may grow with the square of it.
const MAX_DEPTH: usize = 32;

/// The text of a file.
///
/// # Errors
/// It can't be read, or is too long.
pub(super) fn file(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let most = MAX_BYTES as u64;
    File::open(path)?.take(most + 1).read_to_string(&mut text)?;
    Ok(text)
}

/// Why a text is not even given to the parser.
fn unparsable(yaml: &str) -> Option<String> {
    if yaml.len() > MAX_BYTES {
        return Some(format!("it has more than {MAX_BYTES} bytes"));
    }
    let mut depth = 0_usize;
    for (line, number) in yaml.lines().zip(1..) {
        let indentation = &line[..line.len() - line.trim_start_matches([' ', '\t']).len()];
        if depth == 0 && indentation.contains('\t') && indentation.len() < line.len() {
            return Some(format!(
                "line {number} is indented with a tab, where YAML has spaces"
            ));
        }
        // `- - - a` and `? ? ? a` nest within a line; indentation nests over lines.
        let indent = line.len() - line.trim_start().len();
        let markers = line
            .split(' ')
            .filter(|word| matches!(*word, "-" | "?" | ":"));
        if indent / 2 + markers.count() > MAX_DEPTH * 2 {
            return Some("it is nested too deeply".to_owned());
        }
        for byte in line.bytes() {
            match byte {
                b'[' | b'{' => depth += 1,
                b']' | b'}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth > MAX_DEPTH {
                return Some("it is nested too deeply".to_owned());
            }
        }
    }
    None
}

/// Reads the file's text, then the variables, which win.
pub(super) fn read(yaml: &str, environment: &dyn Fn(&str) -> Option<String>) -> Raw {
    let mut raw = Raw::default();
    // Some editors begin a file with a byte order mark.
    let yaml = yaml.strip_prefix('\u{feff}').unwrap_or(yaml);
    match unparsable(yaml) {
        None => parse(yaml, &mut raw),
        Some(why) => raw.mistake("the file", &why),
    }
    for field in FIELDS {
        let name = variable(field.path);
        // An empty variable is one that a template left out.
        if let Some(text) = environment(&name).filter(|text| !text.is_empty()) {
            let texts = if field.path == path::PEERS {
                text.split(',').map(|part| part.trim().to_owned()).collect()
            } else {
                vec![text]
            };
            let at = format!("{} ({name})", field.path);
            raw.said.insert(field.path, Said { texts, at });
        }
    }
    raw
}

/// The variables of fields whose values are no texts: [`read`] is not told of them, and would take the defaults.
pub(super) fn no_texts(
    environment: &dyn Fn(&str) -> Option<OsString>,
) -> impl Iterator<Item = Mistake> {
    FIELDS.iter().filter_map(|field| {
        let name = variable(field.path);
        let value = environment(&name)?.into_string().err()?;
        Some(Mistake {
            at: format!("{} ({name})", field.path),
            what: format!("it is {value:?}, which is not UTF-8"),
        })
    })
}

fn parse(yaml: &str, raw: &mut Raw) {
    match serde_norway::from_str::<Value>(yaml) {
        Ok(Value::Null) => {}
        Ok(Value::Mapping(fields)) => walk("", &fields, raw),
        Ok(_) => raw.mistake("the file", "it is not a mapping of fields to values"),
        Err(error) => raw.mistake("the file", &format!("it is not YAML: {error}")),
    }
}

impl Raw {
    pub(super) fn mistake(&mut self, at: &str, what: &str) {
        self.mistakes.push(Mistake {
            at: at.to_owned(),
            what: what.to_owned(),
        });
    }
}

fn walk(prefix: &str, fields: &serde_norway::Mapping, raw: &mut Raw) {
    for (key, value) in fields {
        let Some(key) = text_of(key) else {
            raw.mistake(&or_file(prefix), "a field's name is not a text");
            continue;
        };
        let path = if prefix.is_empty() {
            key
        } else {
            format!("{prefix}.{key}")
        };
        if let Some(field) = find(&path) {
            match texts_of(field.path, value) {
                Ok(None) => {}
                Ok(Some(texts)) => {
                    let at = path.clone();
                    raw.said.insert(field.path, Said { texts, at });
                }
                Err(what) => raw.mistake(&path, &what),
            }
        } else if is_section(&path) {
            match value {
                Value::Mapping(fields) => walk(&path, fields, raw),
                Value::Null => {}
                _ => raw.mistake(&path, &format!("it has fields: {}", fields_of(&path))),
            }
        } else {
            let known = fields_of(prefix);
            raw.mistake(&path, &format!("there is no such field; there are {known}"));
        }
    }
}

/// What a value says; `None` where it says nothing.
fn texts_of(path: &str, value: &Value) -> Result<Option<Vec<String>>, String> {
    if path == path::PEERS {
        return match value {
            Value::Null => Ok(None),
            Value::Sequence(items) => items
                .iter()
                .map(|item| text_of(item).ok_or_else(|| "an entry is not a text".to_owned()))
                .collect::<Result<_, _>>()
                .map(Some),
            _ => Err("it is a list of host:port".to_owned()),
        };
    }
    match value {
        Value::Null => Ok(None),
        value => text_of(value).map(|text| Some(vec![text])).ok_or_else(|| {
            let allowed = find(path).map_or("", |field| field.allowed);
            format!("it is {allowed}, not a list or a mapping")
        }),
    }
}

fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        _ => None,
    }
}

fn or_file(prefix: &str) -> String {
    if prefix.is_empty() {
        "the file".to_owned()
    } else {
        prefix.to_owned()
    }
}

fn is_section(path: &str) -> bool {
    FIELDS.iter().any(|field| below(path, field.path).is_some())
}

/// What follows `section.` in `path`.
fn below<'a>(section: &str, path: &'a str) -> Option<&'a str> {
    if section.is_empty() {
        return Some(path);
    }
    path.strip_prefix(section)?.strip_prefix('.')
}

/// The names in a section, as people read them.
fn fields_of(section: &str) -> String {
    let mut names: Vec<&str> = FIELDS
        .iter()
        .filter_map(|field| below(section, field.path)?.split('.').next())
        .collect();
    names.dedup();
    names.join(", ")
}
