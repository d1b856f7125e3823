//! Real processes that die at a bad moment: it costs time, and not the request.
#![cfg(test)]

mod support;

use lynx::cluster::{Cluster, RunSpec};
use lynx::run::{Event, Method, Scenario};

const ANSWER: u32 = 12;
const PROMPT: usize = 600;

fn spec(method: Method) -> RunSpec {
    support::greedy(method, &support::prose()[..PROMPT], ANSWER)
}

/// Kills a process of a cluster as soon as `moment` comes in the middle of a request; the answer before, and this one.
async fn answers(victim: &str, moment: impl Fn(&Event) -> bool) -> [anyhow::Result<Vec<u32>>; 2] {
    let mut cluster = Cluster::start(&support::options(20, 2, 700)).await.unwrap();
    let processes = cluster.processes();
    let found = processes.iter().find(|(name, _)| name == victim);
    let mut process = Some(found.expect("a process of that name").1);
    let prompt = spec(Method::Bf16).prompt;
    cluster.prepare(Scenario::Cold, &prompt).await.unwrap();
    let before = cluster.run(&spec(Method::Bf16), |_| {}).await;
    cluster.prepare(Scenario::Cold, &prompt).await.unwrap();
    let watch = |event: &Event| {
        if let Some(process) = process.take_if(|_| moment(event)) {
            support::signal("-KILL", process);
        }
    };
    let after = cluster.run(&spec(Method::LynxExact), watch).await;
    assert!(process.is_none(), "the moment came");
    [before, after].map(|outcome| outcome.map(|outcome| outcome.tokens))
}

#[tokio::test]
async fn a_prefill_agent_that_dies_before_the_first_layer_costs_time_and_not_the_request() {
    let first_layer = |event: &Event| matches!(event, Event::PrefillLayer { .. });
    let [before, after] = answers("the prefill node's agent", first_layer).await;
    assert_eq!(before.unwrap(), after.unwrap());
}

#[tokio::test]
async fn a_prefill_agent_that_dies_after_the_anchor_costs_time_and_not_the_request() {
    let anchor = |event: &Event| matches!(event, Event::AnchorReady { .. });
    let [before, after] = answers("the prefill node's agent", anchor).await;
    assert_eq!(before.unwrap(), after.unwrap());
}

#[tokio::test]
async fn a_prefill_engine_that_dies_costs_time_and_not_the_request() {
    let first_layer = |event: &Event| matches!(event, Event::PrefillLayer { .. });
    let [before, after] = answers("the prefill node's engine", first_layer).await;
    assert_eq!(before.unwrap(), after.unwrap());
}

#[tokio::test]
async fn a_decode_engine_that_dies_fails_the_request_by_name() {
    let anchor = |event: &Event| matches!(event, Event::AnchorReady { .. });
    let [_, after] = answers("the decode node's engine", anchor).await;
    let error = format!("{:#}", after.unwrap_err());
    assert!(
        error.contains("the decode node's engine has ended"),
        "{error}"
    );
}
