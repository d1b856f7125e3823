// What the kernels need of the machine: integers, and the few instructions that CUDA C++ has no name for.
//
// Each instruction written in PTX has a twin in plain C++ for the shim; everything else of CUDA that the kernels call is
// the shim's business. No header of the toolkit is used, so that NVRTC alone compiles the kernels.
#pragma once

#ifdef LYNX_SHIM
#include "cuda.hpp"
#endif

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define LYNX_DEVICE __device__ __forceinline__
#ifdef LYNX_SHIM
#define LYNX_KERNEL static
#else
#define LYNX_KERNEL extern "C" __global__
#endif
#define LYNX_ALL_LANES 0xffffffffu

// The truth tables of three inputs a, b, c, for `lop3`.
#define LYNX_XOR3 0x96
#define LYNX_XOR_AND 0x28  // (a ^ b) & c
#define LYNX_SELECT 0xe4   // c ? a : b, bit by bit

// One LOP3. Left to itself the compiler takes the exchanges of bits apart and needs more instructions.
template <int TABLE> LYNX_DEVICE u32 lop3(u32 a, u32 b, u32 c) {
#ifdef LYNX_SHIM
    u32 r = 0;
    for (int i = 0; i < 8; i++)
        if (TABLE >> i & 1) r |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
    return r;
#else
    u32 r;
    asm("lop3.b32 %0, %1, %2, %3, %4;" : "=r"(r) : "r"(a), "r"(b), "r"(c), "n"(TABLE));
    return r;
#endif
}

// The lesser of each of two pairs of BF16. NaN where either is NaN, and -0 is less than +0: on numbers it is the minimum of
// the ordinals.
LYNX_DEVICE u32 min2(u32 a, u32 b) {
#ifdef LYNX_SHIM
    return shim::min_bf16(a & 0xffff, b & 0xffff) | shim::min_bf16(a >> 16, b >> 16) << 16;
#else
    u32 r;
    asm("min.NaN.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
#endif
}

// As `min2`, the greater.
LYNX_DEVICE u32 max2(u32 a, u32 b) {
#ifdef LYNX_SHIM
    return min2(a ^ 0x80008000u, b ^ 0x80008000u) ^ 0x80008000u;
#else
    u32 r;
    asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
#endif
}

// The nearest BF16 of two numbers, ties to even, `low` in the lower half.
LYNX_DEVICE u32 round2(float low, float high) {
#ifdef LYNX_SHIM
    return shim::round_bf16(low) | shim::round_bf16(high) << 16;
#else
    u32 r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
#endif
}

// About 1 / x, to a few units in the last place; x is normal, and so is its reciprocal.
LYNX_DEVICE float about_reciprocal(float x) {
#ifdef LYNX_SHIM
    return shim::about_reciprocal(x);
#else
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
#endif
}

// Reads 16 bytes that nobody writes meanwhile, and that are read once.
LYNX_DEVICE uint4 read_once(const void *from) {
#ifdef LYNX_SHIM
    return shim::load<uint4>(from);
#else
    uint4 v;
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
        : "l"(from));
    return v;
#endif
}

// Adds to a number in GPU memory; the compiler can't know that it lies there.
LYNX_DEVICE void add_to(u64 *at, u64 number) {
#ifdef LYNX_SHIM
    atomicAdd(at, number);
#else
    asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(at), "l"(number) : "memory");
#endif
}

// Adds to a number in shared memory. Left to itself the compiler looks for lanes with the same address first.
LYNX_DEVICE void add_shared(u32 *at, u32 number) {
#ifdef LYNX_SHIM
    atomicAdd(at, number);
#else
    asm volatile("red.shared.add.u32 [%0], %1;" ::"r"((u32)__cvta_generic_to_shared(at)), "r"(number) : "memory");
#endif
}

// The same number, of which the compiler no longer knows how it was made: it would make what follows from it anew each time.
LYNX_DEVICE u64 made(u64 number) {
#ifndef LYNX_SHIM
    asm("" : "+l"(number));
#endif
    return number;
}

// Tells other blocks a number, after all that this thread wrote before.
LYNX_DEVICE void publish(u32 *at, u32 number) {
#ifdef LYNX_SHIM
    *at = number;
#else
    asm volatile("st.release.gpu.u32 [%0], %1;" ::"l"(at), "r"(number) : "memory");
#endif
}

// What another block has told, if anything.
LYNX_DEVICE u32 see(const u32 *at) {
#ifdef LYNX_SHIM
    if (*at == 0) shim::fail("a block waits for one that has not begun");
    return *at;
#else
    u32 number;
    asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(number) : "l"(at) : "memory");
    return number;
#endif
}

#ifdef LYNX_FP16
// The nearest BF16 of two FP16. NaN becomes 0x7fff.
LYNX_DEVICE u32 half_to_bf16(u32 pair) {
#ifdef LYNX_SHIM
    return round2(shim::half_value(pair & 0xffff), shim::half_value(pair >> 16));
#else
    float low, high;
    asm("{ .reg .f16 a, b; mov.b32 {a, b}, %2; cvt.f32.f16 %0, a; cvt.f32.f16 %1, b; }"
        : "=f"(low), "=f"(high)
        : "r"(pair));
    return round2(low, high);
#endif
}

// The nearest FP16 of two BF16; finite ones above the largest FP16 become that, as a midpoint may lie beyond a group's maximum.
LYNX_DEVICE u32 bf16_to_half(u32 pair) {
    float low = __uint_as_float(pair << 16), high = __uint_as_float(pair & 0xffff0000u);
    if (fabsf(low) > 65504.0f && fabsf(low) < __uint_as_float(0x7f800000)) low = copysignf(65504.0f, low);
    if (fabsf(high) > 65504.0f && fabsf(high) < __uint_as_float(0x7f800000)) high = copysignf(65504.0f, high);
#ifdef LYNX_SHIM
    return shim::round_half(low) | shim::round_half(high) << 16;
#else
    u32 r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
#endif
}
#endif
