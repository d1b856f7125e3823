// K: groups are channels over a block's tokens.
//
// A thread has 8 channels of 8 tokens: lane bits 0 to 2 are the tokens' place among the block's eight eights, bits 3 and 4 the
// channels' among the warp's four. So a load takes 64 bytes of each of eight tokens, a channel's minimum is found within the
// eight lanes that share it, and a thread's codes of a channel are an 8 x 8 matrix of bits whose transpose is a byte of each
// plane. Four lanes join their bytes to 32 bits of a word; in shared memory the words find the profile's order, and leave in it,
// 16 bytes a thread.
#pragma once
#include "bits.cuh"
#include "format.cuh"
#include "sum.cuh"
#include "unit.cuh"

struct KThread {
    u32 lane, eight, channel, half;
    Quad quad;

    LYNX_DEVICE KThread()
        : lane(threadIdx.x & 31), eight(lane & 7), channel((threadIdx.x >> 3) * 8), half(eight >> 2), quad(lane) {}

    // Threads past the last channel (where a head's aren't a multiple of 32) work on the first ones, and store nothing.
    LYNX_DEVICE bool idle() const { return LYNX_DIM % 32 != 0 && channel >= LYNX_DIM; }
    LYNX_DEVICE u32 first_channel() const { return idle() ? 0 : channel; }
};

// A thread's eight places of words of one plane.
struct Places {
    uint4 pairs;

    LYNX_DEVICE Places(const Unit &unit, u32 head, u32 plane, u32 channel) {
        const u16 *of_plane = unit.places + (head * 8 + plane) * LYNX_DIM + channel;
        pairs = *reinterpret_cast<const uint4 *>(of_plane);
    }

    LYNX_DEVICE u32 operator[](int i) const {
        u32 pair = i < 2 ? pairs.x : i < 4 ? pairs.y : i < 6 ? pairs.z : pairs.w;
        return i & 1 ? pair >> 16 : pair & 0xffffu;
    }
};

// A tile's words in shared memory. Units of 16 bytes are exchanged within 128, so that the planes that four lanes write at once
// lie in different banks; the host's places have that in them.
struct Words {
    uint4 *units;

    LYNX_DEVICE static u32 moved(u32 unit) { return unit ^ (unit >> 6 & 7); }
    LYNX_DEVICE u32 &half(u32 place, u32 half) const {
        return *reinterpret_cast<u32 *>(reinterpret_cast<u8 *>(units) + place + half * 4);
    }
    LYNX_DEVICE u8 &byte(u32 word, u32 i) const {
        return reinterpret_cast<u8 *>(units + moved(word / 2))[(word & 1) * 8 + i];
    }
};

// Where a step's words would start if all of the tile's lay before them as in shared memory: in memory, and, where they are whole,
// as the position of the first of their 64-bit words in the segment.
struct Step {
    u8 *at;
    u64 position;
};

LYNX_DEVICE void find_steps(const Plan &plan, const Unit &unit, const Tile &tile, Step *steps) {
    u32 step = threadIdx.x;
    if (step < plan.steps) {
        u32 words = plan.ends[step + 1] - plan.ends[step];
        steps[step].at = unit.step[step] + (u64)words * tile.before - plan.ends[step] * 8;
        steps[step].position = (words * tile.before / 8 + 1ull - plan.ends[step]) * LYNX_POSITION;
    }
}

// Adds a warp's parameters, of which each lane has that of the thread's group.
LYNX_DEVICE void add_params(const BlockSums &sums, const Tile &tile, const KThread &thread, u32 params) {
#ifndef LYNX_BARE
    Sum sum;
    const u32 next = __shfl_xor_sync(LYNX_ALL_LANES, params, 1);
    if (thread.lane % 2 == 0 && !thread.idle() && tile.adds())
        sum.add(Sum::position((tile.index * LYNX_DIM + threadIdx.x) / 2), params, next);
    sums.add_warp(0, sum.all());
#endif
}

// Moves the words of `plan.steps` steps between shared memory and the segments, and adds up their checksums.
template <bool TO_MEMORY, bool ADD> LYNX_DEVICE void move_words(const Plan &plan, const Unit &unit, [[maybe_unused]] const Tile &tile,
                                                      const Words &words, const Step *steps,
                                                      const BlockSums &sums) {
#ifndef LYNX_WHOLE
    if (!(plan.block[blockIdx.y].aligned & LYNX_MOVES)) {
        u32 length = (tile.tokens + 7) / 8;
        for (u32 step = 0; step < plan.steps; step++) {
            u32 first = plan.ends[step], bytes = (plan.ends[step + 1] - first) * length;
            u8 *piece = unit.step[step] + (u64)(plan.ends[step + 1] - first) * tile.before;
            for (u32 i = threadIdx.x; i < bytes; i += LYNX_THREADS) {
                u8 &byte = words.byte(first + i / length, i % length);
                if (TO_MEMORY)
                    piece[i] = byte;
                else
                    byte = piece[i];
            }
        }
        return;
    }
#endif
    const u32 owners = reinterpret_cast<const u32 *>(unit.owners)[threadIdx.x];
    const u32 first = (threadIdx.x / 32) * 128 + (threadIdx.x & 31);
    StepSum of_step(min(owners & 0xff, plan.steps));
    u64 position = made(first * 2 * LYNX_POSITION);
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        // Steps that aren't wanted, and 16 bytes that aren't there, have an owner of at least as many.
        const u32 at = first + i * 32, step = min(owners >> 8 * i & 0xff, plan.steps);
        Sum sum;
        if (step < plan.steps) {
            uint4 *memory = reinterpret_cast<uint4 *>(steps[step].at) + at, moved;
            if (TO_MEMORY)
                *memory = moved = words.units[Words::moved(at)];
            else
                words.units[Words::moved(at)] = moved = read_once(memory);
            if (ADD) {
                const u64 here = steps[step].position + position;
                sum.add(here, moved.x, moved.y);
                sum.add(here + LYNX_POSITION, moved.z, moved.w);
            }
        }
        position += 64 * LYNX_POSITION;
        if (ADD) of_step.add(sums, step, tile.adds() ? sum.all() : 0);
    }
    if (ADD) of_step.end(sums, plan.steps);
}

// The eight tokens' addresses.
struct KRows {
    u16 *row[8];

    LYNX_DEVICE KRows(const Plan &plan, const Unit &unit, const Tile &tile, const KThread &thread) {
        u32 position = plan.block[blockIdx.y].position, channel = thread.first_channel();
#ifdef LYNX_WHOLE
        // Eight aligned tokens share a page.
        u16 *first = element(plan, unit, position + thread.eight * 8, tile.head, channel);
#pragma unroll
        for (u32 i = 0; i < 8; i++) row[i] = first + (u64)i * plan.token_stride;
#else
        // Past the last token, that one again: it changes no minimum and no maximum.
#pragma unroll
        for (u32 i = 0; i < 8; i++)
            row[i] = element(plan, unit, position + min(thread.eight * 8 + i, tile.tokens - 1), tile.head, channel);
#endif
    }
};

LYNX_DEVICE u32 pair_of(const uint4 &v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }

// The parameters of the channel `thread.channel + thread.eight`, from the values that its eight lanes hold.
LYNX_DEVICE u32 k_params(const uint4 (&v)[8], const KThread &thread) {
    u32 m[8];
#pragma unroll
    for (int pair = 0; pair < 4; pair++) {
        u32 low = pair_of(v[0], pair), high = low;
#pragma unroll
        for (int i = 1; i < 8; i++) {
            low = min2(low, pair_of(v[i], pair));
            high = max2(high, pair_of(v[i], pair));
        }
        high ^= 0x80008000u;
        m[2 * pair] = __byte_perm(low, high, 0x5410);
        m[2 * pair + 1] = __byte_perm(low, high, 0x7632);
    }
    // Each exchange halves the channels that a lane still has.
#pragma unroll
    for (int kept = 4; kept > 0; kept /= 2) {
        bool upper = thread.lane & kept;
#pragma unroll
        for (int i = 0; i < kept; i++) {
            u32 theirs = upper ? m[i] : m[i + kept], mine = upper ? m[i + kept] : m[i];
            m[i] = min2(mine, __shfl_xor_sync(LYNX_ALL_LANES, theirs, kept));
        }
    }
    return params_of(m[0]);
}

// The value of a lane among the eight that share channels.
LYNX_DEVICE float from_lane(float x, int lane) { return __shfl_sync(LYNX_ALL_LANES, x, lane, 8); }

// Codes channel `c` of the thread's eight and puts its bytes of all planes into the words.
LYNX_DEVICE void split_channel(const uint4 (&v)[8], int c, const Cells &mine, u32 (&planes)[2]) {
    Cells cells;
    cells.base = from_lane(mine.base, c);
    cells.step = from_lane(mine.step, c);
    cells.scale = from_lane(mine.scale, c);
    cells.shift = from_lane(mine.shift, c);
    u32 codes[8];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        u32 pair = pair_of(v[i], c / 2);
        codes[i] = code(c & 1 ? high_half(pair) : low_half(pair), cells);
    }
    u32 x = pack4(codes[0], codes[1], codes[2], codes[3]), y = pack4(codes[4], codes[5], codes[6], codes[7]);
    bool escaped = cells.step == 0.0f;
    planes[0] = escaped ? 0 : x;
    planes[1] = escaped ? 0 : y;
    transpose_bits(planes[0], planes[1]);
}

LYNX_DEVICE void split_tile(const Plan &plan, const Unit &unit) {
    __shared__ uint4 shared[LYNX_DIM * 4];
    __shared__ Step steps[8];
    LYNX_SUMS(sums);
    const Words words = {shared};
    const Tile tile = this_tile(plan);
    const KThread thread;
    uint4 v[8];
    {
        const KRows rows(plan, unit, tile, thread);
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] = load8(rows.row[i]);
    }
    const u32 q = thread.lane & 3, channel = thread.first_channel();
    const Places low(unit, tile.head, 7 - q, channel), high(unit, tile.head, 3 - q, channel);
    sums.clear();
    find_steps(plan, unit, tile, steps);

    const u32 params = k_params(v, thread);
    if (!thread.idle()) {
        reinterpret_cast<u32 *>(unit.head)[tile.index * LYNX_DIM + thread.channel + thread.eight] = params;
        if (params == 0) atomicAdd(&unit.status[0], 1);
    }
    const Cells mine = cells_of(params);
#ifndef LYNX_WHOLE
    // The bits of tokens that the tile has.
    const u32 present = tile.tokens > 32 * thread.half ? tile.tokens - 32 * thread.half : 0;
    const u32 mask = present >= 32 ? ~0u : (1u << present) - 1;
#endif
#pragma unroll
    for (int c = 0; c < 8; c++) {
        u32 planes[2];
        split_channel(v, c, mine, planes);
        planes[0] = thread.quad.transpose(planes[0]);
        planes[1] = thread.quad.transpose(planes[1]);
#ifndef LYNX_WHOLE
        planes[0] &= mask;
        planes[1] &= mask;
#endif
        if (!thread.idle()) {
            words.half(low[c], thread.half) = planes[0];
            words.half(high[c], thread.half) = planes[1];
        }
    }
    __syncthreads();
    move_words<true, true>(plan, unit, tile, words, steps, sums);
    add_params(sums, tile, thread, params);
    sums.meet();
    sums.hand_on(plan, unit);
}

// The eight channels' cuts: 16 bits each.
struct Cut {
    u32 known, middle;
    float zero;

    LYNX_DEVICE explicit Cut(u32 pair, bool upper) {
        known = __byte_perm(pair, 0, upper ? 0x2222 : 0x0000);
        middle = __byte_perm(pair, 0, upper ? 0x3333 : 0x1111);
        zero = middle ? LYNX_WHOLE_ZERO : LYNX_HALF_ZERO;
    }
    LYNX_DEVICE u32 apply(u32 codes) const { return (codes & known) | middle; }
};

LYNX_DEVICE void merge_tile(const Plan &plan, const Unit &unit) {
    __shared__ uint4 shared[LYNX_DIM * 4];
    __shared__ Step steps[8];
    LYNX_SUMS(sums);
    const Words words = {shared};
    const Tile tile = this_tile(plan);
    const KThread thread;
    sums.clear();
    find_steps(plan, unit, tile, steps);
    __syncthreads();
    move_words<false, true>(plan, unit, tile, words, steps, sums);

    const u32 q = thread.lane & 3, channel = thread.first_channel();
    const u32 group = channel + thread.eight, params = reinterpret_cast<const u32 *>(unit.head)[tile.index * LYNX_DIM + group];
    if (!are_valid(params)) atomicMin(&unit.status[1], tile.index << 16 | group);
    const float base = base_of(params), step = high_half(params);
    const Places low(unit, tile.head, 7 - q, channel), high(unit, tile.head, 3 - q, channel);
    const uint4 cuts = *reinterpret_cast<const uint4 *>(unit.cuts + tile.head * LYNX_DIM + channel);
    const KRows rows(plan, unit, tile, thread);
    add_params(sums, tile, thread, params);
    __syncthreads();
    sums.hand_on(plan, unit);

    u32 out[8][4];
#pragma unroll
    for (int pair = 0; pair < 4; pair++) {
        u32 x[2], y[2];
        float zero[2], steps_of[2], bases[2];
#pragma unroll
        for (int odd = 0; odd < 2; odd++) {
            const int c = 2 * pair + odd;
            const Cut cut(pair_of(cuts, pair), odd);
            x[odd] = thread.quad.transpose(words.half(low[c], thread.half));
            y[odd] = thread.quad.transpose(words.half(high[c], thread.half));
            transpose_bits(x[odd], y[odd]);
            x[odd] = cut.apply(x[odd]);
            y[odd] = cut.apply(y[odd]);
            zero[odd] = cut.zero;
            steps_of[odd] = from_lane(step, c);
            bases[odd] = from_lane(base, c);
        }
        // Token i of each channel of the pair.
#define LYNX_TOKEN(I, CODES)                                                                   \
    out[I][pair] = round2(midpoint<I & 3>(CODES[0], zero[0], steps_of[0], bases[0]),          \
                          midpoint<I & 3>(CODES[1], zero[1], steps_of[1], bases[1]))
        LYNX_TOKEN(0, x);
        LYNX_TOKEN(1, x);
        LYNX_TOKEN(2, x);
        LYNX_TOKEN(3, x);
        LYNX_TOKEN(4, y);
        LYNX_TOKEN(5, y);
        LYNX_TOKEN(6, y);
        LYNX_TOKEN(7, y);
#undef LYNX_TOKEN
    }
    if (thread.idle()) return;
#pragma unroll
    for (u32 i = 0; i < 8; i++)
        if (tile.has(thread.eight * 8 + i)) store8(rows.row[i], make_uint4(out[i][0], out[i][1], out[i][2], out[i][3]));
}
