//! Conversations over several nodes: a turn goes where its beginning is, only what is new travels, and a prefill node that
//! drains or dies costs no answer.
#![cfg(test)]

mod support;

use lynx::chat::Chat;
use lynx::cluster::{Cluster, Options, Shape};
use lynx::lab::{Copy, Lab};
use lynx::run::{Figures, Method};
use lynx_agent::config::Role::{Decode, Prefill};

/// Three, so that there is a choice where one is gone.
const SHAPE: Shape = Shape {
    prefills: 3,
    decodes: 2,
};
const FIRST: usize = 400;
const NEXT: usize = 80;
const ANSWER: usize = 8;
const BEGUN: &str = "lynx_transfers_begun_total";
const COMPUTED: &str = "lynx_prompt_tokens_total{kv=\"computed\"}";

/// What one turn did: its bytes, which prefill nodes were asked, and how many tokens they computed.
#[derive(Debug)]
struct Turn {
    bytes: u64,
    asked: Vec<usize>,
    computed: f64,
}

/// Nodes, and one engine beside them.
struct World {
    cluster: Cluster,
    lab: Lab,
}

impl World {
    async fn start(options: &Options) -> Self {
        Self {
            cluster: Cluster::start_as(options, SHAPE, |_| {}).await.unwrap(),
            lab: Lab::open(&options.model, 2, 1024).unwrap(),
        }
    }

    async fn of_prefill_nodes(&self, series: &str) -> Vec<f64> {
        let mut values = Vec::new();
        for node in 0..SHAPE.prefills {
            // Of one that is dead nothing is known, and nothing changes.
            let value = self.cluster.metric(Prefill, node, series).await;
            values.push(value.unwrap_or(0.0));
        }
        values
    }

    /// What the model alone answers.
    fn alone(&mut self, prompt: &[u32]) -> Vec<u32> {
        let first = self.lab.prefill(prompt, &mut (), |_| {}).unwrap();
        let rest = self
            .lab
            .greedy(Copy::Exact, first, prompt.len(), ANSWER - 1);
        [vec![first], rest.unwrap()].concat()
    }

    /// Asks a decode node, and goes on: the answer, bit for bit the model's own, and then `next` are said too.
    async fn turn(
        &mut self,
        decode: usize,
        said: &mut Vec<u32>,
        next: &[u32],
        method: Method,
    ) -> Turn {
        let (begun, computed) = (
            self.of_prefill_nodes(BEGUN).await,
            self.of_prefill_nodes(COMPUTED).await,
        );
        let spec = support::greedy(method, said, u32::try_from(ANSWER).unwrap());
        let outcome = self.cluster.run_at(decode, &spec, |_| {}).await.unwrap();
        assert_eq!(outcome.tokens, self.alone(said), "{} tokens", said.len());
        said.extend(&outcome.tokens);
        said.extend(next);
        let now = self.of_prefill_nodes(BEGUN).await;
        let asked = (0..now.len()).filter(|node| now[*node] > begun[*node]);
        let after = self.of_prefill_nodes(COMPUTED).await;
        Turn {
            bytes: Figures::of(&outcome.events).wire_bytes,
            asked: asked.collect(),
            computed: after
                .iter()
                .zip(computed)
                .map(|(now, then)| (now - then).max(0.0))
                .sum(),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_goes_back_to_its_prefill_node_and_survives_it() {
    let options = support::options(1000, 1, 2048);
    let chat = Chat::open(&options.model).unwrap();
    let tokens = |text: &str| chat.tokenizer().prompt(text).unwrap();
    let prose = tokens(include_str!("../../profiles/calibration/prose.txt"));
    let code = tokens(include_str!("../../profiles/calibration/code.py"));
    let mut world = World::start(&options).await;

    let mut homes = Vec::new();
    let mut talks = Vec::new();
    for (decode, text) in [prose, code].into_iter().enumerate() {
        let mut said = text[..FIRST].to_vec();
        let rest: Vec<Vec<u32>> = text[FIRST..].chunks(NEXT).map(<[u32]>::to_vec).collect();
        let whole = world.turn(decode, &mut said, &rest[0], Method::Bf16).await;
        assert_eq!(whole.computed, FIRST as f64);
        let [home] = whole.asked[..] else {
            panic!("one is asked: {whole:?}");
        };

        // The decode node has the first turn's KV, and made the answer's itself; the prefill node has the prompt's.
        let had = FIRST + ANSWER - 1;
        let second = said.len();
        let delta = world.turn(decode, &mut said, &rest[1], Method::Bf16).await;
        assert_eq!(delta.asked, [home], "the prefix is there");
        assert_eq!(delta.computed, (second - FIRST) as f64);
        let share = delta.bytes as f64 / whole.bytes as f64;
        // KV travels in whole blocks of 64 tokens.
        let expected = (second - had / 64 * 64) as f64 / FIRST as f64;
        assert!((share - expected).abs() < 0.01, "{share} for {expected}");
        homes.push(home);
        talks.push((said, rest));
    }

    // At the other decode node everything travels, and comes from where it is.
    let (said, _) = &talks[0];
    let third = world
        .turn(1, &mut said.clone(), &[], Method::LynxExact)
        .await;
    assert_eq!(third.asked, [homes[0]]);
    assert_eq!(third.computed, (ANSWER + NEXT) as f64);

    // Its prefill node dies: another one computes the conversation.
    let dead = homes[0];
    kill_agent(&world.cluster, dead);
    let (mut said, rest) = talks.swap_remove(0);
    let moved = world.turn(0, &mut said, &rest[2], Method::LynxExact).await;
    let [home] = moved.asked[..] else {
        panic!("one is asked: {moved:?}");
    };
    assert_ne!(home, dead);
    let back = world.turn(0, &mut said, &rest[3], Method::LynxExact).await;
    assert_eq!(back.asked, [home], "it has moved there");

    // That one drains: it is not asked, and the last one is.
    world.cluster.drain(Prefill, home).await.unwrap();
    let again = world.turn(0, &mut said, &rest[4], Method::LynxExact).await;
    let [last] = again.asked[..] else {
        panic!("one is asked: {again:?}");
    };
    assert!(last != home && last != dead, "{last}");

    // And where nobody is left, the decode engine computes what it lacks.
    kill_agent(&world.cluster, last);
    let local = world.turn(0, &mut said, &[], Method::LynxExact).await;
    assert_eq!(local.asked, [] as [usize; 0]);
    let computed = world
        .cluster
        .metric(Decode, 0, "lynx_local_prompts_total")
        .await;
    assert_eq!(computed.unwrap(), 1.0);
}

fn kill_agent(cluster: &Cluster, node: usize) {
    let name = format!("the prefill-{node} node's agent");
    let processes = cluster.processes();
    let process = processes.iter().find(|(process, _)| *process == name);
    support::signal("-KILL", process.unwrap().1);
}
