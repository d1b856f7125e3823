// Where everything is: what the host tells a launch, and addresses made of it.
//
// A launch codes any number of units that differ only in their memory: same shape, kind, tokens, cuts and layout. Its grid is
// (heads, blocks, units), a block of threads for each tile; in builds for any tokens one more row of blocks copies the raw
// tokens. Structures are those of kernels/gpu/src/launch.rs, field by field.
//
// A build is specialised by these:
//   LYNX_V      V instead of K
//   LYNX_DIM    channels a head: of K any multiple of 8, of V any of 32, up to 256
//   LYNX_WHOLE  all tiles have 64 tokens, and no token is raw: the middle of a prompt
//   LYNX_FP16   the cache holds FP16, which is rounded to BF16 when read
//   LYNX_PLANES V's planes to merge, known beforehand
//   LYNX_BARE   no checksums: only to count what they cost
#pragma once
#include "device.cuh"

#define LYNX_DIM_32 ((LYNX_DIM + 31) / 32 * 32)

#ifdef LYNX_V
// Four lanes share a token. Tokens a thread: so many that it has about 64 elements.
#define LYNX_TOKENS (LYNX_DIM <= 64 ? 4 : LYNX_DIM <= 128 ? 2 : 1)
#define LYNX_THREADS (256 / LYNX_TOKENS)
#define LYNX_WORD_BYTES (LYNX_DIM / 8)
static_assert(LYNX_DIM % 32 == 0 && LYNX_DIM <= 256, "V heads have a multiple of 32 channels, up to 256");
#else
// A thread has 8 channels of 8 tokens.
#define LYNX_THREADS LYNX_DIM_32
static_assert(LYNX_DIM % 8 == 0 && LYNX_DIM <= 256, "K heads have a multiple of 8 channels, up to 256");
#endif

#define LYNX_MOVES 1
#define LYNX_ADDS 2

// The coded tokens of a block.
struct Block {
    u32 position;  // of the first, from the first page's start
    u32 tokens;    // 16 to 64
    u32 before;    // bytes of a word (K) or tokens (V) in all tiles of earlier blocks
    // LYNX_MOVES where the words of K tiles are 8 bytes long and each step's piece starts at a multiple of 16; LYNX_ADDS where
    // all pieces are whole 64-bit words, of which the tile adds up the checksum.
    u32 aligned;
};

// Raw tokens in a row.
struct Run {
    u32 position;  // from the first page's start
    u32 tokens;
};

// What all units of a launch have in common. Strides are in elements.
struct Plan {
    u64 page_stride;
    u32 token_stride, head_stride;
    u32 page_shift;  // binary logarithm of a page's tokens
    u32 heads, blocks, runs;
    u32 steps;   // to merge; all of them for a split
    u32 anchor;  // V: planes of the first step
    u32 planes;  // V: planes of all `steps`
    u32 param_bytes;
    u32 raw_tokens;
    u32 ends[9];  // K: words of a tile before each step
    Block block[9];
    Run run[4];
};

// One unit's memory. Segments start at multiples of 16.
struct Unit {
    u16 *kv;
    const u32 *pages;    // the number of each page, from the one that holds the unit's first token
    const u16 *places;   // K: where each (head, plane, channel)'s word lies in shared memory, in bytes
    const u16 *cuts;     // K, merge: for each (head, channel) the mask of the known bits and, above it, the midpoint's bit
    const u8 *owners;    // K: the step of each 16 bytes of words, thread after thread, four each
    u8 *head;
    u8 *step[8];
    u8 *tail;
    u64 tail_bytes;  // to restore
    u32 *published;  // for the tail: one more than there are tiles, all zero before the launch
    // How many groups are escaped; the first (tile << 16 | group) that is impossible; the tail's length; the first tile that the tail
    // doesn't fit. Then, as 64 bits each, the sums of the segments' words: the head's, eight steps', the tail's.
    u32 *status;
};

LYNX_DEVICE u64 *sums_of(const Unit &unit) { return reinterpret_cast<u64 *>(unit.status + 4); }

struct Tile {
    u32 head, tokens, index, before, aligned;

#ifdef LYNX_WHOLE
    LYNX_DEVICE bool has(u32) const { return true; }
    LYNX_DEVICE bool adds() const { return true; }
#else
    LYNX_DEVICE bool has(u32 token) const { return token < tokens; }
    LYNX_DEVICE bool adds() const { return aligned & LYNX_ADDS; }
#endif
};

LYNX_DEVICE Tile this_tile(const Plan &plan) {
    const Block &block = plan.block[blockIdx.y];
    Tile tile;
    tile.head = blockIdx.x;
    tile.index = blockIdx.y * plan.heads + blockIdx.x;
    tile.aligned = block.aligned;
#ifdef LYNX_WHOLE
    tile.tokens = 64;
#else
    tile.tokens = block.tokens;
#endif
#ifdef LYNX_V
    tile.before = block.before + tile.head * tile.tokens;
#else
    tile.before = block.before + tile.head * ((tile.tokens + 7) / 8);
#endif
    return tile;
}

LYNX_DEVICE u16 *element(const Plan &plan, const Unit &unit, u32 position, u32 head, u32 channel) {
    u64 page = unit.pages[position >> plan.page_shift];
    u32 slot = position & ((1u << plan.page_shift) - 1);
    return unit.kv + page * plan.page_stride + (slot * plan.token_stride + head * plan.head_stride + channel);
}

// The four bytes that are the pair's BF16, or of which it is.
LYNX_DEVICE u32 to_bf16(u32 pair) {
#ifdef LYNX_FP16
    return half_to_bf16(pair);
#else
    return pair;
#endif
}

LYNX_DEVICE u32 from_bf16(u32 pair) {
#ifdef LYNX_FP16
    return bf16_to_half(pair);
#else
    return pair;
#endif
}

LYNX_DEVICE uint4 load8(const u16 *from) {
    uint4 v = read_once(from);
    return make_uint4(to_bf16(v.x), to_bf16(v.y), to_bf16(v.z), to_bf16(v.w));
}

LYNX_DEVICE void store8(u16 *to, uint4 v) {
    *reinterpret_cast<uint4 *>(to) = make_uint4(from_bf16(v.x), from_bf16(v.y), from_bf16(v.z), from_bf16(v.w));
}
