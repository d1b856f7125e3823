//! What verbs say when they refuse.

use std::io;

use crate::memlock::{ADVICE, Memlock};

/// A call of libibverbs that failed.
#[derive(Debug, thiserror::Error)]
#[error("RDMA: can't {what}")]
pub struct CallError {
    /// What was to be done, as in "can't ...".
    pub what: &'static str,
    /// The error as the kernel or the driver has it.
    #[source]
    pub source: io::Error,
}

impl CallError {
    /// Of a call that left its error in errno.
    pub(crate) fn last(what: &'static str) -> Self {
        Self {
            what,
            source: io::Error::last_os_error(),
        }
    }

    /// Of a call that returns its error.
    pub(crate) fn check(what: &'static str, code: i32) -> Result<(), Self> {
        if code == 0 {
            return Ok(());
        }
        Err(Self {
            what,
            // Some calls return -1 with errno, some a number, and some providers its negative.
            source: match code {
                -1 => io::Error::last_os_error(),
                code => io::Error::from_raw_os_error(code.saturating_abs()),
            },
        })
    }
}

/// Memory that the device wouldn't take.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    /// The mapping couldn't be made.
    #[error("there is no memory for {bytes} bytes to be registered")]
    Memory {
        /// How many.
        bytes: usize,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The process may not lock so much.
    #[error("{bytes} bytes can't be registered for RDMA: {memlock}. To change that, {ADVICE}")]
    Limit {
        /// How many.
        bytes: usize,
        /// What the process may lock.
        memlock: Memlock,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The device's driver takes no dma-buf.
    #[error(
        "this RDMA device takes no dma-buf: GPU memory has to go through a buffer of the host's"
    )]
    NoDmaBuf(#[source] io::Error),
    /// Anything else.
    #[error("{bytes} bytes can't be registered for RDMA")]
    Refused {
        /// How many.
        bytes: usize,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl RegisterError {
    /// Of a registration that left its error in errno.
    pub(crate) fn last(bytes: usize) -> Self {
        let source = io::Error::last_os_error();
        let memlock = Memlock::of_this_process();
        let locked = matches!(source.raw_os_error(), Some(libc::ENOMEM | libc::EPERM));
        if locked && memlock.holding().is_some() {
            Self::Limit {
                bytes,
                memlock,
                source,
            }
        } else {
            Self::Refused { bytes, source }
        }
    }
}
