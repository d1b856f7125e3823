// Splits and merges units of KV in GPU memory, bit for bit as kernels/src/scalar.rs does; docs/cuda.md says how.
#include "pack.cuh"
#include "raw.cuh"
#include "sum.cuh"
#include "unpack.cuh"

// Values to parameters, raw tokens and words. Counts escaped groups in `status[0]`, and adds up the checksums of what it writes.
LYNX_KERNEL void __launch_bounds__(LYNX_THREADS)
lynx_split(const __grid_constant__ Plan plan, const Unit *__restrict__ units) {
    const Unit &unit = units[blockIdx.z];
#ifndef LYNX_WHOLE
    if (blockIdx.y == plan.blocks) return copy_raw<false>(plan, unit);
#endif
    split_tile(plan, unit);
}

// Parameters, raw tokens and the words of the first steps to values. Impossible parameters are told in `status[1]`; adds up the
// checksums of what it reads.
LYNX_KERNEL void __launch_bounds__(LYNX_THREADS)
lynx_merge(const __grid_constant__ Plan plan, const Unit *__restrict__ units) {
    const Unit &unit = units[blockIdx.z];
#ifndef LYNX_WHOLE
    if (blockIdx.y == plan.blocks) return copy_raw<true>(plan, unit);
#endif
    merge_tile(plan, unit);
}

// The values of escaped groups to the head's end; after a split that counted any.
LYNX_KERNEL void __launch_bounds__(LYNX_THREADS)
lynx_escape(const __grid_constant__ Plan plan, const Unit *__restrict__ units) {
    copy_escaped<false>(plan, units[blockIdx.z]);
}

// Their values back; after a merge of a head that has any.
LYNX_KERNEL void __launch_bounds__(LYNX_THREADS)
lynx_unescape(const __grid_constant__ Plan plan, const Unit *__restrict__ units) {
    copy_escaped<true>(plan, units[blockIdx.z]);
}

// What the planes leave of the values; after a split, whose parameters it reads. Its length goes to `status[2]`.
LYNX_KERNEL void __launch_bounds__(LYNX_THREADS)
lynx_tail(const __grid_constant__ Plan plan, const Unit *__restrict__ units) {
    encode_tail(plan, units[blockIdx.z]);
}

// All segments to the values, bit for bit, whatever was merged before. Impossible parameters and codes are told in `status[1]`, tails
// that don't fit the codes in `status[3]`. Its registers are worth more than more threads at a time.
LYNX_KERNEL void __launch_bounds__(LYNX_THREADS, 512 / LYNX_THREADS)
lynx_restore(const __grid_constant__ Plan plan, const Unit *__restrict__ units) {
    const Unit &unit = units[blockIdx.z];
#ifndef LYNX_WHOLE
    if (blockIdx.y == plan.blocks) return copy_raw<true>(plan, unit);
#endif
    decode_tail(plan, unit);
}

// The checksums of what the tiles leave out: tails, raw tokens, pieces that aren't whole words. Its grid is (extents, blocks of
// threads for each, units).
LYNX_KERNEL void __launch_bounds__(LYNX_THREADS)
lynx_sum(const __grid_constant__ Extents extents, const Unit *__restrict__ units) {
    sum_extent(extents, units[blockIdx.z], gridDim.y);
}
