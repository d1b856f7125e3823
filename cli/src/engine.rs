//! `lynx engine`: the embedded engine, as a pod runs it.

use std::num::NonZeroUsize;

use anyhow::{Context as _, Result};
use lynx_connector::{Options, Role};
use lynx_engine::EngineOptions;
use lynx_kernels::BLOCK_TOKENS;
use lynx_telemetry::Settings;

use crate::args::{self, Engine};
use crate::{attended, config, model_file};

/// A request that is answered again keeps the block that it ended in, besides the one that it goes on in.
const SPARE_BLOCKS: u32 = 2;

/// Runs an engine until the process is asked to end.
///
/// # Errors
/// Where it can't start or go on.
pub fn run(args: &Engine) -> Result<()> {
    if args.attended {
        attended::end_with_input();
    }
    let threads = args.threads.map_or_else(config::cpus, usize::from);
    let blocks = args.max_tokens.div_ceil(u32::try_from(BLOCK_TOKENS)?) + SPARE_BLOCKS;
    let usual = EngineOptions::default();
    Ok(lynx_connector::run(&Options {
        model: model_file::locate(args.model.as_deref())?,
        served_name: args.name.clone(),
        role: match args.role {
            args::Role::Prefill => Role::Prefill,
            args::Role::Decode => Role::Decode,
        },
        socket: args.socket.clone(),
        shared_directory: args.shared_directory.clone(),
        pool_file: format!("kv-{}", std::process::id()),
        threads: NonZeroUsize::new(threads).context("at least one thread is needed")?,
        kv_blocks: blocks,
        max_tokens: args.max_tokens,
        chunk_tokens: usual.chunk_tokens,
        max_draft: usual.max_draft,
        telemetry: Settings {
            log_filter: if args.attended { "warn" } else { "info" }.to_owned(),
            ..Settings::new("lynx-engine")
        },
    })?)
}
