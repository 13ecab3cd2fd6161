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
	tests/matrix

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
	@$(MAKE) -C tests/guest --quiet O=$(CURDIR)/build/tests-guest
	@mkdir -p build
	$(CC) -O2 -Wall -Wextra -o build/edu-check kernel/sim/edu_importer/edu-check.c
	tools/mutate-module

# Nightly Rust and cargo-fuzz are needed. What is found goes to build/fuzz, the kept inputs do not change.
FUZZ_SECONDS ?= 240
FUZZ := cargo +nightly fuzz run --sanitizer none --target-dir $(CURDIR)/build/fuzz-target

.PHONY: fuzz
fuzz: deps ## fuzz the parsers of model headers, FUZZ_SECONDS each (needs cargo-fuzz and nightly Rust)
	@for parser in safetensors gguf; do \
		mkdir -p build/fuzz/$$parser && \
		(cd crates/dmabuf-dio-tensors/fuzz && nice $(FUZZ) $$parser $(CURDIR)/build/fuzz/$$parser corpus/$$parser -- \
			-dict=$$parser.dict -max_total_time=$(FUZZ_SECONDS) -rss_limit_mb=1024 -timeout=10 \
			-artifact_prefix=$(CURDIR)/build/fuzz/$$parser- -print_final_stats=1) || exit 1; \
	done

.PHONY: lint
lint: deps ## formatters, clippy, licences of dependencies, checkpatch, sparse, shellcheck, links, charts
	cargo fmt --all --check
	cargo clippy --locked --quiet --workspace --all-targets -- -D warnings
	tools/check-oldest-rust
	tools/check-dependencies
	tools/lint-kernel
	tools/check-series
	tools/check-imports
	tools/check-links
	tools/check-capi
	tools/lint-shell
	tools/test-changed
	bench/selftest

# The results go to bench/results; the charts and the tables in the documents are generated from them.
TABLES := cd bench && python3 -m figures.tables

.PHONY: bench
bench: bench-cost bench-table bench-load bench-compare bench-stream bench-rates bench-small bench-iommu charts ## all measurements, then the charts (one to two hours)

.PHONY: bench-cost
bench-cost: bench-cost-series bench-cost-6.12 ## CPU cost of each method: instructions per MiB

.PHONY: bench-cost-series
bench-cost-series: build
	bench/record cost-7.3-series "--kernel 7.3-series --icount --memory 4096" \
		cost --sizes 4K,64K,8M,128M,1G
	bench/record cost-large-7.3-series "--kernel 7.3-series --icount --memory 8192" \
		cost --sizes 3G --only attach --only READ --only 'slot, 8' --only LOAD --only series
	bench/record cost-heap-flag-7.3-series "--kernel 7.3-series --icount --memory 4096 --no-module" \
		cost --sizes 128M,1G --only 'heap: read' --only 'udmabuf: parallel' \
		--only 'series: copy_file_range, heap' --only 'series: heap flag'

# Debian's kernel zeroes all allocated memory by default.
.PHONY: bench-cost-6.12
bench-cost-6.12: build
	bench/record cost-6.12 "--kernel 6.12 --icount" cost --sizes 128M
	bench/record cost-6.12-no-init "--kernel 6.12 --icount --append init_on_alloc=0" cost --sizes 128M

.PHONY: bench-check
bench-check: build ## fail if a method costs over 5 % more instructions than in bench/results
	bench/check-cost

.PHONY: bench-table
bench-table: build ## the table of the copy_file_range thread, in a guest
	bench/record table-read-7.3-series "--kernel 7.3-series --memory 4096" table --direction read
	bench/record table-write-7.3-series "--kernel 7.3-series --memory 4096" table --direction write

.PHONY: bench-load
bench-load: build ## the table of the heap-flag thread, in a guest
	bench/record load-7.3-series "--kernel 7.3-series --memory 8192" load --runs 3

.PHONY: bench-tensors
bench-tensors: deps ## single tensors in Python, beside safetensors: time and CPU time of each request (FRAMEWORK=pt: with torch)
	@bench/peers/tensors $(FRAMEWORK)

.PHONY: bench-compare
bench-compare: build ## compare with every other method: on this machine's disk, then in a guest
	bench/record compare here compare
	bench/record compare-large here compare --sizes "$$(bench/large-size)" --runs 3
	bench/record compare-four here compare --sizes 1G --processes 4 --tensors many --runs 3
	bench/record compare-7.3-series "--kernel 7.3-series --memory 4096" \
		compare --sizes 8M,128M,1G --runs 3

# libiio's iio_rwdev to compare with, 1.0 or later: make bench-stream IIO_RWDEV=/usr/local/bin/iio_rwdev
PEER_RWDEV := $(if $(IIO_RWDEV),--peer-iio-rwdev $(IIO_RWDEV))

# With 64 MiB blocks read() needs contiguous memory, which only a CMA area provides.
.PHONY: bench-stream
bench-stream: build ## samples into nothing, a file (ext4, XFS), USB: read() against dma-bufs, in a guest
	BENCH_WITH=tests/with-usb-gadget bench/record stream-7.3-series \
		"--kernel 7.3-series --append cma=256M --memory 3072" stream --usb /run/ffs $(PEER_RWDEV)
	BENCH_WITH=tests/with-usb-gadget bench/record stream-cost-7.3-series \
		"--kernel 7.3-series --append cma=256M --memory 3072 --icount" \
		stream --usb /run/ffs --total 256M --blocks 16K,64K,1M,16M,64M $(PEER_RWDEV)
	bench/record stream-cost-xfs-7.3-series \
		"--kernel 7.3-series --fs xfs --append cma=256M --memory 3072 --icount" \
		stream --total 256M --blocks 16K,64K,1M,16M,64M --only 'into a file' $(PEER_RWDEV)

.PHONY: bench-rates
bench-rates: build ## frames lost on the way into a file, by rate, idle and busy, in a guest (8 minutes)
	bench/record rates-7.3-series "--kernel 7.3-series --memory 4096 --append cma=64M" rates $(PEER_RWDEV)

SMALL := --raw-disks 4 --append nvme.poll_queues=1 --memory 3072
SMALL_ON := --on /mnt/ext4 --on /mnt/xfs --on /mnt/f2fs --on /dev/raw

.PHONY: bench-small
bench-small: build bench-small-cost ## small random reads: file systems, engines, memory, queue depths
	BENCH_WITH=bench/with-file-systems bench/record small-7.3-series \
		"--kernel 7.3-series $(SMALL)" small $(SMALL_ON) --depths 32,128 --reads 5000
	bench/record small-here here small --depths 1,32,128 --reads 10000

# Instructions: all rows; without the patches; gather with many pieces; fio; files that grow; 6.12 with its switch off and on
.PHONY: bench-small-cost
bench-small-cost: build
	BENCH_WITH=bench/with-file-systems bench/record small-cost-7.3-series \
		"--kernel 7.3-series $(SMALL) --icount" small $(SMALL_ON) --reads 4000 --runs 2 --no-fio
	BENCH_WITH=bench/with-file-systems bench/record small-cost-7.3 \
		"--kernel 7.3-plain $(SMALL) --icount" small $(SMALL_ON) --depths 32 --reads 10000 --no-fio \
		--only "io_uring, registered" --only "io_uring, lent"
	BENCH_WITH=bench/with-file-systems bench/record small-gather-7.3-series \
		"--kernel 7.3-series $(SMALL) --icount" small --on /mnt/ext4 --on /mnt/xfs --on /dev/raw \
		--depths 32,128 --reads 100000 --runs 1 --no-fio --only "io_uring, lent" --only "gather, lent"
	BENCH_WITH=bench/with-file-systems bench/record small-fio-7.3-series \
		"--kernel 7.3-series $(SMALL) --icount" small --on /mnt/ext4 --on /mnt/xfs --on /dev/raw \
		--depths 32,128 --reads 20000 --runs 1 --only "io_uring, user" --only "io_uring, registered"
	for kernel in 7.3-plain 7.3-series; do BENCH_WITH=bench/with-file-systems \
		bench/record small-appends-$$kernel "--kernel $$kernel $(SMALL) --icount" small --on /mnt/ext4 --on /mnt/xfs \
		--depths 32 --reads 10000 --append-every 10 --only "io_uring, registered" --no-fio; done
	for on in 0 1; do BENCH_WITH=bench/with-file-systems \
		bench/record small-cost-6.12-series-$$([ $$on = 1 ] && echo on || echo off) \
		"--kernel 6.12-series $(SMALL) --icount --append iomap.simple_read=$$on" \
		small $(SMALL_ON) --depths 32,128 --reads 4000 --runs 2 --no-fio --only user --only registered; \
	done

# Only retpolines make an indirect call cost instructions, and guests use them only if told to.
RETPOLINE := small --on /mnt/ext4 --on /mnt/xfs --on /dev/raw --depths 32 --reads 10000 --no-fio \
	--only "io_uring, registered" --only "io_uring, lent"

.PHONY: bench-small-retpoline
bench-small-retpoline: build ## instructions of small reads on a kernel with retpolines, which are switched off and on (5 minutes)
	BENCH_WITH=bench/with-file-systems bench/record small-retpoline-off \
		"--kernel 7.3-series-retpoline $(SMALL) --icount" $(RETPOLINE)
	BENCH_WITH=bench/with-file-systems bench/record small-retpoline-on \
		"--kernel 7.3-series-retpoline $(SMALL) --append spectre_v2=retpoline --icount" $(RETPOLINE)
	$(TABLES)

ARM64_PROGRAM := target/aarch64-unknown-linux-gnu/release/dmabuf-dio-bench

.PHONY: bench-arm64
bench-arm64: ## instructions on arm64 with the series: transfers, small reads; and their table (5 minutes)
	@tools/install-packages packages-arm64.txt
	@tools/collect-rust-tests arm64 bench
	BENCH_PROGRAM=$(ARM64_PROGRAM) bench/record cost-arm64-7.3-series \
		"--arch arm64 --kernel 7.3-series --icount --memory 4096" cost --sizes 128M \
		--only 'module: READ' --only 'module: slot, 8' --only 'module: LOAD' \
		--only 'series: copy_file_range, heap' --only 'series: heap flag'
	BENCH_PROGRAM=$(ARM64_PROGRAM) BENCH_WITH=bench/with-file-systems bench/record small-arm64-7.3-series \
		"--arch arm64 --kernel 7.3-series $(SMALL) --icount" small $(SMALL_ON) --depths 32 --reads 20000 \
		--runs 9 --no-fio --only 'io_uring, registered' --only 'io_uring, lent'
	$(TABLES)

# Why direct I/O into a memfd is slow; udmabufs beside the heap in IIO
.PHONY: bench-questions
bench-questions: build ## questions that the threads left open: memfd, IIO with udmabufs, in instructions (10 minutes)
	bench/record cost-memfd-7.3-series "--kernel 7.3-series --icount --memory 4096" \
		cost --sizes 128M --only 'O_DIRECT pread'
	BENCH_WITH=bench/with-huge-memfds bench/record cost-memfd-huge-7.3-series \
		"--kernel 7.3-series --icount --memory 4096" cost --sizes 128M --only 'O_DIRECT pread'
	bench/record stream-rings-7.3-series "--kernel 7.3-series --append cma=256M --memory 3072 --icount" \
		stream --total 256M --blocks 64K,1M,16M --only 'udmabuf' --only 'dma-buf'
	$(TABLES)

# With QEMU's arm64, which executes the instructions that clean and invalidate caches, but has no caches
COHERENT := cost --sizes 128M --only 'module: READ' --only 'module: slot, 8' --only 'module: LOAD' \
	--only 'series: copy_file_range, heap' --only 'series: heap flag' --only 'read() into the mapping' \
	--only 'memfd, faulted in: io_uring 1'

.PHONY: bench-coherence
bench-coherence: ## instructions on an arm64 machine whose DMA is coherent, and on one whose DMA is not (5 minutes)
	@tools/install-packages packages-arm64.txt
	@tools/collect-rust-tests arm64 bench
	BENCH_PROGRAM=$(ARM64_PROGRAM) bench/record cost-coherent-arm64 \
		"--arch arm64 --kernel 7.3-series --icount --memory 4096" $(COHERENT)
	BENCH_PROGRAM=$(ARM64_PROGRAM) bench/record cost-not-coherent-arm64 \
		"--arch arm64 --kernel 7.3-series --icount --memory 4096 --non-coherent" $(COHERENT)
	$(TABLES)

.PHONY: bench-iommu
bench-iommu: build ## instructions behind an IOMMU and without, buffers mapped once or with each request
	bench/iommu
	$(TABLES)

.PHONY: charts
charts: deps ## draw the charts from bench/results, fill the tables in documents and cover letters
	bench/charts/run
	$(TABLES)

.PHONY: bench-peers
bench-peers: build ## compare with other loaders (downloads 2.5 GB, needs 4.5 GB of disk)
	bench/peers/compare
	bench/peers/memory --dir build --output bench/results/peers-memory.json

.PHONY: build
build: deps ## build the command and the benchmarks, in target/release, the C library and the module for SoapySDR, in build
	cargo build --locked --release --quiet
	@$(CAPI)
	@$(SOAPY)

# Programs that run in guests: the tests of the kernel and of the library
.PHONY: programs
programs: deps
	@$(MAKE) -C tests/guest --quiet O=$(CURDIR)/build/tests-guest
	@$(MAKE) -C tests/remote --quiet O=$(CURDIR)/build/tests-remote
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
	@$(MAKE) -C tests/guest --quiet CC="aarch64-linux-gnu-gcc --sysroot=$$(vm/root arm64)" \
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
	@$(MAKE) -C tests/guest --quiet CC="$(COMPILER) --sysroot=$$(vm/root $*)" LDFLAGS=-static \
		CFLAGS="-O2 -g -D_FILE_OFFSET_BITS=64" O=$(CURDIR)/build/$*/tests-guest
	@tools/collect-rust-tests $*

# Tests of the patches, built from the patched sources
.PHONY: series-programs
series-programs: deps
	@$(MAKE) -C tests/small-reads --quiet O=$(CURDIR)/build/tests-small-reads
	@tools/build-kselftests "$$(vm/kernel --sources 7.3-series)"

.PHONY: series-programs-arm64
series-programs-arm64: deps
	@tools/install-packages packages-arm64.txt
	@$(MAKE) -C tests/small-reads --quiet CC="aarch64-linux-gnu-gcc --sysroot=$$(vm/root arm64)" \
		O=$(CURDIR)/build/arm64/tests-small-reads
	@tools/build-kselftests "$$(vm/kernel --sources 7.3-series)" arm64

.PHONY: series-programs-i386
series-programs-i386: deps
	@tools/install-packages packages-32bit.txt
	@tools/build-kselftests "$$(vm/kernel --sources 7.3-series)" i386

# PREFIX and DESTDIR as in the GNU coding standards
PREFIX ?= /usr/local
SHARE := $(DESTDIR)$(PREFIX)/share
PLACES = PREFIX=$(PREFIX) DESTDIR=$(DESTDIR) $(if $(LIBDIR),LIBDIR=$(LIBDIR))

.PHONY: install
install: ## install command, libraries, completions, manual pages after make build: PREFIX, LIBDIR, DESTDIR
	install -D -m 755 target/release/dmabuf-dio $(DESTDIR)$(PREFIX)/bin/dmabuf-dio
	install -d $(SHARE)/man/man1 $(SHARE)/bash-completion/completions \
		$(SHARE)/zsh/site-functions $(SHARE)/fish/vendor_completions.d
	target/release/dmabuf-dio man $(SHARE)/man/man1
	target/release/dmabuf-dio completions bash >$(SHARE)/bash-completion/completions/dmabuf-dio
	target/release/dmabuf-dio completions zsh >$(SHARE)/zsh/site-functions/_dmabuf-dio
	target/release/dmabuf-dio completions fish >$(SHARE)/fish/vendor_completions.d/dmabuf-dio.fish
	@$(CAPI) install $(PLACES)
	@$(SOAPY) install $(PLACES)

.PHONY: uninstall
uninstall: ## remove what make install has installed, with the same PREFIX, LIBDIR and DESTDIR
	rm -f $(DESTDIR)$(PREFIX)/bin/dmabuf-dio $(SHARE)/man/man1/dmabuf-dio.1 \
		$(SHARE)/man/man1/dmabuf-dio-*.1 $(SHARE)/bash-completion/completions/dmabuf-dio \
		$(SHARE)/zsh/site-functions/_dmabuf-dio $(SHARE)/fish/vendor_completions.d/dmabuf-dio.fish
	@$(CAPI) uninstall $(PLACES)
	@$(SOAPY) uninstall $(PLACES)

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
