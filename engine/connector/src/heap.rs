//! Memory that the allocator holds and nobody uses.
//!
//! Opening a model makes many small texts and frees most of them. The allocator of the GNU system keeps those pages for the
//! same program, where they would add to what an engine needs for as long as it runs. Another allocator would be one more
//! dependency of every build, for a thing that happens once.
#![cfg_attr(
    all(target_os = "linux", target_env = "gnu"),
    expect(
        unsafe_code,
        reason = "the C library's function has no safe binding; it is called here and nowhere else"
    )
)]

/// Gives free pages back to the system, where the system has a way.
pub(crate) fn trim() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: `malloc_trim` may be called at any time from any thread: it takes the allocator's own locks, and touches no
    // memory that is in use.
    unsafe {
        libc::malloc_trim(0);
    }
}
