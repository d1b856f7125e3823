//! The official OpenAI client against four real processes: what it gets is what the bare engine gives.
#![cfg(test)]

mod support;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use lynx::cluster::Cluster;
use lynx_engine::{
    Adjust, Engine, EngineEvent, EngineOptions, Gguf, KvSource, Logprob, Model, Request, Sampling,
    Stop, Tokenizer,
};
use lynx_units::Timestamp;
use serde_json::{Value, json};

/// Enough for a transfer of half a second at the link's rate, which is time to draft.
const PROMPT: &str = include_str!("../../profiles/calibration/prose.txt");
const PROMPT_TOKENS: usize = 200;
const ANSWER: u32 = 16;

/// One way to choose tokens, as a request says it.
fn ways() -> Vec<Value> {
    vec![
        json!({"temperature": 0, "seed": 0}),
        json!({"temperature": 0.9, "top_p": 0.9, "seed": 11}),
        json!({"temperature": 1.1, "seed": 12}),
        json!({
            "temperature": 0, "seed": 0, "presence_penalty": 0.8, "frequency_penalty": 1.2,
            "logit_bias": {"28": -100, "30": 2},
        }),
    ]
}

/// What the engine alone gives: for each way its answer, with every token's log probabilities.
fn bare() -> Value {
    let gguf = Gguf::open(&support::model()).unwrap();
    let tokenizer = Arc::new(Tokenizer::from_gguf(&gguf).unwrap());
    let model = Arc::new(Model::from_gguf(&gguf).unwrap());
    let prompt = tokenizer.prompt(PROMPT).unwrap()[..PROMPT_TOKENS].to_vec();
    let options = EngineOptions::default();
    let mut engine = Engine::new(model, Arc::clone(&tokenizer), options).unwrap();
    let cases: Vec<Value> = ways()
        .into_iter()
        .map(|way| answer(&mut engine, &tokenizer, &prompt, &way))
        .collect();
    json!({"prompt": prompt, "answer": ANSWER, "cases": cases})
}

fn answer(engine: &mut Engine, tokenizer: &Tokenizer, prompt: &[u32], way: &Value) -> Value {
    #[expect(clippy::cast_possible_truncation, reason = "as the endpoint does it")]
    let number = |name: &str, default: f64| way[name].as_f64().unwrap_or(default) as f32;
    let bias = way["logit_bias"].as_object().into_iter().flatten();
    let id = engine
        .submit(Request {
            prompt: prompt.to_vec(),
            max_tokens: ANSWER,
            sampling: Sampling::new(
                number("temperature", 1.0),
                0,
                number("top_p", 1.0),
                way["seed"].as_u64().unwrap(),
            )
            .unwrap(),
            adjust: Adjust {
                bias: bias
                    .map(|(token, bias)| (token.parse().unwrap(), bias.as_i64().unwrap() as f32))
                    .collect(),
                presence: number("presence_penalty", 0.0),
                frequency: number("frequency_penalty", 0.0),
            },
            top_logprobs: Some(5),
            stop: Stop {
                ignore_eos: true,
                ..Stop::default()
            },
            kv: KvSource::Compute,
            retain: false,
        })
        .unwrap();
    let (mut tokens, mut logprobs) = (Vec::new(), Vec::new());
    while !engine.is_idle(Timestamp::ORIGIN) {
        for event in engine.step(Timestamp::ORIGIN, &mut ()).unwrap() {
            if let EngineEvent::Token {
                request,
                token,
                logprobs: Some(known),
                ..
            } = event
            {
                assert_eq!(request, id);
                tokens.push(token);
                let told = |one: &Logprob| json!({"token": one.token, "logprob": one.logprob});
                let top: Vec<Value> = known.top.iter().map(told).collect();
                logprobs.push(json!({"chosen": told(&known.chosen), "top": top}));
            }
        }
    }
    json!({"way": way, "text": tokenizer.decode(&tokens), "tokens": tokens, "logprobs": logprobs})
}

#[tokio::test(flavor = "multi_thread")]
async fn the_official_client_gets_what_the_bare_engine_gives() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let packages = Command::new(root.join("../scripts/python-env"))
        .arg(root.join("../sidecar/agent/tests/openai/requirements.txt"))
        .output()
        .unwrap();
    let problem = support::text(&packages.stderr);
    assert!(packages.status.success(), "no OpenAI client: {problem}");
    let packages = support::text(&packages.stdout);
    let folder = support::Folder::new();
    let expected = folder.write("expected.json", bare().to_string());
    let cluster = Cluster::start(&support::options(40, 1, 2000))
        .await
        .unwrap();
    let [prefill, decode] = cluster.addresses().unwrap();
    let status = Command::new("python3")
        .arg(root.join("tests/openai/check.py"))
        .env("PYTHONPATH", packages.lines().last().unwrap())
        .env("PREFILL", prefill)
        .env("DECODE", decode)
        .env("EXPECTED", expected)
        .status();
    assert!(
        status.unwrap().success(),
        "the client was not content: see above"
    );
}
