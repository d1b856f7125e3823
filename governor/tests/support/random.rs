//! A small generator, so that a run is a number: the same seed, the same run, on every machine.

pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// Uniform in 0..1 (xorshift64*).
    pub(crate) fn unit(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let bits = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32;
        f64::from(u32::try_from(bits).unwrap()) / 4_294_967_296.0
    }
}
