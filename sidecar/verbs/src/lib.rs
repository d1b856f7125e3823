//! RDMA verbs, as far as a link needs them: devices and their addresses, registered memory, reliable connected queue pairs,
//! RDMA WRITE with and without an immediate, and completions that a runtime can wait for.
//!
//! Nothing here decides what is sent: that is the driver's, which knows the wire format. Nothing here copies payload or reads a clock. What has no device in it (addresses and their choice, what one side tells the other, what completions say, memory that may be lent)
//! is there always; the devices need the feature `rdma`.
//!
//! # The binding
//!
//! Types and constants are those of `ibverbs-sys`, which bindgen makes from the headers of rdma-core. The functions are not
//! linked but looked up in `libibverbs.so.1` when a [`Library`] is opened, each held against `ibverbs-sys`'s declaration by the
//! compiler: one program starts with and without the library, and a test reads from the program that it doesn't ask for it.
//! The safe crate `ibverbs` 0.9.2 has no WRITE_WITH_IMM, no completion channel, no service level and registers only memory of its own;
//! `rdma-mummy-sys`, which loads at run time too, brings bindings of RDMA CM and of one vendor that nothing here uses. The
//! price is the build: `ibverbs-sys` compiles rdma-core with cmake and needs the headers of libibverbs installed. That is
//! why it stands behind a feature.
//!
//! # Who keeps what alive
//!
//! A queue pair keeps its completion queue and its protection domain alive, both keep the device open, and all of them the library.
//! Registered memory owns its mapping, and gives it back only after the device has forgotten it. Whatever order things
//! are dropped in, verbs are destroyed in the one that libibverbs wants.

mod choose;
mod completion;
mod endpoint;
mod gid;
mod lendable;
mod memlock;

#[cfg(feature = "rdma")]
mod context;
#[cfg(feature = "rdma")]
mod dmabuf;
#[cfg(feature = "rdma")]
mod domain;
#[cfg(feature = "rdma")]
mod error;
#[cfg(feature = "rdma")]
mod interfaces;
#[cfg(feature = "rdma")]
mod library;
#[cfg(feature = "rdma")]
mod pair;
#[cfg(feature = "rdma")]
mod queue;
#[cfg(feature = "rdma")]
mod region;
#[cfg(feature = "rdma")]
mod survey;
#[cfg(feature = "rdma")]
mod wakeups;

pub use choose::{Choice, ChoiceError, ChooseError, choose, others, source_towards};
pub use completion::{Completion, Failure, Outcome};
pub use endpoint::{Endpoint, Mtu, Path, Target};
pub use gid::{Gid, GidEntry, GidKind};
pub use lendable::Lendable;
pub use memlock::{ADVICE as MEMLOCK_ADVICE, Memlock};

#[cfg(feature = "rdma")]
pub use context::Context;
#[cfg(feature = "rdma")]
pub use dmabuf::DmaBuf;
#[cfg(feature = "rdma")]
pub use domain::Domain;
#[cfg(feature = "rdma")]
pub use error::{CallError, RegisterError};
#[cfg(feature = "rdma")]
pub use library::{Library, LibraryError};
#[cfg(feature = "rdma")]
pub use pair::{QueuePair, QueuePairState, Sizes, Write};
#[cfg(feature = "rdma")]
pub use queue::CompletionQueue;
#[cfg(feature = "rdma")]
pub use region::{Lent, Local, Ring, Staging};
#[cfg(feature = "rdma")]
pub use survey::{Device, Found, LinkLayer, Port, PortState};
#[cfg(feature = "rdma")]
pub use wakeups::Wakeups;
