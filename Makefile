# SPDX-License-Identifier: MIT OR Apache-2.0
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# The C library
CAPI := $(MAKE) -C crates/dmabuf-dio-capi
# The module for SoapySDR
SOAPY := $(MAKE) -C bindings/soapysdr

.PHONY: help
help: ## show this list
	@awk -F ':.*## ' '/^[a-z0-9.-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## load a real model into a dma-buf, on this machine and in a guest
	@tools/install-packages packages-demo.txt
	@demo/run

# The tests are in four tiers: docs/notes/testing.md.
.PHONY: check
check: deps test-here ## tests on this machine alone: Rust, the C library, Python
	bindings/python/test

.PHONY: test
test: programs test-here ## the tests in Rust and C on this machine, and each once in guests with Debian's kernels
	tests/matrix --jobs 4

.PHONY: nightly
nightly: ## tests on everything that is built or emulated, for hours; ONLY="debug files": parts of it, see tests/nightly --list
	tests/nightly $(ONLY)

# For hours: make nightly ONLY=uml UML_SECONDS=3600, which is for each test on each file system
.PHONY: reach
reach: deps ## fill docs/reach.md: what passes on which processor, kernel, file system (hours; ONLY as for nightly)
	DMABUF_DIO_RECORD=1 cargo test --locked --quiet -p dmabuf-dio-cli --test restricted
	tests/nightly --record $(or $(ONLY),kernels arm64 arm64-built 32bit files compile)

# On this machine, of the C library also with sanitizers and under valgrind
.PHONY: test-here
test-here: deps
	cargo test --locked --quiet
	@$(CAPI) PROFILE=dev O=$(CURDIR)/build/capi-test check

.PHONY: python
python: deps ## build the Python wheel: build/wheels
	bindings/python/build --release

# MUTANTS="--file crates/dmabuf-dio/src/file/extent.rs" limits the run to one file. The second pass runs only the
# survivors of the first, which build/mutants records.
FIND_MUTANTS := nice cargo mutants -p dmabuf-dio -p dmabuf-dio-stream --features dmabuf-dio/serde -o build/mutants

.PHONY: mutants
mutants: deps ## mutation tests of the library (hours; needs cargo-mutants)
	@mkdir -p build
	-$(FIND_MUTANTS) $(MUTANTS) --cargo-arg=--lib
	$(FIND_MUTANTS) $(MUTANTS) --iterate --test-package dmabuf-dio \
		$(addprefix --cargo-arg=--test=,library gather interrupted remote report series threads)

.PHONY: mutants-module
mutants-module: deps ## mutation tests of the module, in guests (half an hour on an idle machine)
	@$(MAKE) -C tests/guest --quiet -j$$(nproc) O=$(CURDIR)/build/tests-guest
	@mkdir -p build
	$(CC) -O2 -Wall -Wextra -o build/edu-check kernel/sim/edu_importer/edu-check.c
	tools/mutate-module

MINUTES ?= 10
.PHONY: torture torture-proof
torture: deps ## random operations against the module, in guests, MINUTES each (10); KERNELS="7.3 6.12", SEED=N
	tests/torture/run --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(KERNELS)

torture-proof: deps ## let the campaign find defects that are put into the module, one by one
	tests/torture/prove

.PHONY: coverage
coverage: programs series-programs ## which lines of the module and of the series their tests reach, in guests (an hour; builds two kernels)
	tests/coverage/run --lines
	tests/coverage/series --lines

.PHONY: coverage-library
coverage-library: deps ## which lines of the library's crates their tests in Rust reach on this machine (needs nightly Rust)
	tests/coverage/library

# SANITIZERS="address thread": AddressSanitizer, ThreadSanitizer, Miri, loom, of which only loom does without nightly Rust
.PHONY: sanitize
sanitize: deps ## the tests in Rust under ASan and TSan, in Miri and loom (an hour on two cores; needs nightly Rust)
	tests/sanitize/run $(SANITIZERS)

SOAK_MINUTES ?= 18
.PHONY: soak
soak: deps ## the same again and again: 10 TiB, 100 million small reads, a million loads, or SOAK_MINUTES of each (18), in a guest
	tests/soak/run --gib 10240 --gathers 100000000 --loads 1000000 --minutes $(SOAK_MINUTES)

.PHONY: powercut powercut-proof
powercut: deps ## cut the power of disks that are saved to, in a guest, MINUTES (10), FS="ext4 xfs", KERNELS="7.3", SEED=N
	tests/powercut/run --minutes $(MINUTES) $(if $(POINTS),--points $(POINTS)) $(if $(SEED),--seed $(SEED)) \
		$(if $(FS),--fs "$(FS)") $(KERNELS)

powercut-proof: deps ## let the campaign of power cuts find defects that are put in, one by one
	tests/powercut/prove

.PHONY: fuzz-module fuzz-module-proof
fuzz-module: deps ## fuzz the module's calls, led by the code they reach, in guests, MINUTES each (10); KERNELS="7.3 6.12", SEED=N
	tests/fuzz/run --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(KERNELS)

fuzz-module-proof: deps ## let the fuzzer find defects that are put into the module, one by one
	tests/fuzz/prove

FUZZ_SECONDS ?= 240
.PHONY: fuzz fuzz-proof
fuzz: deps ## fuzz the parsers and plans of the library, FUZZ_SECONDS each (240); TARGETS="sums" (needs cargo-fuzz and nightly Rust)
	tests/fuzz/library/run --seconds $(FUZZ_SECONDS) $(TARGETS)

fuzz-proof: deps ## let the targets find defects that are put into the library, one by one
	tests/fuzz/library/prove

.PHONY: lint
lint: deps ## formatters, clippy, licences of dependencies, checkpatch, sparse, shellcheck, links, charts
	cargo fmt --all --check
	tools/check-imports
	tools/check-links
	tools/lint-shell
	tools/test-changed
	tools/lint-kernel
	tools/check-series
	bench/selftest
	cargo clippy --locked --quiet --workspace --all-targets -- -D warnings
	tools/check-oldest-rust
	tools/check-dependencies
	tools/check-capi

# bench/runs lists the measurements of each target. The results go to bench/results; the charts and the tables in the
# documents are generated from them. To compare with libiio's iio_rwdev, 1.0 or later: make bench-stream
# IIO_RWDEV=/usr/local/bin/iio_rwdev
.PHONY: bench bench-cost bench-cost-series bench-cost-6.12 bench-table bench-load bench-compare bench-stream
.PHONY: bench-rates bench-small bench-small-cost bench-small-retpoline bench-arm64 bench-questions bench-coherence bench-iommu
bench: bench-cost bench-table bench-load bench-compare bench-stream bench-rates bench-small bench-iommu charts ## all measurements, then the charts (one to two hours)
bench-cost: bench-cost-series bench-cost-6.12 ## CPU cost of each method: instructions per MiB
bench-table: ## the table of the copy_file_range thread, in a guest
bench-load: ## the table of the heap-flag thread, in a guest
bench-compare: ## compare with every other method: on this machine's disk, then in a guest
bench-stream: ## samples into nothing, a file (ext4, XFS), USB: read() against dma-bufs, in a guest
bench-rates: ## frames lost on the way into a file, by rate, idle and busy, in a guest (8 minutes)
bench-small: bench-small-cost ## small random reads: file systems, engines, memory, queue depths
bench-small-retpoline: ## instructions of small reads on a kernel with retpolines, which are switched off and on (5 minutes)
bench-arm64: ## instructions on arm64 with the series: transfers, small reads; and their table (5 minutes)
bench-questions: ## questions that the threads left open: memfd, IIO with udmabufs, in instructions (10 minutes)
bench-coherence: ## instructions on an arm64 machine whose DMA is coherent, and on one whose DMA is not (5 minutes)
bench-iommu: ## instructions behind an IOMMU and without, buffers mapped once or with each request

bench-cost-series bench-cost-6.12 bench-table bench-load bench-compare bench-stream bench-rates bench-small \
bench-small-cost bench-small-retpoline bench-questions bench-iommu: bench-%: build
	bench/run $*

bench-arm64 bench-coherence: bench-%:
	@tools/install-packages packages-arm64.txt
	@tools/collect-rust-tests arm64 bench
	bench/run $*

.PHONY: bench-check
bench-check: build ## fail if a method costs over 5 % more instructions than in bench/results
	bench/run --check

.PHONY: bench-tensors
bench-tensors: deps ## single tensors in Python, beside safetensors: time and CPU time of each request (FRAMEWORK=pt: with torch)
	@bench/peers/tensors $(FRAMEWORK)

.PHONY: charts
charts: deps ## draw the charts from bench/results, fill the tables in documents and cover letters
	bench/charts/run
	cd bench && python3 -m figures.tables

.PHONY: bench-device
bench-device: ## loads to a GPU beside other loaders, with this machine's own Python and torch (OPTIONS="--sizes 16G --check")
	bench/device/run $(OPTIONS)

.PHONY: bench-peers
bench-peers: build ## compare with other loaders; memory of programs, which fails beyond its bounds (downloads 5 GB, needs 9 GB of disk)
	bench/peers/compare
	bench/peers/memory --dir build --output bench/results/peers-memory.json
	bench/peers/consumers --dir build --output bench/results/peers-consumers.json

.PHONY: build
build: deps ## build the command and the benchmarks, in target/release, the C library and the module for SoapySDR, in build
	cargo build --locked --release --quiet
	@$(CAPI)
	@$(SOAPY)

# Programs that run in guests: the tests of the kernel and of the library
.PHONY: programs
programs: deps
	@$(MAKE) -C tests/guest --quiet -j$$(nproc) O=$(CURDIR)/build/tests-guest
	@$(MAKE) -C tests/remote --quiet -j$$(nproc) O=$(CURDIR)/build/tests-remote
	@tools/collect-rust-tests
	@$(CAPI) PROFILE=dev O=$(CURDIR)/build/capi-test programs
	@$(SOAPY) CAPI=$(CURDIR)/build/capi-test programs
	@mkdir -p build
	$(CC) -O2 -Wall -Wextra -o build/edu-check kernel/sim/edu_importer/edu-check.c
	@ln -sfn "$$(tools/python-env tests/clients)" build/python-clients

# The same programs for arm64, in build/arm64. ARM64_TESTS selects tests of the library
.PHONY: programs-arm64
programs-arm64: deps
	@tools/install-packages packages-arm64.txt
	@vm/root arm64 >/dev/null
	@$(MAKE) -C tests/guest --quiet -j$$(nproc) CC="aarch64-linux-gnu-gcc --sysroot=$$(vm/root arm64)" \
		O=$(CURDIR)/build/arm64/tests-guest
	@tools/collect-rust-tests arm64 $(ARM64_TESTS)
	aarch64-linux-gnu-gcc --sysroot="$$(vm/root arm64)" -O2 -Wall -Wextra -o build/arm64/edu-check \
		kernel/sim/edu_importer/edu-check.c

# 32-bit programs for the guests of 64-bit kernels, in build/i386 and build/armhf
.PHONY: programs-32bit
programs-32bit: programs-i386 programs-armhf

programs-i386: COMPILER := i686-linux-gnu-gcc
programs-armhf: COMPILER := arm-linux-gnueabihf-gcc

.PHONY: programs-i386 programs-armhf
programs-i386 programs-armhf: programs-%: deps
	@tools/install-packages packages-32bit.txt
	@vm/root $* >/dev/null
	@$(MAKE) -C tests/guest --quiet -j$$(nproc) CC="$(COMPILER) --sysroot=$$(vm/root $*)" LDFLAGS=-static \
		CFLAGS="-O2 -g -D_FILE_OFFSET_BITS=64" O=$(CURDIR)/build/$*/tests-guest
	@tools/collect-rust-tests $*

# Tests of the patches, built from the patched sources
.PHONY: series-programs
series-programs: deps
	@$(MAKE) -C tests/small-reads --quiet -j$$(nproc) O=$(CURDIR)/build/tests-small-reads
	@tools/build-kselftests "$$(vm/kernel --sources 7.3-series)"

.PHONY: series-programs-arm64
series-programs-arm64: deps
	@tools/install-packages packages-arm64.txt
	@$(MAKE) -C tests/small-reads --quiet -j$$(nproc) CC="aarch64-linux-gnu-gcc --sysroot=$$(vm/root arm64)" \
		O=$(CURDIR)/build/arm64/tests-small-reads
	@tools/build-kselftests "$$(vm/kernel --sources 7.3-series)" arm64

.PHONY: series-programs-i386
series-programs-i386: deps
	@tools/install-packages packages-32bit.txt
	@tools/build-kselftests "$$(vm/kernel --sources 7.3-series)" i386

# PREFIX and DESTDIR as in the GNU coding standards
PREFIX ?= /usr/local
SHARE := $(DESTDIR)$(PREFIX)/share
UNITS := $(DESTDIR)$(PREFIX)/lib/systemd/system
PLACES = PREFIX=$(PREFIX) DESTDIR=$(DESTDIR) $(if $(LIBDIR),LIBDIR=$(LIBDIR))

.PHONY: install install-command
install: install-command ## install command, units, libraries, completions, manual pages after make build: PREFIX, LIBDIR, DESTDIR
	@$(CAPI) install $(PLACES)
	@$(SOAPY) install $(PLACES)

install-command:
	install -D -m 755 target/release/dmabuf-dio $(DESTDIR)$(PREFIX)/bin/dmabuf-dio
	install -d $(SHARE)/man/man1 $(SHARE)/bash-completion/completions \
		$(SHARE)/zsh/site-functions $(SHARE)/fish/vendor_completions.d
	target/release/dmabuf-dio man $(SHARE)/man/man1
	target/release/dmabuf-dio completions bash >$(SHARE)/bash-completion/completions/dmabuf-dio
	target/release/dmabuf-dio completions zsh >$(SHARE)/zsh/site-functions/_dmabuf-dio
	target/release/dmabuf-dio completions fish >$(SHARE)/fish/vendor_completions.d/dmabuf-dio.fish
	install -d $(UNITS)
	for unit in packages/systemd/*; do \
		sed 's|/usr/bin/|$(PREFIX)/bin/|' "$$unit" >"$(UNITS)/$${unit##*/}" && chmod 644 "$(UNITS)/$${unit##*/}" || exit; \
	done

.PHONY: uninstall
uninstall: ## remove what make install has installed, with the same PREFIX, LIBDIR and DESTDIR
	rm -f $(DESTDIR)$(PREFIX)/bin/dmabuf-dio $(SHARE)/man/man1/dmabuf-dio.1 \
		$(SHARE)/man/man1/dmabuf-dio-*.1 $(SHARE)/bash-completion/completions/dmabuf-dio \
		$(SHARE)/zsh/site-functions/_dmabuf-dio $(SHARE)/fish/vendor_completions.d/dmabuf-dio.fish \
		$(UNITS)/dmabuf-dio-keep@.* $(UNITS)/dmabuf-dio-keep-dma-buf@.socket
	@$(CAPI) uninstall $(PLACES)
	@$(SOAPY) uninstall $(PLACES)

.PHONY: packages
packages: ## build wheels, Debian packages, RPMs and crates of the last commit: build/packages (as root; an hour the first time)
	@tools/install-packages packages-packages.txt
	packages/wheel
	packages/deb
	packages/rpm
	packages/crates

.PHONY: module
module: ## build dmabuf_dio.ko for the running kernel (needs its headers)
	$(MAKE) -C kernel/module modules

.PHONY: dkms
dkms: ## install the module with DKMS, which rebuilds it on kernel updates
	tools/install-dkms

.PHONY: deps
deps:
	@tools/install-packages packages-demo.txt packages.txt

.PHONY: clean
clean: ## delete build outputs (not the cache in ~/.cache/dmabuf-dio)
	rm -rf build target
