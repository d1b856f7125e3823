//! FP16 as the kernels take it and leave it: values are coded as BF16, so that FP16 is rounded when read.

use half::{bf16, f16};

/// What is not a number, in either type.
const NAN: u16 = 0x7fff;

/// The nearest BF16 of an FP16, ties to even.
pub fn bf16_of_fp16(bits: u16) -> u16 {
    let value = f16::from_bits(bits);
    if value.is_nan() {
        NAN
    } else {
        bf16::from_f32(value.to_f32()).to_bits()
    }
}

/// The nearest FP16 of a BF16, ties to even; of a finite one the largest FP16 where it is beyond that.
pub fn fp16_of_bf16(bits: u16) -> u16 {
    let value = bf16::from_bits(bits);
    let most = f16::MAX.to_f32();
    if value.is_nan() {
        NAN
    } else if value.is_infinite() {
        f16::from_f32(value.to_f32()).to_bits()
    } else {
        f16::from_f32(value.to_f32().clamp(-most, most)).to_bits()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_bits_of_mantissa_come_back_and_what_is_too_large_is_saturated() {
        for bits in 0..=u16::MAX {
            // Once rounded it stays, even where rounding has carried it beyond the largest FP16.
            let there = bf16_of_fp16(bits);
            assert_eq!(bf16_of_fp16(fp16_of_bf16(there)), there);
        }
        assert_eq!(fp16_of_bf16(0x7f00), f16::MAX.to_bits());
        assert_eq!(fp16_of_bf16(0xff80), f16::NEG_INFINITY.to_bits());
        assert_eq!(
            bf16_of_fp16(f16::from_f32(1.004).to_bits()),
            bf16::from_f32(1.0).to_bits()
        );
        assert_eq!((bf16_of_fp16(0xfe00), fp16_of_bf16(0xffc0)), (NAN, NAN));
    }
}
