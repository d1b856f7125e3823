//! A timer that is precise to some tens of microseconds.
//!
//! Tokio's own timer has a wheel of milliseconds: at 1 Gbit/s that would turn a paced link into bursts of 125 kB.

#![expect(
    unsafe_code,
    reason = "the reactor must be promised that a descriptor stays open; there is no safe way to say so"
)]

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use lynx_units::Timestamp;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::unix::AsyncFd;

use crate::Clock;

/// A moment this near counts as now: it saves a system call for most packets of a fast link.
const SLACK: Duration = Duration::from_micros(50);

/// One kernel timer, readable through the reactor.
pub(super) struct Timer {
    clock: Clock,
    fd: AsyncFd<OwnedFd>,
}

impl Timer {
    pub(super) fn new(clock: Clock) -> io::Result<Self> {
        let fd = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
        )?;
        Ok(Self {
            clock,
            // SAFETY: an `OwnedFd` is open until it is dropped, and always is the same descriptor; nothing takes it out of
            // the `AsyncFd`, which drops it after it has left the reactor.
            fd: unsafe { AsyncFd::register(fd) }?,
        })
    }

    /// Returns at `moment`, or at once where it is past or nearer than [`SLACK`].
    pub(super) async fn sleep_until(&self, moment: Timestamp) -> io::Result<()> {
        let wait = moment - self.clock.now();
        if wait <= SLACK {
            return Ok(());
        }
        self.arm(wait)?;
        loop {
            let mut ready = self.fd.readable().await?;
            let mut expirations = [0; 8];
            let read = ready.try_io(|fd| Ok(rustix::io::read(fd.get_ref(), &mut expirations)?));
            if let Ok(read) = read {
                return read.map(|_| ());
            }
        }
    }

    /// Sets the timer to expire once, `wait` from now; forgets an earlier expiration that nobody read.
    fn arm(&self, wait: Duration) -> io::Result<()> {
        let once = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec {
                tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(wait.subsec_nanos()),
            },
        };
        timerfd_settime(self.fd.get_ref(), TimerfdTimerFlags::empty(), &once)?;
        Ok(())
    }
}
