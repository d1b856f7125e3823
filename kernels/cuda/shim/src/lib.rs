//! The CUDA kernels compiled for the CPU, so that their arithmetic and their meetings can be tested where there is no GPU.
//!
//! The same source that NVRTC compiles is compiled as C++, with `cpp/cuda.hpp` in the place of CUDA. Only this crate's tests use
//! it, and no other crate depends on it, so that building Lynx needs no C++ compiler. It shows what the kernels compute; it
//! says nothing of what memory ordering, the few instructions written in PTX, or time will do on a GPU.
#![expect(unsafe_code, reason = "calls of C++")]

use std::ffi::{CStr, c_char, c_void};
use std::ptr::from_ref;

use lynx_gpu::{Extents, Plan, Unit};

type Entry = unsafe extern "C" fn(
    kernel: u32,
    first: *const c_void,
    units: *const Unit,
    blocks: *const [u32; 3],
    seed: u64,
) -> *const c_char;

include!(concat!(env!("OUT_DIR"), "/variants.rs"));

#[link(name = "lynx_shim_launch", kind = "static")]
unsafe extern "C" {
    fn lynx_shim_planted(which: u32, seed: u64) -> *const c_char;
    fn lynx_shim_unequal_quotients() -> u32;
}

/// A kernel of `kernels.cu`, in the order of `cpp/variant.cpp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// `lynx_split`.
    Split,
    /// `lynx_merge`.
    Merge,
    /// `lynx_escape`.
    Escape,
    /// `lynx_unescape`.
    Unescape,
    /// `lynx_tail`.
    Tail,
    /// `lynx_restore`.
    Restore,
}

/// `lynx_sum`'s number, after those.
const SUM: u32 = 6;

/// A mistake made on purpose, in the order of `cpp/checks.cpp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// None.
    Nothing,
    /// Lanes of a warp call different shuffles.
    DivergentShuffle,
    /// A thread leaves before a barrier.
    EarlyReturn,
    /// Threads wait at different barriers.
    TwoBarriers,
    /// A vector at an odd address.
    Misaligned,
    /// A barrier is missing between writing and reading what neighbours wrote.
    NoBarrier,
}

/// The names of all builds.
pub fn variants() -> impl Iterator<Item = &'static str> {
    VARIANTS.iter().map(|(name, _)| *name)
}

/// Runs a kernel on the CPU. Seeds 0 and 1 take lanes and blocks in ascending and in descending order, others in a random one.
///
/// # Errors
/// What the kernel did that a GPU would not allow, or that no build has this name.
///
/// # Safety
/// The addresses in `units` are those of memory that nothing else uses meanwhile, as large as `plan` and the build call for;
/// there are as many units as `blocks` says.
pub unsafe fn run(
    variant: &str,
    kernel: Kernel,
    plan: &Plan,
    units: &[Unit],
    blocks: [u32; 3],
    seed: u64,
) -> Result<(), String> {
    let entry = entry(variant)?;
    let first = from_ref(plan).cast();
    // SAFETY: the caller vouches for the memory behind the units; the other arguments outlive the call.
    let said = unsafe {
        entry(
            kernel as u32,
            first,
            units.as_ptr(),
            &raw const blocks,
            seed,
        )
    };
    result(said)
}

/// Runs `lynx_sum`, as [`run`] does the others.
///
/// # Errors
/// As those of [`run`].
///
/// # Safety
/// As that of [`run`]; the extents lie within the segments.
pub unsafe fn sum(
    variant: &str,
    extents: &Extents,
    units: &[Unit],
    blocks: [u32; 3],
    seed: u64,
) -> Result<(), String> {
    let entry = entry(variant)?;
    let first = from_ref(extents).cast();
    // SAFETY: as above.
    let said = unsafe { entry(SUM, first, units.as_ptr(), &raw const blocks, seed) };
    result(said)
}

fn entry(variant: &str) -> Result<Entry, String> {
    let found = VARIANTS.iter().find(|(name, _)| *name == variant);
    let (_, entry) = found.ok_or_else(|| format!("there is no build {variant}"))?;
    Ok(*entry)
}

/// Runs a kernel with a mistake; tells what the shim says of it.
///
/// # Errors
/// What was noticed.
pub fn planted(which: Planted, seed: u64) -> Result<(), String> {
    // SAFETY: the function touches only memory of its own.
    result(unsafe { lynx_shim_planted(which as u32, seed) })
}

/// For how many f32 in two octaves the kernels' quotient by 240 isn't the correctly rounded one.
pub fn unequal_quotients() -> u32 {
    // SAFETY: the function touches no memory.
    unsafe { lynx_shim_unequal_quotients() }
}

fn result(said: *const c_char) -> Result<(), String> {
    if said.is_null() {
        return Ok(());
    }
    // SAFETY: not null, it is a text that lives until this thread's next launch.
    let said = unsafe { CStr::from_ptr(said) };
    Err(said.to_string_lossy().into_owned())
}
