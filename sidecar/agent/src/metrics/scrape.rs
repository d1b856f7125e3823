//! Figures that are read when they are asked for.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::{MetricType, info::Info};

use super::Sources;
use crate::config::Role;
use crate::counters::KvFailure;

#[derive(Debug)]
pub(super) struct Scrape(pub(super) Sources);

impl Collector for Scrape {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut out = Out(encoder);
        self.agent(&mut out)?;
        self.transfers(&mut out)?;
        self.links(&mut out)?;
        if self.0.role == Role::Decode {
            self.decode(&mut out)?;
        }
        Ok(())
    }
}

impl Scrape {
    fn agent(&self, out: &mut Out<'_>) -> fmt::Result {
        let Sources {
            role,
            attachment,
            drain,
            ..
        } = &self.0;
        out.info(
            "build",
            "This agent's version and role",
            &[
                ("version", env!("CARGO_PKG_VERSION")),
                ("role", role.name()),
            ],
        )?;
        let is_attached = attachment.borrow().engine.is_some();
        out.gauge(
            "engine_attached",
            "1 where an engine is attached",
            f64::from(u8::from(is_attached)),
        )?;
        out.gauge(
            "draining",
            "1 where no new work is taken",
            f64::from(u8::from(drain.is_draining())),
        )?;
        let in_flight = *drain.in_flight().borrow();
        out.gauge(
            "in_flight",
            "Requests and transfers in flight",
            f64::from(in_flight),
        )
    }

    fn transfers(&self, out: &mut Out<'_>) -> fmt::Result {
        let counters = &self.0.counters;
        out.counters(
            "transfers",
            "Transfers that have ended, by how",
            "outcome",
            &[
                ("complete", counters.transfers_complete.get()),
                ("failed", counters.transfers_failed.get()),
                ("cancelled", counters.transfers_cancelled.get()),
            ],
        )?;
        out.counters(
            "kv_bytes",
            "Bytes of KV that were sent or received, by priority",
            "priority",
            &[
                ("anchor", counters.anchor_bytes.get()),
                ("residual", counters.residual_bytes.get()),
            ],
        )?;
        out.counter(
            "transfer_kv_bytes",
            "The KV of begun transfers as BF16, in bytes",
            counters.transfer_kv_bytes.get(),
        )
    }

    fn links(&self, out: &mut Out<'_>) -> fmt::Result {
        let status = self.0.status.borrow().clone();
        let gauges = |value: fn(&lynx_proto::operator::v1::Link) -> f64| -> Vec<(String, f64)> {
            let links = status.links.iter();
            links.map(|link| (link.peer.clone(), value(link))).collect()
        };
        out.gauges(
            "link_up",
            "1 where the link to this peer is up",
            "peer",
            &gauges(|link| f64::from(u8::from(link.up))),
        )?;
        #[expect(
            clippy::cast_precision_loss,
            reason = "a rate or a time of more than 53 bits is none"
        )]
        {
            out.gauges(
                "link_rate_bits_per_second",
                "What the link to this peer carries at best; 0 before it was measured",
                "peer",
                &gauges(|link| link.rate_bps as f64),
            )?;
            out.gauges(
                "link_round_trip_seconds",
                "The shortest round trip to this peer",
                "peer",
                &gauges(|link| link.round_trip_ns as f64 / 1e9),
            )
        }
    }

    fn decode(&self, out: &mut Out<'_>) -> fmt::Result {
        let counters = &self.0.counters;
        let failures = KvFailure::ALL.map(|why| (why.name(), counters.kv_failures.of(why).get()));
        out.counters(
            "kv_failures",
            "KV that did not come, so that the engine computed the prompt itself, by reason",
            "reason",
            &failures,
        )?;
        out.counters(
            "tokens",
            "Tokens that were drafted and compared, that stood, and that clients got",
            "kind",
            &[
                ("drafted", counters.drafted_tokens.get()),
                ("accepted", counters.accepted_tokens.get()),
                ("verified", counters.verified_tokens.get()),
            ],
        )?;
        #[expect(clippy::cast_precision_loss, reason = "sums of times, for rates")]
        let (anchor, full) = (
            counters.time_to_anchor_ns.get() as f64 / 1e9,
            counters.time_to_full_ns.get() as f64 / 1e9,
        );
        out.counter(
            "anchors",
            "Anchors that were merged",
            counters.anchors.get(),
        )?;
        out.counter(
            "time_to_anchor_seconds",
            "From a transfer's start until its anchor was merged, summed over lynx_anchors_total",
            anchor,
        )?;
        out.counter(
            "time_to_full_seconds",
            "From a transfer's start until all was merged, summed over complete transfers",
            full,
        )?;
        let status = self.0.status.borrow().clone();
        for (name, help, value) in [
            (
                "running_requests",
                "Requests that the engine works on",
                status.running,
            ),
            (
                "waiting_requests",
                "Requests that wait for the engine",
                status.waiting,
            ),
        ] {
            out.gauge(name, help, f64::from(value))?;
        }
        #[expect(clippy::cast_precision_loss, reason = "bytes of memory, for people")]
        let pending = status.pending_kv_bytes as f64;
        out.gauge(
            "pending_kv_bytes",
            "KV of transfers under way, as BF16, in bytes",
            pending,
        )?;
        out.gauge(
            "anchor_bits",
            "The anchor's mean width that new transfers get; 0 where none was chosen yet",
            f64::from(status.anchor_eighths) / 8.0,
        )
    }
}

/// An encoder with the few shapes that are needed here.
struct Out<'a>(DescriptorEncoder<'a>);

impl Out<'_> {
    fn gauge(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        let gauge = ConstGauge::new(value);
        let encoder = self
            .0
            .encode_descriptor(name, help, None, MetricType::Gauge)?;
        gauge.encode(encoder)
    }

    fn gauges(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: &[(String, f64)],
    ) -> fmt::Result {
        let mut encoder = self
            .0
            .encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (key, value) in values {
            ConstGauge::new(*value).encode(encoder.encode_family(&[(label, key.as_str())])?)?;
        }
        Ok(())
    }

    fn counter<V>(&mut self, name: &str, help: &str, value: V) -> fmt::Result
    where
        ConstCounter<V>: prometheus_client::encoding::EncodeMetric,
    {
        let encoder = self
            .0
            .encode_descriptor(name, help, None, MetricType::Counter)?;
        ConstCounter::new(value).encode(encoder)
    }

    fn counters(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: &[(&str, u64)],
    ) -> fmt::Result {
        let mut encoder = self
            .0
            .encode_descriptor(name, help, None, MetricType::Counter)?;
        for (key, value) in values {
            ConstCounter::new(*value).encode(encoder.encode_family(&[(label, *key)])?)?;
        }
        Ok(())
    }

    fn info(&mut self, name: &str, help: &str, labels: &[(&str, &str); 2]) -> fmt::Result {
        let encoder = self
            .0
            .encode_descriptor(name, help, None, MetricType::Info)?;
        Info::new(*labels).encode(encoder)
    }
}
