//! The codec for engines that split KV by themselves: `include/lynx.h`, which is the documentation.
//!
//! An engine whose GPU the agent can't see splits in its own process, into memory that the agent maps. Its language is C's: this
//! crate is a library with a version, codes instead of errors, and a text for each. It refuses to be a second codec: it
//! calls `lynx-kernels` and `lynx-cuda`. Nothing unwinds into the caller.
#![expect(unsafe_code, reason = "pointers of C")]

mod error;
mod session;
mod values;

use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use lynx_kernels::KvShape;

use self::error::{Code, Failure, remember};
pub use self::session::{Coder, Segment, Unit};
pub use self::values::Values;

/// The version of the header.
pub const ABI: u32 = 2;

/// `lynx_shape`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Layers of the model.
    pub layers: u32,
    /// KV heads of a layer.
    pub kv_heads: u32,
    /// Channels of a head.
    pub head_dim: u32,
}

/// Runs a call; its code.
fn guarded(call: impl FnOnce() -> Result<(), Failure>) -> i32 {
    let done = catch_unwind(AssertUnwindSafe(call));
    let failure = match done {
        Ok(Ok(())) => return 0,
        Ok(Err(failure)) => failure,
        Err(_) => Failure::new(Code::Internal, "a mistake in the library: please report it"),
    };
    remember(&failure.said);
    failure.code as i32
}

/// A text of the caller's; `None` for null.
///
/// # Safety
/// Null, or a text with an end that lives as long as is said.
unsafe fn text<'a>(pointer: *const c_char) -> Result<Option<&'a str>, Failure> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller vouches for it.
    let text = unsafe { CStr::from_ptr(pointer) }.to_str();
    text.map(Some)
        .map_err(|_| Failure::new(Code::Invalid, "a text isn't UTF-8"))
}

fn null(what: &str) -> Failure {
    Failure::new(Code::Invalid, format!("{what} is null"))
}

/// `lynx_abi`.
#[unsafe(no_mangle)]
pub extern "C" fn lynx_abi() -> u32 {
    ABI
}

/// `lynx_last_error`.
#[unsafe(no_mangle)]
pub extern "C" fn lynx_last_error() -> *const c_char {
    error::last()
}

/// `lynx_open`.
///
/// # Safety
/// Texts are null or end; `coder` is a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lynx_open(
    abi: u32,
    shape: Shape,
    profile: *const c_char,
    gpu: u32,
    pinned_bytes: u64,
    kernels: *const c_char,
    coder: *mut *mut Coder,
) -> i32 {
    guarded(|| {
        if abi != ABI {
            let said = format!("the header is of version {abi}, and the library of version {ABI}");
            return Err(Failure::new(Code::Abi, said));
        }
        if coder.is_null() {
            return Err(null("the place for the coder"));
        }
        // SAFETY: the caller vouches for the text.
        let profile = unsafe { text(profile) }?;
        // SAFETY: as above.
        let kernels = unsafe { text(kernels) }?;
        let shape = KvShape {
            layers: shape.layers as usize,
            kv_heads: shape.kv_heads as usize,
            head_dim: shape.head_dim as usize,
        };
        let pinned = (gpu != 0).then(|| usize::try_from(pinned_bytes).unwrap_or(usize::MAX));
        let opened = Box::new(Coder::open(shape, profile, pinned, kernels)?);
        // SAFETY: not null, and the caller's.
        unsafe { coder.write(Box::into_raw(opened)) };
        Ok(())
    })
}

/// `lynx_close`.
///
/// # Safety
/// Null, or what `lynx_open` gave, once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lynx_close(coder: *mut Coder) {
    if !coder.is_null() {
        guarded(|| {
            // SAFETY: made by `Box::into_raw`.
            drop(unsafe { Box::from_raw(coder) });
            Ok(())
        });
    }
}

/// `lynx_register`.
///
/// # Safety
/// The coder is null or open, and the memory stays mapped until [`lynx_unregister`] or [`lynx_close`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lynx_register(coder: *mut Coder, memory: *mut u8, bytes: u64) -> i32 {
    guarded(|| {
        if memory.is_null() {
            return Err(null("the memory to be pinned"));
        }
        // SAFETY: the caller vouches for it.
        let coder = unsafe { coder.as_mut() }.ok_or_else(|| null("the coder"))?;
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        // SAFETY: as above.
        unsafe { coder.register(memory, bytes) }
    })
}

/// `lynx_unregister`.
///
/// # Safety
/// The coder is null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lynx_unregister(coder: *mut Coder) -> i32 {
    guarded(|| {
        // SAFETY: the caller vouches for it.
        let coder = unsafe { coder.as_mut() }.ok_or_else(|| null("the coder"))?;
        coder.unregister();
        Ok(())
    })
}

/// `lynx_bounds`.
///
/// # Safety
/// Pointers are null or of what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lynx_bounds(
    coder: *const Coder,
    unit: *const Unit,
    segments: *mut u32,
    bytes: *mut u64,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller vouches for it.
        let coder = unsafe { coder.as_ref() }.ok_or_else(|| null("the coder"))?;
        // SAFETY: as above.
        let unit = unsafe { unit.as_ref() }.ok_or_else(|| null("the unit"))?;
        let (count, most) = coder.bounds(unit)?;
        // SAFETY: as above.
        let segments =
            unsafe { segments.as_mut() }.ok_or_else(|| null("the number of segments"))?;
        // SAFETY: as above.
        let bytes = unsafe { bytes.as_mut() }.ok_or_else(|| null("the number of bytes"))?;
        (*segments, *bytes) = (count, most);
        Ok(())
    })
}

/// `lynx_split`.
///
/// # Safety
/// Pointers are null or of what the header says, and nobody else uses the memory behind them meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lynx_split(
    coder: *mut Coder,
    unit: *const Unit,
    values: *const Values,
    to: *mut u8,
    capacity: u64,
    segments: *mut Segment,
    count: u32,
) -> i32 {
    guarded(|| {
        if to.is_null() || segments.is_null() {
            return Err(null("the memory for segments"));
        }
        // SAFETY: the caller vouches for it.
        let coder = unsafe { coder.as_mut() }.ok_or_else(|| null("the coder"))?;
        // SAFETY: as above.
        let unit = unsafe { unit.as_ref() }.ok_or_else(|| null("the unit"))?;
        // SAFETY: as above.
        let values = unsafe { values.as_ref() }.ok_or_else(|| null("the values"))?;
        let capacity = usize::try_from(capacity).unwrap_or(0);
        // SAFETY: so many bytes are the caller's to write.
        let to = unsafe { std::slice::from_raw_parts_mut(to, capacity) };
        // SAFETY: so many segments are, too.
        let segments = unsafe { std::slice::from_raw_parts_mut(segments, count as usize) };
        // SAFETY: the caller vouches for the values.
        unsafe { coder.split(unit, values, to, segments) }
    })
}

/// `lynx_merge`.
///
/// # Safety
/// As that of [`lynx_split`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lynx_merge(
    coder: *mut Coder,
    unit: *const Unit,
    from: *const u8,
    length: u64,
    segments: *const Segment,
    count: u32,
    steps: u32,
    values: *const Values,
) -> i32 {
    // SAFETY: as this one's.
    guarded(|| unsafe {
        decode(
            coder,
            unit,
            (from, length),
            (segments, count),
            values,
            Some(steps),
        )
    })
}

/// `lynx_restore`.
///
/// # Safety
/// As that of [`lynx_split`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lynx_restore(
    coder: *mut Coder,
    unit: *const Unit,
    from: *const u8,
    length: u64,
    segments: *const Segment,
    count: u32,
    values: *const Values,
) -> i32 {
    // SAFETY: as this one's.
    guarded(|| unsafe { decode(coder, unit, (from, length), (segments, count), values, None) })
}

/// `lynx_read`.
///
/// # Safety
/// As that of [`lynx_split`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lynx_read(
    coder: *mut Coder,
    unit: *const Unit,
    values: *const Values,
    to: *mut u8,
    capacity: u64,
) -> i32 {
    guarded(|| {
        if to.is_null() {
            return Err(null("the memory for values"));
        }
        // SAFETY: the caller vouches for it.
        let coder = unsafe { coder.as_mut() }.ok_or_else(|| null("the coder"))?;
        // SAFETY: as above.
        let unit = unsafe { unit.as_ref() }.ok_or_else(|| null("the unit"))?;
        // SAFETY: as above.
        let values = unsafe { values.as_ref() }.ok_or_else(|| null("the values"))?;
        let capacity = usize::try_from(capacity).unwrap_or(0);
        // SAFETY: so many bytes are the caller's to write.
        let to = unsafe { std::slice::from_raw_parts_mut(to, capacity) };
        // SAFETY: the caller vouches for the values.
        unsafe { coder.read(unit, values, to) }
    })
}

/// `lynx_write`.
///
/// # Safety
/// As that of [`lynx_split`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lynx_write(
    coder: *mut Coder,
    unit: *const Unit,
    from: *const u8,
    length: u64,
    values: *const Values,
) -> i32 {
    guarded(|| {
        if from.is_null() {
            return Err(null("the memory of values"));
        }
        // SAFETY: the caller vouches for it.
        let coder = unsafe { coder.as_mut() }.ok_or_else(|| null("the coder"))?;
        // SAFETY: as above.
        let unit = unsafe { unit.as_ref() }.ok_or_else(|| null("the unit"))?;
        // SAFETY: as above.
        let values = unsafe { values.as_ref() }.ok_or_else(|| null("the values"))?;
        let length = usize::try_from(length).unwrap_or(0);
        // SAFETY: so many bytes may be read.
        let from = unsafe { std::slice::from_raw_parts(from, length) };
        // SAFETY: the caller vouches for the values.
        unsafe { coder.write(unit, from, values) }
    })
}

/// # Safety
/// As that of [`lynx_split`].
unsafe fn decode(
    coder: *mut Coder,
    unit: *const Unit,
    (from, length): (*const u8, u64),
    (segments, count): (*const Segment, u32),
    values: *const Values,
    steps: Option<u32>,
) -> Result<(), Failure> {
    if from.is_null() || segments.is_null() {
        return Err(null("the memory of segments"));
    }
    // SAFETY: the caller vouches for it.
    let coder = unsafe { coder.as_mut() }.ok_or_else(|| null("the coder"))?;
    // SAFETY: as above.
    let unit = unsafe { unit.as_ref() }.ok_or_else(|| null("the unit"))?;
    // SAFETY: as above.
    let values = unsafe { values.as_ref() }.ok_or_else(|| null("the values"))?;
    let length = usize::try_from(length).unwrap_or(0);
    // SAFETY: so many bytes may be read.
    let from = unsafe { std::slice::from_raw_parts(from, length) };
    // SAFETY: so many segments may be read.
    let segments = unsafe { std::slice::from_raw_parts(segments, count as usize) };
    // SAFETY: the caller vouches for the values.
    unsafe { coder.decode(unit, (from, segments), values, steps) }
}
