use super::{Kernel, LANES, Level, Simd, exp};
use crate::noise::Noise;

/// Applies every operation to the same numbers and collects the results' bits.
struct Everything<'a> {
    a: [f32; LANES],
    b: [f32; LANES],
    c: [f32; LANES],
    words: [u32; LANES],
    out: &'a mut Vec<[u32; LANES]>,
}

impl Kernel for Everything<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (a, b, c) = (s.load(&self.a), s.load(&self.b), s.load(&self.c));
        let halves = self.words.map(|word| u16::try_from(word >> 16).unwrap());
        let bytes = self.words.map(|word| word.to_le_bytes()[0].cast_signed());
        let mut results = vec![
            s.splat(self.a[3]),
            s.add(a, b),
            s.sub(a, b),
            s.mul(a, b),
            s.div(a, b),
            s.max(a, b),
            s.min(a, b),
            s.mul_add(a, b, c),
            s.widen_f16(&halves.map(|bits| bits & 0xbfff)),
            s.widen_bf16(&halves),
            s.widen_i8(&bytes),
            exp(s, s.mul(a, s.splat(100.0))),
        ];
        results.extend((0..8).map(|index| s.nibble(s.words(&self.words), index)));
        results.extend((0..=LANES).map(|count| s.first(count, a, b)));
        for result in results {
            let mut lanes = [0.0; LANES];
            s.store(result, &mut lanes);
            self.out.push(lanes.map(f32::to_bits));
        }
    }
}

#[test]
fn all_levels_give_the_same_bits() {
    let mut noise = Noise(3);
    for round in 0..2000 {
        let mut numbers = || {
            noise
                .floats()
                .map(|x: f32| if round % 2 == 0 { x } else { x * x * x * 1e-20 })
        };
        let (a, b, c) = (numbers(), numbers(), numbers());
        let words = std::array::from_fn(|_| u32::try_from(noise.next() >> 32).unwrap());
        let all: Vec<_> = Level::available()
            .into_iter()
            .map(|level| {
                let mut out = Vec::new();
                level.run(Everything {
                    a,
                    b,
                    c,
                    words,
                    out: &mut out,
                });
                (level, out)
            })
            .collect();
        for (level, out) in &all {
            assert_eq!(out, &all[0].1, "{level} differs from {}", all[0].0);
        }
    }
}

struct Exponentials<'a>(&'a mut [f32; LANES]);

impl Kernel for Exponentials<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let result = exp(s, s.load(self.0));
        s.store(result, self.0);
    }
}

fn exponentials(mut x: [f32; LANES]) -> [f32; LANES] {
    Level::best().run(Exponentials(&mut x));
    x
}

#[test]
fn the_exponential_is_accurate() {
    for step in -8700_i16..8800 {
        let x = f32::from(step) / 100.0;
        let exact = f64::from(x).exp();
        let [found, ..] = exponentials([x; LANES]);
        let error = (f64::from(found) - exact).abs() / exact;
        assert!(
            error < 2.0 * f64::from(f32::EPSILON),
            "exp({x}) = {found}, exact is {exact}"
        );
    }
}

#[test]
fn the_exponential_stays_finite() {
    let [zero, low, high, lowest, highest, ..] = exponentials({
        let mut x = [0.0; LANES];
        x[1..5].copy_from_slice(&[-87.0, 88.0, f32::NEG_INFINITY, f32::INFINITY]);
        x
    });
    assert_eq!((zero, lowest, highest), (1.0, low, high));
    assert!(low > 0.0 && high.is_finite());
}
