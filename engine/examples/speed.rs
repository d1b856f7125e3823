//! Measures the engine: `speed MODEL [CONTEXT] [THREADS] [LEVEL]` prints how fast a context is read, continued and verified.
//!
//! The tokens are arbitrary, which costs as much as text does. Times are of the wall clock, so leave the machine alone.
#![expect(clippy::print_stdout, reason = "it prints its measurements")]

use std::error::Error;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use lynx_engine::{
    BLOCK_TOKENS, BlockId, KvPool, Level, Logits, LogitsFor, Model, Span, TokenId, Workers,
};

/// Tokens that a prompt is read in at a time.
const CHUNK: usize = 256;
/// Tokens that are decoded one after the other.
const DECODED: usize = 32;

/// A model with one sequence.
struct Bench {
    model: Model,
    workers: Workers,
    pool: KvPool,
    blocks: Vec<BlockId>,
    tokens: Vec<TokenId>,
    logits: Logits,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments
        .next()
        .ok_or("usage: speed MODEL [CONTEXT] [THREADS] [LEVEL]")?;
    let context: usize = arguments.next().map_or(Ok(2048), |text| text.parse())?;
    let threads: NonZeroUsize = arguments.next().as_deref().unwrap_or("2").parse()?;
    let model = Model::open(&PathBuf::from(path))?;
    let level = arguments
        .next()
        .map_or(Ok(Level::best()), |name| level(&name))?;
    let workers = Workers::with_level(threads, level)?;
    let length = context + DECODED;
    let blocks = length.div_ceil(BLOCK_TOKENS);
    let vocab = u32::try_from(model.config().vocab)?;
    let mut bench = Bench {
        pool: KvPool::new(model.config(), blocks),
        blocks: (0..).map(BlockId).take(blocks).collect(),
        tokens: (0..vocab).cycle().step_by(7919).take(length).collect(),
        logits: Logits::default(),
        model,
        workers,
    };
    println!(
        "{}, {} MB of weights, {}, {threads} threads, context {context}",
        bench.model.config().name,
        bench.model.weight_bytes() / 1_000_000,
        bench.workers.level(),
    );
    bench.read(context)?;
    bench.decode(context)?;
    bench.verify(context)
}

/// The level that prints as `name`.
fn level(name: &str) -> Result<Level, String> {
    let mut levels = Level::available().into_iter();
    levels
        .find(|level| level.to_string() == name)
        .ok_or_else(|| format!("no level {name}: this machine has {:?}", Level::available()))
}

impl Bench {
    fn forward(
        &mut self,
        start: usize,
        end: usize,
        logits: LogitsFor,
    ) -> Result<Duration, Box<dyn Error>> {
        #[expect(clippy::disallowed_methods, reason = "this is the edge: it measures")]
        let began = std::time::Instant::now();
        let span = Span {
            tokens: &self.tokens[start..end],
            start: u32::try_from(start)?,
            blocks: &self.blocks,
            logits,
        };
        self.model.forward(
            &self.workers,
            &mut self.pool,
            &[span],
            &mut (),
            &mut self.logits,
        )?;
        Ok(began.elapsed())
    }

    fn read(&mut self, context: usize) -> Result<(), Box<dyn Error>> {
        let mut total = Duration::ZERO;
        for start in (0..context).step_by(CHUNK) {
            total += self.forward(start, (start + CHUNK).min(context), LogitsFor::None)?;
        }
        println!(
            "prefill {:7.1} tokens/s",
            context as f64 / total.as_secs_f64()
        );
        Ok(())
    }

    fn decode(&mut self, context: usize) -> Result<(), Box<dyn Error>> {
        let mut total = Duration::ZERO;
        for position in context..context + DECODED {
            total += self.forward(position, position + 1, LogitsFor::Last)?;
        }
        println!(
            "decode  {:7.1} tokens/s",
            DECODED as f64 / total.as_secs_f64()
        );
        Ok(())
    }

    fn verify(&mut self, context: usize) -> Result<(), Box<dyn Error>> {
        for drafted in [1, 4, 8, 16, 32] {
            let mut best = [Duration::MAX; 2];
            for _ in 0..3 {
                for (best, logits) in best.iter_mut().zip([LogitsFor::All, LogitsFor::Last]) {
                    *best = self.forward(context, context + drafted, logits)?.min(*best);
                }
            }
            let [verify, prefill] = best.map(|time| time.as_secs_f64() * 1e3);
            println!(
                "verify {drafted:2}: {verify:7.1} ms, {:.2} x prefill of as many",
                verify / prefill
            );
        }
        Ok(())
    }
}
