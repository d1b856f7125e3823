//! The functions that the loader calls, under the names that the driver's library has.

use std::alloc::{Layout, alloc, dealloc};
use std::ffi::{CStr, c_char};
use std::os::fd::{AsRawFd as _, IntoRawFd as _};

use crate::queue::Work;
use crate::shared::{self, GRANULARITY};
use crate::state::{
    ALREADY_REGISTERED, CAPTURE_UNSUPPORTED, INVALID_HANDLE, INVALID_IMAGE, INVALID_VALUE,
    NOT_FOUND, NOT_READY, SUCCESS, Sort, State, is_kernel, with,
};

/// Declares functions with the driver's calling convention.
macro_rules! driver {
    ($($name:ident($($argument:ident: $type:ty),*) $body:block)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($argument: $type),*) -> u32 $body
        )*
    };
}

/// What opens memory of another process: 64 bytes.
#[derive(Clone, Copy)]
#[repr(C, packed)]
struct Export {
    address: u64,
    bytes: u64,
    process: u32,
    /// Of the file, in that process.
    descriptor: i32,
    rest: [u8; 40],
}

/// Writes through a pointer that the caller gave for that.
fn put<T>(to: *mut T, value: T) {
    // SAFETY: callers of the driver give a place for it.
    unsafe { to.write(value) };
}

fn layout(bytes: usize) -> Result<Layout, u32> {
    Layout::from_size_align(bytes.max(1), 256).map_err(|_| INVALID_VALUE)
}

/// What memory has that nobody wrote: as in the tests of the kernels.
const UNWRITTEN: u8 = 0x7f;

fn allocate_host(state: &mut State, bytes: usize) -> Result<u64, u32> {
    // SAFETY: the layout isn't empty.
    let pointer = unsafe { alloc(layout(bytes)?) };
    // SAFETY: so many bytes were allocated.
    unsafe { pointer.write_bytes(UNWRITTEN, bytes) };
    let address = pointer.expose_provenance() as u64;
    state.sizes.insert(address, bytes);
    state.adopt(Sort::Host, address);
    Ok(address)
}

fn free_host(state: &mut State, address: u64) -> Result<(), u32> {
    state.destroy(Sort::Host, address)?;
    let bytes = state.sizes.remove(&address).ok_or(INVALID_HANDLE)?;
    state.assert_idle(address, bytes);
    let at = usize::try_from(address).map_err(|_| INVALID_VALUE)?;
    // SAFETY: allocated with this layout, and not given back before.
    unsafe { dealloc(std::ptr::with_exposed_provenance_mut(at), layout(bytes)?) };
    Ok(())
}

/// A file in memory, which another process may open.
fn allocate_device(state: &mut State, bytes: usize) -> Result<u64, u32> {
    let file = shared::create(bytes.max(1))?;
    let address = shared::map_anywhere(bytes.max(1), &file)?;
    shared::fill(address, UNWRITTEN, bytes)?;
    state.sizes.insert(address, bytes);
    state.shared.insert(address, file);
    state.adopt(Sort::Device, address);
    Ok(address)
}

fn free_device(state: &mut State, address: u64) -> Result<(), u32> {
    state.destroy(Sort::Device, address)?;
    unmap(state, address)
}

/// Takes away what `shared` has mapped there.
fn unmap(state: &mut State, address: u64) -> Result<(), u32> {
    let bytes = state.sizes.remove(&address).ok_or(INVALID_HANDLE)?;
    state.assert_idle(address, bytes);
    state.shared.remove(&address);
    shared::free(address, bytes.max(1))
}

/// Opens memory that another process has allocated.
fn open_foreign(state: &mut State, export: &Export) -> Result<u64, u32> {
    let bytes = usize::try_from(export.bytes).map_err(|_| INVALID_VALUE)?;
    let file = shared::of_process(export.process, export.descriptor)?;
    let address = shared::map_anywhere(bytes.max(1), &file)?;
    state.sizes.insert(address, bytes);
    state.shared.insert(address, file);
    Ok(address)
}

/// Between allocations, when the stream comes to it.
fn copy(stream: u64, from: u64, to: u64, bytes: usize) -> u32 {
    with(|state| {
        state.now()?;
        state.check(Sort::Stream, stream)?;
        state.check_memory(from, bytes)?;
        state.check_memory(to, bytes)?;
        state.queues.ask(stream, Work::Copy { from, to, bytes });
        Ok(())
    })
}

driver! {
    cuInit(_flags: u32) { SUCCESS }
    cuDeviceGetCount(count: *mut i32) { put(count, 1); SUCCESS }
    cuDeviceGet(device: *mut i32, ordinal: i32) {
        if ordinal != 0 { return INVALID_VALUE; }
        put(device, 0);
        SUCCESS
    }
    cuDeviceGetName(name: *mut c_char, _bytes: i32, _device: i32) {
        // SAFETY: callers of the driver give a place that is large enough.
        unsafe { c"Fake GPU".as_ptr().copy_to_nonoverlapping(name, 9) };
        SUCCESS
    }
    // The capability's two halves: 9 and 0.
    cuDeviceGetAttribute(value: *mut i32, attribute: u32, _device: i32) {
        put(value, if attribute == 75 { 9 } else { 0 });
        SUCCESS
    }
    cuDeviceGetUuid_v2(uuid: *mut [u8; 16], _device: i32) { put(uuid, *b"Lynx's fake GPU."); SUCCESS }
    cuDevicePrimaryCtxRetain(context: *mut u64, _device: i32) {
        with(|state| { state.retained += 1; put(context, 1); Ok(()) })
    }
    // Everything must be gone by the last time.
    cuDevicePrimaryCtxRelease_v2(_device: i32) {
        with(|state| {
            state.retained = state.retained.checked_sub(1).ok_or(INVALID_VALUE)?;
            if state.retained > 0 { return Ok(()); }
            assert!(state.queues.are_done(), "work outlives its context");
            let sorts = [Sort::Stream, Sort::Event, Sort::Device, Sort::Host, Sort::Registered, Sort::Imported, Sort::Module, Sort::Graph, Sort::Executable, Sort::Shared, Sort::Range, Sort::Mapping];
            for sort in sorts {
                assert_eq!(state.count(sort), 0, "{sort:?} outlives its context");
            }
            Ok(())
        })
    }
    cuCtxSetCurrent(context: u64) { if context == 1 { SUCCESS } else { INVALID_HANDLE } }
    cuCtxGetStreamPriorityRange(least: *mut i32, greatest: *mut i32) {
        put(least, 0);
        put(greatest, -5);
        SUCCESS
    }
    cuStreamCreateWithPriority(stream: *mut u64, _flags: u32, priority: i32) {
        if priority != 0 { return INVALID_VALUE; }
        with(|state| { put(stream, state.make(Sort::Stream)); Ok(()) })
    }
    // Its work is still done.
    cuStreamDestroy_v2(stream: u64) { with(|state| state.destroy(Sort::Stream, stream)) }
    cuStreamSynchronize(stream: u64) {
        with(|state| {
            state.now()?;
            state.check(Sort::Stream, stream)?;
            state.queues.until(|queues| queues.is_done(stream))
        })
    }
    cuStreamWaitEvent(stream: u64, event: u64, _flags: u32) {
        with(|state| {
            state.check(Sort::Stream, stream)?;
            state.check(Sort::Event, event)?;
            if state.is_recording(stream) { return Err(CAPTURE_UNSUPPORTED); }
            state.queues.wait_for(event, stream);
            Ok(())
        })
    }
    cuEventCreate(event: *mut u64, _flags: u32) {
        with(|state| { put(event, state.make(Sort::Event)); Ok(()) })
    }
    cuEventRecord(event: u64, stream: u64) {
        with(|state| {
            state.check(Sort::Stream, stream)?;
            state.check(Sort::Event, event)?;
            // Of a recording it is a place in it, which nobody can wait for.
            if !state.is_recording(stream) { state.queues.record(event, stream); }
            Ok(())
        })
    }
    // Whoever asks again and again is answered in the end: meanwhile something is done.
    cuEventQuery(event: u64) {
        with(|state| {
            state.now()?;
            state.check(Sort::Event, event)?;
            if state.queues.has_come(event) { return state.queues.until(|_| true); }
            state.queues.step();
            Err(NOT_READY)
        })
    }
    cuEventSynchronize(event: u64) {
        with(|state| {
            state.now()?;
            state.check(Sort::Event, event)?;
            state.queues.until(|queues| queues.has_come(event))
        })
    }
    cuEventDestroy_v2(event: u64) { with(|state| state.destroy(Sort::Event, event)) }
    cuMemAlloc_v2(address: *mut u64, bytes: usize) {
        with(|state| { state.now()?; put(address, allocate_device(state, bytes)?); Ok(()) })
    }
    // Waits for all that the GPU does.
    cuMemFree_v2(address: u64) {
        with(|state| {
            state.now()?;
            let done = state.queues.until(|queues| queues.are_done());
            free_device(state, address).and(done)
        })
    }
    cuMemHostAlloc(pointer: *mut u64, bytes: usize, flags: u32) {
        // Write-combined memory is slow to read.
        if flags & 4 != 0 { return INVALID_VALUE; }
        with(|state| { state.now()?; put(pointer, allocate_host(state, bytes)?); Ok(()) })
    }
    cuMemFreeHost(pointer: u64) { with(|state| { state.now()?; free_host(state, pointer) }) }
    // Memory of the caller's, which no other registration has any of.
    cuMemHostRegister_v2(pointer: u64, bytes: usize, flags: u32) {
        if flags != 1 || bytes == 0 { return INVALID_VALUE; }
        with(|state| {
            state.now()?;
            let last = pointer.checked_add(bytes as u64 - 1).ok_or(INVALID_VALUE)?;
            let before = state.sizes.range(..=last).next_back();
            if before.is_some_and(|(start, size)| start + *size as u64 > pointer) { return Err(ALREADY_REGISTERED); }
            state.sizes.insert(pointer, bytes);
            state.adopt(Sort::Registered, pointer);
            Ok(())
        })
    }
    cuMemHostUnregister(pointer: u64) {
        with(|state| {
            state.now()?;
            state.destroy(Sort::Registered, pointer)?;
            let bytes = state.sizes.remove(&pointer).ok_or(INVALID_HANDLE)?;
            state.assert_idle(pointer, bytes);
            Ok(())
        })
    }
    cuMemcpyHtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: u64) { copy(stream, from, to, bytes) }
    cuMemcpyDtoHAsync_v2(to: u64, from: u64, bytes: usize, stream: u64) { copy(stream, from, to, bytes) }
    cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: u64) { copy(stream, from, to, bytes) }
    cuMemsetD8Async(at: u64, value: u8, bytes: usize, stream: u64) {
        with(|state| {
            state.now()?;
            state.check(Sort::Stream, stream)?;
            state.check_memory(at, bytes)?;
            state.queues.ask(stream, Work::Fill { at, value, bytes });
            Ok(())
        })
    }
    cuModuleLoadData(module: *mut u64, image: *const c_char) {
        // SAFETY: callers give code with an end.
        let text = unsafe { CStr::from_ptr(image) }.to_string_lossy();
        let Some(build) = text.strip_prefix("fake:") else { return INVALID_IMAGE };
        with(|state| {
            state.now()?;
            let handle = state.make(Sort::Module);
            state.modules.insert(handle, build.to_owned());
            put(module, handle);
            Ok(())
        })
    }
    cuModuleUnload(module: u64) {
        with(|state| {
            let is_of = |work: &Work| matches!(work, Work::Launch(launches) if launches.iter().any(|it| it.is_of(module)));
            assert!(!state.queues.pending().any(is_of), "a kernel is to run whose code goes");
            state.destroy(Sort::Module, module)
        })
    }
    cuModuleGetFunction(function: *mut u64, module: u64, name: *const c_char) {
        // SAFETY: callers give a text.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
        if !is_kernel(&name) { return NOT_FOUND; }
        with(|state| {
            state.check(Sort::Module, module)?;
            let handle = state.make(Sort::Function);
            state.functions.insert(handle, (module, name));
            put(function, handle);
            Ok(())
        })
    }
    cuIpcGetMemHandle(handle: *mut Export, address: u64) {
        with(|state| {
            state.check(Sort::Device, address)?;
            let file = state.shared.get(&address).ok_or(INVALID_HANDLE)?;
            let bytes = *state.sizes.get(&address).ok_or(INVALID_HANDLE)? as u64;
            let (process, descriptor) = (std::process::id(), file.as_raw_fd());
            put(handle, Export { address, bytes, process, descriptor, rest: [0; 40] });
            Ok(())
        })
    }
    // Unlike the driver's, within a process too.
    cuIpcOpenMemHandle_v2(address: *mut u64, handle: Export, _flags: u32) {
        with(|state| {
            let found = if handle.process == std::process::id() {
                state.check(Sort::Device, handle.address).map_err(|_| INVALID_VALUE)?;
                handle.address
            } else {
                open_foreign(state, &handle)?
            };
            state.adopt(Sort::Imported, found);
            put(address, found);
            Ok(())
        })
    }
    cuIpcCloseMemHandle(address: u64) {
        with(|state| {
            state.destroy(Sort::Imported, address)?;
            let is_own = state.check(Sort::Device, address).is_ok();
            if is_own || !state.shared.contains_key(&address) { return Ok(()); }
            unmap(state, address)
        })
    }
    cuMemGetHandleForAddressRange(handle: *mut i32, address: u64, bytes: usize, sort: u32, _flags: u64) {
        if sort != 1 { return INVALID_VALUE; }
        with(|state| {
            state.check_memory(address, bytes)?;
            // SAFETY: no memory is touched.
            put(handle, unsafe { libc::memfd_create(c"dma-buf".as_ptr(), 0) });
            Ok(())
        })
    }
    cuMemGetAddressRange_v2(start: *mut u64, bytes: *mut usize, address: u64) {
        with(|state| {
            let (found, size) = state.allocation(address).ok_or(INVALID_VALUE)?;
            put(start, found);
            put(bytes, size);
            Ok(())
        })
    }
    cuMemGetAllocationGranularity(bytes: *mut usize, _properties: *const u8, _option: u32) {
        put(bytes, GRANULARITY);
        SUCCESS
    }
    cuMemCreate(handle: *mut u64, bytes: usize, _properties: *const u8, _flags: u64) {
        if bytes == 0 || !bytes.is_multiple_of(GRANULARITY) { return INVALID_VALUE; }
        with(|state| {
            let file = shared::create(bytes)?;
            put(handle, state.share(file));
            Ok(())
        })
    }
    cuMemRelease(handle: u64) {
        with(|state| {
            state.destroy(Sort::Shared, handle)?;
            state.shared.remove(&handle);
            Ok(())
        })
    }
    cuMemExportToShareableHandle(descriptor: *mut i32, handle: u64, sort: u32, _flags: u64) {
        if sort != 1 { return INVALID_VALUE; }
        with(|state| {
            let file = state.shared.get(&handle).ok_or(INVALID_HANDLE)?;
            put(descriptor, file.try_clone().map_err(|_| INVALID_VALUE)?.into_raw_fd());
            Ok(())
        })
    }
    // The descriptor stays its caller's.
    cuMemImportFromShareableHandle(handle: *mut u64, descriptor: u64, sort: u32) {
        if sort != 1 { return INVALID_VALUE; }
        with(|state| {
            let file = shared::import(descriptor)?;
            put(handle, state.share(file));
            Ok(())
        })
    }
    cuMemAddressReserve(address: *mut u64, bytes: usize, _alignment: usize, _hint: u64, _flags: u64) {
        if bytes == 0 || !bytes.is_multiple_of(GRANULARITY) { return INVALID_VALUE; }
        with(|state| {
            let start = shared::reserve(bytes)?;
            state.adopt(Sort::Range, start);
            put(address, start);
            Ok(())
        })
    }
    // Only what has nothing mapped.
    cuMemAddressFree(address: u64, bytes: usize) {
        with(|state| {
            if state.check(Sort::Mapping, address).is_ok() { return Err(INVALID_VALUE); }
            state.destroy(Sort::Range, address)?;
            shared::free(address, bytes)
        })
    }
    cuMemMap(address: u64, bytes: usize, offset: usize, handle: u64, _flags: u64) {
        if offset != 0 { return INVALID_VALUE; }
        with(|state| {
            state.check(Sort::Range, address)?;
            let file = state.shared.get(&handle).ok_or(INVALID_HANDLE)?;
            shared::map(address, bytes, file)?;
            state.adopt(Sort::Mapping, address);
            Ok(())
        })
    }
    cuMemUnmap(address: u64, bytes: usize) {
        with(|state| {
            state.destroy(Sort::Mapping, address)?;
            state.sizes.remove(&address);
            state.assert_idle(address, bytes);
            shared::unmap(address, bytes)
        })
    }
    // Before it the memory can't be touched.
    cuMemSetAccess(address: u64, bytes: usize, _access: *const u8, count: usize) {
        if count != 1 { return INVALID_VALUE; }
        with(|state| {
            state.check(Sort::Mapping, address)?;
            shared::allow(address, bytes)?;
            state.sizes.insert(address, bytes);
            Ok(())
        })
    }
    cuStreamBeginCapture_v2(stream: u64, _mode: u32) {
        with(|state| {
            state.check(Sort::Stream, stream)?;
            state.begin(stream)
        })
    }
    cuStreamEndCapture(stream: u64, graph: *mut u64) {
        with(|state| {
            let launches = state.end(stream)?;
            let handle = state.make(Sort::Graph);
            state.graphs.insert(handle, launches);
            put(graph, handle);
            Ok(())
        })
    }
    cuGraphInstantiateWithFlags(executable: *mut u64, graph: u64, _flags: u64) {
        with(|state| {
            state.check(Sort::Graph, graph)?;
            let launches = state.graphs.get(&graph).cloned().ok_or(INVALID_HANDLE)?;
            let handle = state.make(Sort::Executable);
            state.graphs.insert(handle, launches);
            put(executable, handle);
            Ok(())
        })
    }
    cuGraphLaunch(executable: u64, stream: u64) {
        with(|state| {
            state.check(Sort::Stream, stream)?;
            state.check(Sort::Executable, executable)?;
            let launches = state.graphs.get(&executable).cloned().ok_or(INVALID_HANDLE)?;
            state.queues.ask(stream, Work::Launch(launches));
            Ok(())
        })
    }
    cuGraphExecDestroy(executable: u64) { with(|state| state.destroy(Sort::Executable, executable)) }
    cuGraphDestroy(graph: u64) { with(|state| state.destroy(Sort::Graph, graph)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLaunchKernel(
    function: u64,
    x: u32,
    y: u32,
    z: u32,
    _threads: u32,
    _threads_y: u32,
    _threads_z: u32,
    _shared: u32,
    stream: u64,
    arguments: *mut *mut u8,
    _extra: *mut *mut u8,
) -> u32 {
    with(|state| {
        state.check(Sort::Stream, stream)?;
        state.check(Sort::Function, function)?;
        // SAFETY: callers give the function's arguments.
        let launch = unsafe { state.recorded(function, [x, y, z], arguments) }?;
        state.launch(stream, launch);
        Ok(())
    })
}
