// The mathematics of the format: a group's parameters and cells, as kernels/src/group.rs has them, bit for bit.
#pragma once
#include "device.cuh"

// Magnitudes from 2^120 up, infinities and NaN have these bits or more (sign removed): such groups are escaped.
#define LYNX_HUGE 0x7b80u
#define LYNX_LEAST_STEP 0x0d80u  // 2^-100
#define LYNX_STEP_LIMIT 0x7880u  // 2^114

// 2^23: a number added to it is rounded to a whole one, which stands in the low bits.
#define LYNX_MAGIC 8388608.0f

LYNX_DEVICE float low_half(u32 pair) { return __uint_as_float(pair << 16); }
LYNX_DEVICE float high_half(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }

// A group's 256 cells: cell c starts at base + c * step. An estimate of x's code is scale * x + shift, rounded.
struct Cells {
    float base, step, scale, shift;
};

// x / 240, correctly rounded where the quotient is at least 2^-100: the quotient by the rounded reciprocal, corrected once by
// its exact remainder. A test compares it with the division for every mantissa.
LYNX_DEVICE float over_240(float x) {
    const float reciprocal = 1.0f / 240.0f;
    float quotient = __fmul_rn(x, reciprocal);
    return __fmaf_rn(__fmaf_rn(-240.0f, quotient, x), reciprocal, quotient);
}

// The parameters (lo, step) of a group from its minimum and its negated maximum; zero for an escaped group.
LYNX_DEVICE u32 params_of(u32 extremes) {
    bool huge = (extremes & 0x7fffu) >= LYNX_HUGE || (extremes & 0x7fff0000u) >= LYNX_HUGE << 16;
    float min = low_half(extremes), max = -high_half(extremes);
    float magnitude = fmaxf(fabsf(min), fabsf(max));
    float step = fmaxf(over_240(__fadd_rn(max, -min)), __fmul_rn(magnitude, 1.0f / 65536.0f));
    step = fmaxf(step, __uint_as_float(LYNX_LEAST_STEP << 16));
    u32 rounded_up = (__float_as_uint(step) + 0xffffu) & 0xffff0000u;
    return huge ? 0u : (extremes & 0xffffu) | rounded_up;
}

LYNX_DEVICE float base_of(u32 params) { return __fmaf_rn(-8.0f, high_half(params), low_half(params)); }

// With the shift's 0.5625, rounding gives the code or one less, and `code` decides which by one comparison. What the
// estimate's errors may add up to is 0.058: the shift is below 2^17, so that its rounding adds at most 2^-8, and that of
// bounds, which lie 2^7 units in the last place apart or more, as much again.
LYNX_DEVICE Cells cells_of(u32 params) {
    Cells cells;
    cells.base = base_of(params);
    cells.step = high_half(params);
    cells.scale = about_reciprocal(cells.step);
    cells.shift = __fmaf_rn(-cells.base, cells.scale, -0.5625f);
    return cells;
}

// The code of x, in the low byte.
LYNX_DEVICE u32 code(float x, const Cells &cells) {
    float estimate = __fadd_rn(__fmaf_rn(x, cells.scale, cells.shift), LYNX_MAGIC);
    float next = __fmaf_rn(__fadd_rn(estimate, 1.0f - LYNX_MAGIC), cells.step, cells.base);
    return __float_as_uint(estimate) + (x >= next ? 1u : 0u);
}

// The low bytes of four codes.
LYNX_DEVICE u32 pack4(u32 a, u32 b, u32 c, u32 d) {
    return __byte_perm(__byte_perm(a, b, 0x0040), __byte_perm(c, d, 0x0040), 0x5410);
}

// The reconstruction of byte `i` of `codes`, a code with its midpoint's bit set; `zero` is what stands for zero above
// 2^23 in it: half a step less where all eight bits are known.
template <int I> LYNX_DEVICE float midpoint(u32 codes, float zero, float step, float base) {
    float c = __uint_as_float(__byte_perm(codes, 0x4b000000u, 0x7550 + I));
    return __fmaf_rn(__fadd_rn(c, -zero), step, base);
}

#define LYNX_WHOLE_ZERO LYNX_MAGIC
#define LYNX_HALF_ZERO 8388607.5f

// Whether an encoder can have made these parameters.
LYNX_DEVICE bool are_valid(u32 params) {
    u32 lo = params & 0x7fffu, step = params >> 16;
    bool in_range = lo < LYNX_HUGE && step >= LYNX_LEAST_STEP && step < LYNX_STEP_LIMIT;
    return params == 0 || (in_range && high_half(params) >= __fmul_rn(fabsf(low_half(params)), 1.0f / 65536.0f));
}
