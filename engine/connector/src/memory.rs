//! How much memory the process needed.

use crate::heap;

/// This process's largest resident memory since [`forget_peak`], without `weights` bytes of model; `None` where the system
/// doesn't tell.
pub(crate) fn peak_without(weights: usize) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some((kib * 1024).saturating_sub(weights as u64))
}

/// Gives back what only the opening of the model needed, and begins to measure anew without it. Where the system has no
/// such thing, the peak of opening stays in the figure.
pub(crate) fn forget_peak() {
    heap::trim();
    drop(std::fs::write("/proc/self/clear_refs", "5"));
}
