#include "launch.hpp"

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <vector>

#include "fiber.hpp"

#ifdef __x86_64__
asm(".text\n"
    ".globl lynx_shim_switch\n"
    ".type lynx_shim_switch,@function\n"
    "lynx_shim_switch:\n"
    "  push %rbp\n  push %rbx\n  push %r12\n  push %r13\n  push %r14\n  push %r15\n"
    "  mov %rsp,(%rdi)\n"
    "  mov %rsi,%rsp\n"
    "  pop %r15\n  pop %r14\n  pop %r13\n  pop %r12\n  pop %rbx\n  pop %rbp\n"
    "  ret\n"
    ".size lynx_shim_switch,.-lynx_shim_switch\n");
#endif

namespace shim {
namespace {

// Lanes that come to one call. Of two meetings in a row each has its own values, since a lane may be at the next one before
// another has taken what it wanted of this one; it can't be two ahead.
struct Warp {
    uint32_t arrived = 0, meeting = 0;
    int site = 0;
    uint64_t values[2][32];
};

struct Thread {
    Fiber fiber;
    bool done = false;
};

struct State {
    std::function<void()> kernel;
    Fiber scheduler;
    std::vector<Thread> threads;
    std::vector<Warp> warps;
    Current current;
    uint32_t count = 0, finished = 0, at_barrier = 0, barriers = 0;
    int barrier_site = 0;
    uint64_t progress = 0;
    bool failed = false;
    char message[200];
};

State &state() {
    static thread_local State state;
    return state;
}

Thread &running() { return state().threads[state().current.thread.x]; }

void give_way() { running().fiber.switch_to(state().scheduler); }

void say(const char *what) {
    State &s = state();
    snprintf(s.message, sizeof s.message, "%s (block %u %u %u, thread %u)", what, s.current.block.x, s.current.block.y,
             s.current.block.z, s.current.thread.x);
    s.failed = true;
}

// A fiber's whole life.
void run_thread() {
    State &s = state();
    s.kernel();
    running().done = true;
    s.finished++;
    s.progress++;
    for (;;) give_way();
}

struct Random {
    uint64_t state;

    uint64_t operator()(uint64_t limit) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        return (state >> 11) % limit;
    }
};

void arrange(std::vector<uint32_t> &order, uint64_t seed, Random &random) {
    std::iota(order.begin(), order.end(), 0);
    if (seed == 1) std::reverse(order.begin(), order.end());
    if (seed > 1)
        for (size_t i = order.size(); i > 1; i--) std::swap(order[i - 1], order[random(i)]);
}

void run_block(std::vector<uint32_t> &order, uint64_t seed, Random &random) {
    State &s = state();
    s.warps.assign(s.count / 32, Warp{});
    s.finished = s.at_barrier = 0;
    for (Thread &thread : s.threads) {
        thread.done = false;
        thread.fiber.start(run_thread);
    }
    while (s.finished < s.count && !s.failed) {
        uint64_t before = s.progress;
        arrange(order, seed, random);
        for (uint32_t thread : order) {
            s.current.thread = {thread, 0, 0};
            if (!running().done && !s.failed) s.scheduler.switch_to(running().fiber);
        }
        if (s.progress == before && !s.failed) {
            for (uint32_t i = s.count; i > 0; i--)
                if (!s.threads[i - 1].done) s.current.thread.x = i - 1;
            say("threads wait for others that never come");
        }
    }
}

}  // namespace

Current &current() { return state().current; }

void fail(const char *what) {
    say(what);
    for (;;) give_way();
}

uint32_t lane() { return current().thread.x % 32; }

const uint64_t *meet(int site, uint32_t mask, uint64_t bits) {
    if (mask != ~0u) fail("only whole warps meet");
    State &s = state();
    Warp &warp = s.warps[s.current.thread.x / 32];
    uint32_t meeting = warp.meeting;
    if (warp.arrived == 0) warp.site = site;
    if (warp.site != site) fail("lanes of a warp meet in different calls");
    uint64_t *values = warp.values[meeting % 2];
    values[lane()] = bits;
    warp.arrived |= 1u << lane();
    s.progress++;
    if (warp.arrived == ~0u) {
        warp.arrived = 0;
        warp.meeting++;
    }
    while (warp.meeting == meeting) give_way();
    return values;
}

void barrier(int site) {
    State &s = state();
    uint32_t barriers = s.barriers;
    if (s.at_barrier == 0) s.barrier_site = site;
    if (s.barrier_site != site) fail("threads of a block meet at different barriers");
    s.progress++;
    if (++s.at_barrier == s.count) {
        s.at_barrier = 0;
        s.barriers++;
    }
    while (s.barriers == barriers) give_way();
}

const char *launch(Index blocks, uint32_t threads, uint64_t seed, std::function<void()> kernel) {
    State &s = state();
    s.kernel = std::move(kernel);
    s.count = threads;
    s.threads.resize(threads);
    s.failed = false;
    s.current.grid = blocks;
    Random random{seed * 0x9e3779b97f4a7c15 | 1};
    std::vector<uint32_t> order(threads), block_order(blocks.x * blocks.y * blocks.z);
    arrange(block_order, seed, random);
    for (uint32_t block : block_order) {
        s.current.block = {block % blocks.x, block / blocks.x % blocks.y, block / blocks.x / blocks.y};
        run_block(order, seed, random);
        if (s.failed) return s.message;
    }
    return nullptr;
}

}  // namespace shim
