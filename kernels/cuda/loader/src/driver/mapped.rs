//! Virtual memory: allocations of the GPU's that go from process to process as descriptors.
//!
//! Unlike memory that CUDA IPC shares, such an allocation lives until the last process that holds it lets go, so that neither
//! side can pull it away under the other. It has the GPU's granularity, and an address of its own in each process.

use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use cudarc::driver::sys;

use super::{Device, DriverError, check};

const DESCRIPTOR: sys::CUmemAllocationHandleType =
    sys::CUmemAllocationHandleType_enum::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

/// Virtual memory that is mapped in this process, readable and writable.
#[derive(Debug)]
pub struct Mapped {
    // Dropped in this order, after it is unmapped.
    range: Range,
    handle: Handle,
}

/// An allocation, without an address.
#[derive(Debug)]
struct Handle {
    device: Device,
    handle: sys::CUmemGenericAllocationHandle,
}

/// Addresses, without memory.
#[derive(Debug)]
struct Range {
    device: Device,
    address: u64,
    bytes: usize,
}

impl Mapped {
    /// Allocates at least `bytes`, which other processes can be given; what is in it is anything.
    ///
    /// # Errors
    /// Where the GPU has no more, or can't share it.
    pub fn new(device: &Device, bytes: usize) -> Result<Self, DriverError> {
        device.enter()?;
        let properties = properties(device);
        let mut granularity = 0;
        use sys::CUmemAllocationGranularity_flags as Granularity;
        // SAFETY: writes one number.
        check("cuMemGetAllocationGranularity", unsafe {
            sys::cuMemGetAllocationGranularity(
                &raw mut granularity,
                &raw const properties,
                Granularity::CU_MEM_ALLOC_GRANULARITY_MINIMUM,
            )
        })?;
        let bytes = bytes.max(1).next_multiple_of(granularity.max(1));
        let mut handle = 0;
        // SAFETY: the context is current; released when dropped.
        check("cuMemCreate", unsafe {
            sys::cuMemCreate(&raw mut handle, bytes, &raw const properties, 0)
        })?;
        let device = device.clone();
        Self::map(Handle { device, handle }, bytes)
    }

    /// Maps what another process has exported, all `bytes` of it. The descriptor is needed no longer than that.
    ///
    /// # Errors
    /// Where it is of something else, or of another length.
    pub fn import(
        device: &Device,
        descriptor: BorrowedFd<'_>,
        bytes: usize,
    ) -> Result<Self, DriverError> {
        device.enter()?;
        // Never negative.
        let number = usize::try_from(descriptor.as_raw_fd()).unwrap_or(usize::MAX);
        let mut handle = 0;
        // SAFETY: the driver takes the descriptor's number for a pointer; released when dropped.
        check("cuMemImportFromShareableHandle", unsafe {
            sys::cuMemImportFromShareableHandle(
                &raw mut handle,
                std::ptr::without_provenance_mut(number),
                DESCRIPTOR,
            )
        })?;
        let device = device.clone();
        Self::map(Handle { device, handle }, bytes)
    }

    fn map(handle: Handle, bytes: usize) -> Result<Self, DriverError> {
        let range = Range::new(&handle.device, bytes)?;
        // SAFETY: the addresses are this range's alone; unmapped when dropped.
        check("cuMemMap", unsafe {
            sys::cuMemMap(range.address, bytes, 0, handle.handle, 0)
        })?;
        let mapped = Self { range, handle };
        use sys::CUmemAccess_flags as Access;
        let access = sys::CUmemAccessDesc {
            location: location(&mapped.handle.device),
            flags: Access::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        // SAFETY: the whole range is mapped.
        check("cuMemSetAccess", unsafe {
            sys::cuMemSetAccess(mapped.range.address, bytes, &raw const access, 1)
        })?;
        Ok(mapped)
    }

    /// What another process needs to import it.
    ///
    /// # Errors
    /// What the driver says.
    pub fn descriptor(&self) -> Result<OwnedFd, DriverError> {
        self.handle.device.enter()?;
        let mut descriptor: i32 = -1;
        // SAFETY: an `int` is written.
        check("cuMemExportToShareableHandle", unsafe {
            sys::cuMemExportToShareableHandle(
                (&raw mut descriptor).cast(),
                self.handle.handle,
                DESCRIPTOR,
                0,
            )
        })?;
        // SAFETY: new, and nobody else's.
        Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
    }

    /// Its first byte's address in this process.
    pub const fn address(&self) -> u64 {
        self.range.address
    }

    /// Its length, a multiple of the GPU's granularity.
    pub const fn bytes(&self) -> usize {
        self.range.bytes
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        if self.handle.device.enter().is_ok() {
            // SAFETY: mapped once. Whoever used it on a stream has waited for that.
            unsafe { sys::cuMemUnmap(self.range.address, self.range.bytes) };
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.device.enter().is_ok() {
            // SAFETY: made once. The memory goes with the last process that holds it.
            unsafe { sys::cuMemRelease(self.handle) };
        }
    }
}

impl Range {
    fn new(device: &Device, bytes: usize) -> Result<Self, DriverError> {
        let mut address = 0;
        // SAFETY: any addresses will do; given back when dropped.
        check("cuMemAddressReserve", unsafe {
            sys::cuMemAddressReserve(&raw mut address, bytes, 0, 0, 0)
        })?;
        Ok(Self {
            device: device.clone(),
            address,
            bytes,
        })
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        if self.device.enter().is_ok() {
            // SAFETY: reserved once, and nothing is mapped there any more.
            unsafe { sys::cuMemAddressFree(self.address, self.bytes) };
        }
    }
}

fn location(device: &Device) -> sys::CUmemLocation {
    sys::CUmemLocation {
        type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
        id: device.0.device,
    }
}

fn properties(device: &Device) -> sys::CUmemAllocationProp {
    sys::CUmemAllocationProp {
        type_: sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: DESCRIPTOR,
        location: location(device),
        win32HandleMetaData: std::ptr::null_mut(),
        allocFlags: sys::CUmemAllocationProp_st__bindgen_ty_1 {
            compressionType: 0,
            gpuDirectRDMACapable: 0,
            usage: 0,
            reserved: [0; 4],
        },
    }
}
