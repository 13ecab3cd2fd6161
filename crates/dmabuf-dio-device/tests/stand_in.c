// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Stands in for the driver of a device: the same functions, "device memory" that is the host's, and a thread for
 * each stream that does its work late, after random delays. It counts what the references of CUDA and HIP forbid.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "stand_in_thread.h"

/* CUresult and hipError_t */
enum { OK = 0, INVALID = 1, NO_MEMORY = 2, NOT_READY = 3, NO_CONTEXT = 201, BAD_HANDLE = 400, TWICE = 712, NOT_PINNED = 713,
       CAPTURED = 900 };

struct counters {
	uint64_t copies, copied;	/* that were done, and their bytes */
	uint64_t pinned, pins;		/* ranges that are registered now, and that ever were */
	uint64_t streams, events;	/* that exist now */
	uint64_t contexts, allocations;	/* that were not given back */
	uint64_t most_pending;		/* copies that were not done when another was added */
	uint64_t pageable;		/* copies from memory that is not registered */
	/*
	 * Memory unregistered or freed under a copy, handles used after their end, read-only memory written, calls
	 * that may wait made with Python's lock, calls of a child of fork(), captures of streams that a call ended
	 */
	uint64_t torn;
};

struct event {
	uint64_t wanted, done;		/* records: added, and reached */
	int live, device;
};

struct work {
	struct work *next;
	enum { COPY, FILL, RECORD, AFTER } what;
	char *target;
	const char *source;
	size_t length;
	int byte, delay;
	struct event *event;
	uint64_t count;
};

struct stream {
	struct work *first, **last;
	int live, busy, stop, device;
	pthread_t thread;
};

struct range {
	struct range *next;
	const char *start;
	size_t length;
	unsigned int flags;
};

/* CU_MEMHOSTREGISTER_DEVICEMAP, CU_MEMHOSTREGISTER_READ_ONLY */
enum { MAPPED = 2, READ_ONLY = 8 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct counters counted;
static struct range *pinned, *allocated;
static struct stream fallback[DEVICES];	/* their default streams */
static struct work *pending[1 << 16];
static int pending_count, started;
static uint64_t memory = 1ull << 40, most_pinned = 1ull << 40, seed = 1;
static int most_delay, integrated;
static char failing[32];
static int fail_at, fail_with, in_contexts;

/* Counts what is made in a context of CUDA's, and what goes. HIP's devices have none. */
static void make(uint64_t *counter, int n)
{
	*counter += n;
	if (depth)
		in_contexts += n;
}

static uint64_t dice(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

/*
 * Delays are up to `delay` microseconds. Without `bytes` of memory, any address is the device's. The call
 * `call` fails the n-th time, from 1, and later.
 */
void stand_in_setup(uint64_t new_seed, int delay, uint64_t bytes, const char *call, int n, int status)
{
	pthread_mutex_lock(&lock);
	seed = new_seed * 0x9e3779b97f4a7c15ull | 1;
	most_delay = delay;
	memory = bytes;
	strncpy(failing, call, sizeof(failing) - 1);
	fail_at = n;
	fail_with = status;
	pthread_mutex_unlock(&lock);
}

/* Whether the devices have the host's memory. */
void stand_in_integrated(int is)
{
	integrated = is;
}

/* How many bytes can be pinned at once */
void stand_in_pins(uint64_t bytes)
{
	most_pinned = bytes;
}

void stand_in_counters(struct counters *out)
{
	pthread_mutex_lock(&lock);
	*out = counted;
	pthread_mutex_unlock(&lock);
}

static int fails(const char *call)
{
	return !strcmp(call, failing) && --fail_at <= 0 ? fail_with : OK;
}

/* Calls but those that come before need a context of the thread ("CUDA Driver API", Context Management). */
#define ENTER(call) \
	int status = OK; \
	pthread_mutex_lock(&lock); \
	if (is_forked()) { \
		status = NOT_READY; \
		counted.torn++; \
	} else if (is_prohibited()) { \
		status = CAPTURED; \
		counted.torn++; \
	} else if (current() == NO_DEVICE) \
		status = NO_CONTEXT; \
	else \
		status = fails(call); \
	if (status) \
		goto out

/* They may wait for the device, or for the kernel. */
#define ENTER_BLOCKING(call) \
	ENTER(call); \
	counted.torn += holds_python()

#define LEAVE \
out: \
	pthread_mutex_unlock(&lock); \
	return status

static struct range **find(struct range **list, const void *start)
{
	while (*list && (*list)->start != start)
		list = &(*list)->next;
	return list;
}

static int within(struct range *list, const char *start, size_t length)
{
	for (; list; list = list->next)
		if (start >= list->start && start + length <= list->start + list->length)
			return 1;
	return 0;
}

static uint64_t total(struct range *list)
{
	uint64_t bytes = 0;

	for (; list; list = list->next)
		bytes += list->length;
	return bytes;
}

/* Whether a range shares pages with another one */
static int overlaps(struct range *list, const char *start, size_t length)
{
	for (; list; list = list->next)
		if (start < list->start + list->length && list->start < start + length)
			return 1;
	return 0;
}

static int add(struct range **list, const void *start, size_t length, unsigned int flags)
{
	struct range *range = malloc(sizeof(*range));

	*range = (struct range){ *list, start, length, flags };
	*list = range;
	return OK;
}

/* Whether a copy that is not done yet has bytes of a range */
static int is_used(const char *start, size_t length)
{
	int i;

	for (i = 0; i < pending_count; i++) {
		struct work *work = pending[i];

		if (work->source && work->source < start + length && work->source + work->length > start)
			return 1;
		if (work->target < start + length && work->target + work->length > start)
			return 1;
	}
	return 0;
}

static void *run(void *argument)
{
	struct stream *stream = argument;

	pthread_mutex_lock(&lock);
	for (;;) {
		struct work *work = stream->first;
		struct timespec delay = { 0, 0 };
		int i;

		if (!work) {
			if (stream->stop)
				break;
			pthread_cond_wait(&changed, &lock);
			continue;
		}
		stream->busy = 1;
		stream->first = work->next;
		if (!stream->first)
			stream->last = &stream->first;
		if (work->what == AFTER)
			while (work->event->done < work->count)
				pthread_cond_wait(&changed, &lock);
		if (work->what == RECORD)
			work->event->done = work->count;
		if (work->what == COPY || work->what == FILL) {
			delay.tv_nsec = work->delay * 1000l;
			if (most_delay)
				delay.tv_nsec += dice() % most_delay * 1000;
			pthread_mutex_unlock(&lock);
			nanosleep(&delay, NULL);
			if (work->what == COPY)
				memcpy(work->target, work->source, work->length);
			else
				memset(work->target, work->byte, work->length);
			pthread_mutex_lock(&lock);
			for (i = 0; pending[i] != work; i++)
				;
			pending[i] = pending[--pending_count];
			if (work->what == COPY) {
				counted.copies++;
				counted.copied += work->length;
			}
		}
		free(work);
		stream->busy = 0;
		pthread_cond_broadcast(&changed);
	}
	pthread_mutex_unlock(&lock);
	return NULL;
}

static void begin(struct stream *stream, int device)
{
	stream->last = &stream->first;
	stream->live = 1;
	stream->device = device;
	pthread_create(&stream->thread, NULL, run, stream);
}

static struct stream *of(void *handle)
{
	struct stream *stream = &fallback[current() == NO_DEVICE ? 0 : current()];

	if (handle)
		return handle;
	if (!stream->live)
		begin(stream, stream - fallback);
	return stream;
}

static int push(void *handle, struct work work)
{
	struct stream *stream = of(handle);
	struct work *copy = malloc(sizeof(*copy));

	if (!stream->live) {
		counted.torn++;
		return BAD_HANDLE;
	}
	*copy = work;
	copy->next = NULL;
	*stream->last = copy;
	stream->last = &copy->next;
	if (work.what == COPY || work.what == FILL) {
		if (pending_count == 1 << 16)
			abort();
		pending[pending_count++] = copy;
		if ((uint64_t)pending_count > counted.most_pending)
			counted.most_pending = pending_count;
	}
	pthread_cond_broadcast(&changed);
	return OK;
}

int cuInit(unsigned int flags)
{
	if (is_forked())
		return NOT_READY;
	counted.torn += holds_python();
	process = getpid();
	started = !flags;
	return flags ? INVALID : fails("cuInit");
}

int cuDeviceGet(int *device, int ordinal)
{
	/* "cuInit must be called before any other function" */
	if (!started)
		return NOT_READY;
	*device = ordinal;
	return ordinal < DEVICES ? fails("cuDeviceGet") : 101;
}

/* CU_DEVICE_ATTRIBUTE_INTEGRATED, hipDeviceAttributeIntegrated */
static int attribute(int *out, int number, int device, int wanted)
{
	ENTER("cuDeviceGetAttribute");
	if (device >= DEVICES || number != wanted) {
		status = INVALID;
		goto out;
	}
	*out = integrated;
	LEAVE;
}

int cuDeviceGetAttribute(int *out, int number, int device)
{
	return attribute(out, number, device, 18);
}

int hipDeviceGetAttribute(int *out, int number, int device)
{
	return attribute(out, number, device, 16);
}

int cuDevicePrimaryCtxRetain(void **out, int device)
{
	*out = &contexts[device];
	pthread_mutex_lock(&lock);
	counted.torn += holds_python() + is_forked();
	counted.contexts++;
	pthread_mutex_unlock(&lock);
	return OK;
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
	(void)device;
	pthread_mutex_lock(&lock);
	counted.torn += holds_python() + is_forked();
	/* cuDevicePrimaryCtxRelease: the last one destroys the context and what was made in it. */
	if (!--counted.contexts && in_contexts)
		counted.torn++;
	pthread_mutex_unlock(&lock);
	return OK;
}

int cuMemGetInfo_v2(size_t *free, size_t *total)
{
	ENTER("cuMemGetInfo");
	*free = *total = memory;
	LEAVE;
}

int cuMemAlloc_v2(uint64_t *out, size_t length)
{
	void *start;

	ENTER_BLOCKING("cuMemAlloc");
	/* "If bytesize is 0, cuMemAlloc() returns CUDA_ERROR_INVALID_VALUE" */
	if (!length) {
		status = INVALID;
		goto out;
	}
	if ((memory && length > memory) || !(start = aligned_alloc(256, (length + 255) & ~255ul))) {
		status = NO_MEMORY;
		goto out;
	}
	memset(start, 0xee, length);
	add(&allocated, start, length, 0);
	make(&counted.allocations, 1);
	*out = (uint64_t)(uintptr_t)start;
	LEAVE;
}

int cuMemFree_v2(uint64_t address)
{
	struct range **range, *gone;

	ENTER_BLOCKING("cuMemFree");
	range = find(&allocated, (void *)(uintptr_t)address);
	gone = *range;
	if (!gone) {
		status = INVALID;
		goto out;
	}
	counted.torn += is_used(gone->start, gone->length);
	make(&counted.allocations, -1);
	*range = gone->next;
	free((void *)gone->start);
	free(gone);
	LEAVE;
}

/* Whether all of a range is mapped, and may be written if it is to be */
static int is_mapped(const char *start, size_t length, int writable)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	uintptr_t at = (uintptr_t)start;
	unsigned long first, end;
	char mode[5], line[512];

	while (maps && fgets(line, sizeof(line), maps))
		if (sscanf(line, "%lx-%lx %4s", &first, &end, mode) == 3 && first <= at && at < end &&
		    (mode[1] == 'w' || !writable))
			at = end;
	if (maps)
		fclose(maps);
	return at >= (uintptr_t)start + length;
}

int cuMemHostRegister_v2(void *start, size_t length, unsigned int flags)
{
	ENTER_BLOCKING("cuMemHostRegister");
	/* "The memory range ... page-aligned" (HIP, and CUDA before 4.1) */
	if (!length || (uintptr_t)start % 4096 || length % 4096) {
		status = INVALID;
		goto out;
	}
	/* CU_MEMHOSTREGISTER_READ_ONLY: "required in order to register memory mapped to the CPU as read-only" */
	if (!is_mapped(start, length, !(flags & READ_ONLY))) {
		status = INVALID;
		goto out;
	}
	/* cuMemHostRegister: CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED */
	if (overlaps(pinned, start, length)) {
		status = TWICE;
		goto out;
	}
	if (total(pinned) + length > most_pinned) {
		status = NO_MEMORY;
		goto out;
	}
	add(&pinned, start, length, flags);
	make(&counted.pinned, 1);
	counted.pins++;
	LEAVE;
}

int cuMemHostUnregister(void *start)
{
	struct range **range, *gone;

	ENTER_BLOCKING("cuMemHostUnregister");
	range = find(&pinned, start);
	gone = *range;
	if (!gone) {
		status = NOT_PINNED;
		goto out;
	}
	counted.torn += is_used(gone->start, gone->length);
	make(&counted.pinned, -1);
	*range = gone->next;
	free(gone);
	LEAVE;
}

/* cuMemHostGetDevicePointer: only of memory that is mapped, and the flags have to be 0. */
int cuMemHostGetDevicePointer_v2(uint64_t *out, void *start, unsigned int flags)
{
	struct range *range;

	ENTER("cuMemHostGetDevicePointer");
	range = *find(&pinned, start);
	if (flags || !range || !(range->flags & MAPPED)) {
		status = INVALID;
		goto out;
	}
	*out = (uint64_t)(uintptr_t)start;
	LEAVE;
}

int cuMemcpyHtoDAsync_v2(uint64_t target, const void *source, size_t length, void *stream)
{
	ENTER("cuMemcpyHtoDAsync");
	/* "API synchronization behavior": from pageable memory the copy may be staged, and the call may wait. */
	if (!within(pinned, source, length))
		counted.pageable++;
	if (memory && !within(allocated, (char *)(uintptr_t)target, length)) {
		status = INVALID;
		goto out;
	}
	status = push(stream, (struct work){ .what = COPY, .target = (char *)(uintptr_t)target, .source = source,
					     .length = length });
	LEAVE;
}

int cuStreamCreate(void **out, unsigned int flags)
{
	struct stream *stream = calloc(1, sizeof(*stream));

	(void)flags;
	ENTER("cuStreamCreate");
	begin(stream, current());
	make(&counted.streams, 1);
	*out = stream;
	stream = NULL;
out:
	pthread_mutex_unlock(&lock);
	free(stream);
	return status;
}

/* cuStreamDestroy: returns at once, and the stream goes once its work is done. */
int cuStreamDestroy_v2(void *handle)
{
	struct stream *stream = handle;

	ENTER("cuStreamDestroy");
	if (!stream->live) {
		counted.torn++;
		status = BAD_HANDLE;
		goto out;
	}
	stream->live = 0;
	stream->stop = 1;
	make(&counted.streams, -1);
	pthread_detach(stream->thread);
	pthread_cond_broadcast(&changed);
	LEAVE;
}

int cuStreamSynchronize(void *handle)
{
	struct stream *stream;

	ENTER_BLOCKING("cuStreamSynchronize");
	stream = of(handle);
	while (stream->first || stream->busy)
		pthread_cond_wait(&changed, &lock);
	LEAVE;
}

/* All streams of the context, also those that are destroyed and have work left */
int cuCtxSynchronize(void)
{
	ENTER_BLOCKING("cuCtxSynchronize");
	/* "It is invalid to synchronize ... a context handle when any associated stream is in capture mode", in any mode */
	if (captures) {
		counted.torn++;
		status = CAPTURED;
		goto out;
	}
	while (pending_count)
		pthread_cond_wait(&changed, &lock);
	LEAVE;
}

int cuEventCreate(void **out, unsigned int flags)
{
	struct event *event;

	(void)flags;
	ENTER("cuEventCreate");
	event = calloc(1, sizeof(*event));
	event->live = 1;
	event->device = current();
	make(&counted.events, 1);
	*out = event;
	LEAVE;
}

/* cuEventDestroy: an event that is not over is released once it is. Here its memory stays. */
int cuEventDestroy_v2(void *handle)
{
	struct event *event = handle;

	ENTER("cuEventDestroy");
	if (!event->live) {
		counted.torn++;
		status = BAD_HANDLE;
		goto out;
	}
	event->live = 0;
	make(&counted.events, -1);
	LEAVE;
}

int cuEventRecord(void *handle, void *stream)
{
	struct event *event = handle;

	ENTER("cuEventRecord");
	counted.torn += !event->live;
	/* cuEventRecord: "hEvent and hStream must be from the same context" */
	if (of(stream)->device != event->device) {
		status = BAD_HANDLE;
		goto out;
	}
	event->wanted++;
	status = push(stream, (struct work){ .what = RECORD, .event = event, .count = event->wanted });
	LEAVE;
}

/* cuStreamWaitEvent: waits for what the event had recorded when it was called. */
int cuStreamWaitEvent(void *stream, void *handle, unsigned int flags)
{
	struct event *event = handle;

	(void)flags;
	ENTER("cuStreamWaitEvent");
	counted.torn += !event->live;
	status = push(stream, (struct work){ .what = AFTER, .event = event, .count = event->wanted });
	LEAVE;
}

/* cuEventSynchronize: an event that was never recorded is over. */
int cuEventSynchronize(void *handle)
{
	struct event *event = handle;
	uint64_t wanted;

	ENTER_BLOCKING("cuEventSynchronize");
	counted.torn += !event->live;
	wanted = event->wanted;
	while (event->done < wanted)
		pthread_cond_wait(&changed, &lock);
	LEAVE;
}

int cuGetErrorString(int status, const char **out)
{
	*out = status == NO_MEMORY ? "out of memory" : status == 719 ? "unspecified launch failure" : NULL;
	return *out ? OK : INVALID;
}

static int is_read_only(const char *start, size_t length)
{
	struct range *range;

	for (range = pinned; range; range = range->next)
		if (range->flags & READ_ONLY && start < range->start + range->length && range->start < start + length)
			return 1;
	return 0;
}

/* A kernel that fills memory after a while */
int stand_in_fill(void *stream, uint64_t target, size_t length, int byte, int delay)
{
	int status;

	pthread_mutex_lock(&lock);
	counted.torn += is_read_only((char *)(uintptr_t)target, length);
	status = push(stream, (struct work){ .what = FILL, .target = (char *)(uintptr_t)target, .length = length,
					     .byte = byte, .delay = delay });
	pthread_mutex_unlock(&lock);
	return status;
}

#define ALIAS(theirs, ours) __typeof__(ours) theirs __attribute__((alias(#ours)))
ALIAS(hipInit, cuInit);
ALIAS(hipDeviceGet, cuDeviceGet);
ALIAS(hipThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode);
ALIAS(hipDeviceSynchronize, cuCtxSynchronize);
ALIAS(hipHostGetDevicePointer, cuMemHostGetDevicePointer_v2);
ALIAS(hipMemGetInfo, cuMemGetInfo_v2);
ALIAS(hipMalloc, cuMemAlloc_v2);
ALIAS(hipFree, cuMemFree_v2);
ALIAS(hipHostRegister, cuMemHostRegister_v2);
ALIAS(hipHostUnregister, cuMemHostUnregister);
ALIAS(hipMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2);
ALIAS(hipStreamCreateWithFlags, cuStreamCreate);
ALIAS(hipStreamDestroy, cuStreamDestroy_v2);
ALIAS(hipStreamSynchronize, cuStreamSynchronize);
ALIAS(hipStreamWaitEvent, cuStreamWaitEvent);
ALIAS(hipEventCreateWithFlags, cuEventCreate);
ALIAS(hipEventDestroy, cuEventDestroy_v2);
ALIAS(hipEventRecord, cuEventRecord);
ALIAS(hipEventSynchronize, cuEventSynchronize);
ALIAS(hipDrvGetErrorString, cuGetErrorString);
