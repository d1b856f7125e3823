//! Reliable connected queue pairs.
//!
//! Three steps: one is made, can take receives, and says what the peer has to know; then it is connected with what the peer said; then it
//! writes. It fails as a whole, on the first work that fails or when told to, and doesn't recover: a new one is made.
#![expect(unsafe_code, reason = "calls of libibverbs")]

mod states;

use std::fmt;
use std::ptr::{self, NonNull};

use ibverbs_sys as sys;
use sys::ibv_send_flags as Flags;

use crate::completion::Completion;
use crate::domain::Domain;
use crate::endpoint::{Endpoint, Mtu, Path, Target};
use crate::error::CallError;
use crate::gid::GidEntry;
use crate::queue::{CompletionQueue, missing};
use crate::region::Local;

pub use states::QueuePairState;

/// The number of all receives: they have no memory, so one is like another.
pub(crate) const RECEIVE: u64 = u64::MAX;

/// Of how many parts a write can be.
const MOST_PARTS: u32 = 2;

/// How much work a queue pair takes at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Writes that are posted and not completed.
    pub writes: u32,
    /// Receives that no announcement has come for.
    pub receives: u32,
    /// Up to how many bytes a write is to carry its payload in the request, so that the device needn't fetch it. The device may allow more.
    pub inline: u32,
}

/// A write into the peer's memory.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    /// The number that its completion will have: any but `u64::MAX`.
    pub work: u64,
    /// What is written; none is a write of no bytes, which can still be announced.
    pub from: Option<Local<'a>>,
    /// What is written behind that, of other memory.
    pub then: Option<Local<'a>>,
    /// Where to: its first bytes are written. Without a payload it is not looked at.
    pub to: Target,
    /// What the peer is told when it and all before it are in its memory; it takes one of the peer's receives.
    pub immediate: Option<u32>,
    /// Whether it has a completion also where it doesn't fail.
    pub signalled: bool,
}

/// A queue pair.
pub struct QueuePair {
    pair: NonNull<sys::ibv_qp>,
    local: Endpoint,
    port: u8,
    index: u8,
    inline: u32,
    /// Destroyed after the pair.
    queue: CompletionQueue,
    domain: Domain,
}

// SAFETY: libibverbs' calls on one queue pair may come from any thread, also at the same time.
unsafe impl Send for QueuePair {}
// SAFETY: as above.
unsafe impl Sync for QueuePair {}

impl QueuePair {
    /// One that sends from `gid`, a GID of the domain's device, and ends its work in `queue`. Its first packet will have the number
    /// `first_packet`, of which the lower 24 bits count: random, so that packets of one before it are told apart.
    ///
    /// # Errors
    /// Where the device has none of this size, or the port is gone.
    pub fn new(
        domain: &Domain,
        queue: &CompletionQueue,
        gid: &GidEntry,
        sizes: Sizes,
        first_packet: u32,
    ) -> Result<Self, CallError> {
        const NUMBER_BITS: u32 = 0x00ff_ffff;
        let port = domain.context().port(gid.port)?;
        let mut attributes = sys::ibv_qp_init_attr {
            send_cq: queue.raw(),
            recv_cq: queue.raw(),
            cap: sys::ibv_qp_cap {
                max_send_wr: sizes.writes,
                max_recv_wr: sizes.receives,
                max_send_sge: MOST_PARTS,
                max_recv_sge: 1,
                max_inline_data: sizes.inline,
            },
            qp_type: sys::ibv_qp_type::IBV_QPT_RC,
            ..Default::default()
        };
        // SAFETY: domain and queue are there as long as they are borrowed, and then as long as self.
        let pair = unsafe {
            (domain.context().functions().ibv_create_qp)(domain.raw(), &raw mut attributes)
        };
        let pair = NonNull::new(pair).ok_or_else(|| CallError::last("make a queue pair"))?;
        // SAFETY: it was made just now, with a number that stays.
        let number = unsafe { (*pair.as_ptr()).qp_num };
        let made = Self {
            pair,
            local: Endpoint {
                number,
                first_packet: first_packet & NUMBER_BITS,
                gid: gid.gid,
                lid: port.lid,
                mtu: Mtu::from_number(port.active_mtu).unwrap_or(Mtu::B256),
            },
            port: gid.port,
            index: gid.index,
            inline: attributes.cap.max_inline_data,
            queue: queue.clone(),
            domain: domain.clone(),
        };
        made.initialise()?;
        Ok(made)
    }

    /// What the peer has to know.
    pub fn endpoint(&self) -> Endpoint {
        self.local
    }

    /// Its number on this side, as completions have it.
    pub fn number(&self) -> u32 {
        self.local.number
    }

    /// Up to how many bytes a write carries its payload in the request.
    pub fn inline(&self) -> u32 {
        self.inline
    }

    /// Connects it with the peer's, which has to do the same. After that it writes.
    ///
    /// # Errors
    /// Where the device finds no way to the peer, or the pair isn't new.
    pub fn connect(&self, peer: &Endpoint, path: &Path) -> Result<(), CallError> {
        self.ready_to_receive(peer, path)?;
        self.ready_to_send(path)
    }

    /// Fails it: all work that is posted, and whatever is posted later, completes as [`Flushed`](crate::Failure::Flushed). No write of the peer's comes in any more
    /// after the flush has been seen.
    ///
    /// # Errors
    /// What the driver says.
    pub fn fail(&self) -> Result<(), CallError> {
        self.give_up()
    }

    /// Posts a write. It carries its payload in the request where that is short enough.
    ///
    /// # Errors
    /// Where so many are posted already as the pair takes, or it isn't connected.
    pub fn post(&self, write: &Write<'_>) -> Result<(), CallError> {
        const WHAT: &str = "post a write";
        debug_assert_ne!(write.work, RECEIVE, "that number is for receives");
        let post = self.domain.context().operations().post_send;
        let post = post.ok_or_else(|| missing(WHAT))?;
        let mut parts = [sys::ibv_sge::default(); MOST_PARTS as usize];
        let (mut count, mut bytes) = (0, 0_u32);
        let written = [write.from, write.then].into_iter().flatten();
        for (place, part) in parts.iter_mut().zip(written.filter(|part| part.bytes > 0)) {
            *place = scatter(part);
            count += 1;
            bytes = bytes.saturating_add(part.bytes);
        }
        let mut flags = Flags(0);
        if write.signalled {
            flags |= Flags::IBV_SEND_SIGNALED;
        }
        if bytes > 0 && bytes <= self.inline {
            flags |= Flags::IBV_SEND_INLINE;
        }
        let mut request = sys::ibv_send_wr {
            wr_id: write.work,
            num_sge: count,
            sg_list: parts.as_mut_ptr(),
            send_flags: flags.0,
            opcode: sys::ibv_wr_opcode::IBV_WR_RDMA_WRITE,
            ..Default::default()
        };
        request.wr.rdma = sys::ibv_send_wr__bindgen_ty_2__bindgen_ty_1 {
            remote_addr: write.to.address,
            rkey: write.to.key,
        };
        if let Some(immediate) = write.immediate {
            request.opcode = sys::ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM;
            request.__bindgen_anon_1.imm_data = immediate.to_be();
        }
        let mut refused = ptr::null_mut();
        // SAFETY: the pair is there as long as self, and the request and its parts until the call is over; the driver copies both. The memory
        // is registered; work on memory that is given back meanwhile fails in the device.
        let code = unsafe { post(self.pair.as_ptr(), &raw mut request, &raw mut refused) };
        CallError::check(WHAT, code)
    }

    /// Posts receives, one for each announcement that the peer may make. They have no memory.
    ///
    /// # Errors
    /// Where more are posted than the pair takes; some of them may have been.
    pub fn post_receives(&self, count: u32) -> Result<(), CallError> {
        const WHAT: &str = "post a receive";
        let post = self.domain.context().operations().post_recv;
        let post = post.ok_or_else(|| missing(WHAT))?;
        for _ in 0..count {
            let mut request = sys::ibv_recv_wr {
                wr_id: RECEIVE,
                ..Default::default()
            };
            let mut refused = ptr::null_mut();
            // SAFETY: the pair is there as long as self, and the request until the call is over; the driver copies it.
            let code = unsafe { post(self.pair.as_ptr(), &raw mut request, &raw mut refused) };
            CallError::check(WHAT, code)?;
        }
        Ok(())
    }

    /// Whether a completion is this pair's.
    pub fn is_of(&self, completion: &Completion) -> bool {
        completion.queue_pair == self.number()
    }

    /// Which memory it may use.
    pub fn domain(&self) -> &Domain {
        &self.domain
    }

    /// The queue that its work ends in.
    pub fn queue(&self) -> &CompletionQueue {
        &self.queue
    }
}

fn scatter(from: Local<'_>) -> sys::ibv_sge {
    sys::ibv_sge {
        addr: from.address,
        length: from.bytes,
        lkey: from.registration.local_key(),
    }
}

impl fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("QueuePair").field(&self.local).finish()
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: it goes once, before its queue and domain. What it returns can't be acted upon.
        unsafe { (self.domain.context().functions().ibv_destroy_qp)(self.pair.as_ptr()) };
    }
}
