//! Figures that are read when they are asked for.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use lynx_metrics::{Metric, agent};
use lynx_proto::operator::v1::Link;
use lynx_units::Bytes;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::out::{Out, Row};
use super::{Outcome, Sources};
use crate::config::Role;
use crate::control::Status;
use crate::counters::{Counter, KvFailure, LinkSums, Pool, WidthDrafts};
use crate::memory;

/// Most peers that are told apart at a time.
const MOST_PEERS: usize = 256;
/// Nanoseconds in a second.
const NANOS: f64 = 1e9;

#[derive(Debug)]
pub(super) struct Scrape(pub(super) Sources);

impl Collector for Scrape {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut out = Out(encoder);
        let status = self.0.status.borrow().clone();
        let links = self.0.counters.links.sums();
        self.agent(&mut out, &status)?;
        self.transfers(&mut out, &status)?;
        peers(&mut out, &status.links)?;
        sockets(&mut out, &links)?;
        process(&mut out)?;
        self.memory(&mut out)?;
        match self.0.role {
            Role::Decode => {
                self.requests(&mut out)?;
                self.loads(&mut out)?;
                self.drafts(&mut out, &status)?;
                received(&mut out, &links)
            }
            Role::Prefill => self.prompts(&mut out),
        }
    }
}

impl Scrape {
    fn agent(&self, out: &mut Out<'_>, status: &Status) -> fmt::Result {
        let Sources {
            role,
            attachment,
            drain,
            ..
        } = &self.0;
        out.info(&agent::BUILD, &[env!("CARGO_PKG_VERSION"), role.name()])?;
        let (is_attached, taken, refused) = {
            let attachment = attachment.borrow();
            (
                attachment.engine.is_some(),
                attachment.taken,
                attachment.refused,
            )
        };
        out.one(&agent::ENGINE_ATTACHED, flag(is_attached))?;
        let is_on_gpu = attachment.borrow().gpu.is_some();
        out.one(&agent::ENGINE_ON_GPU, flag(is_on_gpu))?;
        out.one(&agent::ENGINE_ATTACHES, number(taken))?;
        out.one(&agent::ENGINE_REFUSALS, number(refused))?;
        let expires = &self.0.counters.certificate_expires_unix_s;
        out.one(&agent::CERTIFICATE_EXPIRES, number(expires.get()))?;
        let [control, data] = &self.0.counters.handshakes_failed;
        let failed = [("control", control.get()), ("data", data.get())];
        out.rows(&agent::HANDSHAKES_FAILED, numbers(&failed))?;
        out.one(&agent::DRAINING, flag(drain.is_draining()))?;
        out.one(&agent::IN_FLIGHT, (*drain.in_flight().borrow()).into())?;
        out.one(&agent::RUNNING, status.running.into())?;
        out.one(&agent::WAITING, status.waiting.into())?;
        out.one(&agent::TOKEN_TIME, number(status.token_time_ns) / NANOS)?;
        out.one(&agent::FREE_BLOCKS, status.free_blocks.into())?;
        out.one(&agent::PREEMPTIONS, number(status.preemptions))
    }

    fn requests(&self, out: &mut Out<'_>) -> fmt::Result {
        let counters = &self.0.counters;
        let pace = &counters.pace;
        let outcomes = Outcome::ALL.map(|how| (how.name(), &pace.outcomes[how as usize]));
        out.rows(&agent::REQUESTS_ENDED, rows(&outcomes))?;
        out.histogram(&agent::REQUEST_DURATION, &pace.duration)?;
        out.histogram(&agent::QUEUE_TIME, &pace.queue)?;
        let forms = || ["provisional", "verified"].into_iter();
        out.histograms(&agent::FIRST_TOKEN, forms().zip(&pace.first_token))?;
        out.histograms(&agent::SECOND_TOKEN, forms().zip(&pace.second_token))?;
        out.histogram(&agent::INTER_TOKEN, &pace.inter_token)?;
        out.one(&agent::VERIFIED, count(&counters.verified_tokens))
    }

    fn transfers(&self, out: &mut Out<'_>, status: &Status) -> fmt::Result {
        let counters = &self.0.counters;
        out.one(&agent::TRANSFERS_BEGUN, count(&counters.transfers_begun))?;
        let ended = [
            ("complete", &counters.transfers_complete),
            ("failed", &counters.transfers_failed),
            ("cancelled", &counters.transfers_cancelled),
        ];
        out.rows(&agent::TRANSFERS_ENDED, rows(&ended))?;
        let bytes = [
            ("anchor", &counters.anchor_bytes),
            ("residual", &counters.residual_bytes),
        ];
        out.rows(&agent::KV_BYTES, rows(&bytes))?;
        out.one(
            &agent::TRANSFER_KV_BYTES,
            count(&counters.transfer_kv_bytes),
        )?;
        out.one(&agent::PENDING_KV_BYTES, number(status.pending_kv_bytes))
    }

    /// What becomes of prompts at the sending end.
    fn prompts(&self, out: &mut Out<'_>) -> fmt::Result {
        let counters = &self.0.counters;
        let [computed, cached] = &counters.prompt_tokens;
        let tokens = [("computed", computed), ("cached", cached)];
        out.rows(&agent::PROMPT_TOKENS, rows(&tokens))?;
        out.one(&agent::SPLIT_TIME, seconds(&counters.split_ns))
    }

    /// KV's arrival, and its absence.
    fn loads(&self, out: &mut Out<'_>) -> fmt::Result {
        let counters = &self.0.counters;
        out.histogram(&agent::TIME_TO_ANCHOR, &counters.time_to_anchor)?;
        out.histogram(&agent::TIME_TO_FULL, &counters.time_to_full)?;
        let failures = KvFailure::ALL.map(|why| (why.name(), counters.kv_failures.of(why)));
        out.rows(&agent::KV_FAILED, rows(&failures))?;
        out.one(&agent::TRANSFER_RETRIES, count(&counters.transfers_retried))?;
        out.one(&agent::LOCAL_PROMPTS, count(&counters.requests_local))
    }

    fn drafts(&self, out: &mut Out<'_>, status: &Status) -> fmt::Result {
        let counters = &self.0.counters;
        out.one(&agent::ANCHOR_WIDTH, f64::from(status.anchor_eighths) / 8.0)?;
        let widths = counters.drafts.by_width();
        let widths: Vec<_> = widths.map(|(bits, of)| (bits.to_string(), of)).collect();
        let by_width = |of: fn(&WidthDrafts) -> &Counter| -> Vec<(String, f64)> {
            let widths = widths.iter();
            widths
                .map(|(width, drafts)| (width.clone(), count(of(drafts))))
                .collect()
        };
        for (metric, rows) in [
            (&agent::DRAFTS_COMPARED, by_width(|of| &of.drafts)),
            (&agent::DRAFTED, by_width(|of| &of.drafted)),
            (&agent::ACCEPTED, by_width(|of| &of.accepted)),
            (&agent::WASTED, by_width(|of| &of.wasted)),
        ] {
            out.rows(metric, owned(&rows))?;
        }
        out.histogram(&agent::DRAFT_TOKENS, &counters.draft_tokens)?;
        let passes = [
            ("refined", &counters.redraft_passes),
            ("full", &counters.verify_passes),
        ];
        out.rows(&agent::COMPARISONS, rows(&passes))
    }

    fn memory(&self, out: &mut Out<'_>) -> fmt::Result {
        let pools = || {
            let pools = Pool::of(self.0.role).iter();
            pools.map(|pool| (pool.name(), self.0.counters.memory.of(*pool)))
        };
        let taken = pools().map(|(name, usage)| (vec![name], number(usage.taken())));
        out.rows(&agent::POOL_BYTES, taken)?;
        let limits = pools().map(|(name, usage)| (vec![name], number(usage.limit())));
        out.rows(&agent::POOL_LIMIT, limits)
    }
}

/// What is known of each peer. Two lives of one pod are one peer: the link that is up counts.
fn peers(out: &mut Out<'_>, links: &[Link]) -> fmt::Result {
    let mut peers: BTreeMap<&str, &Link> = BTreeMap::new();
    for link in links {
        let is_new = peers.len() < MOST_PEERS && !peers.contains_key(link.peer.as_str());
        if is_new || (link.up && peers.contains_key(link.peer.as_str())) {
            peers.insert(&link.peer, link);
        }
    }
    let each = |metric: &Metric, out: &mut Out<'_>, value: fn(&Link) -> f64| {
        let rows = peers.iter().map(|(peer, link)| (vec![*peer], value(link)));
        out.rows(metric, rows)
    };
    each(&agent::LINK_UP, out, |link| flag(link.up))?;
    each(&agent::LINK_ENCRYPTED, out, |link| {
        flag(link.transport.contains("TLS"))
    })?;
    each(&agent::LINK_RDMA, out, |link| {
        flag(link.transport == "RDMA")
    })?;
    each(&agent::LINK_RATE, out, |link| number(link.rate_bps) / 8.0)?;
    each(&agent::LINK_ROUND_TRIP, out, |link| {
        number(link.round_trip_ns) / NANOS
    })
}

/// What either end of a link counts.
fn sockets(out: &mut Out<'_>, links: &LinkSums) -> fmt::Result {
    out.one(&agent::LINKS_OPENED, number(links.opened))?;
    out.one(&agent::LINKS_ENDED, number(links.ended))?;
    out.one(&agent::LINKS_WITHOUT_RDMA, number(links.without_rdma))?;
    out.one(&agent::RAILS_LOST, number(links.rails_lost))?;
    let [sent, received] = [links.wire_sent, links.wire_received];
    let wire = [("sent", sent), ("received", received)];
    let wire = wire.iter().flat_map(|(direction, bytes)| {
        classes(bytes.map(Bytes::get)).map(|(class, bytes)| (vec![*direction, class], bytes))
    });
    out.rows(&agent::WIRE_BYTES, wire)?;
    out.rows(
        &agent::PAYLOAD_BYTES,
        by_class(links.payload.map(Bytes::get)),
    )?;
    out.rows(&agent::CHUNKS, by_class(links.chunks))?;
    let dropped = [("stale", links.stale_frames), ("late", links.late_frames)];
    out.rows(&agent::DROPPED_FRAMES, numbers(&dropped))
}

/// What the receiving end of a link counts.
fn received(out: &mut Out<'_>, links: &LinkSums) -> fmt::Result {
    let dropped = [
        ("duplicate", links.duplicates),
        ("late", links.late_chunks),
        ("corrupt", links.corrupt),
    ];
    out.rows(&agent::DROPPED_CHUNKS, numbers(&dropped))?;
    out.one(&agent::DISCARDED_BYTES, number(links.discarded.get()))?;
    out.rows(
        &agent::GRANTED_BYTES,
        by_class(links.granted.map(Bytes::get)),
    )?;
    out.one(&agent::WITHHELD, Duration::as_secs_f64(&links.withheld))?;
    out.one(&agent::STARVED, number(links.starved))
}

fn process(out: &mut Out<'_>) -> fmt::Result {
    if let Some(bytes) = memory::resident_bytes() {
        out.one(&agent::RESIDENT, number(bytes))?;
    }
    out.one(&agent::CPU, memory::processor_time().as_secs_f64())?;
    match memory::open_files() {
        Some(files) => out.one(&agent::OPEN_FILES, number(files)),
        None => Ok(()),
    }
}

fn rows<'a>(counts: &'a [(&'a str, &'a Counter)]) -> impl Iterator<Item = Row<'a>> {
    counts.iter().map(|(value, of)| (vec![*value], count(of)))
}

fn owned(rows: &[(String, f64)]) -> impl Iterator<Item = Row<'_>> {
    rows.iter()
        .map(|(value, figure)| (vec![value.as_str()], *figure))
}

fn numbers<'a>(counts: &'a [(&'a str, u64)]) -> impl Iterator<Item = Row<'a>> {
    counts
        .iter()
        .map(|(value, count)| (vec![*value], number(*count)))
}

fn classes(of: [u64; 2]) -> impl Iterator<Item = (&'static str, f64)> {
    ["anchor", "residual"].into_iter().zip(of.map(number))
}

fn by_class(of: [u64; 2]) -> impl Iterator<Item = Row<'static>> {
    classes(of).map(|(class, figure)| (vec![class], figure))
}

fn flag(is_so: bool) -> f64 {
    f64::from(u8::from(is_so))
}

fn count(counter: &Counter) -> f64 {
    number(counter.get())
}

fn seconds(nanos: &Counter) -> f64 {
    count(nanos) / NANOS
}

#[expect(
    clippy::cast_precision_loss,
    reason = "Prometheus' own figures have 53 bits"
)]
const fn number(value: u64) -> f64 {
    value as f64
}
