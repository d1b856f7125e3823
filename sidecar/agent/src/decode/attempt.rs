//! Asking one prefill agent after the other for a prompt's KV.
//!
//! What a request needs to be asked for again is kept until anything of its KV has come: a peer that refuses, or is lost
//! before, costs the time that it took, and the next best one is asked within the same deadline. Every attempt is a transfer
//! of its own, with a number of its own. Later than that there is no second attempt: what has been merged would have to be
//! told from what a second peer sends, and the engine can compute.

use std::sync::Arc;

use lynx_kernels::Cuts;
use lynx_proto::engine::v1::Sampling;
use lynx_proto::peer::v1::TransferRequest;
use lynx_protocol::{Code, Reason};
use lynx_telemetry::{KeyValue, attributes};
use lynx_units::{Bytes, Timestamp, TransferId, Width};

use super::asking::ask;
use super::blocks::Blocks;
use super::request::{AbortOnDrop, Anchor, Kv, Loading};
use super::{Decoder, Signal};
use crate::coding::{Coding, CodingError, Descriptor};
use crate::counters::{InUse, KvFailure, Pool};
use crate::identity::profile_name;
use crate::integrity;
use crate::method::Method;
use crate::peers::{Ask, Chosen, PeerId};
use crate::pool::Writable;
use crate::prefix::BlockName;
use crate::session::Expected;

/// How many peers are asked for one prompt.
const MOST_ATTEMPTS: usize = 3;

/// Why a transfer is not even asked for.
#[derive(Debug, thiserror::Error)]
enum LoadError {
    #[error("no prefill agent is linked, or all are being shut down")]
    NoPeer,
    #[error("no engine is attached")]
    NoEngine,
    #[error("transfers under way have all memory that they may (transfer.mergeBuffer)")]
    Memory,
    #[error(transparent)]
    Coding(#[from] CodingError),
}

/// What it takes to ask for a prompt's KV.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    tokens: Vec<u32>,
    from_token: u32,
    sampling: Sampling,
    /// The prompt's whole blocks.
    names: Vec<BlockName>,
    /// Peers that were asked in vain.
    tried: Vec<PeerId>,
    /// Of all attempts together.
    deadline: Timestamp,
}

impl Decoder {
    /// The engine has blocks: asks a prefill agent for what belongs there, or says that it won't come.
    pub(super) fn load(&mut self, expected: Expected) {
        let number = expected.request;
        if let Some(request) = self.requests.get_mut(&number) {
            request.spans.taken();
            request.pace.taken(&self.counters.pace);
        }
        let attempt = Attempt {
            names: self.peers.names(&expected.tokens),
            tokens: expected.tokens,
            from_token: expected.from_token,
            sampling: expected.sampling,
            tried: Vec::new(),
            deadline: self.clock.now() + self.terms.deadline(),
        };
        let begun = self.choose(number, &attempt).ok_or(LoadError::NoPeer);
        let begun = begun.and_then(|(transfer, chosen)| {
            let begun = self.begin(number, transfer, (attempt, expected.blocks), chosen);
            begun.inspect_err(|_| self.peers.release(transfer))
        });
        if let Err(error) = begun {
            self.not_asked(number, &error);
        }
    }

    fn not_asked(&mut self, number: u64, error: &LoadError) {
        self.count_failure(match error {
            LoadError::Memory => KvFailure::Memory,
            LoadError::NoPeer | LoadError::NoEngine | LoadError::Coding(_) => KvFailure::NoPeer,
        });
        self.tell_failed(number, error.to_string());
    }

    /// Asks the next best peer, where nothing of the KV has come yet and there is one; whether it does.
    pub(super) fn retry(&mut self, number: u64, why: &str) -> bool {
        let now = self.clock.now();
        let Some(loading) = self.loading(number) else {
            return false;
        };
        let (transfer, peer) = (loading.transfer, loading.on.0);
        let is_loading = loading.blocks.is_loading() && loading.table.is_some();
        let Some(attempt) = loading.attempt.as_mut().filter(|attempt| {
            is_loading && attempt.deadline > now && attempt.tried.len() + 1 < MOST_ATTEMPTS
        }) else {
            return false;
        };
        attempt.tried.push(peer);
        let attempt = Attempt::clone(attempt);
        self.peers.avoid(peer, now);
        let Some((next, chosen)) = self.choose(number, &attempt) else {
            return false;
        };
        let Some(table) = self.give_up(number, why, &chosen.name) else {
            self.peers.release(next);
            return false;
        };
        self.merging.close(transfer);
        self.transfers.remove(&transfer);
        self.peers.release(transfer);
        self.counters.transfers_failed.add(1);
        self.counters.transfers_retried.add(1);
        if let Err(error) = self.begin(number, next, (attempt, table), chosen) {
            self.peers.release(next);
            self.not_asked(number, &error);
        }
        true
    }

    /// Ends an attempt of which nothing has come, and takes the blocks back.
    fn give_up(&mut self, number: u64, why: &str, next: &str) -> Option<Writable> {
        let request = self.requests.get_mut(&number)?;
        let Kv::Loading(loading) = &mut request.kv else {
            return None;
        };
        let table = loading.table.take()?;
        request.spans.log().in_scope(|| {
            tracing::info!(
                request = number,
                next,
                "another prefill agent is asked: {why}"
            );
        });
        // A link that is over has no transfers.
        let reason = Reason::new(Code::Application, why);
        loading.link.fail(loading.transfer, reason).ok();
        request.spans.retried(why, next);
        request.kv = Kv::Settled;
        Some(table)
    }

    fn choose(&mut self, number: u64, attempt: &Attempt) -> Option<(TransferId, Chosen)> {
        let session = self.session.as_ref()?;
        let lacking = attempt.tokens.len() - attempt.from_token as usize;
        let kv = (lacking * session.bytes_per_token()) as u64;
        let transfer = self.numbers.transfer();
        let ask = Ask {
            prompt_tokens: u32::try_from(attempt.tokens.len()).unwrap_or(u32::MAX),
            prompt: &attempt.names,
            bytes: Bytes::new(kv * u64::from(sixteenths(self.method(number))) / 16),
            tried: &attempt.tried,
        };
        let now = self.clock.now();
        Some((transfer, self.peers.choose(transfer, &ask, now)?))
    }

    /// How this request's KV travels.
    fn method(&self, number: u64) -> Method {
        let request = self.requests.get(&number);
        let method = request.and_then(|request| request.method);
        method.unwrap_or_else(|| self.terms.method())
    }

    fn begin(
        &mut self,
        number: u64,
        transfer: TransferId,
        (attempt, table): (Attempt, Writable),
        chosen: Chosen,
    ) -> Result<(), LoadError> {
        let session = self.session.as_ref().ok_or(LoadError::NoEngine)?;
        let (profile, shape) = (Arc::clone(&session.profile), session.shape);
        let now = self.clock.now();
        let method = self.method(number);
        let lacking = attempt.tokens.len() - attempt.from_token as usize;
        let kv = Bytes::new((lacking * session.bytes_per_token()) as u64);
        let request = self.requests.get(&number);
        let width = request.and_then(|request| request.width);
        let width = width.unwrap_or_else(|| self.width(method, kv, &chosen));
        let cuts = profile.cuts(width);
        let descriptor = Descriptor {
            method: lynx_proto::peer::v1::Method::from(method).into(),
            prompt_tokens: u32::try_from(attempt.tokens.len()).unwrap_or(u32::MAX),
            from_token: attempt.from_token,
            anchor_k_eighths: cuts.k().eighths().into(),
            anchor_v_bits: cuts.v().into(),
            profile: profile_name(&profile),
        };
        let coding = Arc::new(Coding::new(shape, &descriptor)?);
        let room = InUse::take(&self.counters, Pool::Merge, coding.bf16_bytes());
        let room = room.ok_or(LoadError::Memory)?;
        self.counters.transfers_begun.add(1);
        self.counters.transfer_kv_bytes.add(coding.bf16_bytes());
        self.merging
            .open(transfer, Arc::clone(&coding), profile, attempt.deadline);
        self.transfers.insert(transfer, number);
        let left = u64::try_from((attempt.deadline - now).as_nanos());
        let checksum = integrity::of_question(&attempt.tokens, Some(&attempt.sampling));
        let transfer_request = TransferRequest {
            caller: self.peers.identity().map(|identity| identity.to_proto()),
            transfer: transfer.0,
            link: chosen.ticket.secret().to_owned(),
            coding: Some(descriptor),
            tokens: attempt.tokens.clone(),
            sampling: Some(attempt.sampling.clone()),
            time_left_ns: left.unwrap_or(u64::MAX),
            timeline: request.is_some_and(|request| request.answer.has_timeline()),
            checksum,
        };
        let before = chosen.link.stats().wire_received;
        let mut loading = Loading {
            transfer,
            blocks: Blocks::expected(),
            table: Some(table),
            coding,
            _room: room,
            on: (chosen.peer, chosen.link.epoch()),
            link: chosen.link.clone(),
            ask: None,
            began: now,
            deadline: attempt.deadline,
            attempt: Some(Box::new(attempt)),
            received: [Bytes::ZERO; 2],
            before,
            told: before,
            is_anchored: false,
        };
        self.last_width = Some(width);
        let Some(request) = self.requests.get_mut(&number) else {
            return Ok(());
        };
        request.transfer = Some(transfer);
        request.anchor = method.drafts().then(|| anchor(&cuts));
        let attributes = span_attributes(method, width, &chosen, transfer.0);
        let trace = request.spans.transfer_begins(attributes, &self.look);
        let signals = self.signals.clone();
        let tell = move |told| signals.send(Signal::Told(transfer, told)).is_ok();
        let task = tokio::spawn(async move {
            ask(chosen.channel, transfer_request, &trace, tell).await;
        });
        loading.ask = Some(AbortOnDrop(task.abort_handle()));
        request.kv = Kv::Loading(Box::new(loading));
        Ok(())
    }
}

/// What of BF16 a method sends, about: enough to weigh sending against computing.
const fn sixteenths(method: Method) -> u8 {
    match method {
        Method::Bf16 => 16,
        // Half of it, and a tail.
        Method::LynxExact => 11,
        Method::Int8 | Method::LynxInt8 => 8,
        Method::Int4 => 4,
    }
}

fn anchor(cuts: &Cuts) -> Anchor {
    Anchor {
        k_eighths: cuts.k().eighths(),
        v_bits: cuts.v(),
    }
}

fn span_attributes(method: Method, width: Width, chosen: &Chosen, transfer: u64) -> Vec<KeyValue> {
    let transfer = i64::try_from(transfer).unwrap_or(i64::MAX);
    let mut attributes = vec![
        KeyValue::new(attributes::METHOD, method.id()),
        KeyValue::new(attributes::PEER, chosen.name.clone()),
        KeyValue::new(attributes::TRANSFER, transfer),
        KeyValue::new("lynx.peer.cached_tokens", i64::from(chosen.cached_tokens)),
    ];
    if method.drafts() {
        attributes.push(KeyValue::new(attributes::ANCHOR_BITS, width.bits()));
    }
    attributes
}
