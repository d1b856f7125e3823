//! The HTTP server of an engine that has one of its own, as this agent asks it.
//!
//! Every question has a connection of its own, which ends with it. So an engine notices at once where nobody wants an answer
//! any more, and nothing is asked on a connection that its server is about to close; on one machine that costs less than a
//! tenth of a millisecond. Neither TLS nor names of other machines: engine and agent share a pod.

use std::path::PathBuf;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri};
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use crate::run::chain;

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(2);
/// How often the server is asked how it is, and how long it may take to say so.
const EVERY: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(2);
/// Where it is asked that.
const HEALTH: &str = "/health";

/// An engine's server.
#[derive(Clone, Debug)]
pub struct Upstream {
    authority: Authority,
    key_file: Option<PathBuf>,
    client: Client<HttpConnector, Full<Bytes>>,
}

/// There was no answer.
#[derive(Debug, thiserror::Error)]
pub enum NoAnswer {
    /// Not a whole one, or no connection at all.
    #[error("the engine's HTTP server at {authority} gives no answer: {why}")]
    Lost {
        /// Where it is.
        authority: Authority,
        /// What happened.
        why: String,
    },
    /// What was asked is no request.
    #[error("the engine can't be asked that: {0}")]
    Question(#[from] http::Error),
}

/// There is no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// No file, or none that this process may read.
    #[error("the engine's API key can't be read from {path} (engine.apiKeyFile)")]
    Unreadable {
        /// Where it was looked for.
        path: String,
        /// What the system says.
        source: std::io::Error,
    },
    /// Several lines, or bytes that are no text.
    #[error("{path} (engine.apiKeyFile) holds no API key: write it in one line")]
    NoKey {
        /// Where it was looked for.
        path: String,
    },
}

/// Whether a server answers, from now on: why not, where it does not.
pub type Health = watch::Receiver<Option<String>>;

impl Upstream {
    /// The server at this address.
    pub fn new(authority: Authority) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT));
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(0)
            .retry_canceled_requests(false)
            .build(connector);
        Self {
            authority,
            client,
            key_file: None,
        }
    }

    /// The same server, which wants the key in this file of whoever asks on nobody's behalf. It is read for each question, so that
    /// another key holds at once.
    #[must_use]
    pub fn with_key_file(self, key_file: Option<PathBuf>) -> Self {
        Self { key_file, ..self }
    }

    /// What a question on nobody's behalf has in its head for that; `None` where no key is wanted.
    ///
    /// # Errors
    /// Where the file can't be read, or holds what no head can.
    pub fn authorization(&self) -> Result<Option<HeaderValue>, KeyError> {
        let Some(path) = &self.key_file else {
            return Ok(None);
        };
        let key = std::fs::read_to_string(path);
        let path = path.display().to_string();
        let key = key.map_err(|source| KeyError::Unreadable {
            path: path.clone(),
            source,
        })?;
        let value = HeaderValue::from_str(&format!("Bearer {}", key.trim()));
        let mut value = value.map_err(|_| KeyError::NoKey { path })?;
        value.set_sensitive(true);
        Ok(Some(value))
    }

    /// Where it is.
    pub const fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Asks: the answer is here once its head is, and dropping either ends the question.
    ///
    /// # Errors
    /// Where there is no answer. One that says that something is wrong is one.
    pub async fn ask(
        &self,
        (method, path): (Method, &'static str),
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response<Body>, NoAnswer> {
        let uri = Uri::builder()
            .scheme(Scheme::HTTP)
            .authority(self.authority.clone())
            .path_and_query(PathAndQuery::from_static(path))
            .build()?;
        let mut request = Request::builder()
            .method(method)
            .uri(uri)
            .body(Full::new(body))?;
        *request.headers_mut() = headers;
        let answer = self.client.request(request).await;
        let answer = answer.map_err(|error| self.lost(chain(&error)))?;
        Ok(answer.map(Body::new))
    }

    fn lost(&self, why: String) -> NoAnswer {
        NoAnswer::Lost {
            authority: self.authority.clone(),
            why,
        }
    }

    /// Why it does not work; `None` where it does. A server that doesn't know the question works.
    pub async fn trouble(&self) -> Option<String> {
        let ask = self.ask((Method::GET, HEALTH), HeaderMap::new(), Bytes::new());
        match tokio::time::timeout(PATIENCE, ask).await {
            Ok(Ok(answer)) if !answer.status().is_server_error() => None,
            Ok(Ok(answer)) => Some(format!(
                "the engine's HTTP server at {} answers {} at {HEALTH}",
                self.authority,
                answer.status()
            )),
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => {
                let why = format!("not within {PATIENCE:?}, at {HEALTH}");
                Some(self.lost(why).to_string())
            }
        }
    }

    /// Asks the server again and again how it is, until nobody wants to know.
    pub async fn watch(self, told: watch::Sender<Option<String>>) {
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !told.is_closed() {
            ticks.tick().await;
            let trouble = self.trouble().await;
            if *told.borrow() == trouble {
                continue;
            }
            match &trouble {
                None => tracing::info!("the engine's HTTP server at {} answers", self.authority),
                Some(why) => tracing::warn!("{why}"),
            }
            told.send_replace(trouble);
        }
    }
}
