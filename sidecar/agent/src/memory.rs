//! How much memory this process takes, and what else of the machine.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Its largest resident memory so far, in bytes, without what is not its own: the pool's pages, which its engine counts, and
/// the program's, which are the file's. `None` where the system doesn't tell. Such pages stay once they were touched, so
/// today's are subtracted.
pub fn peak_bytes() -> Option<u64> {
    peak_in(&std::fs::read_to_string("/proc/self/status").ok()?)
}

/// What of it is in memory now, in bytes, shared pages included. `None` where the system doesn't tell.
pub fn resident_bytes() -> Option<u64> {
    bytes(
        &std::fs::read_to_string("/proc/self/status").ok()?,
        "VmRSS:",
    )
}

/// How many files and sockets it has open. `None` where the system doesn't tell.
pub fn open_files() -> Option<u64> {
    let open = std::fs::read_dir("/proc/self/fd").ok()?.count();
    // One of them is the folder that was read.
    u64::try_from(open.saturating_sub(1)).ok()
}

/// The time that it has been on processors.
pub fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.unwrap_or(0), nanos.unwrap_or(0))
}

fn peak_in(status: &str) -> Option<u64> {
    let not_own = ["RssShmem:", "RssFile:"].map(|key| bytes(status, key).unwrap_or(0));
    Some(bytes(status, "VmHWM:")?.saturating_sub(not_own.iter().sum()))
}

fn bytes(status: &str, key: &str) -> Option<u64> {
    let mut lines = status.lines();
    let line = lines.find_map(|line| line.strip_prefix(key))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_read_from_the_status() {
        let status =
            "Name:\tlynx-agent\nVmHWM:\t    1234 kB\nRssFile:\t 200 kB\nRssShmem:\t 34 kB\n";
        assert_eq!(peak_in(status), Some(1000 * 1024));
        assert_eq!(peak_in("VmHWM:\t 7 kB\n"), Some(7 * 1024));
        assert_eq!(peak_in("Name:\tlynx-agent\n"), None);
        assert_eq!(peak_in("VmHWM:\tlots\n"), None);
    }
}
