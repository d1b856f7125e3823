//! A transfer from the question to its last byte.
//!
//! The order: the transfer is opened on the link at once, so that the offer travels while the engine begins. What the engine
//! had in its cache is split as soon as it says so, but only the first range of tokens: that keeps the link busy while the
//! engine evaluates the rest, which would otherwise share its cores with the splitting; the other cached ranges follow the
//! first computed chunk, or the first token. What is computed is split layer by layer.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use lynx_proto::engine::v1::{Prefill, TokenLogprobs, TraceContext};
use lynx_proto::peer::v1::{First, Layer, Sent, Started, TransferRequest, transfer_event};
use lynx_protocol::sender::OpenTransfer;
use lynx_telemetry::{self as telemetry, KeyValue, attributes, names};
use lynx_tls::PeerIdentity;
use lynx_transport::{SenderHandle, Ticket};
use lynx_units::TransferId;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tonic::Status;

use super::board::Pace;
use super::node::Node;
use super::service::{Asked, Taken};
use super::serving::{Owed, Serving, Transfer, UnitRanges};
use super::splitting::{Split, Work};
use crate::clock;
use crate::coding::Coding;
use crate::identity::profile_name;
use crate::integrity;
use crate::memory;
use crate::method::Method;
use crate::pool::Readable;
use crate::seldom::more;
use crate::session::Message;

/// How long a question may be ahead of its caller's link: whoever dialled hears of a link a moment before this side does.
const LINK_PATIENCE: Duration = Duration::from_secs(1);
/// What a caller is told whose question is not what it asked.
const CHANGED: &str =
    "the question's checksum is wrong: the network changed it, or the caller is of another release";
/// How many questions may be ahead of their links.
const MOST_EARLY: usize = 64;

impl Node {
    /// A peer asks for KV.
    pub(super) fn asked(&mut self, asked: Asked) {
        let ticket = Ticket::parse(&asked.request.link);
        let is_linked = ticket.is_none_or(|ticket| self.links.contains_key(&ticket));
        // Only what would be taken is worth waiting for.
        let is_fit = self.early.len() < MOST_EARLY && self.is_fit(&asked.request);
        if is_linked || !is_fit {
            self.answer(asked);
        } else {
            self.early.push((Instant::now() + LINK_PATIENCE, asked));
        }
    }

    fn is_fit(&self, asked: &TransferRequest) -> bool {
        let context = self.engine.info().context_tokens as usize;
        asked.tokens.len() <= context
            && self.fits(asked.caller.as_ref()).is_ok()
            && self.coding(asked).is_ok()
    }

    /// Answers what was asked before its caller's link was known here.
    pub(super) fn answer_early(&mut self, link: &Ticket) {
        let is_theirs = |(_, asked): &mut (Instant, Asked)| asked.request.link == link.secret();
        let known: Vec<_> = self.early.extract_if(.., is_theirs).collect();
        known.into_iter().for_each(|(_, asked)| self.answer(asked));
    }

    /// Answers those whose link has not come by now: they are refused.
    pub(super) fn answer_unlinked(&mut self, now: Instant) {
        let is_late = |(until, _): &mut (Instant, Asked)| *until <= now;
        let late: Vec<_> = self.early.extract_if(.., is_late).collect();
        late.into_iter().for_each(|(_, asked)| self.answer(asked));
    }

    fn answer(&mut self, asked: Asked) {
        let Asked {
            request,
            identity,
            parent,
            answer,
        } = asked;
        let (to, id) = (caller_name(&request), request.transfer);
        let begun = self.begin(request, identity.as_ref(), &parent);
        if let Err(status) = &begun
            && let Some(unsaid) = self.lines.refused.happened(Instant::now())
        {
            tracing::info!(
                unsaid = more(unsaid),
                peer = to,
                transfer = id,
                why = status.message(),
                "a transfer was refused"
            );
        }
        // A caller that is gone drops what it would have watched, or never got.
        if let Err(Ok(taken)) = answer.send(begun) {
            self.unwatched(taken.request);
        }
    }

    /// The link that a caller names by its ticket. It must be the caller's own: of the same certificate, where links have one.
    fn link_of(
        &self,
        asked: &TransferRequest,
        caller: Option<&PeerIdentity>,
    ) -> Result<(Ticket, SenderHandle), Status> {
        let caller_name = caller_name(asked);
        let ticket = Ticket::parse(&asked.link);
        let known = ticket.and_then(|ticket| Some((self.links.get(&ticket)?, ticket)));
        let (linked, ticket) = known.ok_or_else(|| {
            let name = self.identity.name();
            Status::unavailable(format!(
                "{caller_name} is not connected to {name}: is its link down?"
            ))
        })?;
        if linked.identity.is_some() && linked.identity.as_ref() != caller {
            return Err(Status::permission_denied(
                "the link is another agent's: its certificate isn't the caller's",
            ));
        }
        Ok((ticket, linked.handle.clone()))
    }

    fn begin(
        &mut self,
        asked: TransferRequest,
        caller: Option<&PeerIdentity>,
        parent: &telemetry::Context,
    ) -> Result<Taken, Status> {
        self.fits(asked.caller.as_ref())?;
        let coding = self.coding(&asked)?;
        let (ticket, link) = self.link_of(&asked, caller)?;
        if asked.checksum != integrity::of_question(&asked.tokens, asked.sampling.as_ref()) {
            return Err(Status::data_loss(CHANGED));
        }
        let remaining = Duration::from_nanos(asked.time_left_ns);
        if remaining.is_zero() {
            return Err(Status::deadline_exceeded("the transfer has no time left"));
        }
        let id = TransferId(asked.transfer);
        if self.find(&ticket, link.epoch(), id).is_some() {
            return Err(Status::already_exists(format!(
                "transfer {id} is under way on this link: give every transfer and every retry a new number"
            )));
        }
        self.check_room(&ticket, &caller_name(&asked))?;
        let draining = "this prefill agent is draining: ask another";
        let in_flight = self.drain.enter();
        let in_flight = in_flight.ok_or_else(|| Status::unavailable(draining))?;
        let deadline = self.clock.now() + remaining;
        let opened = link.open(OpenTransfer {
            transfer: id,
            descriptor: coding.descriptor_bytes().into(),
            plan: Arc::new(coding.transfer().clone()),
            deadline,
        });
        opened.map_err(|over| Status::unavailable(over.to_string()))?;
        let span = span_of(&asked, coding.method(), caller_name(&asked), parent);
        let (traceparent, tracestate) = telemetry::inject(span.context());
        self.counters.transfers_begun.add(1);
        self.counters.transfer_kv_bytes.add(coding.bf16_bytes());
        let to = caller_name(&asked);
        let now = clock::unix_ns();
        let request = self.number();
        let posted = self.prefill(Prefill {
            request,
            from_token: coding.descriptor().from_token,
            tokens: asked.tokens,
            sampling: asked.sampling,
            trace: Some(TraceContext {
                traceparent,
                tracestate,
            }),
        });
        let (events, watched) = mpsc::unbounded_channel();
        let transfer = Transfer {
            id,
            to,
            ticket,
            link,
            coding: Arc::new(coding),
            events: Some(events),
            delivered: false,
            timeline: asked.timeline,
            deadline: Instant::now() + remaining,
            link_deadline: deadline,
            work: None,
            asked: HashSet::new(),
            split: 0,
            handed: [0; 2],
            pace: Pace::default(),
            cached_asked: false,
            computed_unix_ns: now..now,
            span,
            in_flight,
        };
        let owed = Owed::Transfer(Box::new(transfer));
        self.serving.insert(request, Serving::new(owed, posted));
        Ok(Taken {
            request,
            events: watched,
        })
    }

    /// Whether there is room for one more transfer. [`tonic::Code::ResourceExhausted`] says that another peer may have some.
    fn check_room(&self, link: &Ticket, name_there: &str) -> Result<(), Status> {
        let [most_each, most] = self.most_transfers;
        let to = self
            .serving
            .values()
            .filter_map(|serving| match &serving.owed {
                Owed::Transfer(transfer) => Some(&transfer.ticket),
                Owed::Nothing | Owed::Warmed(_) => None,
            });
        let (mut all, mut own) = (0, 0);
        for to in to {
            all += 1;
            own += usize::from(to == link);
        }
        if own >= most_each || all >= most {
            let name = self.identity.name();
            return Err(Status::resource_exhausted(format!(
                "{name} has {own} transfers for {name_there} and {all} in all under way, as many as it takes: ask another"
            )));
        }
        Ok(())
    }

    /// The coding that is asked for, if it is that of the prompt and of this agent's profile.
    fn coding(&self, asked: &TransferRequest) -> Result<Coding, Status> {
        let invalid = |why: String| Err(Status::invalid_argument(why));
        let Some(descriptor) = &asked.coding else {
            return invalid("the transfer has no coding".to_owned());
        };
        // First of all: a plan is as long as the descriptor says.
        let tokens = asked.tokens.len();
        if tokens as u64 != u64::from(descriptor.prompt_tokens) {
            return invalid(format!(
                "the coding is of a prompt of {} tokens, and {tokens} came",
                descriptor.prompt_tokens
            ));
        }
        let most = self.engine.info().context_tokens;
        if descriptor.prompt_tokens > most {
            return invalid(format!(
                "the prompt has {tokens} tokens, and the prefill engine takes {most}"
            ));
        }
        let profile = profile_name(&self.profile);
        if descriptor.profile != profile {
            return Err(Status::failed_precondition(format!(
                "the profile is {} in the coding and {profile} on {}",
                descriptor.profile,
                self.identity.name()
            )));
        }
        let shape = self.engine.pool().layout().shape();
        Coding::new(shape, descriptor).or_else(|error| invalid(error.to_string()))
    }

    /// What the engine says.
    pub(super) fn hear(&mut self, message: Message) {
        match message {
            Message::PrefillStarted {
                request,
                blocks,
                cached_tokens,
                start_unix_ns,
            } => self.started(request, blocks, cached_tokens, start_unix_ns),
            Message::Published {
                request,
                layer,
                tokens,
                start_unix_ns,
                end_unix_ns,
            } => self.published(request, layer, tokens, start_unix_ns..end_unix_ns),
            Message::PrefillDone {
                request,
                first_token,
                logprobs,
            } => self.computed(request, first_token, logprobs),
            Message::Finished(finished) => self.finished(&finished),
            Message::Refused(refused) => self.refused(refused),
            Message::Report(report) => self.report = report,
            Message::CachedBlocks(told) => self.cached(&told),
            Message::Forgotten => self.forgotten(),
            // A prefill engine's progress is what it publishes; its rules admit no Expect.
            Message::Progress(_)
            | Message::Expect(_)
            | Message::WriteGrant { .. }
            | Message::Detached(_) => {}
        }
    }

    fn started(&mut self, request: u64, blocks: Arc<Readable>, cached: u32, start_unix_ns: u64) {
        let Some(serving) = self.serving.get_mut(&request) else {
            return;
        };
        serving.blocks = Some(Arc::clone(&blocks));
        if let Some(transfer) = serving.transfer() {
            transfer.tell(transfer_event::Kind::Started(Started {
                start_unix_ns,
                cached_tokens: cached,
            }));
            // Then the engine computes what nobody asked for, and does not tell of it.
            transfer.pace.is_partial = transfer.coding.descriptor().from_token > cached;
            let prompt = transfer.coding.descriptor().prompt_tokens;
            let [computed, had] = &self.counters.prompt_tokens;
            computed.add(prompt.saturating_sub(cached).into());
            had.add(cached.into());
            let cached = KeyValue::new(attributes::CACHED_TOKENS, i64::from(cached));
            transfer.span.set(cached);
            transfer.computed_unix_ns = start_unix_ns..start_unix_ns;
            transfer.work = Some(Arc::new(Work {
                request,
                transfer: transfer.id,
                to: transfer.to.as_str().into(),
                deadline: transfer.link_deadline,
                coding: Arc::clone(&transfer.coding),
                profile: Arc::clone(&self.profile),
                blocks,
                link: transfer.link.clone(),
                trace: transfer.span.context().clone(),
                over: AtomicBool::new(false),
            }));
        }
        let ranges = UnitRanges::First;
        serving.split_ended_in(&self.splitting, &(0..cached), None, ranges);
    }

    fn published(&mut self, request: u64, layer: u32, tokens: Range<u32>, pass: Range<u64>) {
        let Some(serving) = self.serving.get_mut(&request) else {
            return;
        };
        let Some(transfer) = serving.transfer() else {
            return;
        };
        transfer.computed_unix_ns.end = transfer.computed_unix_ns.end.max(pass.end);
        let count = tokens.end - tokens.start;
        let took = pass.end.saturating_sub(pass.start);
        transfer.pace.add(layer, count, took);
        if transfer.timeline {
            transfer.tell(transfer_event::Kind::Layer(Layer {
                layer,
                first_token: tokens.start,
                end_token: tokens.end,
                start_unix_ns: pass.start,
                end_unix_ns: pass.end,
            }));
        }
        let layer = layer as usize;
        serving.split_ended_in(&self.splitting, &tokens, Some(layer), UnitRanges::All);
        if layer + 1 == self.engine.pool().layout().shape().layers {
            self.split_cached(request);
        }
    }

    /// Has all split that was there before the request came.
    fn split_cached(&mut self, request: u64) {
        let Some(serving) = self.serving.get_mut(&request) else {
            return;
        };
        let Some(transfer) = serving.transfer() else {
            return;
        };
        if std::mem::replace(&mut transfer.cached_asked, true) {
            return;
        }
        let Some(blocks) = serving.blocks.clone() else {
            return;
        };
        // Whatever is published of all layers by now; what was asked for before is not asked for again.
        let layers = 0..blocks.shape().layers;
        let everywhere = layers.map(|layer| blocks.published(layer)).min();
        let tokens = 0..everywhere.unwrap_or(0);
        serving.split_ended_in(&self.splitting, &tokens, None, UnitRanges::All);
    }

    fn computed(&mut self, request: u64, token: u32, logprobs: Option<TokenLogprobs>) {
        let Some(serving) = self.serving.get_mut(&request) else {
            return;
        };
        serving.done = true;
        if let Some(transfer) = serving.transfer() {
            let Range { start, end } = transfer.computed_unix_ns;
            transfer.tell(transfer_event::Kind::First(First {
                token,
                end_unix_ns: end,
                checksum: integrity::of_first(token, logprobs.as_ref()),
                logprobs,
            }));
            telemetry::span_at(
                names::PREFILL,
                telemetry::Kind::Internal,
                transfer.span.context(),
                clock::system_time(start),
                clock::system_time(end),
                [],
            );
        }
        self.learn_pace(request);
        self.split_cached(request);
        self.tell_sent(request);
        self.settle(request);
    }

    /// The splitting thread has done a job.
    pub(super) fn split(&mut self, split: Split) {
        let Some(serving) = self.serving.get_mut(&split.request) else {
            return;
        };
        serving.queued -= 1;
        let request = split.request;
        match split.bytes {
            Ok([anchor, residual]) => {
                if let Some(transfer) = serving.transfer() {
                    transfer.split += 1;
                    transfer.handed[0] += anchor;
                    transfer.handed[1] += residual;
                }
                self.counters.anchor_bytes.add(anchor);
                self.counters.residual_bytes.add(residual);
                self.counters.split_ns.add_time(split.took);
                self.tell_sent(request);
            }
            Err(error) => self.fail(request, Status::internal(error.to_string())),
        }
        self.settle(request);
    }

    /// Tells that all KV is with the transport, where it is.
    fn tell_sent(&mut self, request: u64) {
        let engine_memory_bytes = self.report.memory_bytes;
        let Some(serving) = self.serving.get_mut(&request) else {
            return;
        };
        let done = serving.done;
        let Some(transfer) = serving.transfer().filter(|t| done && t.is_all_split()) else {
            return;
        };
        transfer.tell(transfer_event::Kind::Sent(Sent {
            engine_memory_bytes,
            agent_memory_bytes: memory::peak_bytes().unwrap_or(0),
        }));
        transfer.events = None;
        serving.owe_nothing_more();
    }
}

/// What a caller calls itself, for people.
fn caller_name(asked: &TransferRequest) -> String {
    let caller = asked.caller.as_ref();
    caller.map_or_else(String::new, |caller| caller.name.clone())
}

/// The span of a transfer to this peer.
fn span_of(
    asked: &TransferRequest,
    method: Method,
    peer: String,
    parent: &telemetry::Context,
) -> telemetry::Span {
    let span = telemetry::start(names::TRANSFER, telemetry::Kind::Server, parent);
    span.set(KeyValue::new(attributes::PEER, peer));
    span.set(KeyValue::new(attributes::METHOD, method.id()));
    let number = i64::try_from(asked.transfer).unwrap_or(i64::MAX);
    span.set(KeyValue::new(attributes::TRANSFER, number));
    span
}
