// As much of CUDA as the kernels use, on a CPU: each thread is a fiber, and what a warp does together is a meeting of its 32.
//
// Stricter than a GPU: a warp's lanes must all come to the same call, a block's threads to the same barrier, and a vector must
// lie at a multiple of its size. Between meetings lanes run in a seeded order, one after the other, so that a missing barrier
// shows. It is no model of memory ordering or of time, and atomics are plain.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

#include "launch.hpp"

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __restrict__
// Blocks run one after the other.
#define __shared__ static thread_local

#define threadIdx (shim::current().thread)
#define blockIdx (shim::current().block)
#define gridDim (shim::current().grid)

// Calls are told apart by where they stand in the source.
#define LYNX_SITE (__COUNTER__ + 1)
#define __shfl_xor_sync(mask, value, lanes) shim::shuffle_xor(LYNX_SITE, mask, value, lanes)
#define __shfl_sync(mask, value, lane, width) shim::shuffle(LYNX_SITE, mask, value, lane, width)
#define __ballot_sync(mask, yes) shim::ballot(LYNX_SITE, mask, yes)
#define __reduce_add_sync(mask, value) shim::reduce_add(LYNX_SITE, mask, value)
#define __reduce_or_sync(mask, value) shim::reduce_or(LYNX_SITE, mask, value)
#define __syncthreads() shim::barrier(LYNX_SITE)

struct alignas(8) uint2 {
    uint32_t x, y;
};

// Checks each access: the compiler would split one at an odd address, a GPU faults.
struct alignas(16) uint4 {
    uint32_t x = 0, y = 0, z = 0, w = 0;

    uint4() = default;
    uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) : x(x), y(y), z(z), w(w) {}
    uint4(const uint4 &from) { *this = from; }
    uint4 &operator=(const uint4 &from) {
        shim::check_aligned(this, 16);
        shim::check_aligned(&from, 16);
        x = from.x, y = from.y, z = from.z, w = from.w;
        return *this;
    }
};

inline uint2 make_uint2(uint32_t x, uint32_t y) { return {x, y}; }
inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }

inline uint32_t min(uint32_t a, uint32_t b) { return a < b ? a : b; }

inline uint32_t __popc(uint32_t bits) { return __builtin_popcount(bits); }
inline uint32_t __brev(uint32_t bits) {
    uint32_t reversed = 0;
    for (int i = 0; i < 32; i++) reversed |= (bits >> i & 1) << (31 - i);
    return reversed;
}
// The low word of both, `high` above `low`, shifted down.
inline uint32_t __funnelshift_r(uint32_t low, uint32_t high, uint32_t shift) {
    return static_cast<uint32_t>((static_cast<uint64_t>(high) << 32 | low) >> (shift & 31));
}
inline uint32_t __clz(uint32_t bits) { return bits ? __builtin_clz(bits) : 32; }

inline float __uint_as_float(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

inline uint32_t __float_as_uint(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

// Compiled without contraction, so that nothing else is fused.
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }

// Byte i of the result is the byte of y:x that digit i of the selector names, or its sign eight times.
inline uint32_t __byte_perm(uint32_t x, uint32_t y, uint32_t selector) {
    uint64_t bytes = uint64_t{y} << 32 | x;
    uint32_t result = 0;
    for (int i = 0; i < 4; i++) {
        uint32_t digit = selector >> 4 * i & 15;
        uint32_t byte = bytes >> 8 * (digit & 7) & 0xff;
        if (digit & 8) byte = byte & 0x80 ? 0xff : 0;
        result |= byte << 8 * i;
    }
    return result;
}

inline uint32_t atomicAdd(uint32_t *at, uint32_t addend) {
    uint32_t before = *at;
    *at += addend;
    return before;
}

inline unsigned long long atomicAdd(unsigned long long *at, unsigned long long addend) {
    shim::check_aligned(at, sizeof *at);
    unsigned long long before = *at;
    *at += addend;
    return before;
}

inline uint32_t atomicOr(uint32_t *at, uint32_t bits) {
    uint32_t before = *at;
    *at |= bits;
    return before;
}

inline uint32_t atomicMin(uint32_t *at, uint32_t value) {
    uint32_t before = *at;
    *at = min(before, value);
    return before;
}

namespace shim {

template <class T> T load(const void *from) {
    check_aligned(from, sizeof(T));
    return *static_cast<const T *>(from);
}

constexpr uint32_t BF16_NAN = 0x7fff;

inline bool is_nan_bf16(uint32_t bits) { return (bits & 0x7fff) > 0x7f80; }

// Ascends with the value, -0 before +0.
inline uint32_t ordinal(uint32_t bits) { return bits & 0x8000 ? ~bits & 0xffff : bits | 0x8000; }

inline uint32_t min_bf16(uint32_t a, uint32_t b) {
    if (is_nan_bf16(a) || is_nan_bf16(b)) return BF16_NAN;
    return ordinal(a) < ordinal(b) ? a : b;
}

inline uint32_t round_bf16(float x) {
    if (x != x) return BF16_NAN;
    uint32_t bits = __float_as_uint(x);
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

// Off by up to two units in the last place, as the GPU's may be: one way or the other, as the number will have it.
inline float about_reciprocal(float x) {
    uint32_t bits = __float_as_uint(1.0f / x);
    return __uint_as_float(bits + (bits >> 3) % 5 - 2);
}

// FP16 to a number. Exact.
inline float half_value(uint32_t bits) {
    uint32_t magnitude = bits & 0x7fff, sign = (bits & 0x8000) << 16;
    if (magnitude > 0x7c00) return __uint_as_float(0x7fffffff);
    if (magnitude == 0x7c00) return __uint_as_float(sign | 0x7f800000);
    float x = magnitude < 0x400 ? magnitude * 0x1p-24f : __uint_as_float((magnitude << 13) + (112 << 23));
    return sign ? -x : x;
}

// The nearest FP16, ties to even; infinite above the largest.
inline uint32_t round_half(float x) {
    if (x != x) return 0x7fff;
    uint32_t sign = __float_as_uint(x) >> 16 & 0x8000;
    float magnitude = fabsf(x);
    if (magnitude >= 65520.0f) return sign | 0x7c00;
    // Below the least normal number all have the same distance, which a sum with 0.5 rounds to.
    if (magnitude < 0x1p-14f) return sign | (__float_as_uint(magnitude + 0.5f) - __float_as_uint(0.5f));
    uint32_t bits = __float_as_uint(magnitude);
    return sign | ((bits - (112u << 23) + 0xfff + (bits >> 13 & 1)) >> 13);
}

}  // namespace shim
