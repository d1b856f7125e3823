//! Agents and engines in processes of their own, whose links go over cards: Soft-RoCE in the virtual machine that `make test-rdma`
//! starts, with `rxe0` on `veth0` (192.168.77.1). The processor is emulated there: few tokens, and nothing about time.
#![cfg(test)]

mod support;

use std::fs::{Permissions, read_to_string, set_permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use lynx::cluster::{Cluster, RunSpec};
use lynx::run::{Event, Method, Scenario};
use lynx_agent::config::Role::{Decode, Prefill};
use serde_json::{Value, json};
use support::Folder;
use tokio::sync::Notify;
use tokio::task::spawn_blocking;

const PROMPT: usize = 4;
const ANSWER: u32 = 2;
/// In which the emulated processor reads the prompt, however busy the real one is.
const PATIENCE: &str = "5m";
/// Nothing but the first words of each connection goes over the emulated link.
const LINK_MEGABITS: u64 = 10_000;

/// An agent of each role whose links go by RDMA alone, from the first card's address.
async fn cluster() -> Cluster {
    let options = support::options(LINK_MEGABITS, 1, 128);
    let change = |config: &mut Value| {
        config["transfer"]["transport"] = json!("rdma");
        config["transfer"]["rdma"] = json!({"device": "rxe0", "gidIndex": 1});
        config["transfer"]["deadline"] = json!(PATIENCE);
        config["telemetry"]["log"] = json!("info");
    };
    Cluster::start_with(&options, change).await.unwrap()
}

fn spec() -> RunSpec {
    support::greedy(Method::LynxExact, &support::prose()[..PROMPT], ANSWER)
}

/// The answer, where both nodes have forgotten the prompt.
async fn answer(cluster: &mut Cluster, spec: &RunSpec) -> Vec<u32> {
    cluster.prepare(Scenario::Cold, &spec.prompt).await.unwrap();
    cluster.run(spec, |_| {}).await.unwrap().tokens
}

/// Leaves in the middle: while the first layer's KV travels, the others aren't there yet.
async fn leave(cluster: &mut Cluster, spec: &RunSpec) {
    cluster.prepare(Scenario::Cold, &spec.prompt).await.unwrap();
    let moment = Arc::new(Notify::new());
    let here = Arc::clone(&moment);
    let watch = move |event: &Event| {
        if matches!(event, Event::PrefillLayer { .. }) {
            here.notify_one();
        }
    };
    tokio::select! {
        outcome = cluster.run(spec, watch) => panic!("it was over before anybody left: {outcome:?}"),
        () = moment.notified() => {}
    }
    let cancelled = "lynx_transfers_total{outcome=\"cancelled\"}";
    while cluster.metric(Prefill, 0, cancelled).await.unwrap() == 0.0 {}
}

/// Kills the prefill node's agent in the middle: the decode node computes the prompt by itself.
async fn answer_of_one(cluster: &mut Cluster, spec: &RunSpec) -> Vec<u32> {
    cluster.prepare(Scenario::Cold, &spec.prompt).await.unwrap();
    let processes = cluster.processes();
    let of_prefill = |(name, _): &&(String, u32)| name == "the prefill node's agent";
    let mut process = processes.iter().find(of_prefill).map(|(_, id)| *id);
    let watch = |event: &Event| {
        if matches!(event, Event::PrefillLayer { .. })
            && let Some(process) = process.take()
        {
            support::signal("-KILL", process);
        }
    };
    cluster.run(spec, watch).await.unwrap().tokens
}

/// Whether the link goes by RDMA, how many didn't that should have, and how many transfers were complete.
async fn figures(cluster: &Cluster) -> [f64; 3] {
    let mut figures = [0.0; 3];
    let series = [
        "lynx_link_rdma",
        "lynx_links_without_rdma_total",
        "lynx_transfers_total{outcome=\"complete\"}",
    ];
    for (figure, series) in figures.iter_mut().zip(series) {
        *figure = cluster.metric(Decode, 0, series).await.unwrap();
    }
    figures
}

#[tokio::test]
async fn an_answer_by_rdma_is_that_of_one_node_also_after_a_client_and_a_peer_left_in_the_middle() {
    let spec = spec();
    let mut cluster = cluster().await;
    let by_rdma = answer(&mut cluster, &spec).await;
    assert_eq!(by_rdma.len(), ANSWER as usize);
    assert_eq!(figures(&cluster).await, [1.0, 0.0, 1.0]);
    leave(&mut cluster, &spec).await;
    assert_eq!(answer(&mut cluster, &spec).await, by_rdma);
    assert_eq!(figures(&cluster).await, [1.0, 0.0, 2.0]);
    assert_eq!(answer_of_one(&mut cluster, &spec).await, by_rdma);
}

/// Starts agents with this configuration, and waits until they have said these words, and where they are to link until they have.
async fn told(transfer: Value, words: [&'static str; 2], link: bool) -> Option<Cluster> {
    let folder = Folder::new();
    let log = folder.write("log", "");
    let script = format!(
        "#!/bin/sh\nexec {} \"$@\" 2>>{log}\n",
        env!("CARGO_BIN_EXE_lynx")
    );
    let program = folder.write("lynx", script);
    set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    let mut options = support::options(LINK_MEGABITS, 1, 128);
    options.program = program.into();
    let change = |config: &mut Value| {
        for (name, value) in transfer.as_object().unwrap() {
            config["transfer"][name] = value.clone();
        }
    };
    let has = move || {
        let said = read_to_string(&log).unwrap();
        words.iter().all(|words| said.contains(words))
    };
    let said = spawn_blocking(move || support::until(words[1], has));
    tokio::pin!(said);
    tokio::select! {
        cluster = Cluster::start_with(&options, change) => {
            said.await.unwrap();
            cluster.ok()
        }
        heard = &mut said, if !link => {
            heard.unwrap();
            None
        }
    }
}

/// A link between agents with this configuration goes by TCP, for this reason.
async fn is_by_tcp(rdma: Value, why: &'static str) {
    let transfer = json!({"transport": "auto", "rdma": rdma});
    let cluster = told(transfer, ["linked, without RDMA: ", why], true).await;
    assert_eq!(figures(&cluster.unwrap()).await, [0.0, 1.0, 0.0]);
}

/// There is no link between agents with this configuration, for this reason.
async fn is_no_link(rdma: Value, why: &'static str) {
    let transfer = json!({"transport": "rdma", "rdma": rdma});
    assert!(told(transfer, ["no link: ", why], false).await.is_none());
}

const NO_GID: &str = "there is no rxe0:*:99; there are: rxe0:1:0";
const LIMIT: &str = "RLIMIT_MEMLOCK is 65536 bytes, without CAP_IPC_LOCK";

#[tokio::test]
async fn agents_with_a_gid_that_is_not_there_link_by_tcp_and_say_which_there_are() {
    is_by_tcp(json!({"device": "rxe0", "gidIndex": 99}), NO_GID).await;
}

#[tokio::test]
async fn agents_that_take_only_rdma_do_not_link_from_a_gid_that_is_not_there() {
    is_no_link(json!({"device": "rxe0", "gidIndex": 99}), NO_GID).await;
}

#[tokio::test]
async fn an_agent_that_takes_only_rdma_does_not_start_with_a_device_that_is_not_there() {
    let transfer = json!({"transport": "rdma", "rdma": {"device": "rxe7"}});
    let why = "transfer.rdma.device is rxe7, which this machine doesn't have; it has rxe0 rxe1";
    let words = ["links can't be made as they are wanted", why];
    assert!(told(transfer, words, false).await.is_none());
}

/// Run as a user without rights, who may lock 64 KiB.
#[tokio::test]
#[ignore = "needs a user without rights: make test-rdma"]
async fn unprivileged_agents_that_may_lock_too_little_link_by_tcp_and_name_the_limit() {
    is_by_tcp(json!({"device": "rxe0", "gidIndex": 1}), LIMIT).await;
}

/// The same, where RDMA is asked for.
#[tokio::test]
#[ignore = "needs a user without rights: make test-rdma"]
async fn unprivileged_agents_that_take_only_rdma_and_may_lock_too_little_name_the_limit() {
    is_no_link(json!({"device": "rxe0", "gidIndex": 1}), LIMIT).await;
}
