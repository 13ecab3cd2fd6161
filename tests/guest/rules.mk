# SPDX-License-Identifier: GPL-2.0-only
# Builds the tests of the including folder into O: every source there is a test. All are linked with the helpers in the
# folder's lib, if it has one, and in tests/guest/lib.
CFLAGS ?= -O2 -g
override CFLAGS += -std=gnu11 -D_GNU_SOURCE -Wall -Wextra -Werror=implicit -pthread \
	-Ilib -I../guest/lib -I../../kernel/module/include/uapi -I../../kernel/sim -MMD -MP
vpath %.c lib ../guest/lib

TESTS := $(basename $(wildcard *.c))
HELPERS := $(sort $(notdir $(basename $(wildcard lib/*.c ../guest/lib/*.c))))
OBJECTS := $(HELPERS:%=$O/%.o)

all: $(TESTS:%=$O/%)

$(TESTS:%=$O/%): $O/%: $O/%.o $(OBJECTS)
	@echo "  LD      $(@F)"
	@$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ -luring

$O/%.o: %.c | $O
	@echo "  CC      $<"
	@$(CC) $(CFLAGS) -c -o $@ $<

$O:
	mkdir -p $@

clean:
	rm -rf $O

.PHONY: all clean
.SECONDARY:
-include $(wildcard $O/*.d)
