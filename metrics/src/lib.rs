//! What Lynx measures: one table of every metric, by its name, type, unit, labels and meaning.
//!
//! Who writes a metric takes it from here, so none can be served that is not documented; docs/metrics.md, the alerts and
//! the dashboard are made of it, and tests hold each of them against it. It refuses to count anything, and knows no metrics
//! library: those who only document would pay for it. Why not the doc comments of the counters: they lie in several
//! programs, and neither an alert nor a test can read them.
#![no_std]
#![forbid(unsafe_code)]

pub mod agent;
pub mod operator;

/// One metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Metric {
    /// As Prometheus knows it: a counter's ends with `_total`, an info's with `_info`. A histogram has its name followed by
    /// `_bucket`, `_sum` and `_count` in queries.
    pub name: &'static str,
    /// What kind of thing it is.
    pub kind: Kind,
    /// What it is measured in; the name says it too, at its end or before `_total`.
    pub unit: Unit,
    /// By what it is told apart.
    pub labels: &'static [Label],
    /// Who serves it.
    pub by: By,
    /// What it says, without a full stop at its end.
    pub help: &'static str,
}

/// Kinds of metrics, as OpenMetrics has them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Only grows, until its process ends.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Observations, counted by the upper bounds of these buckets; one more has no bound.
    Histogram(&'static [f64]),
    /// Is 1; its labels say something.
    Info,
}

/// What a metric is measured in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// It is a number of things, which its name says.
    None,
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
    /// Bytes in a second.
    BytesPerSecond,
}

/// Something by which a metric is told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// Its name.
    pub name: &'static str,
    /// Which values it has.
    pub values: Values,
}

/// Which values a label has; there are never more than a few hundred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// These.
    Of(&'static [&'static str]),
    /// What this says; bounded otherwise.
    Described(&'static str),
}

/// Who serves a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Every agent.
    Agents,
    /// Prefill agents.
    Prefill,
    /// Decode agents.
    Decode,
    /// The operator.
    Operator,
}

/// Metrics that are about one subject.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Group {
    /// The subject.
    pub title: &'static str,
    /// The metrics.
    pub metrics: &'static [Metric],
}

/// Upper bounds for times that somebody waits for: from a token of a small model to a long prompt on a narrow link.
pub const TIMES: &[f64] = &[
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0,
];

impl Metric {
    /// The name without what its kind appends: what OpenMetrics calls the family.
    pub fn family(&self) -> &'static str {
        let suffix = match self.kind {
            Kind::Counter => "_total",
            Kind::Info => "_info",
            Kind::Gauge | Kind::Histogram(_) => "",
        };
        self.name.strip_suffix(suffix).unwrap_or(self.name)
    }

    /// The family's name without the unit: what libraries want that append it themselves.
    pub fn stem(&self) -> &'static str {
        let family = self.family();
        let Some(unit) = self.unit.suffix() else {
            return family;
        };
        let stem = family.strip_suffix(unit);
        let stem = stem.and_then(|stem| stem.strip_suffix('_'));
        stem.unwrap_or(family)
    }
}

impl Unit {
    /// How a name with it ends.
    pub const fn suffix(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Seconds => Some("seconds"),
            Self::Bytes => Some("bytes"),
            Self::BytesPerSecond => Some("bytes_per_second"),
        }
    }
}

/// Every group, agents' first.
pub fn groups() -> impl Iterator<Item = &'static Group> {
    agent::GROUPS.iter().chain(operator::GROUPS)
}

/// Every metric.
pub fn all() -> impl Iterator<Item = &'static Metric> {
    groups().flat_map(|group| group.metrics)
}

/// The metric that a query means by this name: of a histogram also by its parts.
pub fn find(name: &str) -> Option<&'static Metric> {
    all().find(|metric| match metric.kind {
        Kind::Histogram(_) => {
            let part = name.strip_prefix(metric.name);
            part.is_some_and(|part| ["", "_bucket", "_sum", "_count"].contains(&part))
        }
        _ => metric.name == name,
    })
}

/// Declares metrics as constants and as a group: `NAME: kind, unit, who, "name" [labels] "meaning";`.
macro_rules! group {
    ($(#[$about:meta])* $group:ident = $title:literal {
        $($id:ident: $kind:expr, $unit:ident, $by:ident, $name:literal [$($label:expr),*] $help:literal;)*
    }) => {
        $(
            #[doc = $help]
            pub const $id: Metric = Metric {
                name: $name,
                kind: $kind,
                unit: Unit::$unit,
                labels: &[$($label),*],
                by: By::$by,
                help: $help,
            };
        )*
        $(#[$about])*
        pub const $group: Group = Group { title: $title, metrics: &[$($id),*] };
    };
}
pub(crate) use group;

#[cfg(test)]
mod tests;
