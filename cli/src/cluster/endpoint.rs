//! An agent's endpoint, as a client uses it.

use anyhow::{Context as _, Result, bail};
use reqwest::{Client, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::RunSpec;
use crate::run::Event;

/// Where an agent answers.
#[derive(Debug)]
pub(super) struct Endpoint {
    client: Client,
    base: String,
}

/// One chunk of a streamed answer, as far as it matters here.
#[derive(Deserialize)]
struct Chunk {
    lynx: Option<Event>,
    error: Option<Value>,
}

impl Endpoint {
    pub(super) fn new(address: &str) -> Self {
        Self {
            client: Client::new(),
            base: format!("http://{address}"),
        }
    }

    /// Its URL, without a path.
    pub(super) fn base(&self) -> &str {
        &self.base
    }

    /// Has the engine compute a prompt and keep it.
    pub(super) async fn warm(&self, prompt: &[u32]) -> Result<()> {
        let body = json!({"tokens": prompt});
        self.post("/lynx/v1/prefix-cache/warm", &body)
            .await
            .map(drop)
    }

    /// Has the engine forget every prompt.
    pub(super) async fn reset(&self) -> Result<()> {
        self.post("/lynx/v1/prefix-cache/reset", &json!({}))
            .await
            .map(drop)
    }

    /// The sum of the samples of `series`: a metric's name, or one with labels. 0 where there is none.
    pub(super) async fn metric(&self, series: &str) -> Result<f64> {
        let response = self.client.get(format!("{}/metrics", self.base)).send();
        let text = response.await.context("asking for metrics")?.text().await?;
        let samples = text.lines().filter_map(|line| {
            let (of, value) = line.rsplit_once(' ')?;
            let is_it = of == series || of.split('{').next() == Some(series);
            is_it.then(|| value.parse::<f64>())
        });
        let sum = samples.sum::<Result<f64, _>>();
        sum.with_context(|| format!("{series} is no number"))
    }

    /// Orders the agent whose drain listener is at `address` to drain; the order is taken when this returns.
    pub(super) async fn drain(&self, address: &str) -> Result<()> {
        let order = self
            .client
            .post(format!("http://{address}/drain?deadline=1s"));
        let answer = order.send().await.context("ordering a drain")?;
        answer.error_for_status().context("ordering a drain")?;
        Ok(())
    }

    /// Streams an answer, and tells `each` of everything that happens on the way.
    pub(super) async fn complete(&self, spec: &RunSpec, mut each: impl FnMut(Event)) -> Result<()> {
        let body = json!({
            "model": super::MODEL, "prompt": spec.prompt, "max_tokens": spec.max_tokens, "stream": true,
            "temperature": spec.temperature, "seed": spec.seed,
            "lynx": {
                "method": spec.method, "anchor_bits": spec.anchor.map(lynx_units::Width::bits),
                "provisional": true, "timeline": true, "ignore_eos": true,
            },
        });
        let mut response = self.post("/v1/completions", &body).await?;
        let mut pending = Vec::new();
        while let Some(piece) = response.chunk().await.context("reading the answer")? {
            pending.extend_from_slice(&piece);
            while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = pending.drain(..=end).collect();
                match line.trim_ascii().strip_prefix(b"data: ") {
                    None => {}
                    Some(b"[DONE]") => return Ok(()),
                    Some(data) => {
                        let chunk: Chunk = serde_json::from_slice(data)
                            .context("the agent's answer can't be read")?;
                        if let Some(error) = chunk.error {
                            bail!("{}", message(&error));
                        }
                        chunk.lynx.into_iter().for_each(&mut each);
                    }
                }
            }
        }
        bail!("the answer ends in the middle")
    }

    async fn post(&self, path: &str, body: &Value) -> Result<Response> {
        let sent = self
            .client
            .post(format!("{}{path}", self.base))
            .json(body)
            .send()
            .await;
        let response = sent.context("asking the agent")?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let body: Value = response.json().await.unwrap_or_default();
        bail!("{}", message(&body["error"]))
    }
}

/// What an error in the API's shape says.
fn message(error: &Value) -> &str {
    error["message"]
        .as_str()
        .unwrap_or("the agent gives no reason")
}
