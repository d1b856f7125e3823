// The exact tail: what the eight planes leave of every value, as codec.md has it.
//
// It is made in pack.cuh, and restored here: a warp takes a group, a lane every 32nd of its elements. The bits of a section are found
// by a ballot of the lanes that have one and a count of those below; so a tile's groups need only know where they start, which
// sums over the block tell, and a tile only where its sections start: behind those of the tiles before, whose lengths are added
// up. This is bound by arithmetic, not by memory, and has a budget of its own.
#pragma once
#include "format.cuh"
#include "unit.cuh"
#ifdef LYNX_V
#include "v.cuh"
#else
#include "k.cuh"
#endif

#ifdef LYNX_V
#define LYNX_GROUPS 64
#define LYNX_RUNS (LYNX_DIM / 32)
#else
#define LYNX_GROUPS LYNX_DIM
#define LYNX_RUNS 2
#endif
#define LYNX_ELEMENTS (64 * LYNX_DIM)
#define LYNX_WARPS (LYNX_THREADS / 32)

// The least ordinal whose value is at least -x; that of -0 for x = 0. A difference that vanishes is never -0, so that a bound
// computed with its sign turned round needs no case for zero.
LYNX_DEVICE u32 first_ordinal(float x) {
    const u32 bits = __float_as_uint(x);
    return (bits >> 31 ? bits + 0xffffu : ~bits & 0x7fffffffu) >> 16;
}

LYNX_DEVICE u32 from_ordinal(u32 o) { return o & 0x8000u ? o & 0x7fffu : ~o & 0xffffu; }

// The BF16 values of a cell.
struct Rest {
    u32 first, count;

    LYNX_DEVICE Rest() : first(0), count(1) {}
    LYNX_DEVICE Rest(float code, float base, float step) {
        first = first_ordinal(__fmaf_rn(code, -step, -base));
        count = (first_ordinal(__fmaf_rn(__fadd_rn(code, 1.0f), -step, -base)) - first) & 0xffffu;
    }
    // Bits in section A. The count isn't zero.
    LYNX_DEVICE u32 bits() const { return 31 - __clz(count); }
    // Indices below it have no extra bit.
    LYNX_DEVICE u32 brief() const { return (2u << bits()) - count; }
};

LYNX_DEVICE u32 lane_of() { return threadIdx.x & 31; }
LYNX_DEVICE u32 lanes_below() { return (1u << lane_of()) - 1; }
LYNX_DEVICE u32 ballot(bool yes) { return __ballot_sync(LYNX_ALL_LANES, yes); }

// Starts of the tile's groups in the two sections, in bits, and the sections' lengths.
struct Starts {
    u32 *at;  // LYNX_GROUPS, and the whole length

    // Turns lengths into starts; the whole length is behind them. Called by one warp.
    LYNX_DEVICE void sum(u32 groups) const {
        u32 carry = 0;
#pragma unroll 1
        for (u32 first = 0; first < groups; first += 32) {
            u32 group = first + lane_of(), length = group < groups ? at[group] : 0, sum = length;
#pragma unroll
            for (u32 distance = 1; distance < 32; distance *= 2) {
                u32 below = __shfl_sync(LYNX_ALL_LANES, sum, (int)(lane_of() - distance), 32);
                sum += lane_of() >= distance ? below : 0;
            }
            if (group < groups) at[group] = carry + sum - length;
            carry += __shfl_sync(LYNX_ALL_LANES, sum, 31, 32);
        }
        if (lane_of() == 0) at[LYNX_GROUPS] = carry;
    }
    LYNX_DEVICE u32 bytes() const { return (at[LYNX_GROUPS] + 7) / 8; }
};

LYNX_DEVICE Tile tile_at(const Plan &plan, u32 index) {
    const Block &block = plan.block[index / plan.heads];
    Tile tile;
    tile.head = index % plan.heads;
    tile.index = index;
    tile.aligned = block.aligned;
    tile.tokens = block.tokens;
#ifdef LYNX_V
    tile.before = block.before + tile.head * tile.tokens;
#else
    tile.before = block.before + tile.head * ((tile.tokens + 7) / 8);
#endif
    return tile;
}

LYNX_DEVICE u32 groups_of([[maybe_unused]] const Tile &tile) {
#ifdef LYNX_V
    return tile.tokens;
#else
    return LYNX_DIM;
#endif
}

LYNX_DEVICE u32 params_at(const Unit &unit, const Tile &tile, u32 group) {
#ifdef LYNX_V
    const u32 first = tile.before;
#else
    const u32 first = tile.index * LYNX_DIM;
#endif
    return reinterpret_cast<const u32 *>(unit.head)[first + group];
}

LYNX_DEVICE bool has_lane([[maybe_unused]] const Tile &tile, [[maybe_unused]] u32 run) {
#ifdef LYNX_V
    return true;
#else
    return run * 32 + lane_of() < tile.tokens;
#endif
}

// Calls `f(group, values)` for each of the warp's groups; what it leaves as the lane's elements of it is stored, if asked.
template <bool STORE, class F>
LYNX_DEVICE void for_groups(const Plan &plan, const Unit &unit, const Tile &tile, F f) {
    const u32 warp = threadIdx.x / 32, position = plan.block[tile.index / plan.heads].position;
#ifdef LYNX_V
#pragma unroll 1
    for (u32 token = warp; token < tile.tokens; token += LYNX_WARPS) {
        u16 *row = element(plan, unit, position + token, tile.head, lane_of());
        u32 values[LYNX_RUNS];
#pragma unroll
        for (u32 run = 0; run < LYNX_RUNS; run++) values[run] = 0;
        f(token, values);
#pragma unroll
        for (u32 run = 0; run < LYNX_RUNS; run++)
            if (STORE) row[run * 32] = from_bf16(values[run]) & 0xffffu;
    }
#else
    // Eight channels at a time, which are 16 bytes of a token.
#pragma unroll 1
    for (u32 channel = warp * 8; channel < LYNX_DIM; channel += LYNX_WARPS * 8) {
        u16 *row[LYNX_RUNS];
        u32 pairs[LYNX_RUNS][4];
#pragma unroll
        for (u32 run = 0; run < LYNX_RUNS; run++) {
            u32 token = min(run * 32 + lane_of(), tile.tokens - 1);
            row[run] = element(plan, unit, position + token, tile.head, channel);
#pragma unroll
            for (u32 pair = 0; pair < 4; pair++) pairs[run][pair] = 0;
        }
// A loop, as eight copies of `f` are too much code: the elements move down by one at each turn, and what `f` leaves enters at
// the top.
#pragma unroll 1
        for (u32 c = 0; c < 8; c++) {
            u32 values[LYNX_RUNS];
#pragma unroll
            for (u32 run = 0; run < LYNX_RUNS; run++) values[run] = 0;
            f(channel + c, values);
#pragma unroll
            for (u32 run = 0; run < LYNX_RUNS; run++) {
                pairs[run][0] = __byte_perm(pairs[run][0], pairs[run][1], 0x5432);
                pairs[run][1] = __byte_perm(pairs[run][1], pairs[run][2], 0x5432);
                pairs[run][2] = __byte_perm(pairs[run][2], pairs[run][3], 0x5432);
                pairs[run][3] = __byte_perm(pairs[run][3], values[run], 0x5432);
            }
        }
#pragma unroll
        for (u32 run = 0; run < LYNX_RUNS; run++)
            if (STORE && has_lane(tile, run))
                store8(row[run], make_uint4(pairs[run][0], pairs[run][1], pairs[run][2], pairs[run][3]));
    }
#endif
}

// A tile's codes, where a decoder has them.
struct Codes {
#ifdef LYNX_V
    const u8 *planes[8];

    LYNX_DEVICE Codes(const Plan &plan, const Unit &unit, const Tile &tile) {
#pragma unroll
        for (u32 p = 0; p < 8; p++) planes[p] = Plane(plan, tile, p).at(unit);
    }
    LYNX_DEVICE u32 operator()(u32 token, u32 run) const {
        u32 code = 0;
#pragma unroll
        for (u32 p = 0; p < 8; p++) {
            u32 piece = *reinterpret_cast<const u32 *>(planes[p] + token * LYNX_WORD_BYTES + run * 4);
            code = code << 1 | (piece >> lane_of() & 1);
        }
        return code;
    }
#else
    Words words;
    const u16 *places;

    LYNX_DEVICE u32 operator()(u32 channel, u32 run) const {
        u32 code = 0;
#pragma unroll
        for (u32 p = 0; p < 8; p++) code = code << 1 | (words.half(places[p * LYNX_DIM + channel], run) >> lane_of() & 1);
        return code;
    }
#endif
};

LYNX_DEVICE u32 bit_at(const u8 *section, u32 at) { return section[at >> 3] >> (at & 7) & 1; }

// The lane's rests of a group, one of 1 value where there is no element.
LYNX_DEVICE void rests_of(const Unit &unit, const Tile &tile, const Codes &codes, u32 group, Rest (&rests)[LYNX_RUNS]) {
    const u32 params = params_at(unit, tile, group);
    const float base = base_of(params), step = high_half(params);
#pragma unroll
    for (u32 run = 0; run < LYNX_RUNS; run++)
        rests[run] = params != 0 && has_lane(tile, run) ? Rest((float)codes(group, run), base, step) : Rest();
}

// The k-bit values of a group.
LYNX_DEVICE void read_values(const u8 *section, u32 at, const Rest (&rests)[LYNX_RUNS], u32 (&values)[LYNX_RUNS]) {
#pragma unroll
    for (u32 run = 0; run < LYNX_RUNS; run++) values[run] = 0;
    u32 any = 1;
    for (u32 j = 0; any; j++) {
        any = 0;
#pragma unroll
        for (u32 run = 0; run < LYNX_RUNS; run++) {
            const bool has = rests[run].bits() > j;
            const u32 lanes = ballot(has);
            if (has) values[run] |= bit_at(section, at + __popc(lanes & lanes_below())) << j;
            at += __popc(lanes);
            any |= lanes;
        }
    }
}

// Where the tile's sections start: behind the table and the sections of the tiles before.
LYNX_DEVICE void add_lengths(const Unit &unit, u32 index, u32 *sum) {
    u32 own = 0;
#pragma unroll 1
    for (u32 i = threadIdx.x; i < index; i += LYNX_THREADS) {
        u32 entry = reinterpret_cast<const u32 *>(unit.tail)[i];
        own += (entry & 0xffff) + (entry >> 16);
    }
    own = __reduce_add_sync(LYNX_ALL_LANES, own);
    if (lane_of() == 0) atomicAdd(sum, own);
}

LYNX_DEVICE void decode_tail(const Plan &plan, const Unit &unit) {
    __shared__ u32 starts_a[LYNX_GROUPS + 1], starts_b[LYNX_GROUPS + 1];
    __shared__ u32 before, empty;
    const Tile tile = tile_at(plan, blockIdx.y * plan.heads + blockIdx.x);
    const u32 tiles = plan.blocks * plan.heads, groups = groups_of(tile);
    if (threadIdx.x == 0) before = tiles * 4, empty = 0;
#ifdef LYNX_V
    const Codes codes(plan, unit, tile);
    __syncthreads();
#else
    __shared__ uint4 shared[LYNX_DIM * 4];
    __shared__ Step steps[8];
    const Codes codes = {{shared}, unit.places + tile.head * 8 * LYNX_DIM};
    find_steps(plan, unit, tile, steps);
    __syncthreads();
    move_words<false, false>(plan, unit, tile, codes.words, steps, BlockSums());
#endif
    add_lengths(unit, tile.index, &before);
    __syncthreads();

    for_groups<false>(plan, unit, tile, [&](u32 group, u32(&)[LYNX_RUNS]) {
        Rest rests[LYNX_RUNS];
        rests_of(unit, tile, codes, group, rests);
        u32 bits = 0;
        bool none = false;
#pragma unroll
        for (u32 run = 0; run < LYNX_RUNS; run++) {
            none |= rests[run].count == 0;
            bits += rests[run].count == 0 ? 0 : rests[run].bits();
        }
        bits = __reduce_add_sync(LYNX_ALL_LANES, bits);
        if (none || !are_valid(params_at(unit, tile, group))) {
            atomicMin(&unit.status[1], tile.index << 16 | group);
            atomicOr(&empty, 1);
        }
        if (lane_of() == 0) starts_a[group] = bits;
    });
    __syncthreads();
    if (threadIdx.x < 32) Starts{starts_a}.sum(groups);
    __syncthreads();
    const u32 entry = reinterpret_cast<const u32 *>(unit.tail)[tile.index], a = entry & 0xffff, b = entry >> 16;
    const bool last = tile.index == tiles - 1;
    const u64 end = (u64)before + a + b;
    // The same for all threads of the block.
    bool fits = Starts{starts_a}.bytes() == a && (last ? end == unit.tail_bytes : end <= unit.tail_bytes);
    if (empty || !fits) {
        if (threadIdx.x == 0 && !fits) atomicMin(&unit.status[3], tile.index);
        return;
    }
    const u8 *section_a = unit.tail + before, *section_b = section_a + a;
    for_groups<false>(plan, unit, tile, [&](u32 group, u32(&values)[LYNX_RUNS]) {
        Rest rests[LYNX_RUNS];
        rests_of(unit, tile, codes, group, rests);
        read_values(section_a, starts_a[group], rests, values);
        u32 extras = 0;
#pragma unroll
        for (u32 run = 0; run < LYNX_RUNS; run++)
            extras += __popc(ballot(values[run] >= rests[run].brief()));
        if (lane_of() == 0) starts_b[group] = extras;
    });
    __syncthreads();
    if (threadIdx.x < 32) Starts{starts_b}.sum(groups);
    __syncthreads();
    if (Starts{starts_b}.bytes() != b) {
        if (threadIdx.x == 0) atomicMin(&unit.status[3], tile.index);
        return;
    }
    for_groups<true>(plan, unit, tile, [&](u32 group, u32(&values)[LYNX_RUNS]) {
        Rest rests[LYNX_RUNS];
        rests_of(unit, tile, codes, group, rests);
        read_values(section_a, starts_a[group], rests, values);
        u32 at = starts_b[group];
#pragma unroll
        for (u32 run = 0; run < LYNX_RUNS; run++) {
            const u32 brief = rests[run].brief();
            const bool is_long = values[run] >= brief;
            const u32 lanes = ballot(is_long);
            u32 found = values[run];
            if (is_long) found = found * 2 + bit_at(section_b, at + __popc(lanes & lanes_below())) - brief;
            at += __popc(lanes);
            values[run] = from_ordinal((rests[run].first + found) & 0xffffu) & 0xffffu;
        }
    });
}
