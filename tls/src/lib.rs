//! TLS between agents: certificates from files, who may be a peer, and records in and out of memory.
//!
//! TLS 1.3 only, both sides with a certificate. [`Credentials`] reads a directory as Kubernetes mounts a Secret of
//! cert-manager, and reads it again when somebody tells it that time has passed; [`Session`] turns bytes to records and
//! back. It refuses to open a socket, to wait, and to read a clock: whoever has a socket and a clock hands in what they
//! give. Why a record layer of its own shape and not a stream of an asynchronous library: a link of the transfer protocol
//! decides what goes next at the last moment, so nothing may wait between that decision and the socket except one bounded
//! buffer that the link itself empties.
//!
//! A peer is not known by its address, since pods are dialled by address and their addresses come and go. It is one of
//! this deployment's agents where its certificate chains to the deployment's CA *and* carries the deployment's name: see
//! [`PeerIdentity`].

#![forbid(unsafe_code)]

#[cfg(any(test, feature = "authority"))]
pub mod authority;
mod credentials;
mod explain;
mod files;
mod identity;
mod loaded;
mod session;
mod verify;

pub use credentials::{Credentials, Reload};
pub use explain::explain;
pub use files::{CA_FILE, CERTIFICATE_FILE, Files, KEY_FILE};
pub use identity::PeerIdentity;
pub use loaded::{LoadError, Loaded, Plane};
pub use rustls::pki_types::UnixTime;
pub use session::{BATCH, Decrypted, Session, SessionError};
