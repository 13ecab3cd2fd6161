# SPDX-License-Identifier: GPL-2.0-only
# Builds the tests of the folder that includes this into O: every source there is a test but
# HELPERS, which all are linked with, and with SHARED, helpers of tests/guest.
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
