//! Figures as text: an encoder that takes its names from the table.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::LazyLock;

use lynx_metrics::{Kind, Metric};
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeMetric as _, MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Unit;

use crate::counters::Histogram;

/// The table's units, as the library wants them.
static UNITS: LazyLock<Vec<Unit>> = LazyLock::new(|| {
    let units = lynx_metrics::all().filter_map(|metric| metric.unit.suffix());
    let units: BTreeSet<&str> = units.collect();
    let units = units.into_iter();
    units.map(|unit| Unit::Other(unit.to_owned())).collect()
});

/// Values of a metric's labels, in their order, and its figure.
pub(super) type Row<'a> = (Vec<&'a str>, f64);

/// An encoder of what the table has.
pub(super) struct Out<'a>(pub(super) DescriptorEncoder<'a>);

impl Out<'_> {
    fn begin(&mut self, metric: &Metric) -> Result<MetricEncoder<'_>, fmt::Error> {
        let kind = match metric.kind {
            Kind::Counter => MetricType::Counter,
            Kind::Gauge => MetricType::Gauge,
            Kind::Histogram(_) => MetricType::Histogram,
            Kind::Info => MetricType::Info,
        };
        let unit = UNITS
            .iter()
            .find(|unit| Some(unit.as_str()) == metric.unit.suffix());
        self.0
            .encode_descriptor(metric.stem(), metric.help, unit, kind)
    }

    /// A counter or a gauge without labels.
    pub(super) fn one(&mut self, metric: &Metric, value: f64) -> fmt::Result {
        let encoder = self.begin(metric)?;
        put(encoder, metric, value)
    }

    /// A counter or a gauge, with a row for each of its sets of labels.
    pub(super) fn rows<'v>(
        &mut self,
        metric: &Metric,
        rows: impl IntoIterator<Item = Row<'v>>,
    ) -> fmt::Result {
        let mut encoder = self.begin(metric)?;
        for (values, value) in rows {
            let labels = labels(metric, &values);
            put(encoder.encode_family(&labels.as_slice())?, metric, value)?;
        }
        Ok(())
    }

    /// A histogram without labels.
    pub(super) fn histogram(&mut self, metric: &Metric, histogram: &Histogram) -> fmt::Result {
        let encoder = self.begin(metric)?;
        observed(encoder, histogram)
    }

    /// A histogram of one label, with a row for each of its values.
    pub(super) fn histograms<'v>(
        &mut self,
        metric: &Metric,
        rows: impl IntoIterator<Item = (&'v str, &'v Histogram)>,
    ) -> fmt::Result {
        let mut encoder = self.begin(metric)?;
        for (value, histogram) in rows {
            let labels = labels(metric, &[value]);
            observed(encoder.encode_family(&labels.as_slice())?, histogram)?;
        }
        Ok(())
    }

    /// Something that is so.
    pub(super) fn info(&mut self, metric: &Metric, values: &[&str]) -> fmt::Result {
        let encoder = self.begin(metric)?;
        Info::new(labels(metric, values)).encode(encoder)
    }
}

fn labels(metric: &Metric, values: &[&str]) -> Vec<(&'static str, String)> {
    let names = metric.labels.iter().map(|label| label.name);
    let values = values.iter().map(|value| (*value).to_owned());
    names.zip(values).collect()
}

fn put(encoder: MetricEncoder<'_>, metric: &Metric, value: f64) -> fmt::Result {
    match metric.kind {
        Kind::Counter => ConstCounter::new(value).encode(encoder),
        Kind::Gauge | Kind::Histogram(_) | Kind::Info => ConstGauge::new(value).encode(encoder),
    }
}

fn observed(mut encoder: MetricEncoder<'_>, histogram: &Histogram) -> fmt::Result {
    let observed = histogram.observed();
    encoder.encode_histogram::<NoLabelSet>(observed.sum, observed.count, &observed.buckets, None)
}
