// The exact tail: what the eight planes leave of every value, as codec.md has it. What making it (pack.cuh) and taking it apart
// (unpack.cuh) have in common.
#pragma once
#include "format.cuh"
#include "unit.cuh"
#ifdef LYNX_V
#include "v.cuh"
#else
#include "k.cuh"
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
LYNX_DEVICE u32 ballot(bool yes) { return __ballot_sync(LYNX_ALL_LANES, yes); }

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
