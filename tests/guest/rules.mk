# SPDX-License-Identifier: GPL-2.0-only
# Builds the tests of the including folder into O. Every source there is a test, except HELPERS. All
# tests are linked with HELPERS and with SHARED, helpers from tests/guest.
CFLAGS ?= -O2 -g
override CFLAGS += -std=gnu11 -D_GNU_SOURCE -Wall -Wextra -Werror=implicit -pthread \
	-I../guest -I../../kernel/module/include/uapi $(INCLUDES) -MMD -MP
vpath %.c ../guest

TESTS := $(filter-out $(HELPERS),$(basename $(wildcard *.c)))
OBJECTS := $(HELPERS:%=$O/%.o) $(SHARED:%=$O/%.o)

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
