//! The kernels on a GPU beside a copy of the same bytes; and what sharing the GPU with another process costs.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use lynx_cuda::{Choice, Device, Images, Options, Pass, Pinned, Trial, choose};
use lynx_kernels::{Blocks, Codec, Cuts, Kind, KvShape, Profile, RawTokens, UnitBuffer, UnitPlan};
use lynx_units::Width;
use serde::Serialize;

use crate::args;

const SHAPE: KvShape = KvShape {
    layers: 1,
    kv_heads: 8,
    head_dim: 128,
};
const TOKENS: u32 = 512;
/// How long the other process copies; in a rehearsal.
const ENGINE_SECONDS: [u32; 2] = [4, 1];

/// One measurement.
#[derive(Clone, Debug, Serialize)]
pub struct GpuRow {
    /// `split`, `merge`, `tail` or `restore`; `processor` for a copy to the host and a split with its tail there;
    /// `engine_alone` and `engine_beside_splits` for the copies of another process.
    pub op: &'static str,
    /// The GPU.
    pub device: String,
    /// `K`, `V`, or nothing.
    pub kind: &'static str,
    /// Planes written or read.
    pub planes: usize,
    /// BF16 bytes passed over in one round.
    pub buffer_bytes: usize,
    /// BF16 bytes per second, in units of 2^30.
    pub gib_per_s: f64,
    /// Bytes moved, read and written, per second, in units of 2^30.
    pub moved_gib_per_s: f64,
    /// The same of a copy of the values within the GPU.
    pub copy_gib_per_s: f64,
    /// The first of these as a fraction of the second.
    pub ratio: f64,
    /// Whether MPS shares the GPU.
    pub mps: bool,
}

/// Measures.
///
/// # Errors
/// Where there is no GPU, what one made isn't what the processor makes, or a call fails.
pub fn run(args: &args::Gpu, out: &mut dyn Write) -> Result<Vec<GpuRow>> {
    let mut options = Options::default();
    if let Some(kernels) = &args.kernels {
        options.kernels.clone_from(kernels);
    }
    let choice = choose(&options);
    let (device, images) = match choice {
        Choice::Gpu(device, images) => (device, images),
        Choice::Processor(_) => bail!("there is no GPU to measure: KV is coded {choice}"),
    };
    let (units, rounds, tries) = match (args.rehearse, args.output.quick) {
        (true, _) => (1, 1, 1),
        (false, true) => (32, 3, 5),
        (false, false) => (1024, 20, 5),
    };
    let bench = Bench {
        device,
        images,
        units,
        rounds,
        tries,
    };
    if let Some(seconds) = args.engine_seconds {
        writeln!(
            out,
            "{}",
            bench.engine(Duration::from_secs(seconds.into()))?
        )?;
        return Ok(Vec::new());
    }
    let mut rows = Vec::new();
    for kind in Kind::ALL {
        bench.kind(kind, &mut rows)?;
    }
    if args.sharing {
        bench.sharing(args, &mut rows)?;
    }
    Ok(rows)
}

struct Bench {
    device: Device,
    images: Images,
    units: u32,
    /// Of one try; the best of all tries is told.
    rounds: u32,
    tries: u32,
}

impl Bench {
    fn plan(kind: Kind) -> Result<UnitPlan> {
        let width = Width::from_eighths(32).context("four bits are a width")?;
        let cuts = Cuts::new(width, 4)?;
        Ok(UnitPlan::new(
            SHAPE,
            kind,
            0..TOKENS,
            RawTokens::none(),
            cuts,
        )?)
    }

    fn trial(&self, kind: Kind) -> Result<(Trial, UnitBuffer)> {
        let plan = Self::plan(kind)?;
        let profile = Profile::uniform(SHAPE)?;
        let order = profile.layer(0);
        let values = values(kind);
        let mut expected = UnitBuffer::default();
        Codec::detect().split(&plan, order, &values, &mut expected);
        Codec::detect().encode_tail(&plan, &values, &mut expected.tail);
        let mut trial = Trial::new(
            &self.device,
            &self.images,
            (&plan, order),
            &values,
            self.units,
        )?;
        trial.run(Pass::Split, 1)?;
        trial.run(Pass::Tail, 1)?;
        let found = trial.segments(order, self.units - 1)?;
        ensure!(
            found == expected,
            "what the GPU made of {kind:?} isn't what the processor makes"
        );
        trial.run(Pass::Restore, 1)?;
        ensure!(
            trial.is_restored()?,
            "what the GPU restored of {kind:?} isn't what was split"
        );
        Ok((trial, expected))
    }

    fn kind(&self, kind: Kind, rows: &mut Vec<GpuRow>) -> Result<()> {
        let (mut trial, _) = self.trial(kind)?;
        let passes = [
            ("split", Pass::Split, 8),
            ("merge", Pass::Merge(1), 4),
            ("merge", Pass::Merge(5), 8),
            ("tail", Pass::Tail, 8),
            ("restore", Pass::Restore, 8),
        ];
        for (op, pass, planes) in passes {
            let (mut best, mut best_copy) = (Duration::MAX, Duration::MAX);
            for _ in 0..self.tries {
                best = best.min(self.time(&mut trial, pass)?);
                best_copy = best_copy.min(self.time(&mut trial, Pass::Copy)?);
            }
            rows.push(self.row(op, kind, planes, (&trial, pass), [best, best_copy]));
        }
        rows.push(self.processor(kind, &trial)?);
        Ok(())
    }

    fn time(&self, trial: &mut Trial, pass: Pass) -> Result<Duration> {
        let start = now();
        trial.run(pass, self.rounds)?;
        Ok(start.elapsed() / self.rounds)
    }

    fn row(
        &self,
        op: &'static str,
        kind: Kind,
        planes: usize,
        (trial, pass): (&Trial, Pass),
        [time, copy]: [Duration; 2],
    ) -> GpuRow {
        let moved = gib(trial.moved(pass), time);
        let copied = gib(trial.moved(Pass::Copy), copy);
        GpuRow {
            op,
            device: self.device.name().to_owned(),
            kind: name(kind),
            planes,
            buffer_bytes: trial.values(),
            gib_per_s: gib(trial.values(), time),
            moved_gib_per_s: moved,
            copy_gib_per_s: copied,
            ratio: moved / copied,
            mps: has_mps(),
        }
    }

    /// To the host, and there a split with its tail by one thread.
    fn processor(&self, kind: Kind, trial: &Trial) -> Result<GpuRow> {
        let plan = Self::plan(kind)?;
        let profile = Profile::uniform(SHAPE)?;
        let values = values(kind);
        let units = self.units.min(64);
        let bytes = plan.bf16_bytes() * units as usize;
        let mut pinned = Pinned::new(&self.device, bytes)?;
        let mut unit = UnitBuffer::default();
        let start = now();
        pinned = trial.to_host(pinned, bytes)?;
        for _ in 0..units {
            Codec::detect().split(&plan, profile.layer(0), &values, &mut unit);
            Codec::detect().encode_tail(&plan, &values, &mut unit.tail);
        }
        let time = start.elapsed();
        drop(pinned);
        Ok(GpuRow {
            op: "processor",
            device: self.device.name().to_owned(),
            kind: name(kind),
            planes: 8,
            buffer_bytes: bytes,
            gib_per_s: gib(bytes, time),
            moved_gib_per_s: 0.0,
            copy_gib_per_s: 0.0,
            ratio: 0.0,
            mps: has_mps(),
        })
    }

    /// What an engine's part does: copies for so long; how many a second.
    fn engine(&self, time: Duration) -> Result<f64> {
        let (mut trial, _) = self.trial(Kind::K)?;
        let start = now();
        let mut copies = 0u32;
        while start.elapsed() < time {
            trial.run(Pass::Copy, 1)?;
            copies += 1;
        }
        Ok(f64::from(copies) / start.elapsed().as_secs_f64())
    }

    /// Another process copies, alone and beside splits of this one.
    fn sharing(&self, args: &args::Gpu, rows: &mut Vec<GpuRow>) -> Result<()> {
        let (mut trial, _) = self.trial(Kind::K)?;
        let alone = finish(start_engine(args)?)?;
        let mut engine = start_engine(args)?;
        let mut splits = 0u32;
        let start = now();
        while engine.try_wait()?.is_none() {
            trial.run(Pass::Split, 1)?;
            splits += 1;
        }
        let time = start.elapsed() / splits.max(1);
        let beside = finish(engine)?;
        for (op, rate) in [("engine_alone", alone), ("engine_beside_splits", beside)] {
            let copy = Duration::from_secs_f64(1.0 / rate.max(f64::MIN_POSITIVE));
            rows.push(self.row(op, Kind::K, 0, (&trial, Pass::Copy), [copy, copy]));
        }
        rows.push(self.row(
            "split_beside_engine",
            Kind::K,
            8,
            (&trial, Pass::Split),
            [time, time],
        ));
        Ok(())
    }
}

fn start_engine(args: &args::Gpu) -> Result<std::process::Child> {
    let program = std::env::current_exe().context("finding this program")?;
    let mut command = Command::new(program);
    command
        .args(["bench", "gpu", "--engine-seconds"])
        .arg(ENGINE_SECONDS[usize::from(args.rehearse)].to_string());
    if args.rehearse {
        command.arg("--rehearse");
    }
    if args.output.quick {
        command.arg("--quick");
    }
    if let Some(kernels) = &args.kernels {
        command.arg("--kernels").arg(kernels);
    }
    Ok(command.stdout(Stdio::piped()).spawn()?)
}

/// What the other process says.
fn finish(engine: std::process::Child) -> Result<f64> {
    let output = engine.wait_with_output()?;
    if !output.status.success() {
        bail!("the other process failed: {}", output.status);
    }
    let said = String::from_utf8(output.stdout)?;
    said.trim()
        .parse()
        .context("the other process said no number")
}

/// Whether the control process of MPS has its pipes where clients look for them.
fn has_mps() -> bool {
    let told = std::env::var_os("CUDA_MPS_PIPE_DIRECTORY").map(PathBuf::from);
    let place = told.unwrap_or_else(|| std::env::temp_dir().join("nvidia-mps"));
    place.join("control").exists()
}

const fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::K => "K",
        Kind::V => "V",
    }
}

#[expect(clippy::disallowed_methods, reason = "a bench is about real time")]
fn now() -> Instant {
    Instant::now()
}

fn gib(bytes: usize, time: Duration) -> f64 {
    bytes as f64 / time.as_secs_f64().max(f64::MIN_POSITIVE) / f64::from(1 << 30)
}

/// Normally distributed, roughly: sums of uniform numbers.
fn values(kind: Kind) -> Blocks {
    let mut blocks = Blocks::new(SHAPE, kind, 0..TOKENS);
    let mut state = crate::bench::SEED | 1;
    for bits in blocks.data_mut() {
        let mut sum = -2.0;
        for _ in 0..4 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            sum += f32::from(u16::try_from(state >> 48).unwrap_or(0)) / 65536.0;
        }
        *bits = half::bf16::from_f32(sum).to_bits();
    }
    blocks
}

/// Prints the rows.
///
/// # Errors
/// Those of `out`.
pub fn print(out: &mut dyn Write, rows: &[GpuRow]) -> io::Result<()> {
    let Some(first) = rows.first() else {
        return Ok(());
    };
    writeln!(
        out,
        "{}, MPS {}",
        first.device,
        if first.mps { "on" } else { "off" }
    )?;
    writeln!(
        out,
        "{:<22} {:<2} {:>6} {:>12} {:>12} {:>12} {:>6}",
        "op", "of", "planes", "BF16 GiB/s", "moved GiB/s", "copy GiB/s", "ratio"
    )?;
    for row in rows {
        writeln!(
            out,
            "{:<22} {:<2} {:>6} {:>12.1} {:>12.1} {:>12.1} {:>6.2}",
            row.op,
            row.kind,
            row.planes,
            row.gib_per_s,
            row.moved_gib_per_s,
            row.copy_gib_per_s,
            row.ratio
        )?;
    }
    Ok(())
}
