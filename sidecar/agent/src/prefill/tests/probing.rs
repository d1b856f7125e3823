//! What `lynx doctor` finds of a prefill agent.

use lynx_proto::peer::v1::ProbeRequest;
use tonic::Code;

use super::Agent;
use super::peer::client;
use crate::config::Config;
use crate::doctor::{self, Finding, Grade, Root};
use crate::testing::soon;

/// What is found of the path to `agent`, in order: the path, the clocks, the links' port, the MTU.
async fn examined(agent: &Agent) -> Vec<Finding> {
    let nothing = tempfile::tempdir().unwrap();
    let config = Config::parse("listen: {http: \"127.0.0.1:1\"}", &|_| None).unwrap();
    let peers = [agent.control.to_string()];
    let mut findings = doctor::examine(&Root::at(nothing.path()), &config, &peers).await;
    findings.split_off(findings.len() - 4)
}

#[tokio::test]
async fn the_path_to_a_peer_is_found_in_order() {
    let (agent, _engine) = Agent::with_engine().await;
    let findings = examined(&agent).await;
    let is_good = |found: &Finding| found.grade == Grade::Good;
    assert!(findings.iter().all(is_good), "{findings:?}");
    assert!(findings[0].found.starts_with("prefill-0: "), "{findings:?}");
}

#[tokio::test]
async fn a_peer_without_an_engine_is_a_problem_that_says_so() {
    let agent = Agent::start().await;
    let found = &examined(&agent).await[2];
    assert_eq!(found.grade, Grade::Problem);
    assert!(found.found.contains("has no engine"), "{found:?}");
}

#[tokio::test]
async fn only_one_may_probe_at_a_time() {
    let agent = Agent::start().await;
    let (mut first, mut second) = (client(&agent).await, client(&agent).await);
    let bytes = 1 << 30;
    let probing = soon(first.probe(ProbeRequest { bytes })).await.unwrap();
    let refused = soon(second.probe(ProbeRequest { bytes: 0 })).await;
    assert_eq!(refused.unwrap_err().code(), Code::ResourceExhausted);
    // Whoever is done makes room, however much was asked for.
    let mut answers = probing.into_inner();
    let mut padding = 0;
    while let Some(answer) = soon(answers.message()).await.unwrap() {
        padding += prost::Message::encoded_len(&answer);
    }
    assert!(padding > 64 << 20 && padding < 65 << 20, "{padding}");
    let again = async {
        while second.probe(ProbeRequest { bytes: 0 }).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    soon(again).await;
}
