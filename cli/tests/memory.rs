//! How much memory the nodes take: real processes, the real model, the prompt that the demo has by default.
#![cfg(test)]

mod support;

use lynx::rows::TtftRow;
use support::{Folder, lynx, text};

/// BF16 bytes of one token's KV in the default model: 30 layers, 3 KV heads of 64 channels, keys and values.
const KV_TOKEN: u64 = 30 * 3 * 64 * 2 * 2;
/// What a node may need besides: its tokenizer, its program, its buffers.
const BESIDES: u64 = 64 << 20;

#[test]
fn each_node_needs_at_most_1_6_times_the_kv_and_64_mib() {
    let folder = Folder::new();
    let (json, page) = (folder.path("rows.json"), folder.path("page.html"));
    let output = lynx()
        .args(["demo", "--prompt-tokens", "2048", "--tokens", "16"])
        .args(["--link", "200mbit", "--json", &json, "--report", &page])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let rows: Vec<TtftRow> = serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    for row in rows {
        let kv = u64::from(row.prompt_tokens) * KV_TOKEN;
        let bound = kv * 16 / 10 + BESIDES;
        let nodes = [row.prefill_memory_bytes, row.decode_memory_bytes];
        for (node, bytes) in ["prefill", "decode"].into_iter().zip(nodes) {
            let bytes = bytes.unwrap();
            assert!(
                (kv..=bound).contains(&bytes),
                "after {:?}, the {node} node's peak is {bytes} bytes besides the weights; {bound} are allowed",
                row.method
            );
        }
    }
}
