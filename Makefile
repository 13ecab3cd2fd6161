# SPDX-License-Identifier: MIT OR Apache-2.0
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

.PHONY: help
help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: deps ## load a real model into a dma-buf, on this machine and in a guest
	@demo/run

.PHONY: test
test: build programs ## every test: on this machine, then in guests (about half an hour)
	cargo test --locked --quiet
	vm/selftest
	tests/matrix

.PHONY: test-debug
test-debug: build programs ## the guests' tests again under KASAN, lockdep, kmemleak, DMABUF_DEBUG
	tests/matrix --debug

.PHONY: lint
lint: deps ## formatters, clippy, checkpatch, sparse, shellcheck
	cargo fmt --all --check
	cargo clippy --locked --quiet --workspace --all-targets -- -D warnings
	tools/lint-kernel
	tools/check-series
	tools/lint-shell

.PHONY: bench
bench: build ## what each way costs the CPU: instructions per MiB on 7.3 with the series
	vm/run --kernel 7.3-series --icount -- target/release/dmabuf-dio-bench cost

.PHONY: bench-peers
bench-peers: build ## beside the loaders people use (downloads 2.5 GB, needs 4.5 GB of disk)
	bench/peers/compare

.PHONY: test-peers
test-peers: deps ## those loaders tell right bytes from wrong ones (the same download)
	bench/peers/selftest

.PHONY: build
build: deps ## the command, target/release/dmabuf-dio
	cargo build --locked --release --quiet

# What runs in guests: the tests of the kernel and of the library
.PHONY: programs
programs: deps
	@$(MAKE) -C tests/guest --quiet O=$(CURDIR)/build/tests-guest
	@tools/collect-rust-tests
	@tools/build-kselftests "$$(vm/kernel --sources 7.3-series)"
	@mkdir -p build
	$(CC) -O2 -Wall -Wextra -o build/edu-check kernel/sim/edu_importer/edu-check.c

.PHONY: module
module: deps ## dmabuf_dio.ko for the running kernel (needs its headers)
	$(MAKE) -C kernel/module modules

.PHONY: dkms
dkms: deps ## register the module with DKMS, so that it follows kernel updates
	tools/install-dkms

.PHONY: deps
deps:
	@tools/install-packages

.PHONY: clean
clean: ## delete what was built here (not the cache in ~/.cache/dmabuf-dio)
	rm -rf build target
