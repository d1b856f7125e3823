//! What people and Prometheus read of the metrics: the page, the alerts, the dashboard.

mod alerts;
mod dashboard;
mod page;

use crate::folder::Folder;

/// `docs/metrics.md`, and the chart's alerts and dashboard.
pub(crate) fn folders() -> [Folder; 3] {
    let file = |name: &str, text| vec![(name.to_owned(), text)];
    [
        Folder {
            path: "docs",
            is_shared: true,
            files: file("metrics.md", page::text()),
        },
        Folder {
            path: "charts/lynx/alerts",
            is_shared: false,
            files: file("lynx.json", alerts::rules()),
        },
        Folder {
            path: "charts/lynx/dashboards",
            is_shared: false,
            files: file("lynx.json", dashboard::model()),
        },
    ]
}

/// JSON for people to read, too.
fn pretty(value: &serde_json::Value) -> String {
    format!("{value:#}\n")
}
