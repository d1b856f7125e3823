# The verbs of this repository. `make` alone lists them; CI runs the same ones (.ci/run).
#
#   LYNX_CACHE   where models are kept            (default ~/.cache/lynx)
#   ARGS         what is handed on to the command (make demo ARGS="--link 200mbit")
#   BENCH        which benches                    (default all: codec link accuracy ttft)
#   PROFILE      where a profile goes             (default out/profile.json)
#   FUZZ         the fuzz target                  (default frame)
#   DEPLOYMENTS  the sizes of bench-operator      (default 100 500)
#   STEADY_SECONDS for how long it then watches  (default 120)
#   FUZZ_SECONDS how long fuzz-all takes for each (default 60)

SHELL := /bin/bash
ARGS ?=
BENCH ?= codec link accuracy ttft
PROFILE ?= out/profile.json
FUZZ ?= frame
FUZZ_SECONDS ?= 60
DEPLOYMENTS ?= 100 500
STEADY_SECONDS ?= 120

# What a node needs to run the journey.
IMAGES := operator agent engine pause

CARGO := cargo
LYNX := $(CARGO) run --quiet --release -p lynx --

.DEFAULT_GOAL := help
.PHONY: help demo test test-metrics test-cluster test-neighbours test-cuda test-faults test-rdma test-vllm bench bench-vllm bench-peers bench-operator soak lint images model fuzz fuzz-all profile toolchain build

help: ## List the verbs
	@echo "make VERB, where VERB is one of"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 15

demo: model build ## Two nodes on this machine, a narrow link between them, and the race of five methods
	@mkdir -p out
	@$(LYNX) demo --report out/demo.html $(ARGS)

test: toolchain model ## All tests but those on a cluster
	@scripts/need c++ python3 pip
	@scripts/kube-tools jaeger
	@echo "  test      workspace"
	@$(CARGO) test --workspace $(ARGS)
	@echo "  test      lynx-vllm"
	@integrations/vllm/test

test-metrics: toolchain model ## Every metric moves, and every alert is evaluated, in a real Prometheus, built here
	@scripts/kube-tools prometheus
	@echo "  test      metrics, as Prometheus sees them"
	@$(CARGO) test -p lynx --test metrics -- --ignored

test-cluster: toolchain model ## The tests on a real Kubernetes of one node, built here: operator, pods, the whole journey
	@scripts/need containerd runc cni ip tc nft iptables nsenter openssl python3
	@scripts/kube-tools
	@echo "  images    for the tests"
	@$(CARGO) xtask images --profile dev
	@echo "  test      the node itself"
	@tests/cluster/test_node.py out/images/pause.tar
	@echo "  test      the chart, and the operator, against an API server"
	@tests/cluster/control-plane down
	@tests/cluster/control-plane up
	@tests/cluster/control-plane run tests/cluster/test_chart.py && \
	    tests/cluster/control-plane run $(CARGO) test --workspace --test cluster -- --ignored --test-threads 1; \
	    status=$$?; tests/cluster/control-plane down; exit $$status
	@echo "  test      the journey, on a node"
	@tests/cluster/end-to-end $(IMAGES:%=out/images/%.tar)

test-neighbours: toolchain model ## On such a node, with KEDA, cert-manager and a firewall that enforces NetworkPolicies, built here
	@scripts/need containerd runc cni ip tc nft iptables ipset nsenter openssl python3
	@scripts/kube-tools
	@scripts/kube-tools prometheus keda cert-manager kube-router
	@echo "  images    for the tests"
	@$(CARGO) xtask images --profile dev
	@echo "  test      a deployment with its neighbours, on a node"
	@tests/cluster/end-to-end --neighbours $(IMAGES:%=out/images/%.tar)

test-cuda: toolchain ## The CUDA kernels without a GPU: run on the CPU against the codec, compiled for three GPUs within their budget
	@scripts/need cc c++ python3 pip
	@echo "  test      the kernels, on the CPU"
	@$(CARGO) test --quiet -p lynx-cuda-shim -p lynx-cuda -p lynx-c $(ARGS)
	@echo "  compile   the kernels, for GPUs"
	@kernels/cuda/compile

test-faults: toolchain model ## Faults with real processes in network namespaces, as root (ARGS=--long for 1,000 and all phases)
	@scripts/need ip tc cc python3
	@echo "  build     the programs of the faults"
	@$(CARGO) build --quiet -p lynx -p lynx-engine --bin lynx --example answer
	@tests/faults/faults.py $(ARGS)

test-rdma: toolchain model ## Verbs, links and agents on Soft-RoCE, in a virtual machine that QEMU emulates (ARGS="--only TEXT" or --console)
	@scripts/need cmake libclang pkg-config libnl-headers libibverbs-headers qemu-system-x86_64 cpio depmod ip python3 readelf strip
	@echo "  clippy    what is behind the feature rdma"
	@$(CARGO) clippy --quiet --workspace --features lynx/rdma --all-targets -- -D warnings
	@echo "  test      verbs, without a device"
	@$(CARGO) test --quiet -p lynx-verbs --features rdma
	@tests/rdma/test_packages.py
	@tests/rdma/vm.py $(ARGS)

test-vllm: toolchain model ## Two real vLLM servers with Lynx between them, as root (ARGS="--only TEXT" or --keep)
	@scripts/need ip tc python3 pip
	@scripts/vllm-env >/dev/null
	@integrations/vllm/test
	@integrations/vllm/test --with-vllm
	@echo "  build     the agent, and the double of CUDA's driver"
	@integrations/vllm/test --with-agents
	@tests/vllm/vllm_test.py $(ARGS)

bench-vllm: build ## What Lynx costs a vLLM whose requests have nothing to do with it, as root (ARGS="--rounds 48"); rows go to out/
	@scripts/need ip tc python3 pip
	@scripts/vllm-env >/dev/null
	@PYTHONPATH=$$(scripts/python-env integrations/vllm/tests/requirements.txt | tail -n 1) integrations/vllm/generate.py
	@mkdir -p out
	@tests/vllm/vllm_bench.py --json out/bench-vllm.json $(ARGS)

bench: model build ## Measure what docs/specification.md promises (ARGS=--quick for a first look); rows go to out/
	@mkdir -p out
	@for bench in $(BENCH); do \
	    echo "  bench     $$bench"; \
	    $(LYNX) bench $$bench --json out/bench-$$bench.json $(ARGS) || exit; \
	done

bench-peers: build ## Lynx beside plain TCP, NIXL and Mooncake on a shaped link, as root (ARGS=--quick for a first look)
	@scripts/need ip tc python3 pip
	@mkdir -p out
	@tests/peers/bench --lynx "target/release/lynx bench peer" --json out/bench-peers.json $(ARGS)

bench-operator: toolchain ## The operator with DEPLOYMENTS LynxDeployments on a real API server: times, requests, memory; rows go to out/
	@scripts/need openssl python3
	@scripts/kube-tools kube etcd
	@echo "  build     the operator and its bench"
	@$(CARGO) build --quiet --release -p lynx-operator --bin lynx-operator --example scale
	@mkdir -p out
	@for size in $(DEPLOYMENTS); do \
	    echo "  bench     $$size deployments"; \
	    tests/cluster/control-plane down && tests/cluster/control-plane up || exit; \
	    tests/cluster/control-plane run target/release/examples/scale target/release/lynx-operator $$size $(STEADY_SECONDS) \
	        out/bench-operator-$$size.json; \
	    status=$$?; tests/cluster/control-plane down; [ $$status -eq 0 ] || exit $$status; \
	done

soak: model build ## 200 clients for a minute: every answer right, nothing that grows (ARGS="--seconds 600")
	@$(LYNX) bench soak $(ARGS)

lint: toolchain ## Formatting, clippy, layering, licences, style, shell scripts, the chart
	@scripts/need c++ shellcheck
	@echo "  fmt"
	@$(CARGO) fmt --all --check
	@echo "  clippy"
	@$(CARGO) clippy --quiet --workspace --all-targets -- -D warnings
	@echo "  rules"
	@$(CARGO) test --quiet -p lynx-tests --test layering --test licences --test style --test specification
	@echo "  scripts"
	@shellcheck scripts/* .ci/run
	@echo "  chart"
	@scripts/chart-check

images: toolchain ## Container images of operator, agent and engine, as OCI archives in out/images (ARGS=--rdma: the agent with RDMA)
	@case " $(ARGS) " in *" --rdma "*) \
	    scripts/need cmake libclang pkg-config libnl-headers libibverbs-headers libibverbs rdma-drivers ;; \
	esac
	@$(CARGO) xtask images $(ARGS)

model: ## Fetch the model of the demo and the tests, once
	@scripts/model

fuzz: toolchain ## Fuzz one target (FUZZ=name) until stopped, or as ARGS say
	@command -v cargo-fuzz >/dev/null || { echo "cargo-fuzz is missing: cargo install cargo-fuzz, and a nightly toolchain." >&2; exit 1; }
	@mkdir -p fuzz/target/corpus/$(FUZZ)
	@cd fuzz && $(CARGO) +nightly fuzz run $(FUZZ) target/corpus/$(FUZZ) corpus/$(FUZZ) $(ARGS)

fuzz-all: toolchain ## Fuzz every target for FUZZ_SECONDS each; the first that finds something stops it
	@command -v cargo-fuzz >/dev/null || { echo "cargo-fuzz is missing: cargo install cargo-fuzz, and a nightly toolchain." >&2; exit 1; }
	@cd fuzz && for target in $$($(CARGO) +nightly fuzz list); do \
	    echo "  fuzz      $$target"; \
	    mkdir -p target/corpus/$$target; \
	    $(CARGO) +nightly fuzz run $$target target/corpus/$$target corpus/$$target -- -max_total_time=$(FUZZ_SECONDS) -timeout=10 -rss_limit_mb=2048 || exit; \
	done

profile: model build ## Make the anchor profile of a model anew (lynx calibrate)
	@mkdir -p out
	@$(LYNX) calibrate --out $(PROFILE) $(ARGS)

toolchain:
	@scripts/need cc cargo

build: toolchain
	@echo "  build     lynx (the first time takes some minutes)"
	@$(CARGO) build --release -p lynx
