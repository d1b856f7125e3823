//! An agent with its engine, started by hand, so that its log can be read.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::allow_attributes,
    reason = "what can't be set up has failed"
)]

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};

use lynx_ports::HeldAddress;
use serde_json::{Value, json};

use super::certificates::encrypt;
use super::support::{Folder, lynx, model, text, until};

/// An agent, its engine, and what the agent has logged so far.
pub(crate) struct Node {
    agent: Child,
    engine: Child,
    log: Arc<Mutex<String>>,
    pub(crate) http: String,
    _folder: Folder,
}

impl Node {
    /// Starts both; `config` says what the agent listens on beside HTTP.
    pub(crate) fn start(role: &str, mut config: Value) -> Self {
        let folder = Folder::new();
        let held = HeldAddress::take().unwrap();
        let http = held.address().to_string();
        config["role"] = json!(role);
        config["pod"] = json!({"name": role});
        config["listen"]["http"] = json!(http);
        config["listen"]["drain"] = json!("127.0.0.1:0");
        config["engine"] =
            json!({"socket": folder.path("engine.sock"), "sharedDirectory": folder.path("")});
        // JSON is YAML.
        let file = folder.write("agent.yaml", config.to_string());
        let mut agent = lynx()
            .args(["agent", "--config", &file])
            .env_remove("RUST_LOG")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let (lines, written) = (agent.stderr.take().unwrap(), Arc::clone(&log));
        std::thread::spawn(move || {
            for line in BufReader::new(lines).lines().map_while(Result::ok) {
                *written.lock().unwrap() += &format!("{line}\n");
            }
        });
        let engine = lynx()
            .args([
                "engine",
                "--role",
                role,
                "--name",
                "model",
                "--max-tokens",
                "700",
            ])
            .args(["--socket", &folder.path("engine.sock")])
            .args(["--shared-directory", &folder.path("")])
            .arg("--model")
            .arg(model())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self {
            agent,
            engine,
            log,
            http,
            _folder: folder,
        }
    }

    /// Waits until the agent has said, in one line, both of these.
    pub(crate) fn says(&self, who: &str, what: &str) {
        let is_it = |line: &str| line.contains(who) && line.contains(what);
        until(&format!("{who}: {what}\n{}", self.log()), || {
            self.log().lines().any(is_it)
        });
    }

    fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        for process in [&mut self.agent, &mut self.engine] {
            drop(process.kill());
            drop(process.wait());
        }
        if std::thread::panicking() {
            print!("{}", self.log());
        }
    }
}

/// What `lynx doctor` says with these certificates of the way to a prefill agent. Links may go through this process, so it waits
/// elsewhere.
pub(crate) async fn examined(certificates: &Path, control: &str) -> String {
    let mut config = json!({"listen": {"http": "127.0.0.1:1"}});
    encrypt(&mut config, certificates);
    let control = control.to_owned();
    let doctor = tokio::task::spawn_blocking(move || {
        let folder = Folder::new();
        let file = folder.write("agent.yaml", config.to_string());
        let arguments = ["doctor", "--config", &file, "--peer", &control];
        text(&lynx().args(arguments).output().unwrap().stdout)
    });
    doctor.await.unwrap()
}

/// What an agent tells of a metric: the sum of all lines that begin so.
pub(crate) async fn figure(agent: &str, metric: &str) -> f64 {
    let scrape = reqwest::get(format!("http://{agent}/metrics"));
    let text = scrape.await.unwrap().text().await.unwrap();
    let lines = text.lines().filter(|line| line.starts_with(metric));
    lines
        .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
        .sum()
}
