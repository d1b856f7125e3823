#!/usr/bin/env bash
# tests/gpu/run.sh: what only a GPU can show, in under 10 minutes; tests/gpu/pack has built out/gpu before. Prints one table and
# writes one JSON, $OUT/gpu.json (default out/gpu.json).
#
# First the bits: random and adversarial units, split, merged and restored by the GPU and by the processor, then the same under
# compute-sanitizer where it is installed. Then the rates, each beside a copy within the GPU, and what sharing it costs,
# without MPS and, where it can be started, with it.
set -euo pipefail
cd "$(dirname "$0")/../.."

built=$PWD/out/gpu
out=${OUT:-$PWD/out}
export LYNX_TEST_KERNELS=$built/kernels
mkdir -p "$out"
[[ -x $built/loader ]] || { echo "out/gpu is missing: run tests/gpu/pack where there is a compiler" >&2; exit 1; }
command -v nvidia-smi >/dev/null && nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem --format=csv,noheader

# What an own process may do: memory of its own can't be imported, and the driver is no other library.
compare() { "$@" "$built/loader" --ignored --test-threads 1 coded_as_the_processor wrong_segments is_measured; }

echo "  bits      the GPU against the processor"
timeout 120 bash -c "$(declare -f compare); built=$built; compare"

sanitizer=$(command -v compute-sanitizer || find /usr/local -path '*/bin/compute-sanitizer' 2>/dev/null | tail -n 1)
if [[ -n $sanitizer ]]; then
    for tool in memcheck racecheck; do
        echo "  sanitizer $tool"
        timeout 90 "$sanitizer" --tool "$tool" --error-exitcode 1 \
            "$built/loader" --ignored --test-threads 1 is_measured wrong_segments
    done
else
    echo "  sanitizer not installed: not run"
fi

echo "  rates"
timeout 90 "$built/lynx" bench gpu --kernels "$built/kernels" --sharing --json "$out/gpu.json"

if command -v nvidia-cuda-mps-control >/dev/null; then
    echo "  rates     with MPS"
    CUDA_MPS_PIPE_DIRECTORY=$(mktemp -d)
    CUDA_MPS_LOG_DIRECTORY=$CUDA_MPS_PIPE_DIRECTORY
    export CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
    if nvidia-cuda-mps-control -d; then
        timeout 90 "$built/lynx" bench gpu --kernels "$built/kernels" --sharing --json "$out/gpu-mps.json" || true
        echo quit | nvidia-cuda-mps-control
    fi
fi
if [[ -f $out/gpu-mps.json ]]; then
    # One JSON: the rows say whether they had MPS.
    { sed '$d' "$out/gpu.json" | sed '$s/$/,/'; sed 1d "$out/gpu-mps.json"; } >"$out/both.json"
    mv "$out/both.json" "$out/gpu.json"
    rm "$out/gpu-mps.json"
fi
