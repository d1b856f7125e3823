//! What proves, on another connection, that somebody is the side that dialled a link.

use std::fmt;
use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// A secret of the two sides of one link in one epoch: 128 bits that nobody can guess.
///
/// A peer's name is no secret: it is in metrics and logs. Were it enough to name a link over peer control, anybody there
/// could have transfers sent on another's link, or use up its transfers' numbers. It is never printed.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(String);

impl Ticket {
    const BYTES: usize = 16;
    /// What a ticket adds to a Hello.
    pub(crate) const ENCODED: usize = "ticket=\n".len() + 2 * Self::BYTES;

    /// A new one.
    pub(crate) fn draw() -> io::Result<Self> {
        let mut bytes = [0; Self::BYTES];
        let drawn = getrandom(&mut bytes, GetRandomFlags::empty())?;
        if drawn < Self::BYTES {
            return Err(io::Error::other("the system has no random numbers yet"));
        }
        Ok(Self(
            bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        ))
    }

    /// The one that a peer names; `None` where that can't be one.
    pub fn parse(text: &str) -> Option<Self> {
        let is_hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
        let fits = text.len() == 2 * Self::BYTES && text.chars().all(is_hex);
        fits.then(|| Self(text.to_owned()))
    }

    /// For peer control, and for nothing else.
    pub fn secret(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ticket")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_another_and_none_is_printed() {
        let (one, other) = (Ticket::draw().unwrap(), Ticket::draw().unwrap());
        assert_ne!(one, other);
        assert_eq!(Ticket::parse(one.secret()).as_ref(), Some(&one));
        assert_eq!(format!("{one:?}"), "Ticket");
        let line = format!("ticket={}\n", one.secret());
        assert_eq!(line.len(), Ticket::ENCODED);
        for bad in ["", "A", "0123456789abcdef0123456789abcde", &"g".repeat(32)] {
            assert_eq!(Ticket::parse(bad), None);
        }
    }
}
