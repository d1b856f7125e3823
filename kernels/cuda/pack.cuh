// The exact tail made: what the eight planes leave of every value, as codec.md has it.
//
// A lane has up to 64 elements of one group and takes them one after the other, so that the bits of a plane gather in a register
// of its own: no ballot says whose bit is where, and no value is coded twice. The tile's sections are put together in shared
// memory once all lanes know how much they have. A register has 32 elements' bits of a plane; what more there are are in a second.
#pragma once
#include "tail.cuh"

#ifdef LYNX_V
// Lanes of a group, side by side.
#define LYNX_PARTS (LYNX_THREADS / 64)
#define LYNX_SHARE (LYNX_DIM / LYNX_PARTS)
#else
#define LYNX_PARTS 1
#define LYNX_SHARE 64
#endif
// The most bits that section A has of an element.
#define LYNX_DEPTH 15

// What is sent of one element.
struct Sent {
    u32 bits, value, extra;
    bool is_long;

    // The code is that of `code`, as a number.
    LYNX_DEVICE Sent(u32 x, const Cells &cells) {
        const float v = __uint_as_float(x << 16);
        const float estimate = __fadd_rn(__fadd_rn(__fmaf_rn(v, cells.scale, cells.shift), LYNX_MAGIC), -LYNX_MAGIC);
        const float next = __fmaf_rn(__fadd_rn(estimate, 1.0f), cells.step, cells.base);
        const Rest rest(v >= next ? __fadd_rn(estimate, 1.0f) : estimate, cells.base, cells.step);
        const u32 ordinal = x ^ (((u32)((int)(x << 16) >> 31) & 0xffffu) | 0x8000u);
        const u32 index = ordinal - rest.first, brief = rest.brief(), sum = index + brief;
        bits = rest.bits();
        is_long = index >= brief;
        value = is_long ? sum >> 1 : index;
        extra = sum & 1;
    }
};

// The bits of up to 32 elements, plane by plane, the last at the top. Below the first stands a one, which is shifted out where all
// 32 elements have the plane.
struct Gathered {
    u32 planes[LYNX_DEPTH], extra, longs, least;

    LYNX_DEVICE Gathered() : extra(0x80000000u), longs(0), least(LYNX_DEPTH) {
#pragma unroll
        for (u32 j = 0; j < LYNX_DEPTH; j++) planes[j] = 0x80000000u;
    }
    template <u32 FROM, u32 TO> LYNX_DEVICE void add_planes(const Sent &sent) {
#pragma unroll
        for (u32 j = FROM; j < TO; j++)
            if (sent.bits > j) planes[j] = __funnelshift_r(planes[j], sent.value >> j, 1);
    }
    // What `present` isn't sends nothing.
    LYNX_DEVICE void add(u32 x, const Cells &cells, bool present) {
        Sent sent(x, cells);
        if (!present) sent.bits = 0, sent.is_long = false;
        least = min(least, sent.bits);
        // Of 32 elements some nearly always have more than four bits, and often none has more than eight.
        add_planes<0, 8>(sent);
        if (sent.bits > 8) add_planes<8, LYNX_DEPTH>(sent);
        if (sent.is_long) extra = __funnelshift_r(extra, sent.extra, 1), longs++;
    }
    // After fewer than 32 elements.
    LYNX_DEVICE void end(u32 elements) {
        if (elements < 32) least = 0;
    }
    LYNX_DEVICE u32 count(u32 j) const { return least > j ? 32 : __clz(__brev(planes[j])) ^ 31; }
    LYNX_DEVICE u32 sum() const {
        u32 sum = 0;
#pragma unroll
        for (u32 j = 0; j < LYNX_DEPTH; j++) sum += count(j);
        return sum;
    }
};

// Where the lane's bits of a plane are put: behind those of the lanes of its group before it.
struct Span {
    u32 before, total;

    LYNX_DEVICE explicit Span(u32 own) : before(0), total(own) {
#pragma unroll
        for (u32 distance = 1; distance < LYNX_PARTS; distance *= 2) {
            const u32 other = __shfl_xor_sync(LYNX_ALL_LANES, total, (int)distance);
            before += threadIdx.x & distance ? other : 0;
            total += other;
        }
    }
};

// Puts the top `count` bits of a register into a section.
LYNX_DEVICE void put(u32 *section, u32 at, u32 bits, u32 count) {
    if (count == 0) return;
    bits >>= 32 - count;
    const u32 shift = at & 31;
    atomicOr(&section[at >> 5], bits << shift);
    if (shift + count > 32) atomicOr(&section[(at >> 5) + 1], bits >> (32 - shift));
}

// What the threads before have of a number, and what all have. Called by the whole block; `sums` has a number for each warp.
struct Scan {
    u32 before, all;

    LYNX_DEVICE Scan(u32 own, u32 *sums) {
        u32 sum = own;
#pragma unroll
        for (u32 distance = 1; distance < 32; distance *= 2) {
            const u32 below = __shfl_sync(LYNX_ALL_LANES, sum, (int)(lane_of() - distance), 32);
            sum += lane_of() >= distance ? below : 0;
        }
        if (lane_of() == 31) sums[threadIdx.x / 32] = sum;
        __syncthreads();
        before = sum - own, all = 0;
#pragma unroll
        for (u32 warp = 0; warp < LYNX_WARPS; warp++) {
            before += warp < threadIdx.x / 32 ? sums[warp] : 0;
            all += sums[warp];
        }
    }
};

// A lane's elements, one after the other, as BF16.
struct Elements {
    const Plan &plan;
    const Unit &unit;
    const Tile &tile;
    u32 position, group;

    LYNX_DEVICE Elements(const Plan &plan, const Unit &unit, const Tile &tile)
        : plan(plan), unit(unit), tile(tile), position(plan.block[tile.index / plan.heads].position),
          group(threadIdx.x / LYNX_PARTS) {}

    // Those of a run of 32; returns how many there are. `f` is called by whole warps.
    template <u32 FROM, class F> LYNX_DEVICE u32 each(F f) const {
#ifdef LYNX_V
        const u32 count = min(LYNX_SHARE - FROM, 32u), channel = threadIdx.x % LYNX_PARTS * LYNX_SHARE + FROM;
        const u16 *row = element(plan, unit, position + min(group, tile.tokens - 1), tile.head, channel);
#pragma unroll 1
        for (u32 first = 0; first < count; first += 8) {
            uint4 pairs = load8(row + first);
#pragma unroll 1
            for (u32 pair = 0; pair < 4; pair++) {
                f(pairs.x & 0xffffu);
                f(pairs.x >> 16);
                pairs.x = pairs.y, pairs.y = pairs.z, pairs.z = pairs.w;
            }
        }
        return count;
#else
        const u32 end = min(tile.tokens, FROM + 32), channel = min(group, LYNX_DIM - 1u);
        const u32 mask = (1u << plan.page_shift) - 1;
#pragma unroll 1
        for (u32 token = FROM; token < end;) {
            const u16 *row = element(plan, unit, position + token, tile.head, channel);
            // As far as the page goes.
            const u32 stop = min(end, token + mask + 1 - ((position + token) & mask));
#pragma unroll 1
            for (; token < stop; token++, row += plan.token_stride) f(to_bf16(*row) & 0xffffu);
        }
        return end > FROM ? end - FROM : 0;
#endif
    }

    // Stores a run's, of which `value` tells each by its number in the run.
    template <u32 FROM, class F> LYNX_DEVICE void put_each(F value) const {
#ifdef LYNX_V
        const u32 count = min(LYNX_SHARE - FROM, 32u), channel = threadIdx.x % LYNX_PARTS * LYNX_SHARE + FROM;
        u16 *row = element(plan, unit, position + group, tile.head, channel);
#pragma unroll 1
        for (u32 first = 0; first < count; first += 8) {
            u32 pairs[4];
#pragma unroll
            for (u32 pair = 0; pair < 4; pair++) {
                pairs[pair] = value(first + pair * 2);
                pairs[pair] |= value(first + pair * 2 + 1) << 16;
            }
            store8(row + first, make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]));
        }
#else
        const u32 end = min(tile.tokens, FROM + 32), mask = (1u << plan.page_shift) - 1;
#pragma unroll 1
        for (u32 token = FROM; token < end;) {
            u16 *row = element(plan, unit, position + token, tile.head, group);
            const u32 stop = min(end, token + mask + 1 - ((position + token) & mask));
#pragma unroll 1
            for (; token < stop; token++, row += plan.token_stride) *row = (u16)from_bf16(value(token - FROM));
        }
#endif
    }
};

// Where this tile's sections start behind the table: publishes its length, and adds up those of the tiles before until one of them
// has published a sum. Tiles are numbered as their blocks start, so that those before are under way. Called by one thread.
LYNX_DEVICE u32 look_back(u32 *published, u32 index, u32 bytes) {
    const u32 own = 1u << 30, sum = 2u << 30, mask = own - 1;
    publish(&published[index], own | bytes);
    u32 before = 0;
    for (u32 i = index; i > 0; i--) {
        u32 seen;
        do seen = see(&published[i - 1]);
        while (seen == 0);
        before += seen & mask;
        if (seen & sum) break;
    }
    publish(&published[index], sum | (before + bytes));
    return before;
}

// Copies a section to any address, four bytes a thread where they are aligned there.
LYNX_DEVICE void copy_section(u8 *to, const u32 *section, u32 bytes) {
    const u32 lead = min((u32)(0 - (u64)to) & 3, bytes), words = (bytes - lead) / 4, rest = lead + words * 4;
    const u8 *from = reinterpret_cast<const u8 *>(section);
    for (u32 i = threadIdx.x; i < words; i += LYNX_THREADS) {
        u32 word = section[i] >> 8 * lead;
        if (lead > 0) word |= section[i + 1] << (32 - 8 * lead);
        reinterpret_cast<u32 *>(to + lead)[i] = word;
    }
    if (threadIdx.x < lead) to[threadIdx.x] = from[threadIdx.x];
    if (threadIdx.x < bytes - rest) to[rest + threadIdx.x] = from[rest + threadIdx.x];
}

LYNX_DEVICE void encode_tail(const Plan &plan, const Unit &unit) {
    __shared__ u32 a[LYNX_ELEMENTS * LYNX_DEPTH / 32 + 1], b[LYNX_ELEMENTS / 32 + 1];
    __shared__ u32 sums_a[LYNX_WARPS], sums_b[LYNX_WARPS];
    __shared__ u32 index, before;
    if (threadIdx.x == 0) index = atomicAdd(&unit.published[0], 1);
#pragma unroll 1
    for (u32 i = threadIdx.x; i < sizeof a / 4; i += LYNX_THREADS) a[i] = 0;
#pragma unroll 1
    for (u32 i = threadIdx.x; i < sizeof b / 4; i += LYNX_THREADS) b[i] = 0;
    __syncthreads();
    const Tile tile = tile_at(plan, index);
    const Elements elements(plan, unit, tile);
    const bool has_group = elements.group < groups_of(tile);
    const u32 params = has_group ? params_at(unit, tile, elements.group) : 0;
    // Of a group that sends nothing any cells will do.
    const Cells cells = cells_of(params ? params : LYNX_LEAST_STEP << 16);
    Gathered low, high;
    low.end(elements.each<0>([&](u32 x) { low.add(x, cells, params != 0); }));
    u32 own = low.sum(), longs = low.longs;
    if (LYNX_SHARE > 32) {
        high.end(elements.each<32>([&](u32 x) { high.add(x, cells, params != 0); }));
        own += high.sum(), longs += high.longs;
    }
    // A group starts where its first lane does.
    const Scan scan_a(own, sums_a), scan_b(longs, sums_b);
    u32 at = scan_a.before - Span(own).before;
#pragma unroll
    for (u32 j = 0; j < LYNX_DEPTH; j++) {
        const u32 first = low.count(j), second = LYNX_SHARE > 32 ? high.count(j) : 0;
        const Span span(first + second);
        if (!ballot(span.total > 0)) break;
        put(a, at + span.before, low.planes[j], first);
        put(a, at + span.before + first, high.planes[j], second);
        at += span.total;
    }
    put(b, scan_b.before, low.extra, low.longs);
    if (LYNX_SHARE > 32) put(b, scan_b.before + low.longs, high.extra, high.longs);
    __syncthreads();
    const u32 a_bytes = (scan_a.all + 7) / 8, b_bytes = (scan_b.all + 7) / 8, tiles = plan.blocks * plan.heads;
    if (threadIdx.x == 0) {
        before = tiles * 4 + look_back(unit.published + 1, index, a_bytes + b_bytes);
        reinterpret_cast<u32 *>(unit.tail)[index] = a_bytes | b_bytes << 16;
        if (index == tiles - 1) unit.status[2] = before + a_bytes + b_bytes;
    }
    __syncthreads();
    copy_section(unit.tail + before, a, a_bytes);
    copy_section(unit.tail + before + a_bytes, b, b_bytes);
}
