//! The page about metrics and alerts.

use std::fmt::Write as _;

use lynx_metrics::{By, Group, Kind, Metric, Values, groups};

use super::alerts::{ALERTS, runbook};

/// What the page begins with.
const ABOUT: &str = "\
# Metrics

*Made by `cargo xtask monitoring` from the table in [metrics/](../metrics/src/agent.rs) and the alerts in xtask/; a difference fails
`cargo xtask check`.*

Agents serve these at `/metrics` of `listen.http` ([agents.md](agents.md#what-it-listens-on)), the operator on its own port, in
OpenMetrics' text format. Names say units: seconds, bytes; a counter ends with `_total`. Labels have few values: what could
be many is bounded, and no request, link or secret is ever in one. Which agents serve a metric is said where not all do.

A histogram's buckets for times are those that somebody waits for, from a millisecond to a minute. They are counted when an agent
learns of a thing; network and client come on top.

The chart brings [alerts](#alerts) (`metrics.prometheusRule`) and a Grafana dashboard (`metrics.dashboard`);
`charts/lynx/alerts/lynx.json` is also a plain file of rules for a Prometheus without its operator. `make test-metrics` drives a
prefill and a decode node, by TLS, through requests, drafts, strangers and failures under a real Prometheus. It fails on a metric
that does not move, on an alert that can't be evaluated, on an alert or a curve that names a metric which is not here, and on what
`promtool` objects to. What only many senders or broken peers move, tests of the protocol do.
";

pub(super) fn text() -> String {
    let mut text = ABOUT.to_owned();
    for group in groups() {
        // Writing to a String can't fail.
        table(&mut text, group).ok();
    }
    alerts(&mut text).ok();
    text
}

fn table(text: &mut String, group: &Group) -> std::fmt::Result {
    write!(
        text,
        "\n## {}\n\n| metric | type | meaning |\n|---|---|---|\n",
        group.title
    )?;
    for metric in group.metrics {
        let kind = match metric.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram(_) => "histogram",
            Kind::Info => "info",
        };
        let name = named(metric);
        writeln!(text, "| {name} | {kind} | {} |", meaning(metric))?;
    }
    Ok(())
}

fn named(metric: &Metric) -> String {
    let labels: Vec<_> = metric.labels.iter().map(|label| label.name).collect();
    if labels.is_empty() {
        format!("`{}`", metric.name)
    } else {
        format!("`{}{{{}}}`", metric.name, labels.join(", "))
    }
}

fn meaning(metric: &Metric) -> String {
    let mut text = format!("{}.", metric.help);
    for label in metric.labels {
        let values = match label.values {
            Values::Of(values) => format!("`{}`", values.join("`, `")),
            Values::Described(values) => values.to_owned(),
        };
        text += &format!(" *{}*: {values}.", label.name);
    }
    match metric.by {
        By::Prefill => text += " Prefill agents only.",
        By::Decode => text += " Decode agents only.",
        By::Agents | By::Operator => {}
    }
    text
}

fn alerts(text: &mut String) -> std::fmt::Result {
    text.push_str(
        "\n## Alerts\n\nThresholds are starting points: edit a copy where yours differ. What to look at, step by step, is in \
         [operations.md](operations.md).\n",
    );
    for alert in ALERTS {
        let time = match alert.after {
            "0m" => String::new(),
            time => format!(", for {time}"),
        };
        write!(
            text,
            "\n### {}\n\n{} ({}{time})\n\n```\n{}\n```\n\n{}\n\n**What to do.** {} [Runbook]({})\n",
            alert.name,
            alert.summary,
            alert.severity,
            alert.expression,
            alert.meaning,
            alert.action,
            runbook(alert).trim_start_matches("docs/")
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUNBOOKS: &str = include_str!("../../../docs/operations.md");

    #[test]
    fn every_alert_has_the_runbook_that_it_points_to_and_no_runbook_is_of_another() {
        let headings = |text: &str| -> Vec<String> {
            let lines = text.lines();
            let all = lines.filter_map(|line| line.strip_prefix("### Lynx"));
            all.map(|name| format!("Lynx{name}")).collect()
        };
        let names: Vec<_> = ALERTS.iter().map(|alert| alert.name.to_owned()).collect();
        assert_eq!(headings(RUNBOOKS), names);
        assert_eq!(headings(&text()), names);
        for alert in ALERTS {
            assert!(runbook(alert).ends_with(&format!("#{}", alert.name.to_lowercase())));
        }
    }

    #[test]
    fn every_runbook_says_what_to_look_at_and_what_to_do() {
        for section in RUNBOOKS.split("\n### Lynx").skip(1) {
            let name = section.lines().next().unwrap_or_default();
            for part in ["**Look.**", "**Do.**"] {
                assert!(section.contains(part), "Lynx{name} lacks {part}");
            }
        }
    }
}
