// V: groups are tokens over a head's channels.
//
// Four lanes share a token: lane q has channels 32 i + 8 q .. 8 q + 7 for i = 0, 1, ..., so that a load takes 64 bytes of each of
// eight tokens. Its 8 codes of each are an 8 x 8 matrix of bits; the four lanes' bytes join to 32 bits of a plane for each i,
// which together are whole words of two planes a lane, stored as they are: planes of neighbouring tokens are neighbours.
#pragma once
#include "bits.cuh"
#include "format.cuh"
#include "sum.cuh"
#include "unit.cuh"

#define LYNX_PIECES (LYNX_DIM / 32)

// A token's word of one plane.
struct VWord {
    u32 piece[LYNX_PIECES];
};

LYNX_DEVICE void store_word(u8 *to, const VWord &word) {
    u32 *at = reinterpret_cast<u32 *>(to);
#pragma unroll
    for (int i = 0; i < LYNX_PIECES;) {
        if (LYNX_PIECES % 4 == 0) {
            *reinterpret_cast<uint4 *>(at + i) =
                make_uint4(word.piece[i], word.piece[i + 1], word.piece[i + 2], word.piece[i + 3]);
            i += 4;
        } else if (LYNX_PIECES % 2 == 0) {
            *reinterpret_cast<uint2 *>(at + i) = make_uint2(word.piece[i], word.piece[i + 1]);
            i += 2;
        } else {
            at[i] = word.piece[i];
            i += 1;
        }
    }
}

LYNX_DEVICE void load_word(const u8 *from, VWord &word) {
    const u32 *at = reinterpret_cast<const u32 *>(from);
#pragma unroll
    for (int i = 0; i < LYNX_PIECES;) {
        if (LYNX_PIECES % 4 == 0) {
            uint4 v = read_once(at + i);
            word.piece[i] = v.x, word.piece[i + 1] = v.y, word.piece[i + 2] = v.z, word.piece[i + 3] = v.w;
            i += 4;
        } else if (LYNX_PIECES % 2 == 0) {
            uint2 v = *reinterpret_cast<const uint2 *>(at + i);
            word.piece[i] = v.x, word.piece[i + 1] = v.y;
            i += 2;
        } else {
            word.piece[i] = at[i];
            i += 1;
        }
    }
}

// A tile's words of a plane: their step, and the words before them in it.
struct Plane {
    u32 step, before;

    LYNX_DEVICE Plane(const Plan &plan, const Tile &tile, u32 plane) {
        bool in_anchor = plane < plan.anchor;
        step = in_anchor ? 0 : plane - plan.anchor + 1;
        before = in_anchor ? tile.before * plan.anchor + plane * tile.tokens : tile.before;
    }
    LYNX_DEVICE u8 *at(const Unit &unit) const { return unit.step[step] + before * LYNX_WORD_BYTES; }
};

// What a thread has of the checksums of its tile: of its two planes, and of parameters. Tokens are added in their order.
struct VSums {
    Sum low, high, head;
    u64 low_position, high_position, head_position;
    bool has_low, has_high;

    LYNX_DEVICE VSums(const Tile &tile, const Plane (&planes)[2], u32 token, u32 steps) {
        low_position = made(position_of(planes[0].before + token));
        high_position = made(position_of(planes[1].before + token));
        head_position = made(Sum::position((tile.before + token) / 2));
        has_low = tile.adds() && planes[0].step < steps;
        has_high = tile.adds() && planes[1].step < steps;
    }
    // A token's first word, or the first that begins in it.
    LYNX_DEVICE static u64 position_of(u32 token) { return Sum::position((token * LYNX_PIECES + 1) / 2); }

    LYNX_DEVICE static void add_word(Sum &sum, u64 position, const VWord &word, bool present) {
#if LYNX_DIM % 64 == 0
#pragma unroll
        for (int i = 0; i < LYNX_PIECES; i += 2, position += LYNX_POSITION)
            if (present) sum.add(position, word.piece[i], word.piece[i + 1]);
#else
        // A token and the next, which is that of the lane four up, have a 64-bit word together.
        const bool odd = threadIdx.x & 4;
        const u32 next = __shfl_xor_sync(LYNX_ALL_LANES, word.piece[0], 4);
#pragma unroll
        for (int i = 0; i + 1 < LYNX_PIECES; i += 2, position += LYNX_POSITION)
        {
            const u32 at_even = word.piece[i], middle = word.piece[i + 1], at_odd = word.piece[i + 2];
            if (present) sum.add(position, odd ? middle : at_even, odd ? at_odd : middle);
        }
        if (present && !odd) sum.add(position, word.piece[LYNX_PIECES - 1], next);
#endif
    }

    // Adds what belongs to a token.
    LYNX_DEVICE void add(const Tile &tile, u32 token, u32 params, const VWord (&words)[2]) {
        const u32 rows = LYNX_THREADS / 4, next = __shfl_xor_sync(LYNX_ALL_LANES, params, 4);
        const bool present = tile.has(token);
        add_word(low, low_position, words[0], present && has_low);
        add_word(high, high_position, words[1], present && has_high);
        if ((threadIdx.x & 7) == 0 && present && tile.adds()) head.add(head_position, params, next);
        low_position += rows * LYNX_PIECES / 2 * LYNX_POSITION;
        high_position += rows * LYNX_PIECES / 2 * LYNX_POSITION;
        head_position += rows / 2 * LYNX_POSITION;
    }

    // Hands all of it on, and the block's.
    LYNX_DEVICE void hand_on(const BlockSums &sums, const Plan &plan, const Unit &unit, const Plane (&planes)[2]) const {
        sums.add_warp(0, head.all());
        sums.add_planes(low.all(), planes[0].step, high.all(), planes[1].step);
        sums.meet();
        sums.hand_on(plan, unit);
    }
};

LYNX_DEVICE u32 v_extremes(const uint4 (&v)[LYNX_PIECES]) {
    u32 low = v[0].x, high = v[0].x;
#pragma unroll
    for (int i = 0; i < LYNX_PIECES; i++) {
        low = min2(min2(low, v[i].x), min2(v[i].y, min2(v[i].z, v[i].w)));
        high = max2(max2(high, v[i].x), max2(v[i].y, max2(v[i].z, v[i].w)));
    }
    high ^= 0x80008000u;
    u32 m = min2(__byte_perm(low, high, 0x5410), __byte_perm(low, high, 0x7632));
    m = min2(m, __shfl_xor_sync(LYNX_ALL_LANES, m, 1));
    return min2(m, __shfl_xor_sync(LYNX_ALL_LANES, m, 2));
}

LYNX_DEVICE u32 code_two(u32 pair, const Cells &cells) {
    return __byte_perm(code(low_half(pair), cells), code(high_half(pair), cells), 0x0040);
}

LYNX_DEVICE void split_tile(const Plan &plan, const Unit &unit) {
    const Tile tile = this_tile(plan);
    const u32 q = threadIdx.x & 3, row = threadIdx.x >> 2, rows = LYNX_THREADS / 4;
    const Quad quad(q);
    LYNX_SUMS(sums);
    uint4 v[LYNX_TOKENS][LYNX_PIECES];
#pragma unroll
    for (u32 k = 0; k < LYNX_TOKENS; k++) {
        u32 token = min(row + k * rows, tile.tokens - 1);
        const u16 *from = element(plan, unit, plan.block[blockIdx.y].position + token, tile.head, q * 8);
#pragma unroll
        for (u32 i = 0; i < LYNX_PIECES; i++) v[k][i] = load8(from + i * 32);
    }
    const Plane planes[2] = {Plane(plan, tile, 7 - q), Plane(plan, tile, 3 - q)};
    u8 *low = planes[0].at(unit), *high = planes[1].at(unit);
    VSums own(tile, planes, row, 8);
    sums.clear();
    sums.meet();
#pragma unroll
    for (u32 k = 0; k < LYNX_TOKENS; k++) {
        const u32 token = row + k * rows, params = params_of(v_extremes(v[k]));
        const Cells cells = cells_of(params);
        VWord words[2];
        VWord &x = words[0], &y = words[1];
#pragma unroll
        for (u32 i = 0; i < LYNX_PIECES; i++) {
            x.piece[i] = __byte_perm(code_two(v[k][i].x, cells), code_two(v[k][i].y, cells), 0x5410);
            y.piece[i] = __byte_perm(code_two(v[k][i].z, cells), code_two(v[k][i].w, cells), 0x5410);
            transpose_bits(x.piece[i], y.piece[i]);
            x.piece[i] = quad.transpose(params ? x.piece[i] : 0);
            y.piece[i] = quad.transpose(params ? y.piece[i] : 0);
        }
        if (tile.has(token)) {
            store_word(low + token * LYNX_WORD_BYTES, x);
            store_word(high + token * LYNX_WORD_BYTES, y);
            if (q == 0) {
                reinterpret_cast<u32 *>(unit.head)[tile.before + token] = params;
                if (params == 0) atomicAdd(&unit.status[0], 1);
            }
        }
        own.add(tile, token, params, words);
    }
    own.hand_on(sums, plan, unit, planes);
}

LYNX_DEVICE void merge_tile(const Plan &plan, const Unit &unit) {
#ifdef LYNX_PLANES
    const u32 planes = LYNX_PLANES;
#else
    const u32 planes = plan.planes;
#endif
    const Tile tile = this_tile(plan);
    const u32 q = threadIdx.x & 3, row = threadIdx.x >> 2, rows = LYNX_THREADS / 4;
    const Quad quad(q);
    const u32 p_low = 7 - q, p_high = 3 - q;
    // Missing planes are zeros, but for the first of them, which is the midpoint's bit.
    const Plane steps[2] = {Plane(plan, tile, p_low), Plane(plan, tile, p_high)};
    const u8 *low = steps[0].at(unit), *high = steps[1].at(unit);
    const u32 fill_low = p_low == planes ? ~0u : 0, fill_high = p_high == planes ? ~0u : 0;
    const float zero = planes == 8 ? LYNX_HALF_ZERO : LYNX_WHOLE_ZERO;
    VWord words[LYNX_TOKENS][2];
    LYNX_SUMS(sums);
    VSums own(tile, steps, row, plan.steps);
    sums.clear();
    sums.meet();
    u32 params[LYNX_TOKENS];
#pragma unroll
    for (u32 k = 0; k < LYNX_TOKENS; k++) {
        const u32 token = min(row + k * rows, tile.tokens - 1);
#pragma unroll
        for (u32 i = 0; i < LYNX_PIECES; i++) words[k][0].piece[i] = fill_low, words[k][1].piece[i] = fill_high;
        if (p_low < planes) load_word(low + token * LYNX_WORD_BYTES, words[k][0]);
        if (p_high < planes) load_word(high + token * LYNX_WORD_BYTES, words[k][1]);
        params[k] = reinterpret_cast<const u32 *>(unit.head)[tile.before + token];
    }
#pragma unroll
    for (u32 k = 0; k < LYNX_TOKENS; k++) {
        const u32 token = row + k * rows;
        const bool present = tile.has(token);
        own.add(tile, token, params[k], words[k]);
        if (present && !are_valid(params[k])) atomicMin(&unit.status[1], tile.index << 16 | token);
        const float base = base_of(params[k]), step = high_half(params[k]);
        const u32 position = plan.block[blockIdx.y].position + (present ? token : 0);
        u16 *to = element(plan, unit, position, tile.head, q * 8);
#pragma unroll
        for (u32 i = 0; i < LYNX_PIECES; i++) {
            u32 a = quad.transpose(words[k][0].piece[i]), b = quad.transpose(words[k][1].piece[i]);
            transpose_bits(a, b);
            uint4 out = make_uint4(round2(midpoint<0>(a, zero, step, base), midpoint<1>(a, zero, step, base)),
                                   round2(midpoint<2>(a, zero, step, base), midpoint<3>(a, zero, step, base)),
                                   round2(midpoint<0>(b, zero, step, base), midpoint<1>(b, zero, step, base)),
                                   round2(midpoint<2>(b, zero, step, base), midpoint<3>(b, zero, step, base)));
            if (present) store8(to + i * 32, out);
        }
    }
    own.hand_on(sums, plan, unit, steps);
}
