// The checksums of segments, added up as their words pass: kernels/src/checksum.rs has the definition.
//
// It is a sum of independent terms, so that a tile adds those of its own words and nobody waits for anybody: lanes to a warp's sum,
// warps to the block's in shared memory, blocks to the unit's. A tile whose pieces aren't whole 64-bit words leaves them to
// `lynx_sum`, as raw tokens and tails are left to it. The host mixes in the length and compares.
#pragma once
#include "unit.cuh"

#define LYNX_POSITION 0x9e3779b97f4a7c15ull
#define LYNX_SEGMENTS 9  // the head and the steps

// A thread's terms.
struct Sum {
    u64 products = 0, words = 0;

    // The position of the word after `index` others.
    LYNX_DEVICE static u64 position(u32 index) { return (index + 1ull) * LYNX_POSITION; }

    LYNX_DEVICE void add(u64 position, u32 low, u32 high) {
        products += (u64)(low ^ (u32)position) * (high ^ (u32)(position >> 32));
        words += (u64)low + high;
    }
    // A word and itself with its halves exchanged are the sum of its halves, twice.
    LYNX_DEVICE u64 all() const { return products + words + (words << 32); }
};

// A block's sums of a unit's segments, in three pieces of 22, 22 and 20 bits: 1024 terms of one overflow nothing.
struct BlockSums {
#ifndef LYNX_BARE
    u32 (*pieces)[3];

    LYNX_DEVICE void clear() const {
        if (threadIdx.x < LYNX_SEGMENTS * 3) pieces[threadIdx.x / 3][threadIdx.x % 3] = 0;
    }
    // All have added.
    LYNX_DEVICE void meet() const { __syncthreads(); }

    LYNX_DEVICE void add(u32 segment, u32 a, u32 b, u32 c) const {
        add_shared(&pieces[segment][0], a);
        add_shared(&pieces[segment][1], b);
        add_shared(&pieces[segment][2], c);
    }
    LYNX_DEVICE static u32 piece(u64 sum, int i) { return (u32)(sum >> 22 * i) & 0x3fffffu; }

    // Adds one lane's.
    LYNX_DEVICE void add_lane(u32 segment, u64 sum) const { add(segment, piece(sum, 0), piece(sum, 1), piece(sum, 2)); }

    // Adds those of all lanes of the warp.
    LYNX_DEVICE void add_warp(u32 segment, u64 sum) const {
        const u32 a = __reduce_add_sync(LYNX_ALL_LANES, piece(sum, 0));
        const u32 b = __reduce_add_sync(LYNX_ALL_LANES, piece(sum, 1));
        const u32 c = __reduce_add_sync(LYNX_ALL_LANES, piece(sum, 2));
        if ((threadIdx.x & 31) == 0) add(segment, a, b, c);
    }

    // Adds two sums of planes of each lane, to steps that are those of the lanes with the same two lowest bits.
    LYNX_DEVICE void add_planes(u64 low, u32 step_low, u64 high, u32 step_high) const {
        const u32 lane = threadIdx.x & 31;
        const bool upper = lane & 4;
        u64 sum = (upper ? high : low) + __shfl_xor_sync(LYNX_ALL_LANES, upper ? low : high, 4);
        sum += __shfl_xor_sync(LYNX_ALL_LANES, sum, 8);
        sum += __shfl_xor_sync(LYNX_ALL_LANES, sum, 16);
        if (lane < 8) add_lane((upper ? step_high : step_low) + 1, sum);
    }

    // Hands the block's sums on; after a barrier.
    LYNX_DEVICE void hand_on(const Plan &plan, const Unit &unit) const {
        const u32 segment = threadIdx.x;
        if (segment <= plan.steps) {
            const u32 *sum = pieces[segment];
            add_to(&sums_of(unit)[segment], sum[0] + ((u64)sum[1] << 22) + ((u64)sum[2] << 44));
        }
    }
#else
    // Nobody uses what is given, and the compiler drops it.
    LYNX_DEVICE void clear() const {}
    LYNX_DEVICE void meet() const {}
    LYNX_DEVICE void add_warp(u32, u64) const {}
    LYNX_DEVICE void add_planes(u64, u32, u64, u32) const {}
    LYNX_DEVICE void hand_on(const Plan &, const Unit &) const {}
#endif
};

// A warp's sum of words that ascend through the steps, handed on where a step ends.
struct StepSum {
    u32 step;
    u64 sum = 0;

    LYNX_DEVICE explicit StepSum(u32 first) : step(first) {
#ifndef LYNX_BARE
        step = __shfl_sync(LYNX_ALL_LANES, first, 0, 32);
#endif
    }

    // Each lane's terms of the step `of`.
    LYNX_DEVICE void add([[maybe_unused]] const BlockSums &sums, [[maybe_unused]] u32 of, [[maybe_unused]] u64 terms) {
#ifndef LYNX_BARE
        const u32 last = __shfl_sync(LYNX_ALL_LANES, of, 31, 32);
#pragma unroll 1
        while (step != last) {
            sums.add_warp(step + 1, sum + (of == step ? terms : 0));
            sum = 0;
            step++;
        }
        sum += of == step ? terms : 0;
#endif
    }
    // After the last; steps that aren't wanted have `steps`.
    LYNX_DEVICE void end(const BlockSums &sums, u32 steps) const {
        if (step < steps) sums.add_warp(step + 1, sum);
    }
};

#ifdef LYNX_BARE
#define LYNX_SUMS(name) const BlockSums name = {}
#else
#define LYNX_SUMS(name)                                                                                                \
    __shared__ u32 name##_pieces[LYNX_SEGMENTS][3];                                                                    \
    const BlockSums name = {name##_pieces}
#endif

// A piece of a segment whose words are summed by themselves: from a multiple of 8, to one or to the segment's end.
struct Extent {
    u32 segment, from, bytes;
};

struct Extents {
    u32 count;
    Extent extent[20];
};

#define LYNX_TAIL_SUM 9
#define LYNX_ALL_BYTES 0xffffffffu  // of a tail: as many as it has

// Adds up one extent: its blocks of threads are numbered by y.
LYNX_DEVICE void sum_extent(const Extents &extents, const Unit &unit, u32 blocks) {
    const Extent &extent = extents.extent[blockIdx.x];
    const u8 *segment = extent.segment == 0 ? unit.head : extent.segment == LYNX_TAIL_SUM ? unit.tail : unit.step[extent.segment - 1];
    u32 bytes = extent.bytes;
    if (bytes == LYNX_ALL_BYTES) bytes = unit.tail_bytes ? (u32)unit.tail_bytes : unit.status[2];
    const u32 first = extent.from / 8, whole = bytes / 8;
    const uint2 *words = reinterpret_cast<const uint2 *>(segment);
    Sum sum;
#pragma unroll 4
    for (u32 i = blockIdx.y * LYNX_THREADS + threadIdx.x; i < whole; i += blocks * LYNX_THREADS) {
        const uint2 word = words[first + i];
        sum.add(Sum::position(first + i), word.x, word.y);
    }
    if (bytes % 8 > 0 && blockIdx.y == 0 && threadIdx.x == 0) {
        u64 word = 0;
        for (u32 i = 0; i < bytes % 8; i++) word |= (u64)segment[(first + whole) * 8 + i] << 8 * i;
        sum.add(Sum::position(first + whole), (u32)word, (u32)(word >> 32));
    }
    u64 all = sum.all();
#pragma unroll
    for (u32 lanes = 1; lanes < 32; lanes *= 2) all += __shfl_xor_sync(LYNX_ALL_LANES, all, lanes);
    if ((threadIdx.x & 31) == 0) add_to(&sums_of(unit)[extent.segment], all);
}
