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
async fn answers(
    victim: &str,
    scenario: Scenario,
    moment: impl Fn(&Event) -> bool,
) -> [anyhow::Result<Vec<u32>>; 2] {
    let mut cluster = Cluster::start(&support::options(20, 2, 700)).await.unwrap();
    let processes = cluster.processes();
    let found = processes.iter().find(|(name, _)| name == victim);
    let mut process = Some(found.expect("a process of that name").1);
    let prompt = spec(Method::Bf16).prompt;
    cluster.prepare(Scenario::Cold, &prompt).await.unwrap();
    let before = cluster.run(&spec(Method::Bf16), |_| {}).await;
    cluster.prepare(scenario, &prompt).await.unwrap();
    let watch = |event: &Event| {
        if let Some(process) = process.take_if(|_| moment(event)) {
            support::signal("-KILL", process);
        }
    };
    let after = cluster.run(&spec(Method::LynxExact), watch).await;
    assert!(process.is_none(), "the moment came");
    [before, after].map(|outcome| outcome.map(|outcome| outcome.tokens))
}

/// Where the prompt is computed as it is asked for, there is a first layer.
async fn at_the_first_layer(victim: &str) -> [anyhow::Result<Vec<u32>>; 2] {
    let first_layer = |event: &Event| matches!(event, Event::PrefillLayer { .. });
    answers(victim, Scenario::Cold, first_layer).await
}

/// Where the prefill node knows the prompt, the link alone says when the anchor and the residual come: beside a slow prefill
/// both of the last layer could come at once, and no anchor would be told of.
async fn at_the_anchor(victim: &str) -> [anyhow::Result<Vec<u32>>; 2] {
    let anchor = |event: &Event| matches!(event, Event::AnchorReady { .. });
    answers(victim, Scenario::Warm, anchor).await
}

#[tokio::test]
async fn a_prefill_agent_that_dies_before_the_first_layer_costs_time_and_not_the_request() {
    let [before, after] = at_the_first_layer("the prefill node's agent").await;
    assert_eq!(before.unwrap(), after.unwrap());
}

#[tokio::test]
async fn a_prefill_agent_that_dies_after_the_anchor_costs_time_and_not_the_request() {
    let [before, after] = at_the_anchor("the prefill node's agent").await;
    assert_eq!(before.unwrap(), after.unwrap());
}

#[tokio::test]
async fn a_prefill_engine_that_dies_costs_time_and_not_the_request() {
    let [before, after] = at_the_first_layer("the prefill node's engine").await;
    assert_eq!(before.unwrap(), after.unwrap());
}

#[tokio::test]
async fn a_decode_engine_that_dies_fails_the_request_by_name() {
    let [_, after] = at_the_anchor("the decode node's engine").await;
    let error = format!("{:#}", after.unwrap_err());
    assert!(
        error.contains("the decode node's engine has ended"),
        "{error}"
    );
}
