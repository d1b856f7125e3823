//! Two agents in one process, between two real engines, whose links go by RDMA on a model of the cards.
#![cfg(test)]

mod support;

use std::future::pending;
use std::process::{Child, Stdio};
use std::sync::Arc;

use lynx_agent::carriage::Carriage;
use lynx_agent::config::Config;
use lynx_agent::run::Agent;
use lynx_transport::emulate::Fabric;
use serde_json::{Value, json};
use support::{Folder, lynx, model};
use tokio::task::JoinHandle;

/// Long enough for some layers to be under way at a time.
const PROMPT: usize = 600;

/// An agent of this process, and its engine.
struct Node {
    agent: JoinHandle<()>,
    engine: Child,
    http: String,
    peer: Option<String>,
    _folder: Folder,
}

impl Node {
    async fn start(role: &str, carriage: Carriage, peers: &[String]) -> Self {
        const ANY: &str = "127.0.0.1:0";
        let folder = Folder::new();
        let (socket, shared) = (folder.path("engine.sock"), folder.path(""));
        let config = json!({
            "role": role,
            "pod": {"name": role},
            "listen": {"http": ANY, "drain": ANY, "peer": ANY, "data": ANY},
            "engine": {"socket": socket, "sharedDirectory": shared},
            "peers": peers,
        });
        // JSON is YAML.
        let config = Config::parse(&config.to_string(), &|_| None).unwrap();
        let agent = Agent::bind_by(carriage, config).await.unwrap();
        let http = agent.http_address().to_string();
        let peer = agent.peer_address().map(|address| address.to_string());
        let mut status = agent.status();
        let agent = tokio::spawn(async { agent.run(pending()).await.unwrap() });
        let engine = lynx()
            .args(["engine", "--role", role, "--name", "model"])
            .args(["--max-tokens", "700", "--socket", &socket])
            .args(["--shared-directory", &shared, "--model"])
            .arg(model())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let is_linked = |up: bool| up || peers.is_empty();
        status
            .wait_for(|now| now.ready && is_linked(now.links.iter().any(|link| link.up)))
            .await
            .unwrap();
        Self {
            agent,
            engine,
            http,
            peer,
            _folder: folder,
        }
    }

    async fn figure(&self, metric: &str) -> f64 {
        let scrape = reqwest::get(format!("http://{}/metrics", self.http)).await;
        let text = scrape.unwrap().text().await.unwrap();
        let line = text.lines().find(|line| line.starts_with(metric)).unwrap();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }

    async fn answer(&self, prompt: &[u32]) -> Value {
        let body = json!({
            "model": "model", "prompt": prompt, "max_tokens": 16, "temperature": 0,
            "lynx": {"ignore_eos": true},
        });
        let url = format!("http://{}/v1/completions", self.http);
        let asked = reqwest::Client::new().post(url).json(&body).send().await;
        let answer: Value = asked.unwrap().json().await.unwrap();
        answer["choices"][0]["text"].clone()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.agent.abort();
        drop(self.engine.kill());
        drop(self.engine.wait());
    }
}

/// What a pair of nodes answers to a prompt, whether their link went by RDMA, and how many transfers were complete.
async fn answers(carriage: &Carriage, prompt: &[u32]) -> (Value, f64, f64) {
    let prefill = Node::start("prefill", carriage.clone(), &[]).await;
    let peers: Vec<String> = prefill.peer.iter().cloned().collect();
    let decode = Node::start("decode", carriage.clone(), &peers).await;
    let text = decode.answer(prompt).await;
    let by_rdma = decode.figure("lynx_link_rdma{").await;
    let complete = "lynx_transfers_total{outcome=\"complete\"}";
    (text, by_rdma, decode.figure(complete).await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_agents_answer_by_rdma_what_they_answer_by_tcp() {
    let prompt = &support::prose()[..PROMPT];
    let fabric = Arc::new(Fabric::new(1));
    let (by_tcp, is_rdma, complete) = answers(&Carriage::default(), prompt).await;
    assert_eq!((is_rdma, complete), (0.0, 1.0));
    assert!(
        by_tcp.as_str().is_some_and(|text| !text.is_empty()),
        "{by_tcp}"
    );
    let carriage = Carriage::by(fabric.adapter(), true);
    let (by_rdma, is_rdma, complete) = answers(&carriage, prompt).await;
    assert_eq!((is_rdma, complete), (1.0, 1.0));
    assert_eq!(by_rdma, by_tcp);
}
