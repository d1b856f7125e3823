//! How fast the codec is, beside memcpy of the same bytes in the same loop.
//!
//! Absolute rates say little on a machine that others use too; the ratio to a copy that ran in between says what the
//! codec costs where memory is the limit. One thread; units of a layer of Llama's shape and of `SmolLM2`'s, the latter with its
//! profile's order of K words, with random, normally distributed values.

use std::hint::black_box;
use std::time::{Duration, Instant};

use lynx_agent::profile::BUILT_IN;
use lynx_kernels::{
    Blocks, Codec, Cuts, Kind, KvShape, LayerOrder, Profile, RawTokens, Simd, UnitBuffer, UnitPlan,
    checksum,
};
use serde::Serialize;

const LLAMA: KvShape = KvShape {
    layers: 1,
    kv_heads: 8,
    head_dim: 128,
};
const TOKENS: u32 = 512;

/// One measurement.
#[derive(Clone, Debug, Serialize)]
pub struct CodecRow {
    /// `split`, `merge`, `tail_encode`, `tail_decode` or `checksum`.
    pub op: &'static str,
    /// `avx2` or `avx512` (or `scalar`, on a CPU without them).
    pub simd: &'static str,
    /// `K` or `V`.
    pub kind: &'static str,
    /// Channels a head.
    pub head_dim: usize,
    /// Planes written or read.
    pub planes: u8,
    /// BF16 bytes passed over in one round.
    pub buffer_bytes: usize,
    /// BF16 bytes (for the checksum: bytes) per second, in units of 2^30.
    pub gib_per_s: f64,
    /// The same for memcpy between the rounds.
    pub memcpy_gib_per_s: f64,
    /// The first as a fraction of the second.
    pub ratio: f64,
}

/// Measures every operation at every level that the CPU has. `quick` takes few rounds.
pub fn run(quick: bool) -> Vec<CodecRow> {
    let rounds = if quick { 5 } else { 21 };
    // The scalar level is the reference, and slow: it is measured only where there is no other.
    let fast = [Simd::Avx2, Simd::Avx512]
        .into_iter()
        .filter_map(Codec::with_simd);
    let mut levels: Vec<Codec> = fast.collect();
    if levels.is_empty() {
        levels.push(Codec::detect());
    }
    let mut rows = Vec::new();
    let llama = Profile::uniform(LLAMA).expect("the shape is within the limits");
    let smollm2 = Profile::from_json(BUILT_IN).expect("the profile is part of the program");
    for profile in [llama, smollm2] {
        for kind in Kind::ALL {
            let mut bench = Bench::new(&profile, kind, rounds);
            for &codec in &levels {
                bench.measure(codec, &mut rows);
            }
        }
    }
    rows
}

/// Enough units that nothing stays in a cache.
struct Bench {
    kind: Kind,
    rounds: usize,
    plan: UnitPlan,
    order: LayerOrder,
    sources: Vec<Blocks>,
    sinks: Vec<Blocks>,
    units: Vec<UnitBuffer>,
}

impl Bench {
    fn new(profile: &Profile, kind: Kind, rounds: usize) -> Self {
        let shape = profile.shape();
        let cuts = Cuts::new(lynx_units::Width::from_eighths(32).unwrap_or_default(), 4)
            .expect("four bits are a width");
        let plan = UnitPlan::new(shape, kind, 0..TOKENS, RawTokens::none(), cuts)
            .expect("the shape and the range are constants within the limits");
        let count = (40 << 20) / plan.bf16_bytes();
        let mut sources = vec![Blocks::new(shape, kind, 0..TOKENS); count];
        let mut random = 0x9e37_79b9_7f4a_7c15u64;
        for bits in sources.iter_mut().flat_map(Blocks::data_mut) {
            *bits = normal(&mut random);
        }
        let mut sinks = sources.clone();
        let order = profile.layer(0).clone();
        let mut units = vec![UnitBuffer::default(); count];
        // One round before the clock: segments in place, all pages touched.
        for ((source, sink), unit) in sources.iter().zip(&mut sinks).zip(&mut units) {
            Codec::detect().split(&plan, &order, source, unit);
            Codec::detect().encode_tail(&plan, source, &mut unit.tail);
            sink.data_mut().fill(1);
        }
        Self {
            kind,
            rounds,
            plan,
            order,
            sources,
            sinks,
            units,
        }
    }

    fn measure(&mut self, codec: Codec, rows: &mut Vec<CodecRow>) {
        rows.push(self.row("split", codec, 8, |b, i| {
            codec.split(&b.plan, &b.order, &b.sources[i], &mut b.units[i]);
        }));
        rows.push(self.row("tail_encode", codec, 8, |b, i| {
            codec.encode_tail(&b.plan, &b.sources[i], &mut b.units[i].tail);
        }));
        for steps in [1, 5] {
            rows.push(
                self.row("merge", codec, [4, 5, 6, 7, 8][steps - 1], |b, i| {
                    codec
                        .merge(&b.plan, &b.order, &b.units[i], steps, &mut b.sinks[i])
                        .expect("the segments are those of split");
                }),
            );
        }
        rows.push(self.row("tail_decode", codec, 8, |b, i| {
            codec
                .decode_tail(&b.plan, &b.order, &b.units[i], &mut b.sinks[i])
                .expect("the segments are those of split");
        }));
        if self.kind == Kind::K && self.plan.shape() == LLAMA && codec == Codec::detect() {
            // Over the values, to have as many bytes as the copy.
            let bytes: Vec<Vec<u8>> = self.sources.iter().map(bytes_of).collect();
            rows.push(self.row("checksum", codec, 8, |_, i| {
                black_box(checksum(&bytes[i]));
            }));
        }
    }

    /// Rounds of the operation and of a copy in turns; medians of both.
    fn row(
        &mut self,
        op: &'static str,
        codec: Codec,
        planes: u8,
        mut each: impl FnMut(&mut Self, usize),
    ) -> CodecRow {
        let (mut times, mut copies) = (Vec::new(), Vec::new());
        for _ in 0..self.rounds {
            let start = now();
            for i in 0..self.sources.len() {
                each(self, i);
            }
            times.push(start.elapsed());
            let start = now();
            for (source, sink) in self.sources.iter().zip(&mut self.sinks) {
                sink.data_mut().copy_from_slice(black_box(source.data()));
            }
            copies.push(start.elapsed());
        }
        let buffer_bytes = self.sources.len() * self.plan.bf16_bytes();
        let (gib_per_s, memcpy_gib_per_s) = (rate(buffer_bytes, times), rate(buffer_bytes, copies));
        CodecRow {
            op,
            simd: match codec.simd() {
                Simd::Scalar => "scalar",
                Simd::Avx2 => "avx2",
                Simd::Avx512 => "avx512",
            },
            kind: match self.kind {
                Kind::K => "K",
                Kind::V => "V",
            },
            head_dim: self.plan.shape().head_dim,
            planes,
            buffer_bytes,
            gib_per_s,
            memcpy_gib_per_s,
            ratio: gib_per_s / memcpy_gib_per_s,
        }
    }
}

/// The clock of the bench.
#[expect(clippy::disallowed_methods, reason = "a bench reads the clock itself")]
fn now() -> Instant {
    Instant::now()
}

/// GiB per second at the median time.
#[expect(clippy::cast_precision_loss, reason = "a few digits are shown")]
fn rate(bytes: usize, mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    let median = times[times.len() / 2].as_secs_f64();
    bytes as f64 / median / f64::from(1 << 30)
}

/// A normally distributed BF16: the sum of a hash's bytes, which is close enough.
#[expect(clippy::cast_precision_loss, reason = "a sum of eight bytes")]
fn normal(random: &mut u64) -> u16 {
    *random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
    let mixed = (*random ^ (*random >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let sum: u64 = mixed.to_le_bytes().into_iter().map(u64::from).sum();
    let bits = ((sum as f32 - 1020.0) / 209.0).to_bits();
    u16::try_from(bits >> 16).unwrap_or(0)
}

fn bytes_of(blocks: &Blocks) -> Vec<u8> {
    blocks
        .data()
        .iter()
        .flat_map(|bits| bits.to_le_bytes())
        .collect()
}
