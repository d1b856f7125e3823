//! How much memory a process may lock: registered memory counts.

use std::fmt;

/// What this process may lock, as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memlock {
    /// The soft limit of `RLIMIT_MEMLOCK` in bytes; none is without limit.
    pub limit: Option<u64>,
    /// Whether it has `CAP_IPC_LOCK`, and the limit doesn't hold. None: it couldn't be read.
    pub capable: Option<bool>,
}

/// What to do where the limit is too low. The capability comes last: adding it to a container, as Kubernetes does, makes it effective
/// for root alone.
pub const ADVICE: &str = "raise the limit: LimitMEMLOCK=infinity in a drop-in of the container runtime's unit, on each node, or ulimit -l unlimited outside of containers. The capability IPC_LOCK does nothing in a container whose user isn't root, unless its program has it as a file capability";

/// `CAP_IPC_LOCK`'s place among the capabilities.
const IPC_LOCK: u32 = 14;

impl Memlock {
    /// From the limit and from the text of `/proc/self/status`.
    pub fn new(limit: Option<u64>, status: &str) -> Self {
        let effective = status
            .lines()
            .find_map(|line| line.strip_prefix("CapEff:"))
            .and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok());
        Self {
            limit,
            capable: effective.map(|bits| bits >> IPC_LOCK & 1 == 1),
        }
    }

    /// The limit that holds; none where none does.
    pub fn holding(self) -> Option<u64> {
        self.limit.filter(|_| self.capable != Some(true))
    }

    /// As the calling process has it.
    #[cfg(feature = "rdma")]
    pub fn of_this_process() -> Self {
        use rustix::process::{Resource, getrlimit};

        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        Self::new(getrlimit(Resource::Memlock).current, &status)
    }
}

impl fmt::Display for Memlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.limit, self.capable) {
            (_, Some(true)) => f.write_str("CAP_IPC_LOCK is held, so RLIMIT_MEMLOCK doesn't hold"),
            (None, _) => f.write_str("RLIMIT_MEMLOCK is unlimited"),
            (Some(bytes), _) => {
                write!(f, "RLIMIT_MEMLOCK is {bytes} bytes, without CAP_IPC_LOCK")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_holds_without_the_capability() {
        let nobody = Memlock::new(Some(65536), "Name:\tx\nCapEff:\t0000000000000000\n");
        assert_eq!(nobody.holding(), Some(65536));
        assert_eq!(
            nobody.to_string(),
            "RLIMIT_MEMLOCK is 65536 bytes, without CAP_IPC_LOCK"
        );
        let root = Memlock::new(Some(65536), "CapEff:\t000001ffffffffff\n");
        assert_eq!(root.holding(), None);
        assert_eq!(Memlock::new(None, "").holding(), None);
        assert_eq!(Memlock::new(Some(1), "CapEff: zz").holding(), Some(1));
        assert_eq!(Memlock::new(Some(1), "CapEff: 4000").capable, Some(true));
    }
}
