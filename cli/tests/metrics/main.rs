//! Every documented metric in real processes, as a real Prometheus sees them; and what is made of them for people.
#![cfg(test)]

#[path = "../support/certificates.rs"]
mod certificates;
mod prometheus;
#[path = "../support.rs"]
mod support;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use lynx::cluster::{Cluster, RunSpec};
use lynx::run::{Event, Method, Scenario};
use lynx_metrics::{Kind, Metric, agent};
use lynx_tls::authority::Authority;
use lynx_transport::emulate::Relay;
use lynx_transport::{Clock, Dialler, LinkConfig, PeerInfo};
use lynx_units::{BitRate, Width};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use prometheus::{Prometheus, promtool, root, until};

/// What only answers that are longer than the engine has room for move, likewise.
const CROWDED: (&Metric, &str) = (
    &agent::PREEMPTIONS,
    "lynx-connector: requests_that_ask_for_all_there_is_run_side_by_side_and_take_turns_where_room_ends",
);

const PROMPT: usize = 600;
const ANSWER: u32 = 24;

/// How fast the link is, in Mbit/s: residuals are some seconds behind the anchor. Also between two requests it must not get so
/// fast that a draft would not seem worth it.
const USUAL: u64 = 8;
const FAST: u64 = 40;
/// In kbit/s: heartbeats pass, and hardly anything else.
const SLOW: u64 = 400;

/// What only a GPU, many senders, lost links or broken peers move, and the tests in which they do. What those of the protocol count
/// `lynx-agent: what_links_count_is_told_for_both_classes_and_each_reason` brings to the metric.
const RARE: [(&Metric, &str); 10] = [
    (
        &agent::ENGINE_ON_GPU,
        "lynx-agent: an_engine_whose_kv_is_in_a_gpus_memory_is_told_of",
    ),
    (
        &agent::DROPPED_FRAMES,
        "lynx-protocol: frames_and_chunks_of_another_epoch_are_dropped_and_counted",
    ),
    (
        &agent::DROPPED_CHUNKS,
        "lynx-protocol: duplicates_are_tolerated_and_overlaps_end_the_transfer",
    ),
    (&agent::LINK_RDMA, CARRYING),
    (&agent::LINKS_WITHOUT_RDMA, CARRYING),
    (
        &agent::RAILS_LOST,
        "lynx-agent: a_link_that_loses_a_card_goes_on_by_the_other_and_it_is_counted",
    ),
    (&agent::DISCARDED_BYTES, DISCARDING),
    (&agent::WITHHELD, WITHHOLDING),
    (&agent::STARVED, WITHHOLDING),
    (
        &agent::TRANSFER_RETRIES,
        "lynx-agent: a_refused_transfer_is_asked_of_another_prefill_agent_under_another_number",
    ),
];
const CARRYING: &str = "lynx-agent: a_link_that_has_to_do_without_rdma_works_and_says_why";
const DISCARDING: &str =
    "lynx-protocol: a_late_chunk_of_an_ended_transfer_goes_nowhere_and_holds_no_memory";
const WITHHOLDING: &str = "lynx-protocol: residual_credit_is_withheld_while_another_links_anchor_arrives_and_not_for_ever";

fn spec() -> RunSpec {
    RunSpec {
        // Wide enough for drafts that stand.
        anchor: Width::from_bits(6),
        ..support::greedy(Method::LynxExact, &support::prose()[..PROMPT], ANSWER)
    }
}

/// Answers without a timeline; whatever it comes to.
async fn ask(decode: String, prompt: Vec<u32>) -> Value {
    let body = json!({"model": "model", "prompt": prompt, "max_tokens": ANSWER, "lynx": {"ignore_eos": true}});
    let url = format!("http://{decode}/v1/completions");
    let asked = reqwest::Client::new().post(url).json(&body).send().await;
    asked.unwrap().json().await.unwrap()
}

/// Who sees what happens to an answer: slows the link down at the anchor, so that hardly any residual comes, however slow the
/// machine is; and tells of the first draft.
fn slowing(link: Arc<Relay>) -> (impl FnMut(&Event), oneshot::Receiver<()>) {
    let (tell, drafted) = oneshot::channel();
    let mut tell = Some(tell);
    let watch = move |event: &Event| match event {
        Event::AnchorReady { .. } => link.set_rate(BitRate::from_bits_per_second(SLOW * 1000)),
        Event::Draft { .. } => drop(tell.take().map(|tell| tell.send(()))),
        _ => {}
    };
    (watch, drafted)
}

/// The prompt is known to the prefill node, so that the link alone decides what comes when.
async fn prepare(cluster: &mut Cluster, spec: &RunSpec) -> Arc<Relay> {
    cluster.prepare(Scenario::Warm, &spec.prompt).await.unwrap();
    let link = cluster.link();
    link.set_rate(BitRate::from_megabits_per_second(USUAL));
    link
}

/// A client goes away when there is a draft, which was for nothing.
async fn leave(cluster: &mut Cluster, spec: &RunSpec, prometheus: &Prometheus) {
    let link = prepare(cluster, spec).await;
    let (watch, drafted) = slowing(Arc::clone(&link));
    tokio::select! {
        answer = cluster.run(spec, watch) => panic!("nothing was drafted: {answer:?}"),
        drafted = drafted => drafted.unwrap(),
    }
    link.set_rate(BitRate::from_megabits_per_second(FAST));
    until("the draft is wasted", async || {
        moved(prometheus, &agent::WASTED).await
    })
    .await;
}

/// Two requests at once, where the engine has room for one: the second comes when the first has drafted.
async fn load(cluster: &mut Cluster, decode: &str, spec: &RunSpec, prometheus: &Prometheus) {
    let link = prepare(cluster, spec).await;
    let (watch, drafted) = slowing(Arc::clone(&link));
    let prompt = spec.prompt.iter().rev().copied().collect();
    let second = async {
        drafted.await.expect("there is a draft");
        let second = tokio::spawn(ask(decode.to_owned(), prompt));
        until("the second request waits", async || {
            moved(prometheus, &agent::WAITING).await
        })
        .await;
        link.set_rate(BitRate::from_megabits_per_second(FAST));
        second.await.unwrap()
    };
    let (first, second) = tokio::join!(cluster.run(spec, watch), second);
    first.unwrap();
    assert_eq!(second["usage"]["completion_tokens"], ANSWER, "{second}");
}

/// Somebody without a certificate, on control and on data.
async fn stranger(cluster: &Cluster) {
    let control = cluster.peer_control().unwrap();
    let mut stream = TcpStream::connect(control).await.unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\n").await.unwrap();
    let config = LinkConfig::new(Clock::start(), PeerInfo::new("a stranger")).unwrap();
    let mut dialler = Dialler::new(cluster.link().address(), config);
    let refused = dialler.connect(Duration::from_secs(10)).await.unwrap_err();
    assert!(
        refused.to_string().contains("only encrypted links"),
        "{refused}"
    );
}

/// An engine where there is one already: it is refused, and asks again until it is ended.
async fn second_engine(cluster: &Cluster, prometheus: &Prometheus) {
    let folder = cluster.folder().join("decode");
    let mut engine = Command::new(env!("CARGO_BIN_EXE_lynx"))
        .args(["engine", "--role", "decode", "--model"])
        .arg(support::model())
        .arg("--socket")
        .arg(folder.join("engine.sock"))
        .arg("--shared-directory")
        .arg(cluster.folder())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until("the second engine is refused", async || {
        moved(prometheus, &agent::ENGINE_REFUSALS).await
    })
    .await;
    engine.kill().unwrap();
    engine.wait().unwrap();
}

/// The prefill agent dies after the anchor: the decode engine computes the prompt.
async fn failure(cluster: &mut Cluster, spec: &RunSpec) {
    let _link = prepare(cluster, spec).await;
    let processes = cluster.processes();
    let agent = |(name, _): &&(String, u32)| name == "the prefill node's agent";
    let mut agent = processes.iter().find(agent).map(|(_, id)| *id);
    let watch = |event: &Event| {
        if let Some(id) = agent.take_if(|_| matches!(event, Event::AnchorReady { .. })) {
            support::signal("-KILL", id);
        }
    };
    cluster.run(spec, watch).await.unwrap();
    assert_eq!(agent, None, "the anchor came");
}

/// Whether a metric was ever above zero anywhere.
async fn moved(prometheus: &Prometheus, metric: &Metric) -> bool {
    let series = match metric.kind {
        Kind::Histogram(_) => format!("{}_count", metric.name),
        Kind::Counter | Kind::Gauge | Kind::Info => metric.name.to_owned(),
    };
    let query = format!("max(max_over_time({series}[1h]))");
    let highest = prometheus.query(&query).await;
    highest.is_some_and(|highest| highest > 0.0)
}

/// A scrape in the older format, which is the one that promtool reads.
fn older(text: &str) -> String {
    let older = |line: &str| {
        let Some((word, rest)) = line
            .strip_prefix("# ")
            .and_then(|line| line.split_once(' '))
        else {
            return Some(line.to_owned());
        };
        let (family, rest) = rest.split_once(' ')?;
        let found = lynx_metrics::all().find(|metric| metric.family() == family)?;
        let rest = rest.replace("info", "gauge");
        (word != "UNIT").then(|| format!("# {word} {} {rest}", found.name))
    };
    let lines = text.lines().filter(|line| *line != "# EOF");
    lines
        .filter_map(older)
        .map(|line| format!("{line}\n"))
        .collect()
}

async fn promtool_objects_to_nothing(agent: &str) {
    let url = format!("http://{agent}/metrics");
    let scrape = reqwest::get(url).await.unwrap().text().await.unwrap();
    let checked = promtool(&["check", "metrics"], &older(&scrape));
    let said = support::text(&checked.stdout) + &support::text(&checked.stderr);
    assert!(checked.status.success(), "{said}\n{scrape}");
}

#[tokio::test]
#[ignore = "needs a Prometheus: make test-metrics"]
async fn every_agents_metric_moves_and_a_real_prometheus_sees_it() {
    let certificates = certificates::issued(&Authority::new().unwrap());
    let encrypt = |config: &mut Value| certificates::encrypt(config, certificates.path());
    let mut cluster = Cluster::start_with(&support::options(USUAL, 2, 700), encrypt)
        .await
        .unwrap();
    let [prefill, decode] = cluster.addresses().unwrap().map(str::to_owned);
    let targets = [("prefill", prefill.clone()), ("decode", decode.clone())];
    let prometheus = Prometheus::start(&targets).await;
    let spec = spec();
    // First of all: once the engine has been slow to verify, drafts may not seem worth it.
    leave(&mut cluster, &spec, &prometheus).await;
    load(&mut cluster, &decode, &spec, &prometheus).await;
    promtool_objects_to_nothing(&prefill).await;
    promtool_objects_to_nothing(&decode).await;
    second_engine(&cluster, &prometheus).await;
    stranger(&cluster).await;
    failure(&mut cluster, &spec).await;
    // While it drains, the agent goes on with what it has.
    let drain = format!("http://{}/drain", cluster.drain_address().unwrap());
    let (answer, drained) = tokio::join!(ask(decode, spec.prompt), reqwest::get(drain));
    drop((answer, drained));

    let metrics = agent::GROUPS.iter().flat_map(|group| group.metrics);
    let mut still: BTreeMap<_, _> = metrics.map(|metric| (metric.name, metric)).collect();
    for (metric, elsewhere) in RARE.into_iter().chain([CROWDED]) {
        assert!(still.remove(metric.name).is_some(), "{}", metric.name);
        let there = prometheus.query(&format!("count({})", metric.name)).await;
        assert!(there.is_some(), "{} is not told; {elsewhere}", metric.name);
    }
    for metric in still.values() {
        until(&format!("{} moves", metric.name), async || {
            moved(&prometheus, metric).await
        })
        .await;
    }
    let failed = "count(max_over_time(lynx_tls_handshake_failures_total{job=\"prefill\"}[1h]) > 0)";
    assert_eq!(prometheus.query(failed).await, Some(2.0), "both planes");
    let alerts: Value = serde_json::from_str(&std::fs::read_to_string(rules()).unwrap()).unwrap();
    let mut found = Vec::new();
    expressions(&alerts, &mut found);
    prometheus.alerts_are_evaluated(found.len()).await;
}

/// The chart's alerts.
fn rules() -> PathBuf {
    root().join("charts/lynx/alerts/lynx.json")
}

/// Every expression of a dashboard or of rules, wherever it is.
fn expressions(node: &Value, found: &mut Vec<String>) {
    match node {
        Value::Object(fields) => {
            let expression = fields.get("expr").and_then(Value::as_str);
            found.extend(expression.map(str::to_owned));
            fields.values().for_each(|field| expressions(field, found));
        }
        Value::Array(items) => items.iter().for_each(|item| expressions(item, found)),
        _ => {}
    }
}

#[tokio::test]
#[ignore = "needs a Prometheus: make test-metrics"]
async fn alerts_and_dashboard_are_sound_and_name_only_metrics_that_exist() {
    let rules = rules();
    let checked = promtool(&["check", "rules", rules.to_str().unwrap()], "");
    let said = support::text(&checked.stdout) + &support::text(&checked.stderr);
    assert!(checked.status.success(), "{said}");
    let prometheus = Prometheus::start(&[]).await;
    for (file, least) in [
        (rules, 12),
        (root().join("charts/lynx/dashboards/lynx.json"), 25),
    ] {
        let text = std::fs::read_to_string(&file).unwrap();
        let mut found = Vec::new();
        expressions(&serde_json::from_str(&text).unwrap(), &mut found);
        assert!(found.len() >= least, "{}: {}", file.display(), found.len());
        for expression in found {
            // Grafana's own variables.
            let expression = expression
                .replace("$__rate_interval", "5m")
                .replace("$namespace", ".*");
            let names = prometheus.names(&expression).await;
            assert!(!names.is_empty(), "{expression}");
            for name in names {
                let known = lynx_metrics::find(&name);
                assert!(known.is_some(), "no metric {name}: {expression}");
            }
        }
    }
}
