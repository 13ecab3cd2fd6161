// SPDX-License-Identifier: GPL-2.0-only
/*
 * Verdicts and content
 */
#include <stdarg.h>
#include <time.h>

#include "lib.h"

static __thread char attempt[256];

__attribute__((constructor)) static void set_up(void)
{
	/* A failing test exits without flushing. */
	setvbuf(stdout, NULL, _IOLBF, 0);
}

void trying(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(attempt, sizeof(attempt), format, args);
	va_end(args);
}

void fail_at(const char *file, int line, const char *format, ...)
{
	char message[1024];
	va_list args;

	va_start(args, format);
	vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	fprintf(stderr, "%s:%d: %s%s%s%s\n", file, line, message,
		attempt[0] ? " [" : "", attempt, attempt[0] ? "]" : "");
	/* Other threads may be running: no handlers, no waiting. */
	_exit(1);
}

void skip(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
	exit(EXIT_SKIP);
}

static void describe(char *text, size_t size, int64_t number)
{
	if (number < 0 && number > -4096)
		snprintf(text, size, "-%s", strerrorname_np(-number) ?: "?");
	else
		snprintf(text, size, "%lld", (long long)number);
}

void expect_at(const char *file, int line, const char *what, int64_t got,
	       int64_t want)
{
	char is[64], should[64];

	if (got == want)
		return;
	describe(is, sizeof(is), got);
	describe(should, sizeof(should), want);
	fail_at(file, line, "%s: expected %s, got %s", what, should, is);
}

static uint64_t pattern_word(uint64_t number, uint64_t seed)
{
	uint64_t word = (number + 1) * 0x9e3779b97f4a7c15 + seed * 0xd6e8feb86659fd93;

	word = (word ^ word >> 29) * 0xbf58476d1ce4e5b9;
	return word ^ word >> 32;
}

void pattern_fill(void *data, uint64_t position, size_t length, uint64_t seed)
{
	unsigned char *to = data;

	while (length) {
		uint64_t word = pattern_word(position / 8, seed);
		size_t skip = position % 8;
		size_t count = length < 8 - skip ? length : 8 - skip;

		/* Emulated processors are slow: whole words need no call of memcpy(). */
		if (count == 8)
			memcpy(to, &word, 8);
		else
			memcpy(to, (unsigned char *)&word + skip, count);
		to += count;
		position += count;
		length -= count;
	}
}

static void differ(const char *file, int line, const unsigned char *got,
		   const unsigned char *want, size_t length, uint64_t position)
{
	size_t i, first = length, last = 0, wrong = 0;

	for (i = 0; i < length; i++) {
		if (got[i] == want[i])
			continue;
		if (first == length)
			first = i;
		last = i;
		wrong++;
	}
	fail_at(file, line,
		"wrong content: byte %llu is 0x%02x, expected 0x%02x; %zu bytes differ up to %llu",
		(unsigned long long)(position + first), got[first], want[first],
		wrong, (unsigned long long)(position + last));
}

void bytes_check_at(const char *file, int line, const void *got,
		    const void *want, size_t length)
{
	if (memcmp(got, want, length))
		differ(file, line, got, want, length, 0);
}

void pattern_check_at(const char *file, int line, const void *data,
		      uint64_t position, size_t length, uint64_t seed)
{
	const unsigned char *got = data;
	unsigned char want[KIB(16)];

	while (length) {
		size_t count = length < sizeof(want) ? length : sizeof(want);

		pattern_fill(want, position, count, seed);
		if (memcmp(got, want, count))
			differ(file, line, got, want, count, position);
		got += count;
		position += count;
		length -= count;
	}
}

void zero_check_at(const char *file, int line, const void *data, size_t length)
{
	static const unsigned char zero[KIB(64)];
	const unsigned char *got = data;
	uint64_t position = 0;

	while (length) {
		size_t count = length < sizeof(zero) ? length : sizeof(zero);

		if (memcmp(got, zero, count))
			differ(file, line, got, zero, count, position);
		got += count;
		position += count;
		length -= count;
	}
}

/* xorshift64*: the same numbers in every run */
uint64_t random_below(uint64_t *state, uint64_t limit)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return (*state * 0x2545f4914f6cdd1d >> 11) % limit;
}

void *allocate(size_t length)
{
	void *data;

	check(!posix_memalign(&data, PAGE, length));
	memset(data, 0xee, length);
	return data;
}

double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec * 1e-9;
}

double race_end(double usual)
{
	const char *factor = getenv("TESTS_GUEST_SLOW");

	return seconds() + usual * (factor ? atoi(factor) : 1);
}

void sleep_ms(unsigned int ms)
{
	struct timespec time = { ms / 1000, ms % 1000 * 1000000L };

	nanosleep(&time, NULL);
}
