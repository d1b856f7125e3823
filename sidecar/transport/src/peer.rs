//! Who a peer is, and whether it fits.

use std::collections::{BTreeMap, BTreeSet};

use crate::Ticket;

/// The key of the ticket's line.
const TICKET: &str = "ticket";

/// What a node says about itself when a link comes up: a name for people, and facts that must be the same on both sides
/// (codec version, profile hash, model fingerprint, layout, ...). Facts are short texts; send hashes of long ones.
///
/// It travels as lines of `key=value`, so that a capture of a refused handshake can be read. Not a fixed struct: which
/// facts decide is the application's affair, and naming the one that differs is all that this crate does with them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerInfo {
    name: String,
    facts: BTreeMap<String, String>,
}

impl PeerInfo {
    /// A node of this name, without facts. Line breaks become spaces.
    pub fn new(name: &str) -> Self {
        Self {
            name: one_line(name),
            facts: BTreeMap::new(),
        }
    }

    /// The same with one more fact that must be equal on both sides. In a key, `=` becomes `-`.
    #[must_use]
    pub fn with(mut self, key: &str, value: &str) -> Self {
        let key = one_line(key).replace('=', "-");
        self.facts.insert(key, one_line(value));
        self
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What differs between this side and the peer, as a sentence; `None` where they fit.
    pub fn difference(&self, peer: &Self) -> Option<String> {
        let keys: BTreeSet<_> = self.facts.keys().chain(peer.facts.keys()).collect();
        let differences: Vec<String> = keys
            .into_iter()
            .map(|key| (key, self.facts.get(key), peer.facts.get(key)))
            .filter(|(_, here, there)| here != there)
            .map(|(key, here, there)| {
                let (here, there) = (text_of(here), text_of(there));
                format!(
                    "{key} is {here} on {} and {there} on {}",
                    self.name, peer.name
                )
            })
            .collect();
        (!differences.is_empty()).then(|| differences.join("; "))
    }

    /// As lines. A ticket comes right after the name, and is no fact: it is nobody else's to compare.
    pub fn encode(&self, ticket: Option<&Ticket>) -> Vec<u8> {
        let mut lines = format!("name={}\n", self.name);
        if let Some(ticket) = ticket {
            lines.extend([TICKET, "=", ticket.secret(), "\n"]);
        }
        for (key, value) in &self.facts {
            lines.extend([key.as_str(), "=", value.as_str(), "\n"]);
        }
        lines.into_bytes()
    }

    /// Reads what [`encode`](Self::encode) wrote; a line without a `=` is a fact without a value. Only a line feed ends a
    /// line, so that what was read is written as it was.
    pub fn decode(bytes: &[u8]) -> (Self, Option<Ticket>) {
        let text = String::from_utf8_lossy(bytes);
        let mut info = Self::default();
        let mut ticket = None;
        for (index, line) in text.split_terminator('\n').enumerate() {
            let (key, value) = line.split_once('=').unwrap_or((line, ""));
            if index == 0 && key == "name" {
                value.clone_into(&mut info.name);
            } else if index == 1 && key == TICKET {
                ticket = Ticket::parse(value);
            } else {
                info.facts.insert(key.to_owned(), value.to_owned());
            }
        }
        (info, ticket)
    }
}

fn text_of(value: Option<&String>) -> &str {
    value.map_or("not given", String::as_str)
}

fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let info = PeerInfo::new("decode-1")
            .with("profile", "a=b")
            .with("co=dec\n", "1");
        assert_eq!(PeerInfo::decode(&info.encode(None)), (info.clone(), None));
        let ticket = Ticket::draw().unwrap();
        let (read, same) = PeerInfo::decode(&info.encode(Some(&ticket)));
        assert_eq!((read, same.as_ref()), (info, Some(&ticket)));
        assert_eq!(PeerInfo::decode(b""), (PeerInfo::default(), None));
        let odd = PeerInfo::decode(b"name=a\r\r\nb\r").0;
        assert_eq!(PeerInfo::decode(&odd.encode(None)).0, odd);
    }

    #[test]
    fn a_difference_names_the_fact_and_both_values_once() {
        let here = PeerInfo::new("a").with("codec", "1").with("model", "x");
        let there = PeerInfo::new("b").with("codec", "2").with("layout", "NHD");
        assert_eq!(here.difference(&here), None);
        assert_eq!(
            here.difference(&there).unwrap(),
            "codec is 1 on a and 2 on b; layout is not given on a and NHD on b; model is x on a and not given on b"
        );
    }
}
