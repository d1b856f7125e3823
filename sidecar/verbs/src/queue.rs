//! Completion queues, with a file that says when to look.
#![expect(unsafe_code, reason = "calls of libibverbs")]

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use ibverbs_sys as sys;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use sys::ibv_wc_opcode as Opcode;

use crate::completion::{Completion, Outcome};
use crate::context::Context;
use crate::error::CallError;
use crate::pair::RECEIVE;

/// Where the work of queue pairs ends up. Cheap to clone; queue pairs keep it.
///
/// Its file is readable, without blocking, when a completion came after [`arm`](Self::arm). So a task arms, polls until nothing comes, and
/// only then waits for the file; when it wakes it takes the events, and begins anew. Any other order may sleep through one;
/// [`Wakeups`](crate::Wakeups) does it in this one.
#[derive(Clone)]
pub struct CompletionQueue(Arc<Created>);

struct Created {
    queue: NonNull<sys::ibv_cq>,
    /// Destroyed after the queue.
    channel: Channel,
}

// SAFETY: libibverbs' calls on one queue may come from any thread, also at the same time.
unsafe impl Send for Created {}
// SAFETY: as above.
unsafe impl Sync for Created {}

struct Channel {
    channel: NonNull<sys::ibv_comp_channel>,
    context: Context,
}

impl Channel {
    fn new(context: &Context) -> Result<Self, CallError> {
        // SAFETY: the device is open.
        let channel = unsafe { (context.functions().ibv_create_comp_channel)(context.raw()) };
        let channel = NonNull::new(channel)
            .ok_or_else(|| CallError::last("make a channel of completions"))?;
        let channel = Self {
            channel,
            context: context.clone(),
        };
        let nonblocking = |fd: BorrowedFd<'_>| fcntl_setfl(fd, fcntl_getfl(fd)? | OFlags::NONBLOCK);
        nonblocking(channel.file()).map_err(|error| CallError {
            what: "make the channel of completions nonblocking",
            source: error.into(),
        })?;
        Ok(channel)
    }

    fn file(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel is there as long as self.
        let file = unsafe { (*self.channel.as_ptr()).fd };
        // SAFETY: it is open as long as the channel, which is borrowed.
        unsafe { BorrowedFd::borrow_raw(file) }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: no queue has it any more. What it returns can't be acted upon.
        unsafe { (self.context.functions().ibv_destroy_comp_channel)(self.channel.as_ptr()) };
    }
}

impl CompletionQueue {
    /// One of the device's that holds so many completions: as much work as all its queue pairs may have posted at a time, or it overruns
    /// and they fail.
    ///
    /// # Errors
    /// Where the device has no such queue.
    pub fn new(context: &Context, completions: u32) -> Result<Self, CallError> {
        const FIRST_VECTOR: i32 = 0;
        let channel = Channel::new(context)?;
        let completions = i32::try_from(completions).unwrap_or(i32::MAX);
        // SAFETY: the device is open, and the channel is its.
        let queue = unsafe {
            (context.functions().ibv_create_cq)(
                context.raw(),
                completions,
                ptr::null_mut(),
                channel.channel.as_ptr(),
                FIRST_VECTOR,
            )
        };
        let queue =
            NonNull::new(queue).ok_or_else(|| CallError::last("make a completion queue"))?;
        Ok(Self(Arc::new(Created { queue, channel })))
    }

    pub(crate) fn raw(&self) -> *mut sys::ibv_cq {
        self.0.queue.as_ptr()
    }

    fn context(&self) -> &Context {
        &self.0.channel.context
    }

    /// Has the next completion make the file readable.
    ///
    /// # Errors
    /// What the driver says.
    pub fn arm(&self) -> Result<(), CallError> {
        const ALL: i32 = 0;
        const WHAT: &str = "ask to be told of completions";
        let arm = self.context().operations().req_notify_cq;
        let arm = arm.ok_or_else(|| missing(WHAT))?;
        // SAFETY: the queue is there as long as self.
        CallError::check(WHAT, unsafe { arm(self.raw(), ALL) })
    }

    /// Takes what made the file readable, so that it isn't any more; how many there were.
    ///
    /// # Errors
    /// What the kernel says, other than that there is nothing.
    pub fn take_events(&self) -> Result<u32, CallError> {
        let functions = self.context().functions();
        let mut taken = 0;
        loop {
            let (mut queue, mut with) = (ptr::null_mut(), ptr::null_mut());
            // SAFETY: the channel is there as long as self, and both are written where the references point.
            let code = unsafe {
                (functions.ibv_get_cq_event)(
                    self.0.channel.channel.as_ptr(),
                    &raw mut queue,
                    &raw mut with,
                )
            };
            if code != 0 {
                let error = CallError::last("take the events of completions");
                if error.source.kind() == io::ErrorKind::WouldBlock {
                    return Ok(taken);
                }
                return Err(error);
            }
            // SAFETY: the channel has this queue only; the event that came just now is the one acknowledged, without which the queue
            // couldn't be destroyed.
            unsafe { (functions.ibv_ack_cq_events)(self.raw(), 1) };
            taken += 1;
        }
    }

    /// Appends completions, and says how many: none, where there are none. Some at a time; ask until there are none.
    ///
    /// # Errors
    /// What the driver says: the queue overran, or the device is gone.
    pub fn poll(&self, into: &mut Vec<Completion>) -> Result<usize, CallError> {
        const AT_A_TIME: usize = 32;
        const WHAT: &str = "take completions";
        let poll = self.context().operations().poll_cq;
        let poll = poll.ok_or_else(|| missing(WHAT))?;
        let mut found = [sys::ibv_wc::default(); AT_A_TIME];
        // SAFETY: the queue is there as long as self, and there is room for so many.
        let count = unsafe { poll(self.raw(), 32, found.as_mut_ptr()) };
        let count = usize::try_from(count).map_err(|_| {
            CallError::check(WHAT, count).map_or_else(|error| error, |()| missing(WHAT))
        })?;
        into.extend(found.iter().take(count).map(completion));
        Ok(count)
    }
}

/// The driver has no such operation: none is like that.
pub(crate) fn missing(what: &'static str) -> CallError {
    CallError {
        what,
        source: io::ErrorKind::Unsupported.into(),
    }
}

fn completion(found: &sys::ibv_wc) -> Completion {
    let work = found.wr_id();
    let outcome = match found.error() {
        Some((status, _)) if work == RECEIVE => Outcome::ReceiveFailed {
            failure: status.into(),
        },
        Some((status, _)) => Outcome::WriteFailed {
            work,
            failure: status.into(),
        },
        None if found.opcode() == Opcode::IBV_WC_RECV_RDMA_WITH_IMM => Outcome::Announced {
            immediate: u32::from_be(found.imm_data().unwrap_or_default()),
            bytes: u32::try_from(found.len()).unwrap_or(u32::MAX),
        },
        None => Outcome::Written { work },
    };
    Completion {
        queue_pair: found.qp_num,
        outcome,
    }
}

impl AsFd for CompletionQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.channel.file()
    }
}

impl AsRawFd for CompletionQueue {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CompletionQueue")
            .field(self.context())
            .finish()
    }
}

impl Drop for Created {
    fn drop(&mut self) {
        let functions = self.channel.context.functions();
        // SAFETY: no queue pair has it any more, and every event is acknowledged. What it returns can't be acted upon.
        unsafe { (functions.ibv_destroy_cq)(self.queue.as_ptr()) };
    }
}

#[cfg(test)]
mod tests {
    use ibverbs_sys::ibv_wc_status as Status;

    use crate::completion::Failure;

    #[test]
    fn failures_have_the_numbers_of_the_headers() {
        for (status, failure) in [
            (Status::IBV_WC_LOC_PROT_ERR, Failure::LocalProtection),
            (Status::IBV_WC_WR_FLUSH_ERR, Failure::Flushed),
            (Status::IBV_WC_REM_ACCESS_ERR, Failure::RemoteAccess),
            (Status::IBV_WC_RETRY_EXC_ERR, Failure::Unanswered),
            (Status::IBV_WC_RNR_RETRY_EXC_ERR, Failure::NoReceive),
            (
                Status::IBV_WC_FATAL_ERR,
                Failure::Other(Status::IBV_WC_FATAL_ERR),
            ),
        ] {
            assert_eq!(Failure::from(status), failure);
        }
    }
}
