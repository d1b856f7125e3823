// What travels as BF16: the raw tokens, and the values of escaped groups.
//
// Raw tokens are copied by the same launch as the tiles. Escaped groups are so rare that the host looks at their number and
// launches `lynx_unescape` only where there are any: their places depend on the parameters of all tiles.
#pragma once
#include "unit.cuh"

// Copies the raw tokens of this block's head into the segment, or back.
template <bool BACK> LYNX_DEVICE void copy_raw(const Plan &plan, const Unit &unit) {
    const u32 pairs = LYNX_DIM / 2, head = blockIdx.x;
    u32 *segment = reinterpret_cast<u32 *>(unit.head + plan.param_bytes);
    for (u32 i = threadIdx.x; i < plan.raw_tokens * pairs; i += LYNX_THREADS) {
        u32 token = i / pairs, pair = i % pairs, run = 0, first = 0;
        while (token - first >= plan.run[run].tokens) first += plan.run[run++].tokens;
        u32 position = plan.run[run].position + token - first;
        u32 *kv = reinterpret_cast<u32 *>(element(plan, unit, position, head, pair * 2));
        u32 *raw = segment + (token * plan.heads + head) * pairs + pair;
        if (BACK)
            *kv = from_bf16(*raw);
        else
            *raw = to_bf16(*kv);
    }
}

// Writes a tile's escaped groups behind the raw tokens, or puts them back. One thread a group counts what precedes it.
template <bool BACK> LYNX_DEVICE void copy_escaped(const Plan &plan, const Unit &unit) {
    Tile tile = this_tile(plan);
    const u32 *params = reinterpret_cast<const u32 *>(unit.head);
#ifdef LYNX_V
    const u32 groups = tile.tokens, lanes = LYNX_DIM, first = tile.before;
#else
    const u32 groups = LYNX_DIM, lanes = tile.tokens, first = tile.index * LYNX_DIM;
#endif
    for (u32 group = threadIdx.x; group < groups; group += LYNX_THREADS) {
        if (params[first + group] != 0) continue;
        u32 before = 0;
#ifdef LYNX_V
        for (u32 i = 0; i < first + group; i++) before += params[i] == 0 ? lanes : 0;
#else
        for (u32 i = 0; i < first + group; i++)
            before += params[i] == 0 ? plan.block[i / LYNX_DIM / plan.heads].tokens : 0;
#endif
        u16 *segment = reinterpret_cast<u16 *>(unit.head + plan.param_bytes);
        segment += plan.raw_tokens * plan.heads * LYNX_DIM + before;
        for (u32 lane = 0; lane < lanes; lane++) {
#ifdef LYNX_V
            u32 token = group, channel = lane;
#else
            u32 token = lane, channel = group;
#endif
            u16 *kv = element(plan, unit, plan.block[blockIdx.y].position + token, tile.head, channel);
            if (BACK)
                *kv = from_bf16(segment[lane]) & 0xffff;
            else
                segment[lane] = to_bf16(*kv) & 0xffff;
        }
    }
}
