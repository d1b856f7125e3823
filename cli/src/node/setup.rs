//! What both nodes start with.

use std::io::{BufRead as _, Write as _};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use anyhow::{Context as _, Result};
use lynx_engine::{Engine, EngineOptions, Gguf, Model, Tokenizer};
use lynx_kernels::{BLOCK_TOKENS, Codec, KvShape, Profile, Simd};
use lynx_transport::{Clock, LinkConfig, PeerInfo};

use super::coding::UNIT_TOKENS;
use super::heap;
use super::messages::{Command, Ready, Report};
use crate::args::NodeOptions;
use crate::{config, lab, model_file, profile};

/// A model, its words, and what its KV is coded with.
#[derive(Debug)]
pub(super) struct Setup {
    /// The model.
    pub(super) model: Arc<Model>,
    /// Its tokenizer.
    pub(super) tokenizer: Arc<Tokenizer>,
    /// Which words come first.
    pub(super) profile: Arc<Profile>,
    /// What splits and merges.
    pub(super) codec: Codec,
    /// What the links' deadlines are told by.
    pub(super) clock: Clock,
    options: EngineOptions,
}

impl Setup {
    /// Opens what the options name.
    ///
    /// # Errors
    /// Where the model or the profile can't be used.
    pub(super) fn open(options: &NodeOptions) -> Result<Self> {
        let path = model_file::locate(options.model.model.as_deref())?;
        let (model, tokenizer) = open_model(&path)?;
        let profile = profile::choose(
            options.model.profile.as_deref(),
            &model.config().name,
            lab::shape_of(&model),
        )?;
        let threads = options.model.threads.map_or_else(config::cpus, usize::from);
        let blocks = (options.max_tokens as usize).div_ceil(BLOCK_TOKENS) + SPARE_BLOCKS;
        let options = EngineOptions {
            blocks: u32::try_from(blocks)?,
            threads: NonZeroUsize::new(threads).context("at least one thread is needed")?,
            chunk_tokens: UNIT_TOKENS,
            ..EngineOptions::default()
        };
        Ok(Self {
            model: Arc::new(model),
            tokenizer: Arc::new(tokenizer),
            profile: Arc::new(profile),
            codec: Codec::detect(),
            clock: Clock::start(),
            options,
        })
    }

    /// An engine that remembers nothing.
    ///
    /// # Errors
    /// Where its threads can't be started.
    pub(super) fn engine(&self) -> Result<Engine> {
        Ok(Engine::new(
            self.model.clone(),
            self.tokenizer.clone(),
            self.options,
        )?)
    }

    /// The KV's shape.
    pub(super) fn shape(&self) -> KvShape {
        lab::shape_of(&self.model)
    }

    /// What this node brings to its links.
    ///
    /// # Errors
    /// Where it has more to say than fits.
    pub(super) fn link(&self, info: PeerInfo) -> Result<LinkConfig> {
        Ok(LinkConfig::new(self.clock, info)?)
    }

    /// What this node says of itself to its parent.
    pub(super) fn ready(&self) -> Ready {
        Ready {
            data: None,
            control: None,
            model: self.model.config().name.clone(),
            compute: format!("{} codec", simd(self.codec.simd())),
        }
    }
}

/// A request that is answered again keeps the block that it ended in, besides the one that it goes on in.
const SPARE_BLOCKS: usize = 2;

fn open_model(path: &Path) -> Result<(Model, Tokenizer)> {
    let open = || {
        let gguf = Gguf::open(path)?;
        anyhow::Ok((Model::from_gguf(&gguf)?, Tokenizer::from_gguf(&gguf)?))
    };
    open().with_context(|| format!("opening {}", path.display()))
}

/// Writes a line that the parent reads. A parent that is gone needs no report.
pub(super) fn report(report: &Report) {
    let Ok(mut line) = serde_json::to_vec(report) else {
        return;
    };
    line.push(b'\n');
    let mut out = std::io::stdout().lock();
    drop(out.write_all(&line).and_then(|()| out.flush()));
}

/// Reads the parent's commands on a thread of its own, until the parent is gone: then this process ends at once.
pub(super) fn listen<S: Send + 'static>(signals: Sender<S>, wrap: fn(Result<Command>) -> S) {
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            let command = serde_json::from_str(&line).context("the parent's command can't be read");
            if signals.send(wrap(command)).is_err() {
                break;
            }
        }
        std::process::exit(0);
    });
}

/// This process's largest resident memory since [`forget_peak`], without `weights` bytes of model; `None` where the system
/// doesn't tell.
pub(super) fn memory_without(weights: usize) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some((kib * 1024).saturating_sub(weights as u64))
}

/// Gives back what only the opening of the model needed, and begins to measure anew without it. Where the system has no
/// such thing, the peak of opening stays in the figure.
pub(super) fn forget_peak() {
    heap::trim();
    drop(std::fs::write("/proc/self/clear_refs", "5"));
}

/// The instruction set's usual name.
fn simd(simd: Simd) -> &'static str {
    match simd {
        Simd::Scalar => "scalar",
        Simd::Avx2 => "AVX2",
        Simd::Avx512 => "AVX-512",
    }
}
