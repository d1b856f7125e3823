// One build of the kernels, compiled for the CPU: LYNX_ENTRY is the name by which Rust calls it.
#include "cuda.hpp"

// Builds have functions of the same names, which the linker must not take for the same.
namespace {
#include "kernels.cu"

void (*const KERNELS[])(Plan, const Unit *) = {lynx_split,    lynx_merge, lynx_escape,
                                                     lynx_unescape, lynx_tail,  lynx_restore};
constexpr uint32_t SUM = sizeof KERNELS / sizeof *KERNELS;
}  // namespace

// Of `lynx_sum`, which is the last, `first` are the extents.

extern "C" const char *LYNX_ENTRY(uint32_t kernel, const void *first, const Unit *units, const shim::Index *blocks, uint64_t seed) {
    return shim::launch(*blocks, LYNX_THREADS, seed, [&] {
        if (kernel == SUM)
            lynx_sum(*static_cast<const Extents *>(first), units);
        else
            KERNELS[kernel](*static_cast<const Plan *>(first), units);
    });
}
