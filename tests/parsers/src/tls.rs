//! What lies in a Secret.

use std::sync::OnceLock;

use lynx_tls::authority::{Authority, Request, write};
use lynx_tls::{Files, KEY_FILE, Loaded, UnixTime};

use crate::bytes::Bytes;

/// A chain and an authority, the length of the first before both, with a key that is made when this begins: whatever they
/// are, they are good now or refused with a sentence.
pub(crate) fn certificates(bytes: &[u8]) {
    let mut head = Bytes(bytes);
    let chain = usize::from(head.u16()).min(head.0.len());
    let (chain, authority) = head.0.split_at(chain);
    let now = UnixTime::now();
    match Loaded::new(&Files::new(chain, key(), authority), None, now) {
        Ok(loaded) => assert!(loaded.not_after().as_secs() >= now.as_secs()),
        Err(why) => assert!(!why.to_string().is_empty()),
    }
}

/// A private key in PEM. No key lies in a corpus.
fn key() -> &'static [u8] {
    static KEY: OnceLock<Vec<u8>> = OnceLock::new();
    KEY.get_or_init(|| {
        let authority = Authority::new().expect("an authority");
        let files = authority
            .issue(&Request::new("lynx"))
            .expect("a certificate");
        let directory = tempfile::tempdir().expect("a directory");
        write(directory.path(), &files).expect("three files");
        std::fs::read(directory.path().join(KEY_FILE)).expect("a key")
    })
}
