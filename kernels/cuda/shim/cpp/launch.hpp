// A launch: block after block, and in each the threads in turns.
#pragma once
#include <cstdint>
#include <cstring>
#include <functional>

namespace shim {

struct Index {
    uint32_t x, y, z;
};

// Which thread runs, and of how many blocks.
struct Current {
    Index thread, block, grid;
};

Current &current();

// Ends the launch, with this said of the current thread. Never returns to it.
[[noreturn]] void fail(const char *what);

inline void check_aligned(const void *at, uintptr_t bytes) {
    if (reinterpret_cast<uintptr_t>(at) % bytes != 0) fail("a vector isn't aligned to its size");
}

// Gives 64 bits to the warp and takes those of all its lanes, which stay until the lane's next meeting.
const uint64_t *meet(int site, uint32_t mask, uint64_t bits);

void barrier(int site);

uint32_t lane();

template <class T> T exchange(int site, uint32_t mask, T value, uint32_t from) {
    static_assert(sizeof(T) <= sizeof(uint64_t), "a register or two");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof(T));
    bits = meet(site, mask, bits)[from % 32];
    memcpy(&value, &bits, sizeof(T));
    return value;
}

template <class T> T shuffle_xor(int site, uint32_t mask, T value, uint32_t lanes) {
    return exchange(site, mask, value, lane() ^ lanes);
}

template <class T> T shuffle(int site, uint32_t mask, T value, uint32_t from, uint32_t width) {
    return exchange(site, mask, value, (lane() & ~(width - 1)) | (from & (width - 1)));
}

inline uint32_t ballot(int site, uint32_t mask, bool yes) {
    const uint64_t *all = meet(site, mask, yes);
    uint32_t lanes = 0;
    for (int i = 0; i < 32; i++) lanes |= static_cast<uint32_t>(all[i]) << i;
    return lanes;
}

inline uint32_t reduce_add(int site, uint32_t mask, uint32_t value) {
    const uint64_t *all = meet(site, mask, value);
    uint32_t sum = 0;
    for (int i = 0; i < 32; i++) sum += static_cast<uint32_t>(all[i]);
    return sum;
}

inline uint32_t reduce_or(int site, uint32_t mask, uint32_t value) {
    const uint64_t *all = meet(site, mask, value);
    uint32_t bits = 0;
    for (int i = 0; i < 32; i++) bits |= static_cast<uint32_t>(all[i]);
    return bits;
}

// Runs `kernel` for every thread of every block; null where all went well, otherwise what was wrong, until the next launch.
// `threads` is a multiple of 32. Seeds 0 and 1 take lanes and blocks in ascending and in descending order, others in a random one.
const char *launch(Index blocks, uint32_t threads, uint64_t seed, std::function<void()> kernel);

}  // namespace shim
