//! What `lynx doctor` finds of a prefill agent.

use std::path::Path;

use lynx_proto::peer::v1::ProbeRequest;
use lynx_tls::authority::{Authority, Request, write};
use lynx_tls::{Credentials, UnixTime};
use tonic::Code;

use super::Agent;
use super::peer::client;
use crate::config::Config;
use crate::doctor::{self, Finding, Grade, Root};
use crate::security::Security;
use crate::testing::soon;

/// What is found of the path to `agent`, in order: the path, the clocks, the links' port, the MTU.
async fn examined(agent: &Agent) -> Vec<Finding> {
    examined_by(agent, "").await
}

/// The same by an agent with this in its configuration; where there is no path, that alone.
async fn examined_by(agent: &Agent, configuration: &str) -> Vec<Finding> {
    let nothing = tempfile::tempdir().unwrap();
    let yaml = format!("listen: {{http: \"127.0.0.1:1\"}}\n{configuration}");
    let config = Config::parse(&yaml, &|_| None).unwrap();
    let peers = [agent.control.to_string()];
    let mut findings = doctor::examine(&Root::at(nothing.path()), &config, &peers).await;
    let path = findings.iter().position(|found| found.subject == "peer");
    findings.split_off(path.unwrap())
}

const NAME: &str = "spiffe://test/ns/a/lynx/b";

/// A directory of an authority's, and what is configured with it.
fn issued(authority: &Authority) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let files = authority.issue(&Request::new(NAME)).unwrap();
    write(directory.path(), &files).unwrap();
    directory
}

fn tls(mode: &str, directory: &Path) -> String {
    format!("tls: {{mode: {mode}, directory: {}}}", directory.display())
}

/// A prefill agent with an engine that has this directory's certificate.
async fn secured(directory: &Path, on_data: bool) -> (Agent, crate::testing::FakeEngine) {
    let credentials = Credentials::open(directory, None, UnixTime::now()).unwrap();
    let security = Security::new(credentials, on_data);
    let agent = Agent::start_with(|options| options.security = security).await;
    let engine = agent.ready().await;
    (agent, engine)
}

#[tokio::test]
async fn by_tls_the_path_is_found_as_in_clear() {
    let own = issued(&Authority::new().unwrap());
    let (agent, _engine) = secured(own.path(), true).await;
    let findings = examined_by(&agent, &tls("all", own.path())).await;
    let is_good = |found: &Finding| found.grade == Grade::Good;
    assert!(findings.iter().all(is_good), "{findings:?}");
    assert!(
        findings[2].found.ends_with("(TCP, TLS 1.3)"),
        "{findings:?}"
    );
}

#[tokio::test]
async fn a_peer_that_distrusts_or_speaks_otherwise_is_told_from_one_that_is_not_there() {
    let own = issued(&Authority::new().unwrap());
    let stranger = issued(&Authority::new().unwrap());
    let (all, _engine) = secured(own.path(), true).await;
    let (control, _engine) = secured(own.path(), false).await;
    let (clear, _engine) = Agent::with_engine().await;
    for (agent, configuration, position, words) in [
        (
            &all,
            tls("all", stranger.path()),
            0,
            "isn't signed by an authority in ca.crt",
        ),
        (
            &all,
            "tls: {mode: off}".to_owned(),
            0,
            "takes only encrypted connections",
        ),
        (&clear, tls("all", own.path()), 0, "what comes is not TLS"),
        (
            &all,
            tls("control", own.path()),
            2,
            "takes only encrypted links",
        ),
        (&control, tls("all", own.path()), 2, "speaks without TLS"),
    ] {
        let findings = examined_by(agent, &configuration).await;
        let found = &findings[position];
        assert_eq!(found.grade, Grade::Problem, "{configuration}: {found:?}");
        assert!(found.found.contains(words), "{configuration}: {found:?}");
        assert!(found.remedy.contains("tls.mode"), "{found:?}");
    }
}

#[tokio::test]
async fn without_a_certificate_a_peer_is_not_asked() {
    let (agent, _engine) = Agent::with_engine().await;
    let findings = examined_by(&agent, &tls("all", Path::new("/no/such"))).await;
    assert_eq!((findings.len(), findings[0].grade), (1, Grade::Problem));
    assert!(findings[0].found.contains("was not asked"), "{findings:?}");
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
