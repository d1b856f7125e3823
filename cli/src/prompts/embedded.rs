//! Lynx's own documentation and sources, embedded so that an installed binary has them.

use super::{Kind, Source, document};

const DOCUMENTATION: &str = concat!(
    include_str!("../../../README.md"),
    "\n",
    include_str!("../../../docs/architecture.md"),
    "\n",
    include_str!("../../../docs/specification.md"),
    "\n",
    include_str!("../../../CONTRIBUTING.md"),
    "\n",
    include_str!("../../../docs/bench-rows.md"),
    "\n",
    include_str!("../../../docs/codec.md"),
    "\n",
    include_str!("../../../docs/wire-format.md"),
);

const TIMES: &str = concat!(
    include_str!("../run.rs"),
    include_str!("../../../sidecar/agent/src/timeline.rs"),
    include_str!("../run/figures.rs"),
    include_str!("../run/tests.rs"),
    include_str!("../rows.rs"),
);

const NUMBERS: &str = concat!(
    include_str!("../../../sidecar/agent/src/baseline.rs"),
    include_str!("../../../sidecar/agent/src/baseline/tests.rs"),
    include_str!("../stats.rs"),
);

const TEXTS: &str = concat!(
    include_str!("../prompts.rs"),
    include_str!("../prompts/fit.rs"),
    include_str!("../prompts/seeded.rs"),
    include_str!("../prompts/needle.rs"),
    include_str!("../prompts/generated.rs"),
    include_str!("../prompts/tests.rs"),
);

pub(super) fn sources(seed: u64) -> Vec<Source> {
    let code = |name, text, question| document(Kind::Code, name, text, question, seed);
    vec![
        document(
            Kind::Prose,
            "lynx-documentation",
            DOCUMENTATION,
            "What is an anchor, and what is a residual?",
            seed,
        ),
        code(
            "lynx-times",
            TIMES,
            "Which times does this Rust code compute for a run, and from which events does each of them follow?",
        ),
        code(
            "lynx-baseline",
            NUMBERS,
            "Explain how this Rust code turns a tile of BF16 numbers into 4-bit codes and back.",
        ),
        code(
            "lynx-prompts",
            TEXTS,
            "Write a short guide to this Rust module for a new contributor: what it makes and how it is put together.",
        ),
    ]
}
