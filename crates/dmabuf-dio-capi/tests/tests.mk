# SPDX-License-Identifier: MIT OR Apache-2.0
# Included by ../Makefile: the tests, each compiled as C99 and as C++, and the examples.
TESTS := $(filter-out lib,$(basename $(notdir $(wildcard tests/c/*.c))))
WARN := -pedantic -Wall -Wextra -Werror -g -O1 -D_GNU_SOURCE -pthread -Iinclude -I../../kernel/module/include/uapi
SANITIZE := -fsanitize=address,undefined -fno-omit-frame-pointer

# The examples are compiled as a user would, against an installation.
STAGE := $O/stage
PKG_CONFIG := PKG_CONFIG_PATH=$(STAGE)/usr/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$(STAGE) pkg-config
EXAMPLES := load ring raii documented faces
GSTREAMER := gstreamer-allocators-1.0 gstreamer-app-1.0
ifeq ($(shell pkg-config --exists $(GSTREAMER) && echo yes),yes)
EXAMPLES += frames
endif
ifeq ($(shell pkg-config --exists vulkan && echo yes),yes)
EXAMPLES += vulkan
endif
ifeq ($(shell pkg-config --exists OpenCL && echo yes),yes)
EXAMPLES += opencl
endif
ifeq ($(shell pkg-config --exists libdrm && echo yes),yes)
EXAMPLES += drm
endif
ifeq ($(shell pkg-config --exists level-zero && echo yes),yes)
EXAMPLES += level_zero
endif

# Debian has 0.26: install 1.x from its source, and name another prefix than /usr in PKG_CONFIG_PATH.
ifeq ($(shell pkg-config --atleast-version=1.0 libiio && echo yes),yes)
EXAMPLES += libiio-capture libiio-replay
endif

.PHONY: programs
programs: library $(TESTS:%=$O/tests/%) $(TESTS:%=$O/cxx/%.o) $(EXAMPLES:%=$O/examples/%)

$(TESTS:%=$O/tests/%): $O/tests/%: tests/c/%.c tests/c/lib.c tests/c/lib.h include/dmabuf_dio.h $O/$(SONAME)
	@mkdir -p $(@D)
	@$(CC) -std=c99 $(WARN) -o $@ $< tests/c/lib.c -L$O -l:$(SONAME) -luring -Wl,-rpath,'$$ORIGIN/..'

# Linked to the static library
$(TESTS:%=$O/sanitized/%): $O/sanitized/%: tests/c/%.c tests/c/lib.c tests/c/lib.h include/dmabuf_dio.h $O/libdmabuf_dio.a
	@mkdir -p $(@D)
	@$(CC) -std=c99 $(WARN) $(SANITIZE) -o $@ $< tests/c/lib.c $O/libdmabuf_dio.a $(NEEDS) -luring

$(TESTS:%=$O/cxx/%.o): $O/cxx/%.o: tests/c/%.c tests/c/lib.h include/dmabuf_dio.h
	@mkdir -p $(@D)
	@$(CXX) -std=c++11 -x c++ $(WARN) -c -o $@ $<

$(STAGE)/stamp: $O/$(SONAME) $O/man3/dmabuf_dio.3 include/dmabuf_dio.h dmabuf-dio.pc.in Makefile
	@rm -rf $(STAGE)
	@$(MAKE) --quiet install PREFIX=/usr LIBDIR=/usr/lib DESTDIR=$(STAGE) O=$O
	@touch $@

AT_STAGE = $(shell $(PKG_CONFIG) --cflags --libs dmabuf-dio) -Wl,-rpath,'$$ORIGIN/../stage/usr/lib'
$O/examples/%: examples/%.c $(STAGE)/stamp
	@mkdir -p $(@D)
	@$(CC) -std=c99 -Wall -Wextra -Werror -D_GNU_SOURCE -o $@ $< $(AT_STAGE) $(LIBRARIES_$*)
$O/examples/%: examples/%.cpp $(STAGE)/stamp
	@mkdir -p $(@D)
	@$(CXX) -std=c++17 -Wall -Wextra -Werror -o $@ $< $(AT_STAGE)
# The examples of docs/c.md and docs/faces.md
$O/examples/documented: ../../docs/c.md
$O/examples/faces: ../../docs/faces.md
$O/examples/documented $O/examples/faces: $(STAGE)/stamp
	@mkdir -p $(@D)
	@sed -n '/^```c$$/,/^```$$/{/^```/d;p}' $(filter %.md,$^) | $(CC) -std=c99 -Wall -Wextra -Werror -x c -o $@ - $(AT_STAGE)
LIBRARIES_ring := -luring
LIBRARIES_vulkan = $(shell pkg-config --cflags --libs vulkan)
LIBRARIES_opencl = $(shell pkg-config --cflags --libs OpenCL)
LIBRARIES_drm = $(shell pkg-config --cflags --libs libdrm)
LIBRARIES_level_zero = $(shell pkg-config --cflags --libs level-zero)
LIBIIO = $(shell pkg-config --cflags --libs libiio) -Wl,-rpath,$(shell pkg-config --variable=libdir libiio)
LIBRARIES_libiio-capture = $(LIBIIO)
LIBRARIES_libiio-replay = $(LIBIIO)
LIBRARIES_frames = $(shell pkg-config --cflags --libs $(GSTREAMER))

.PHONY: check
check: programs $(TESTS:%=$O/sanitized/%)
	@tests/run $O/tests $O/run
	@TESTS_FEWER=1 tests/run $O/sanitized $O/run
	@TESTS_FEWER=1 TESTS_UNDER="$(VALGRIND)" tests/run $O/tests $O/run
	@tests/examples $O $O/run

# Only definite leaks: pointers into the middle of memory, as Rust's threads keep, make others possible ones.
VALGRIND := valgrind --quiet --error-exitcode=9 --leak-check=full --errors-for-leak-kinds=definite \
	--suppressions=$(CURDIR)/tests/valgrind.supp
