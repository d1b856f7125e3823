//! A real Prometheus, and its promtool.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::allow_attributes,
    reason = "what can't be set up has failed"
)]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use lynx_ports::HeldAddress;
use reqwest::Client;
use serde_json::{Value, json};

/// Where the repository is.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// One of the programs that `scripts/kube-tools prometheus` builds.
pub(crate) fn program(name: &str) -> PathBuf {
    let found = Command::new(root().join("scripts/kube-tools"))
        .args(["--where", "prometheus"])
        .output()
        .unwrap();
    let problem = String::from_utf8_lossy(&found.stderr);
    assert!(found.status.success(), "{problem}");
    let folder = String::from_utf8(found.stdout).unwrap();
    Path::new(folder.trim()).join(name)
}

/// What promtool says to these arguments and this input.
pub(crate) fn promtool(arguments: &[&str], input: &str) -> Output {
    let mut process = Command::new(program("promtool"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = process.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    process.wait_with_output().unwrap()
}

/// A Prometheus that ends with its test.
pub(crate) struct Prometheus {
    process: Child,
    address: String,
    client: Client,
    /// Configuration and samples; held for its life.
    _folder: tempfile::TempDir,
}

impl Prometheus {
    /// Scrapes these addresses ten times a second, each as a job of its name.
    pub(crate) async fn start(targets: &[(&str, String)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let jobs = targets.iter().map(
            |(name, address)| json!({"job_name": name, "static_configs": [{"targets": [address]}]}),
        );
        let config = json!({
            "global": {"scrape_interval": "100ms", "scrape_timeout": "100ms", "evaluation_interval": "1s"},
            "rule_files": [root().join("charts/lynx/alerts/lynx.json").canonicalize().unwrap()],
            "scrape_configs": jobs.collect::<Vec<_>>(),
        });
        let file = folder.path().join("prometheus.yaml");
        // JSON is YAML.
        std::fs::write(&file, config.to_string()).unwrap();
        let held = HeldAddress::take().unwrap();
        let address = held.address().to_string();
        let process = Command::new(program("prometheus"))
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().display()))
            .arg(format!("--web.listen-address={address}"))
            .arg("--log.level=error")
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let prometheus = Self {
            process,
            address,
            client: Client::new(),
            _folder: folder,
        };
        let ready = async || prometheus.get("/-/ready", &[]).await.is_some();
        until("Prometheus is ready", ready).await;
        let up = async || {
            let up = prometheus.query("sum(up)").await;
            up.is_some_and(|up| up >= targets.len() as f64) || targets.is_empty()
        };
        until("all targets are up", up).await;
        prometheus
    }

    /// The one figure that a query gives; `None` where it gives none.
    pub(crate) async fn query(&self, query: &str) -> Option<f64> {
        let answer = self.get("/api/v1/query", &[("query", query)]).await?;
        answer["data"]["result"][0]["value"][1]
            .as_str()?
            .parse()
            .ok()
    }

    /// Waits until each of `count` alerts, which it has loaded itself, was evaluated; none of them may have failed.
    pub(crate) async fn alerts_are_evaluated(&self, count: usize) {
        until("all alerts are evaluated", async || {
            let answer = self.get("/api/v1/rules", &[]).await.unwrap();
            let groups = answer["data"]["groups"].as_array().unwrap();
            let rules = groups
                .iter()
                .flat_map(|group| group["rules"].as_array().unwrap());
            let rules: Vec<_> = rules.collect();
            assert_eq!(rules.len(), count, "{answer}");
            for rule in &rules {
                assert_ne!(rule["health"], "err", "{rule}");
            }
            rules.iter().all(|rule| rule["health"] == "ok")
        })
        .await;
    }

    /// The metrics that an expression names.
    pub(crate) async fn names(&self, expression: &str) -> Vec<String> {
        let asked = [("query", expression)];
        let answer = self.get("/api/v1/parse_query", &asked).await;
        let answer = answer.unwrap_or_else(|| panic!("this can't be parsed: {expression}"));
        let mut names = Vec::new();
        selectors(&answer["data"], &mut names);
        names
    }

    async fn get(&self, path: &str, query: &[(&str, &str)]) -> Option<Value> {
        let mut url = reqwest::Url::parse(&format!("http://{}{path}", self.address)).unwrap();
        url.query_pairs_mut().extend_pairs(query);
        let response = self.client.get(url).send().await.ok()?;
        let text = response.error_for_status().ok()?.text().await.ok()?;
        Some(serde_json::from_str(&text).unwrap_or(Value::Null))
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// The names of all selectors of a parsed expression.
fn selectors(node: &Value, names: &mut Vec<String>) {
    match node {
        Value::Object(fields) => {
            let kind = fields.get("type").and_then(Value::as_str);
            if matches!(kind, Some("vectorSelector" | "matrixSelector")) {
                names.push(fields["name"].as_str().unwrap().to_owned());
            }
            fields.values().for_each(|field| selectors(field, names));
        }
        Value::Array(items) => items.iter().for_each(|item| selectors(item, names)),
        _ => {}
    }
}

/// Asks again and again until it is so: another program can't be waited for otherwise.
pub(crate) async fn until(what: &str, so: impl AsyncFn() -> bool) {
    const LOOKS: u32 = 600;
    for _ in 0..LOOKS {
        if so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("it did not come to this within half a minute: {what}");
}
