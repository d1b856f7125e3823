//! Why a transfer, or a link, ended.

use alloc::borrow::ToOwned;
use alloc::string::String;
use core::fmt;

use crate::limits::MAX_REASON;

/// The kind of a reason: what a program branches on and a metric is labelled with. The numbers are those on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u16)]
pub enum Code {
    /// The application of one side ended it; the text says why.
    Application = 0,
    /// The deadline passed.
    Deadline = 1,
    /// A connection was closed or reset.
    Disconnected = 2,
    /// A connection was silent for longer than [`SILENCE_LIMIT`](crate::limits::SILENCE_LIMIT).
    Silent = 3,
    /// A payload did not have the checksum of its header.
    Corrupt = 4,
    /// The peer broke the protocol.
    Protocol = 5,
    /// The receiver did not accept the offer.
    Rejected = 6,
    /// This side is shutting down.
    Shutdown = 7,
}

impl Code {
    /// Every code, in the order of its number.
    pub const ALL: [Self; 8] = [
        Self::Application,
        Self::Deadline,
        Self::Disconnected,
        Self::Silent,
        Self::Corrupt,
        Self::Protocol,
        Self::Rejected,
        Self::Shutdown,
    ];

    /// The number on the wire.
    pub const fn number(self) -> u16 {
        self as u16
    }

    /// The code with this number; [`Code::Application`] for a number of a later version, so that a reason is never lost.
    pub fn from_number(number: u16) -> Self {
        Self::ALL
            .into_iter()
            .find(|code| code.number() == number)
            .unwrap_or(Self::Application)
    }

    /// Whether trying again in a new epoch can help.
    pub const fn is_retryable(self) -> bool {
        match self {
            Self::Disconnected | Self::Silent | Self::Corrupt | Self::Protocol => true,
            Self::Application | Self::Deadline | Self::Rejected | Self::Shutdown => false,
        }
    }

    /// A short name, for labels.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Application => "application",
            Self::Deadline => "deadline",
            Self::Disconnected => "disconnected",
            Self::Silent => "silent",
            Self::Corrupt => "corrupt",
            Self::Protocol => "protocol",
            Self::Rejected => "rejected",
            Self::Shutdown => "shutdown",
        }
    }
}

/// Why a transfer or a link ended: a code, and a sentence for people of at most
/// [`MAX_REASON`] bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    code: Code,
    text: String,
}

impl Reason {
    /// A reason; a longer text is cut at a character's edge.
    pub fn new(code: Code, text: &str) -> Self {
        Self {
            code,
            text: text[..text.floor_char_boundary(MAX_REASON)].to_owned(),
        }
    }

    /// The kind.
    pub const fn code(&self) -> Code {
        self.code
    }

    /// The sentence.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.name(), self.text)
    }
}

impl core::error::Error for Reason {}
