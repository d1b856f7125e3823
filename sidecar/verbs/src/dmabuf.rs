//! Memory of another device, such as a GPU, by its dma-buf.
#![expect(unsafe_code, reason = "calls of libibverbs")]

use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};

use ibverbs_sys as sys;
use sys::ibv_access_flags as Access;

use crate::domain::{Domain, is_unsupported};
use crate::endpoint::Target;
use crate::error::RegisterError;
use crate::region::{Local, Registration};

/// A dma-buf's memory, registered to be written from and into. This process never touches it.
pub struct DmaBuf {
    registration: Registration,
    bytes: usize,
}

impl DmaBuf {
    /// `bytes` of the dma-buf behind `file`, from `offset` on. The kernel keeps the dma-buf until the registration goes; the file may be
    /// closed. Addresses within it count from 0.
    ///
    /// # Errors
    /// Where the device takes no dma-bufs, this one isn't, or it has too few bytes.
    pub fn new(
        domain: &Domain,
        file: BorrowedFd<'_>,
        offset: u64,
        bytes: usize,
    ) -> Result<Self, RegisterError> {
        const FIRST_ADDRESS: u64 = 0;
        let access = Access::IBV_ACCESS_LOCAL_WRITE | Access::IBV_ACCESS_REMOTE_WRITE;
        let access = i32::try_from(access.0).unwrap_or_default();
        // SAFETY: the kernel checks that the file is a dma-buf with this range, and holds it.
        let region = unsafe {
            (domain.context().functions().ibv_reg_dmabuf_mr)(
                domain.raw(),
                offset,
                bytes,
                FIRST_ADDRESS,
                file.as_raw_fd(),
                access,
            )
        };
        let registration = Registration::new(domain, region).ok_or_else(|| {
            let error = io::Error::last_os_error();
            if is_unsupported(&error) {
                RegisterError::NoDmaBuf(error)
            } else {
                RegisterError::last(bytes)
            }
        })?;
        Ok(Self {
            registration,
            bytes,
        })
    }

    /// A part of it, to be written to the peer; none where the range isn't within it, or is too long for one write (4 GiB).
    pub fn part(&self, range: Range<usize>) -> Option<Local<'_>> {
        if range.start > range.end || range.end > self.bytes {
            return None;
        }
        Some(Local {
            address: range.start as u64,
            bytes: u32::try_from(range.len()).ok()?,
            registration: &self.registration,
        })
    }

    /// What a peer has to know to write into all of it.
    pub fn target(&self) -> Target {
        Target {
            address: 0,
            bytes: self.bytes as u64,
            key: self.registration.remote_key(),
        }
    }
}

impl fmt::Debug for DmaBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DmaBuf").field(&self.bytes).finish()
    }
}
