//! Clients that ask, one request after the other each, and compare.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use reqwest::{Client, Response, StatusCode};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Case, words};

/// How many complaints are kept: the first few tell what is wrong.
const COMPLAINTS: usize = 10;
/// No answer takes so long.
const LONGEST: Duration = Duration::from_secs(300);

/// What became of requests.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Answered as by the model alone.
    pub answered: u64,
    /// Refused with 429, and asked again after the time that it named.
    pub asked_again: u64,
    /// Not answered, or with something else.
    pub wrong: Vec<String>,
    /// The longest time to an answer.
    pub longest: Duration,
}

/// Those who ask.
#[derive(Debug)]
pub(super) struct Clients {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    client: Client,
    url: String,
    cases: Vec<Case>,
    tokens: u32,
}

impl Clients {
    pub(super) fn new(base: &str, cases: Vec<Case>, tokens: u32) -> Self {
        Self {
            shared: Arc::new(Shared {
                client: Client::new(),
                url: format!("{base}/v1/completions"),
                cases,
                tokens,
            }),
        }
    }

    /// Asks everything once, all at a time.
    pub(super) async fn ask_all(&self) -> Tally {
        let count = self.shared.cases.len();
        self.ask(count, |_, done| done == 0).await
    }

    /// Has so many clients ask until `end`, and waits for their last answers.
    pub(super) async fn ask_until(&self, end: Instant, count: usize) -> Tally {
        self.ask(count, move |now, _| now < end).await
    }

    async fn ask(
        &self,
        count: usize,
        goes_on: impl Fn(Instant, u64) -> bool + Copy + Send + 'static,
    ) -> Tally {
        let mut clients = JoinSet::new();
        for client in 0..count {
            let shared = Arc::clone(&self.shared);
            clients.spawn(async move {
                let mut tally = Tally::default();
                let mut number = 0;
                while goes_on(Instant::now(), number) {
                    // A step that has no divisor in common with the number of cases goes through all of them.
                    let case = client + usize::try_from(number).unwrap_or(0) * 7;
                    shared.one(case, &mut tally).await;
                    number += 1;
                }
                tally
            });
        }
        let mut sum = Tally::default();
        while let Some(tally) = clients.join_next().await {
            match tally {
                Ok(tally) => sum.add(tally),
                Err(error) => sum.complain(format!("a client failed: {error}")),
            }
        }
        sum
    }
}

impl Shared {
    async fn one(&self, number: usize, tally: &mut Tally) {
        let Some(case) = self.cases.get(number % self.cases.len().max(1)) else {
            return;
        };
        let begun = Instant::now();
        let answered = loop {
            match tokio::time::timeout(LONGEST, self.answer(case, number.is_multiple_of(2))).await {
                Err(_) => break Err(anyhow::anyhow!("no answer within {LONGEST:?}")),
                Ok(Ok(Answer::Later(pause))) => {
                    tally.asked_again += 1;
                    tokio::time::sleep(pause).await;
                }
                Ok(Ok(Answer::Text(text))) => break Ok(text),
                Ok(Err(error)) => break Err(error),
            }
        };
        tally.longest = tally.longest.max(begun.elapsed());
        match answered {
            Ok(text) if text == case.answer => tally.answered += 1,
            Ok(text) => tally.complain(format!("{text:?} instead of {:?}", case.answer)),
            Err(error) => tally.complain(words(&error)),
        }
    }

    async fn answer(&self, case: &Case, stream: bool) -> Result<Answer> {
        let body = json!({
            "model": "model", "prompt": case.prompt, "max_tokens": self.tokens, "temperature": 0,
            "stream": stream, "lynx": {"ignore_eos": true},
        });
        let response = self.client.post(&self.url).json(&body).send().await;
        let response = response.context("asking the agent")?;
        match response.status() {
            StatusCode::OK if stream => streamed(response).await,
            StatusCode::OK => {
                let answer: Value = response.json().await.context("reading an answer")?;
                let text = answer["choices"][0]["text"].as_str();
                Ok(Answer::Text(
                    text.context("an answer without a text")?.to_owned(),
                ))
            }
            StatusCode::TOO_MANY_REQUESTS => Ok(Answer::Later(pause(&response)?)),
            status => bail!("{status}: {}", response.text().await.unwrap_or_default()),
        }
    }
}

enum Answer {
    Text(String),
    Later(Duration),
}

/// How long the agent says to wait.
fn pause(response: &Response) -> Result<Duration> {
    let seconds = response.headers().get("retry-after");
    let seconds = seconds.and_then(|value| value.to_str().ok()?.parse().ok());
    Ok(Duration::from_secs(
        seconds.context("429 without a Retry-After")?,
    ))
}

/// A stream's text, which must come to its end.
async fn streamed(response: Response) -> Result<Answer> {
    let body = response.text().await.context("reading a stream")?;
    let mut text = String::new();
    for line in body.lines().filter_map(|line| line.strip_prefix("data: ")) {
        if line == "[DONE]" {
            return Ok(Answer::Text(text));
        }
        let chunk: Value = serde_json::from_str(line).context("reading a chunk")?;
        if let Some(error) = chunk.get("error") {
            bail!("a stream ends with {error}");
        }
        text.push_str(chunk["choices"][0]["text"].as_str().unwrap_or_default());
    }
    bail!("a stream ends in the middle")
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.answered += other.answered;
        self.asked_again += other.asked_again;
        self.longest = self.longest.max(other.longest);
        other
            .wrong
            .into_iter()
            .for_each(|words| self.complain(words));
    }

    fn complain(&mut self, words: String) {
        if self.wrong.len() < COMPLAINTS {
            self.wrong.push(words);
        }
    }
}
