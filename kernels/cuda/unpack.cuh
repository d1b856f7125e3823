// The exact tail taken apart, and values restored from it and the planes.
//
// A lane has the same elements as it has in packing (pack.cuh): up to 64 of one group, one after the other. A first turn over their
// codes counts how many have how many bits, which says where each plane's bits of the lane begin; a second takes each element's
// bits from registers, one for each plane, and leaves its ordinal in shared memory but for the bit that section B may have of
// it; once all lanes know how many of those they have, a third adds it and stores the value. No ballot says whose bit is where.
#pragma once
#include "pack.cuh"

// Elements of a lane's second run, and of its first.
#define LYNX_FIRST (LYNX_SHARE < 32 ? LYNX_SHARE : 32)
#define LYNX_SECOND (LYNX_SHARE - LYNX_FIRST)

// How many of a run's elements have so many bits in section A, and then how many have at most so many: a byte for each number.
struct Depths {
    u64 few, many;  // up to 7 bits, and more

    LYNX_DEVICE Depths() : few(0), many(0) {}
    LYNX_DEVICE void add(u32 bits) {
        const u64 one = 1ull << 8 * (bits & 7);
        few += bits < 8 ? one : 0;
        many += bits < 8 ? 0 : one;
    }
    LYNX_DEVICE void end() {
        const u64 ones = 0x0101010101010101ull;
        few *= ones;
        many = many * ones + (few >> 56) * ones;
    }
    // Those with more than `plane` bits, of all.
    LYNX_DEVICE u32 deeper(u32 plane) const {
        return (u32)(many >> 56) - (u32)((plane < 8 ? few : many) >> 8 * (plane & 7) & 0xff);
    }
};

// `count` bits of a section, up to 32, the first at the top. Words of memory are read that have any of them.
LYNX_DEVICE u32 read_bits(const u8 *section, u32 at, u32 count) {
    if (count == 0) return 0;
    const u64 address = (u64)section + (at >> 3);
    const u32 *words = reinterpret_cast<const u32 *>(address & ~3ull);
    const u32 shift = (u32)(address & 3) * 8 + (at & 7);
    u32 bits = words[0] >> shift;
    if (shift + count > 32) bits |= words[1] << (32 - shift);
    return __brev(bits);
}

// The bits of the first or the second run's elements, a register for each plane, the next element's at the top.
template <bool SECOND> struct Streams {
    u32 planes[LYNX_DEPTH];
    bool is_deep, is_deepest;

    // The lane's group has its bits from `at` on.
    LYNX_DEVICE Streams(const u8 *section, u32 at, const Depths &low, const Depths &high) {
#pragma unroll
        for (u32 j = 0; j < LYNX_DEPTH; j++) planes[j] = 0;
#pragma unroll
        for (u32 j = 0; j < LYNX_DEPTH; j++) {
            const u32 before = low.deeper(j), after = high.deeper(j);
            const Span span(before + after);
            if (!ballot(span.total > 0)) break;
            planes[j] = read_bits(section, at + span.before + (SECOND ? before : 0), SECOND ? after : before);
            at += span.total;
        }
        is_deep = ballot((SECOND ? high.deeper(4) : low.deeper(4)) > 0);
        is_deepest = ballot((SECOND ? high.deeper(8) : low.deeper(8)) > 0);
    }
    template <u32 FROM, u32 TO> LYNX_DEVICE void take_planes(u32 &value, u32 bits) {
#pragma unroll
        for (u32 j = TO; j-- > FROM;)
            if (bits > j) value = __funnelshift_r(planes[j], value, 31), planes[j] += planes[j];
    }
    // An element's bits.
    LYNX_DEVICE u32 take(u32 bits) {
        u32 value = 0;
        if (is_deep) {
            if (is_deepest) take_planes<8, LYNX_DEPTH>(value, bits);
            take_planes<4, 8>(value, bits);
        }
        take_planes<0, 4>(value, bits);
        return value;
    }
};

// A lane's codes, and where their ordinals are kept.
struct Codes {
    const Plan &plan;
    const Unit &unit;
    const Tile &tile;
    u16 *ordinals;  // of the first run, or of all
#ifndef LYNX_V
    Words words;
    const u16 *places;

    LYNX_DEVICE u32 place(u32 plane) const { return places[plane * LYNX_DIM + min(threadIdx.x, LYNX_DIM - 1u)]; }
#endif

    // A plane's bits of a run.
    template <u32 FROM> LYNX_DEVICE u32 bits(u32 plane) const {
#ifdef LYNX_V
        const u32 token = min(threadIdx.x / LYNX_PARTS, tile.tokens - 1), part = threadIdx.x % LYNX_PARTS;
        const u8 *at = Plane(plan, tile, plane).at(unit) + token * LYNX_WORD_BYTES + (part * LYNX_SHARE + FROM) / 8;
        if (LYNX_SHARE % 32 == 0) return *reinterpret_cast<const u32 *>(at);
        u32 bits = 0;
#pragma unroll
        for (u32 i = 0; i < (FROM ? LYNX_SECOND : LYNX_FIRST) / 8; i++) bits |= (u32)at[i] << 8 * i;
        return bits;
#else
        return words.half(place(plane), FROM / 32);
#endif
    }

    // The codes of a run, one after the other. `f` is called by whole warps.
    template <u32 FROM, class F> LYNX_DEVICE void each(F f) const {
        u32 planes[8];
#pragma unroll
        for (u32 p = 0; p < 8; p++) planes[p] = bits<FROM>(p);
#pragma unroll 1
        for (u32 octet = 0; octet < (FROM ? LYNX_SECOND : LYNX_FIRST) / 8; octet++) {
            const u32 pick = 0x40 + octet * 0x11;
            u32 x = __byte_perm(__byte_perm(planes[7], planes[6], pick), __byte_perm(planes[5], planes[4], pick), 0x5410);
            u32 y = __byte_perm(__byte_perm(planes[3], planes[2], pick), __byte_perm(planes[1], planes[0], pick), 0x5410);
            transpose_bits(x, y);
#pragma unroll 1
            for (u32 i = 0; i < 8; i++) {
                f(octet * 8 + i, x & 0xff);
                x = __funnelshift_r(x, y, 8), y >>= 8;
            }
        }
    }

    // Where an element's ordinal is kept. Of K's second run that is where the lane's own codes were, once it has taken them.
    template <u32 FROM> LYNX_DEVICE u16 &kept(u32 element) const {
#ifndef LYNX_V
        if (FROM) return *reinterpret_cast<u16 *>(reinterpret_cast<u8 *>(words.units) + place(element / 4) + element % 4 * 2);
#endif
        return ordinals[(FROM + element) * LYNX_THREADS + threadIdx.x];
    }
};

// What a lane restores.
struct Lane {
    const Codes &codes;
    u32 params, elements;  // elements: those that are there
    float base, step;

    LYNX_DEVICE Lane(const Codes &codes, u32 params)
        : codes(codes), params(params), elements(0), base(base_of(params)), step(high_half(params)) {
#ifdef LYNX_V
        if (params) elements = LYNX_SHARE;
#else
        if (params) elements = codes.tile.tokens;
#endif
    }
    LYNX_DEVICE Rest rest(u32 element, u32 code) const {
        return element < elements ? Rest((float)code, base, step) : Rest();
    }

    // Counts a run's bits; false where a cell has no value.
    template <u32 FROM> LYNX_DEVICE bool count(Depths &depths, u32 &sum) const {
        bool all = true;
        codes.each<FROM>([&](u32 element, u32 code) {
            const Rest found = rest(FROM + element, code);
            all &= found.count != 0;
            const u32 bits = found.count ? found.bits() : 0;
            depths.add(bits), sum += bits;
        });
        depths.end();
        return all;
    }

    // Keeps a run's ordinals, without the bits of section B; which elements have one.
    template <u32 FROM> LYNX_DEVICE u32 keep(Streams<(FROM > 0)> streams) const {
        u32 longs = 0;
        codes.each<FROM>([&](u32 element, u32 code) {
            const Rest found = rest(FROM + element, code);
            const u32 value = streams.take(found.bits()), brief = found.brief();
            const bool is_long = value >= brief;
            if (is_long) longs |= 1u << element;
            if (params) codes.kept<FROM>(element) = (u16)(found.first + (is_long ? value * 2 - brief : value));
        });
        return longs;
    }
};

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

// Stores a run's values, with the bits of section B, of which the first is at the top.
template <u32 FROM> LYNX_DEVICE void store_run(const Lane &lane, const Elements &elements, u32 longs, u32 extra) {
    const auto value = [&](u32 element) {
        u32 ordinal = lane.codes.kept<FROM>(element);
        if (longs >> element & 1) ordinal += extra >> 31, extra += extra;
        return from_ordinal(ordinal & 0xffffu) & 0xffffu;
    };
    elements.put_each<FROM>(value);
}

LYNX_DEVICE void decode_tail(const Plan &plan, const Unit &unit) {
    __shared__ u32 sums_a[LYNX_WARPS], sums_b[LYNX_WARPS];
    __shared__ u32 before, empty;
    const Tile tile = tile_at(plan, blockIdx.y * plan.heads + blockIdx.x);
    const u32 tiles = plan.blocks * plan.heads;
    if (threadIdx.x == 0) before = tiles * 4, empty = 0;
#ifdef LYNX_V
    __shared__ u16 ordinals[LYNX_THREADS * LYNX_SHARE];
    const Codes codes = {plan, unit, tile, ordinals};
    __syncthreads();
#else
    __shared__ u16 ordinals[LYNX_THREADS * 32];
    __shared__ uint4 shared[LYNX_DIM * 4];
    __shared__ Step steps[8];
    const Codes codes = {plan, unit, tile, ordinals, {shared}, unit.places + tile.head * 8 * LYNX_DIM};
    find_steps(plan, unit, tile, steps);
    __syncthreads();
    move_words<false, false>(plan, unit, tile, codes.words, steps, BlockSums());
#endif
    add_lengths(unit, tile.index, &before);
    __syncthreads();
    const Elements elements(plan, unit, tile);
    const bool has_group = elements.group < groups_of(tile);
    const u32 params = has_group ? params_at(unit, tile, elements.group) : 0;
    const Lane lane(codes, params);
    Depths low, high;
    u32 own = 0;
    bool all = lane.count<0>(low, own);
    if (LYNX_SECOND) all &= lane.count<32>(high, own);
    if (!all || !are_valid(params)) {
        atomicMin(&unit.status[1], tile.index << 16 | elements.group);
        atomicOr(&empty, 1);
    }
    const Scan scan_a(own, sums_a);
    const u32 entry = reinterpret_cast<const u32 *>(unit.tail)[tile.index], a = entry & 0xffff, b = entry >> 16;
    const u64 end = (u64)before + a + b;
    // The same for all threads of the block.
    const bool fits = (scan_a.all + 7) / 8 == a && (tile.index == tiles - 1 ? end == unit.tail_bytes : end <= unit.tail_bytes);
    if (empty || !fits) {
        if (threadIdx.x == 0 && !fits) atomicMin(&unit.status[3], tile.index);
        return;
    }
    const u8 *section_a = unit.tail + before, *section_b = section_a + a;
    const u32 start = scan_a.before - Span(own).before;
    const u32 longs = lane.keep<0>(Streams<false>(section_a, start, low, high));
    const u32 more = LYNX_SECOND ? lane.keep<32>(Streams<true>(section_a, start, low, high)) : 0;
    const Scan scan_b(__popc(longs) + __popc(more), sums_b);
    if ((scan_b.all + 7) / 8 != b) {
        if (threadIdx.x == 0) atomicMin(&unit.status[3], tile.index);
        return;
    }
    if (params == 0) return;
    const u32 extras = scan_b.before + __popc(longs);
    store_run<0>(lane, elements, longs, read_bits(section_b, scan_b.before, __popc(longs)));
    if (LYNX_SECOND) store_run<32>(lane, elements, more, read_bits(section_b, extras, __popc(more)));
}
