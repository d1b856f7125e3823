//! Who a peer is, and whether it fits.

use std::collections::{BTreeMap, BTreeSet};

use crate::Ticket;
use crate::rdma::{Endpoint, MOST_RAILS};

/// The keys of lines that are no facts.
const TICKET: &str = "ticket";
const ENDPOINT: &str = "endpoint";
const WITHOUT_RDMA: &str = "without-rdma";

/// What stands for a queue pair that there isn't.
const NONE: &str = "-";

/// The longest reason that a peer is told, in bytes.
const REASON: usize = 512;

/// What travels with a node's information and is nobody else's to compare.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Besides {
    /// What names the link over peer control.
    pub ticket: Option<Ticket>,
    /// Where this side's queue pairs for the connection are, rail by rail; none for a rail of the peer's that it has no card for.
    pub endpoints: Vec<Option<Endpoint>>,
    /// Why there is none, on a side that would have had one.
    pub without_rdma: Option<String>,
}

impl Besides {
    /// The most that it adds to a Hello.
    pub(crate) const ENCODED: usize = Ticket::ENCODED
        + MOST_RAILS * Endpoint::ENCODED
        + WITHOUT_RDMA.len()
        + "=\n".len()
        + REASON;
}

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

    /// As lines. What is no fact comes right after the name.
    pub fn encode(&self, besides: &Besides) -> Vec<u8> {
        let mut lines = format!("name={}\n", self.name);
        if let Some(ticket) = &besides.ticket {
            lines.extend([TICKET, "=", ticket.secret(), "\n"]);
        }
        for endpoint in &besides.endpoints {
            let endpoint = endpoint.as_ref().map_or(NONE.to_owned(), Endpoint::encode);
            lines.extend([ENDPOINT, "=", &endpoint, "\n"]);
        }
        if let Some(why) = &besides.without_rdma {
            let why = one_line(why);
            lines.extend([
                WITHOUT_RDMA,
                "=",
                &why[..why.floor_char_boundary(REASON)],
                "\n",
            ]);
        }
        for (key, value) in &self.facts {
            lines.extend([key.as_str(), "=", value.as_str(), "\n"]);
        }
        lines.into_bytes()
    }

    /// Reads what [`encode`](Self::encode) wrote; a line without a `=` is a fact without a value. Only a line feed ends a
    /// line, so that what was read is written as it was.
    pub fn decode(bytes: &[u8]) -> (Self, Besides) {
        let text = String::from_utf8_lossy(bytes);
        let mut info = Self::default();
        let mut besides = Besides::default();
        // What may still come before the facts.
        let mut head = ["name", TICKET, ENDPOINT, WITHOUT_RDMA].as_slice();
        for line in text.split_terminator('\n') {
            let (key, value) = line.split_once('=').unwrap_or((line, ""));
            let place = head.iter().position(|known| *known == key);
            // There may be one for each rail.
            let after = usize::from(key != ENDPOINT);
            head = place.map_or(&[], |place| &head[place + after..]);
            match place.map(|_| key) {
                Some("name") => value.clone_into(&mut info.name),
                Some(TICKET) => besides.ticket = Ticket::parse(value),
                Some(ENDPOINT) => {
                    besides.endpoints.push(Endpoint::decode(value));
                    // A link has no more rails.
                    besides.endpoints.truncate(MOST_RAILS);
                }
                Some(_) => besides.without_rdma = Some(value.to_owned()),
                None => drop(info.facts.insert(key.to_owned(), value.to_owned())),
            }
        }
        (info, besides)
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
        let ticket = Some(Ticket::draw().unwrap());
        let endpoint = vec![Some(Endpoint::of_tests()), None];
        let besides = |ticket: &Option<Ticket>, endpoints: &Vec<_>| Besides {
            ticket: ticket.clone(),
            endpoints: endpoints.clone(),
            without_rdma: None,
        };
        let without = Besides {
            without_rdma: Some("ü".repeat(REASON / 2)),
            ..besides(&ticket, &vec![Some(Endpoint::of_tests()); MOST_RAILS])
        };
        for besides in [
            Besides::default(),
            besides(&ticket, &Vec::new()),
            besides(&None, &endpoint),
            besides(&ticket, &endpoint),
            without,
        ] {
            let bytes = info.encode(&besides);
            assert!(bytes.len() <= info.encode(&Besides::default()).len() + Besides::ENCODED);
            assert_eq!(PeerInfo::decode(&bytes), (info.clone(), besides));
        }
        let nothing = (PeerInfo::default(), Besides::default());
        assert_eq!(PeerInfo::decode(b""), nothing);
        let long = Besides {
            without_rdma: Some(format!("a\n{}", "ü".repeat(REASON))),
            ..Besides::default()
        };
        let read = PeerInfo::decode(&info.encode(&long)).1.without_rdma;
        assert_eq!(read.unwrap(), format!("a {}", "ü".repeat(REASON / 2 - 1)));
        let odd = PeerInfo::decode(b"name=a\r\r\nb\r").0;
        assert_eq!(PeerInfo::decode(&odd.encode(&Besides::default())).0, odd);
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
