//! A queue pair's states, and what each step has to say.
//!
//! ```text
//! reset -- initialise --> init -- ready_to_receive --> rtr -- ready_to_send --> rts
//!   any state -- give_up, or work that fails --> error
//! ```

use ibverbs_sys as sys;
use sys::ibv_qp_attr_mask as Mask;
use sys::ibv_qp_state as State;

use super::QueuePair;
use crate::endpoint::{Endpoint, Path};
use crate::error::CallError;

/// What a device says of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePairState {
    /// Whether it can write.
    pub ready: bool,
    /// Whether it has failed.
    pub failed: bool,
    /// The service level. Soft-RoCE forgets it, and says 0.
    pub service_level: u8,
    /// The traffic class.
    pub traffic_class: u8,
}

/// How many reads a peer may have under way. This crate has none, and some drivers want one allowed.
const READS: u8 = 1;

/// How long a peer without a receive is asked to wait: 0.64 ms, by verbs' table.
const RECEIVE_WAIT: u8 = 12;

impl QueuePair {
    pub(super) fn initialise(&self) -> Result<(), CallError> {
        let mut attributes = sys::ibv_qp_attr {
            qp_state: State::IBV_QPS_INIT,
            pkey_index: 0,
            port_num: self.port,
            qp_access_flags: sys::ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0,
            ..Default::default()
        };
        let named = Mask::IBV_QP_STATE
            | Mask::IBV_QP_PKEY_INDEX
            | Mask::IBV_QP_PORT
            | Mask::IBV_QP_ACCESS_FLAGS;
        self.modify("set up a queue pair", &mut attributes, named)
    }

    pub(super) fn ready_to_receive(&self, peer: &Endpoint, path: &Path) -> Result<(), CallError> {
        let mut attributes = sys::ibv_qp_attr {
            qp_state: State::IBV_QPS_RTR,
            path_mtu: self.local.mtu.min(peer.mtu).number().into(),
            dest_qp_num: peer.number,
            rq_psn: peer.first_packet,
            max_dest_rd_atomic: READS,
            min_rnr_timer: RECEIVE_WAIT,
            ah_attr: sys::ibv_ah_attr {
                grh: sys::ibv_global_route {
                    dgid: sys::ibv_gid { raw: peer.gid.0 },
                    flow_label: 0,
                    sgid_index: self.index,
                    hop_limit: path.hops,
                    traffic_class: path.traffic_class,
                },
                dlid: peer.lid,
                sl: path.service_level,
                is_global: 1,
                port_num: self.port,
                ..Default::default()
            },
            ..Default::default()
        };
        let named = Mask::IBV_QP_STATE
            | Mask::IBV_QP_AV
            | Mask::IBV_QP_PATH_MTU
            | Mask::IBV_QP_DEST_QPN
            | Mask::IBV_QP_RQ_PSN
            | Mask::IBV_QP_MAX_DEST_RD_ATOMIC
            | Mask::IBV_QP_MIN_RNR_TIMER;
        self.modify("point a queue pair at its peer", &mut attributes, named)
    }

    pub(super) fn ready_to_send(&self, path: &Path) -> Result<(), CallError> {
        let mut attributes = sys::ibv_qp_attr {
            qp_state: State::IBV_QPS_RTS,
            sq_psn: self.local.first_packet,
            timeout: path.timeout,
            retry_cnt: path.retries,
            rnr_retry: path.receive_retries,
            max_rd_atomic: READS,
            ..Default::default()
        };
        let named = Mask::IBV_QP_STATE
            | Mask::IBV_QP_TIMEOUT
            | Mask::IBV_QP_RETRY_CNT
            | Mask::IBV_QP_RNR_RETRY
            | Mask::IBV_QP_SQ_PSN
            | Mask::IBV_QP_MAX_QP_RD_ATOMIC;
        self.modify("let a queue pair send", &mut attributes, named)
    }

    pub(super) fn give_up(&self) -> Result<(), CallError> {
        let mut attributes = sys::ibv_qp_attr {
            qp_state: State::IBV_QPS_ERR,
            ..Default::default()
        };
        self.modify("fail a queue pair", &mut attributes, Mask::IBV_QP_STATE)
    }

    fn modify(
        &self,
        what: &'static str,
        attributes: &mut sys::ibv_qp_attr,
        named: Mask,
    ) -> Result<(), CallError> {
        let functions = self.domain.context().functions();
        let named = named.0.cast_signed();
        // SAFETY: the pair is there as long as self; the attributes are read before the call is over.
        let code = unsafe { (functions.ibv_modify_qp)(self.pair.as_ptr(), attributes, named) };
        CallError::check(what, code)
    }

    /// What the device says of it.
    ///
    /// # Errors
    /// What the driver says.
    pub fn state(&self) -> Result<QueuePairState, CallError> {
        let functions = self.domain.context().functions();
        let mut found = sys::ibv_qp_attr::default();
        let mut made_with = sys::ibv_qp_init_attr::default();
        let wanted = (Mask::IBV_QP_STATE | Mask::IBV_QP_AV).0.cast_signed();
        // SAFETY: the pair is there as long as self, and both are written where the references point.
        let code = unsafe {
            (functions.ibv_query_qp)(
                self.pair.as_ptr(),
                &raw mut found,
                wanted,
                &raw mut made_with,
            )
        };
        CallError::check("ask for a queue pair's state", code)?;
        Ok(QueuePairState {
            ready: found.qp_state == State::IBV_QPS_RTS,
            failed: found.qp_state == State::IBV_QPS_ERR,
            service_level: found.ah_attr.sl,
            traffic_class: found.ah_attr.grh.traffic_class,
        })
    }
}
