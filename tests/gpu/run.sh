#!/usr/bin/env bash
# tests/gpu/run.sh [--rehearse]: what only a GPU can show, in under 10 minutes; tests/gpu/pack has built out/gpu before. Prints one
# table and writes rows of JSON, $OUT/gpu.json (default out/gpu.json): one for each part, and those of `lynx bench gpu`.
#
# First the bits: random and adversarial units, split, merged and restored by the GPU and by the processor, then the same under
# compute-sanitizer where it is installed. Then the rates, each beside a copy within the GPU, and what sharing it costs,
# without MPS and, where it can be started, with it. Each part has a limit of its own, so that one that hangs loses no other's figures;
# the status is 1 where one has failed. With --rehearse all of it runs on the driver's double, which shows only that it runs.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1

built=$PWD/out/gpu
out=${OUT:-$PWD/out}
kernels=$built/kernels
bench=(bench gpu --sharing)
if [[ ${1:-} == --rehearse ]]; then
    export LD_LIBRARY_PATH=$built/rehearsal
    kernels=$built/rehearsal/kernels
    bench+=(--rehearse)
fi
export LYNX_TEST_KERNELS=$kernels
mkdir -p "$out"
for needed in "$built/lynx" "$built/loader" "$kernels/SOURCE"; do
    [[ -e $needed ]] || { echo "$needed is missing: run tests/gpu/pack where there is a compiler" >&2; exit 1; }
done
rows=$(mktemp) && work=$(mktemp -d) || exit 1
failed=0
trap 'rm -rf "$rows" "$work"' EXIT

# A part by its name, with so many seconds: what it says goes to a file of its own, and is shown where it fails.
part() {
    local name=$1 limit=$2 begin=$SECONDS status
    shift 2
    timeout --kill-after 5 "$limit" "$@" >"$out/gpu-${name// /-}.log" 2>&1
    status=$?
    printf '  %-28s %s, %s s\n' "$name" "$([[ $status == 0 ]] && echo well || echo "failed ($status)")" $((SECONDS - begin))
    printf '{"part": "%s", "status": %s, "seconds": %s}\n' "$name" "$status" $((SECONDS - begin)) >>"$rows"
    if [[ $status != 0 ]]; then
        tail -n 20 "$out/gpu-${name// /-}.log" >&2
        failed=1
    fi
    return "$status"
}

skipped() {
    printf '  %-28s not run: %s\n' "$1" "$2"
    printf '{"part": "%s", "status": null, "why": "%s"}\n' "$1" "$2" >>"$rows"
}

# A bench's rows, one a line.
rates() {
    local name=$1 limit=$2
    part "$name" "$limit" "$built/lynx" "${bench[@]}" --kernels "$kernels" --json "$work/rows.json" || return
    sed '/^[][]$/d; s/,$//' "$work/rows.json" >>"$rows"
    cat "$out/gpu-${name// /-}.log"
}

if command -v nvidia-smi >/dev/null; then
    nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem --format=csv,noheader
fi
# Each test by a part of its name. Others are of the double alone: a driver opens no memory of its own process, for one.
part bits 100 "$built/loader" --ignored --test-threads 1 coded_as_the_processor coded_as_its_bf16 wrong_segments is_measured \
    recorded_once
part "streams and memory" 40 "$built/loader" --ignored --test-threads 1 comes_before_what_waits by_another_process \
    maps_the_same_memory where_it_is_wanted is_refused_is_copied
part dma-buf 10 "$built/loader" --ignored --test-threads 1 as_a_dma_buf

sanitizer=$(command -v compute-sanitizer || find /usr/local -path '*/bin/compute-sanitizer' 2>/dev/null | tail -n 1)
for tool in memcheck racecheck; do
    if [[ -n $sanitizer ]]; then
        part "sanitizer $tool" 75 "$sanitizer" --tool "$tool" --error-exitcode 1 \
            "$built/loader" --ignored --test-threads 1 is_measured wrong_segments
    else
        skipped "sanitizer $tool" "compute-sanitizer is not installed"
    fi
done

rates rates 110
if command -v nvidia-cuda-mps-control >/dev/null; then
    CUDA_MPS_PIPE_DIRECTORY=$work/mps CUDA_MPS_LOG_DIRECTORY=$work/mps
    export CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
    mkdir "$work/mps"
    if part "start of MPS" 10 nvidia-cuda-mps-control -d; then
        rates "rates with MPS" 110
        echo quit | timeout 20 nvidia-cuda-mps-control >/dev/null
    fi
else
    skipped "rates with MPS" "MPS is not installed"
fi

{ echo '['; sed '$!s/$/,/' "$rows"; echo ']'; } >"$out/gpu.json"
echo "  rows      $out/gpu.json"
exit "$failed"
