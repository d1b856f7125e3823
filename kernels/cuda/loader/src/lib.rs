//! The kernels on a GPU: found, loaded and launched through the CUDA driver, where a machine has one.
//!
//! [`choose`] says whether units are coded on a GPU or on the processor, and why; it needs no CUDA to be built, and where the driver's
//! library is missing it says so instead of failing. [`Coder`] is what both are: [`Processor`] is the codec, [`GpuCoder`] launches
//! the kernels and brings their segments into pinned memory. [`Staging`] counts that memory, without a driver, so that its rules
//! can be tested anywhere.
//!
//! Refuses to be: a second definition of the format (`lynx-kernels`), of what a launch is told (`lynx-gpu`), or a way to share a
//! GPU between processes, which MPS is. All calls of the driver are in `driver`, the one module with unsafe code.

mod choice;
mod coder;
mod driver;
mod half;
mod images;
mod staging;

pub use choice::{Choice, Options, Why, choose};
pub use coder::{Coder, Processor, Segments};
pub use driver::{
    Cache, Captured, CodeError, Device, DriverError, Event, Function, GpuCoder, Imported, InCache,
    InFlight, IpcHandle, Mapped, Memory, Module, Pass, Pinned, Place, Placed, Registered, Stream,
    Trial, Uuid, Which,
};
pub use half::{bf16_of_fp16, fp16_of_bf16};
pub use images::{DEFAULT_FOLDER, ImageError, Images, build_name, source_digest};
pub use staging::{Slot, Staging, StagingError};
