//! TLS end to end: real agents and engines with certificates, their renewal, and who is kept out.
#![cfg(test)]

#[path = "../support/certificates.rs"]
mod certificates;
mod node;
mod renewing;
mod strangers;
#[path = "../support.rs"]
mod support;

use lynx::cluster::{Cluster, Options, RunSpec};
use lynx::run::{Method, Scenario};
use lynx_tls::authority::Authority;
use serde_json::Value;

use node::{examined, figure};

fn options(megabits: u64) -> Options {
    support::options(megabits, 2, 700)
}

fn spec(method: Method) -> RunSpec {
    support::greedy(method, &support::prose()[..300], 16)
}

/// What a pair of nodes answers, with either kind of transfer.
async fn answers(cluster: &mut Cluster) -> Vec<Vec<u32>> {
    let mut answers = Vec::new();
    for method in [Method::Bf16, Method::LynxExact] {
        let spec = spec(method);
        cluster.prepare(Scenario::Cold, &spec.prompt).await.unwrap();
        answers.push(cluster.run(&spec, |_| {}).await.unwrap().tokens);
    }
    answers
}

#[tokio::test]
async fn by_tls_everything_that_can_be_is_encrypted_and_answers_are_those_in_clear() {
    let mut cluster = Cluster::start(&options(100)).await.unwrap();
    let in_clear = answers(&mut cluster).await;
    drop(cluster);
    let own = certificates::issued(&Authority::new().unwrap());
    let encrypt = |config: &mut Value| certificates::encrypt(config, own.path());
    let started = Cluster::start_with(&options(100), encrypt).await;
    let mut cluster = started.unwrap();
    assert_eq!(answers(&mut cluster).await, in_clear);
    for address in cluster.addresses().unwrap() {
        assert_eq!(figure(address, "lynx_link_encrypted").await, 1.0);
        assert_eq!(
            figure(address, "lynx_tls_handshake_failures_total").await,
            0.0
        );
    }
    let decode = cluster.addresses().unwrap()[1];
    let complete = "lynx_transfers_total{outcome=\"complete\"}";
    assert_eq!(
        figure(decode, complete).await,
        2.0,
        "no prompt was computed twice"
    );
    let said = examined(own.path(), cluster.peer_control().unwrap()).await;
    assert!(
        said.contains("peer control and links are encrypted"),
        "{said}"
    );
    assert!(said.contains("(TCP, TLS 1.3)"), "{said}");
}
