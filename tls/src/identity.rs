//! Who a certificate says that somebody is.

use std::fmt;

use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

/// The names in a certificate's subject alternative names: URIs (such as SPIFFE's) before DNS names, each sorted. IP
/// addresses are left out: pods' change.
///
/// Two certificates of one agent, before and after a renewal, have the same identity, so it can be compared across the
/// connections of one peer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerIdentity {
    names: Vec<String>,
}

impl PeerIdentity {
    /// The identity in a leaf certificate; `None` where it can't be parsed or names nobody.
    pub fn of(leaf: &CertificateDer<'_>) -> Option<Self> {
        let leaf = EndEntityCert::try_from(leaf).ok()?;
        let sorted = |names: &mut dyn Iterator<Item = &str>| {
            let mut names: Vec<String> = names.map(str::to_owned).collect();
            names.sort();
            names
        };
        let mut names = sorted(&mut leaf.valid_uri_names());
        names.extend(sorted(&mut leaf.valid_dns_names()));
        names.dedup();
        (!names.is_empty()).then_some(Self { names })
    }

    /// The first name: a URI where there is one.
    pub fn primary(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }

    /// Whether this is one of the names.
    pub fn has(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name)
    }
}

impl fmt::Display for PeerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names.join(", "))
    }
}
