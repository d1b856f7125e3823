// What is tested beside whole kernels: that the shim notices mistakes, and arithmetic for which all inputs can be tried.
#include "cuda.hpp"

namespace {
#include "format.cuh"

uint32_t results[64];

void nothing() {
    results[threadIdx.x] = __shfl_xor_sync(~0u, threadIdx.x, 1);
    __syncthreads();
}

void divergent_shuffle() {
    if (threadIdx.x % 2)
        __shfl_xor_sync(~0u, 1, 1);
    else
        __shfl_xor_sync(~0u, 1, 2);
}

void early_return() {
    if (threadIdx.x == 40) return;
    __syncthreads();
}

void two_barriers() {
    if (threadIdx.x < 32)
        __syncthreads();
    else
        __syncthreads();
}

void misaligned() {
    static uint4 vectors[2];
    results[0] = shim::load<uint4>(reinterpret_cast<char *>(vectors) + 4).x;
}

void no_barrier() {
    static uint32_t written[64];
    written[threadIdx.x] = 0;
    __syncthreads();
    written[threadIdx.x] = threadIdx.x + 1;
    results[threadIdx.x] = written[(threadIdx.x + 1) % 64];
    __syncthreads();
    if (results[threadIdx.x] == 0) shim::fail("a neighbour's value was read before it was written");
}

void (*const PLANTED[])() = {nothing, divergent_shuffle, early_return, two_barriers, misaligned, no_barrier};

}  // namespace

extern "C" const char *lynx_shim_planted(uint32_t which, uint64_t seed) {
    return shim::launch({1, 1, 1}, 64, seed, PLANTED[which]);
}

// All mantissas at two exponents: division by 240 has the same rounding at every other one, down to where numbers are subnormal.
extern "C" uint32_t lynx_shim_unequal_quotients() {
    uint32_t unequal = 0;
    for (uint32_t bits = 0x3f800000; bits < 0x40800000; bits++) {
        float x = __uint_as_float(bits);
        unequal += over_240(x) != x / 240.0f;
    }
    return unequal;
}
