//! A conversation goes on: what the decode node holds of it does not travel again.
#![cfg(test)]

mod support;

use lynx::cluster::{Cluster, Outcome};
use lynx::run::{Figures, Method, Scenario};

const ANSWER: u32 = 12;

async fn ask(cluster: &mut Cluster, method: Method, prompt: &[u32]) -> Outcome {
    let spec = support::greedy(method, prompt, ANSWER);
    cluster.run(&spec, |_| {}).await.unwrap()
}

/// A cluster on a link of this rate, and the tokens of a text.
async fn started(link_megabits: u64) -> (Cluster, Vec<u32>) {
    let options = support::options(link_megabits, 2, 700);
    (Cluster::start(&options).await.unwrap(), support::prose())
}

fn wire_bytes(outcome: &Outcome) -> u64 {
    Figures::of(&outcome.events).wire_bytes
}

#[tokio::test]
async fn the_second_turn_sends_only_what_the_decode_node_lacks() {
    let (mut cluster, tokens) = started(200).await;
    let (first, second) = (&tokens[..400], &tokens[..500]);

    // What plain BF16 gives, from nothing.
    cluster.prepare(Scenario::Cold, second).await.unwrap();
    let whole = ask(&mut cluster, Method::Bf16, second).await;

    // The first turn leaves its exact KV at the decode node, in whole blocks: 384 of 400 tokens.
    cluster.prepare(Scenario::Cold, first).await.unwrap();
    ask(&mut cluster, Method::LynxExact, first).await;
    let delta = ask(&mut cluster, Method::LynxExact, second).await;
    assert_eq!(delta.tokens, whole.tokens);
    let share = wire_bytes(&delta) as f64 / wire_bytes(&whole) as f64;
    assert!(share < 0.3, "{share}: 116 of 500 tokens lack");

    // KV that was restored from eight bits is good for its own request and no other.
    cluster.prepare(Scenario::Cold, first).await.unwrap();
    ask(&mut cluster, Method::LynxInt8, first).await;
    let after_int8 = ask(&mut cluster, Method::LynxExact, second).await;
    assert_eq!(after_int8.tokens, whole.tokens);
    assert!(wire_bytes(&after_int8) > wire_bytes(&delta) * 2);
}

/// Who has the beginning of a prompt before it is asked.
#[derive(Clone, Copy, Debug)]
struct Had {
    /// Tokens that the decode node was asked before, and the prefill node has computed then.
    decode: usize,
    /// Tokens that the prefill node is told to compute, after it has forgotten what was before.
    prefill: usize,
    /// The prompt.
    prompt: usize,
    /// What must travel.
    lacks: usize,
}

/// The last token's block always travels: the decode engine leaves its evaluation to the prefill engine.
const CASES: [Had; 7] = [
    had(0, 0, 320, 320),
    had(320, 0, 400, 80),
    had(0, 320, 400, 400),
    had(320, 330, 400, 80),
    had(330, 128, 400, 80),
    had(384, 0, 384, 64),
    had(400, 400, 400, 16),
];

const fn had(decode: usize, prefill: usize, prompt: usize, lacks: usize) -> Had {
    Had {
        decode,
        prefill,
        prompt,
        lacks,
    }
}

#[tokio::test]
async fn exactly_what_the_decode_node_lacks_is_sent_whoever_has_what() {
    let (mut cluster, tokens) = started(1000).await;
    let mut per_token = 0.0;
    for case in CASES {
        cluster.prepare(Scenario::Cold, &[]).await.unwrap();
        if case.decode > 0 {
            ask(&mut cluster, Method::Bf16, &tokens[..case.decode]).await;
        }
        cluster.forget_prefill().await.unwrap();
        if case.prefill > 0 {
            cluster.warm(&tokens[..case.prefill]).await.unwrap();
        }
        let outcome = ask(&mut cluster, Method::Bf16, &tokens[..case.prompt]).await;
        let sent = wire_bytes(&outcome) as f64;
        if per_token == 0.0 {
            per_token = sent / case.lacks as f64;
        }
        // But for headers, acknowledgements and heartbeats.
        let tokens = sent / per_token;
        let lacks = case.lacks as f64;
        assert!(
            (tokens - lacks).abs() < 2.0,
            "{tokens} tokens' bytes for {case:?}"
        );
    }
}
