//! Certificates that are renewed on disk while requests run.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lynx::cluster::Cluster;
use lynx_tls::authority::{Authority, Request, write};
use lynx_tls::{Credentials, Files, UnixTime};
use lynx_transport::{Clock, Dialler, LinkConfig, PeerInfo};
use serde_json::{Value, json};

use super::certificates::{NAME, encrypt};
use super::node::figure;
use super::{options, support};

/// Tokens of each prompt; no two are alike, so that each has its transfer.
const PROMPT: usize = 100;

/// Puts files in the place of the last ones as Kubernetes does: all three at once, behind one link.
fn swap(directory: &Path, generation: u32, files: &Files) {
    let new = directory.join(format!("..{generation}"));
    std::fs::create_dir(&new).unwrap();
    write(&new, files).unwrap();
    let link = directory.join("..new");
    std::os::unix::fs::symlink(&new, &link).unwrap();
    std::fs::rename(link, directory.join("..data")).unwrap();
}

/// Another end for each issue, so that one is told from the other.
fn lasting(hours: u64) -> Request {
    Request {
        lasts: Duration::from_secs(hours * 3600),
        ..Request::new(NAME)
    }
}

/// Asks one question after the other until it is told to stop; how many there were, each with all of its answer.
async fn ask(decode: String, prompt: Vec<u32>, stop: Arc<AtomicBool>) -> usize {
    let (client, url) = (
        reqwest::Client::new(),
        format!("http://{decode}/v1/completions"),
    );
    let mut asked = 0;
    while !stop.load(Ordering::Relaxed) {
        let prompt = &prompt[asked % (prompt.len() - PROMPT)..][..PROMPT];
        let body = json!({"model": "model", "prompt": prompt, "max_tokens": 4, "lynx": {"ignore_eos": true}});
        let answer = client.post(&url).json(&body).send().await.unwrap();
        assert_eq!(answer.status(), 200);
        let answer: Value = answer.json().await.unwrap();
        assert_eq!(answer["usage"]["completion_tokens"], 4, "{answer}");
        asked += 1;
    }
    asked
}

/// Waits until each of two agents tells another figure of a metric than before.
async fn until_changed(agents: &[String; 2], metric: &str, before: [f64; 2]) {
    for (agent, before) in agents.iter().zip(before) {
        let changed = async {
            while figure(agent, metric).await == before {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(60), changed).await;
        waited.unwrap_or_else(|_| panic!("{metric} stays {before} on {agent}"));
    }
}

async fn figures([one, other]: &[String; 2], metric: &str) -> [f64; 2] {
    [figure(one, metric).await, figure(other, metric).await]
}

#[tokio::test]
async fn certificates_and_their_authority_are_renewed_under_load_and_no_request_fails() {
    const EXPIRES: &str = "lynx_tls_certificate_expiry_timestamp_seconds";
    const COMPLETE: &str = "lynx_transfers_total{outcome=\"complete\"}";
    let (old, new) = (Authority::new().unwrap(), Authority::new().unwrap());
    let directory = tempfile::tempdir().unwrap();
    swap(directory.path(), 0, &old.issue(&lasting(30)).unwrap());
    let encrypt = |config: &mut Value| encrypt(config, directory.path());
    let cluster = Cluster::start_with(&options(400), encrypt).await.unwrap();
    let agents = cluster.addresses().unwrap().map(str::to_owned);
    let stop = Arc::new(AtomicBool::new(false));
    let asking = tokio::spawn(ask(agents[1].clone(), support::prose(), Arc::clone(&stop)));

    // The new authority is trusted, then issues, and then the old one is trusted no more.
    let [old_ca, new_ca] = [&old, &new].map(Authority::certificate_pem);
    let issues = [
        old.issue(&lasting(40)).unwrap().with_authority(&new_ca),
        new.issue(&lasting(50)).unwrap().with_authority(&old_ca),
        new.issue(&lasting(60)).unwrap(),
    ];
    for (generation, files) in (1..).zip(&issues) {
        let before = figures(&agents, EXPIRES).await;
        swap(directory.path(), generation, files);
        until_changed(&agents, EXPIRES, before).await;
        let before = figures(&agents, COMPLETE).await;
        until_changed(&agents, COMPLETE, before).await;
    }
    // The link that was up all the time was made with what nobody trusts any more, and works.
    assert_eq!(figures(&agents, "lynx_links_opened_total").await, [1.0; 2]);
    assert_eq!(figure(&agents[1], "lynx_local_prompts_total").await, 0.0);
    // The next one is made with the last issue, and requests outlive that, too.
    cluster.link().cut();
    until_changed(&agents, "lynx_links_opened_total", [1.0; 2]).await;
    let before = figures(&agents, COMPLETE).await;
    until_changed(&agents, COMPLETE, before).await;
    assert_eq!(
        figures(&agents, "lynx_tls_handshake_failures_total").await,
        [0.0; 2]
    );

    let stale = tempfile::tempdir().unwrap();
    write(
        stale.path(),
        &old.issue(&lasting(30)).unwrap().with_authority(&new_ca),
    )
    .unwrap();
    let stale = Credentials::open(stale.path(), None, UnixTime::now()).unwrap();
    let config = LinkConfig::new(Clock::start(), PeerInfo::new("of before")).unwrap();
    let config = config.with_credentials(Some(stale));
    let refused = Dialler::new(cluster.link().address(), config)
        .try_connect()
        .await;
    let refused = refused.unwrap_err().to_string();
    assert!(
        refused.contains("does not trust this side's certificate"),
        "{refused}"
    );
    stop.store(true, Ordering::Relaxed);
    let asked = asking.await.unwrap();
    assert!(asked > issues.len(), "{asked}");
}
