//! Codes and their texts.

use std::cell::RefCell;
use std::ffi::{CString, c_char};

/// The codes of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    Abi = 1,
    Invalid = 2,
    TooSmall = 3,
    Damaged = 4,
    Device = 5,
    Internal = 6,
}

/// What a call fails with.
#[derive(Debug, thiserror::Error)]
#[error("{said}")]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) said: String,
}

impl Failure {
    pub(crate) fn new(code: Code, said: impl Into<String>) -> Self {
        Self {
            code,
            said: said.into(),
        }
    }

    /// With all that an error says of its causes.
    pub(crate) fn of(code: Code, error: &dyn std::error::Error) -> Self {
        let mut said = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            said += &format!(": {cause}");
            source = cause.source();
        }
        Self { code, said }
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

pub(crate) fn remember(said: &str) {
    let text = CString::new(said.replace('\0', " ")).unwrap_or_default();
    LAST.with(|last| *last.borrow_mut() = text);
}

/// Valid until this thread remembers another.
pub(crate) fn last() -> *const c_char {
    LAST.with(|last| last.borrow().as_ptr())
}
