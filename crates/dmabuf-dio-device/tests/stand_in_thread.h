/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What a thread may do with a driver: the device that it works with, forks, and Python's lock.
 */
#include <dlfcn.h>
#include <unistd.h>

enum { DEVICES = 2, NO_DEVICE = -1 };

static struct context { int device; } contexts[DEVICES] = { { 0 }, { 1 } };
static pid_t process;			/* that has started the driver */
static __thread struct context *stack[8];
static __thread int depth;
static __thread int hip_device = NO_DEVICE;

/* With CUDA, that of the context on top of the thread's stack; with HIP each thread has one. */
static int current(void)
{
	return depth ? stack[depth - 1]->device : hip_device;
}

/* "CUDA is not supported in a child of fork() of a process that has initialised it": cuInit() and all others fail. */
static int is_forked(void)
{
	return process && process != getpid();
}

static int captures;			/* a thread captures a stream for a graph */
static __thread int capture_mode;

/*
 * CU_STREAM_CAPTURE_MODE_GLOBAL, that of a new thread: it "is prohibited from potentially unsafe API calls", which
 * invalidate the capture
 */
static int is_prohibited(void)
{
	return captures && capture_mode == 0;
}

void stand_in_capture(int is)
{
	captures = is;
}

int cuThreadExchangeStreamCaptureMode(int *mode)
{
	int before = capture_mode;

	if (*mode < 0 || *mode > 2)
		return 1;
	capture_mode = *mode;
	*mode = before;
	return 0;
}

/* A call that waits for the device may wait for a callback, which waits for Python's lock. */
static int holds_python(void)
{
	int (*check)(void) = dlsym(RTLD_DEFAULT, "PyGILState_Check");

	return check && check();
}

/* A framework lets this thread work with a device. */
void stand_in_use(int is_hip, int device)
{
	depth = 0;
	hip_device = is_hip ? device : NO_DEVICE;
	if (!is_hip && device != NO_DEVICE)
		stack[depth++] = &contexts[device];
}

/* With which one it works now */
int stand_in_used(void)
{
	return current();
}

int cuCtxPushCurrent_v2(void *handle)
{
	if (!handle || depth == sizeof(stack) / sizeof(*stack))
		return 201;
	stack[depth++] = handle;
	return 0;
}

int cuCtxPopCurrent_v2(void **out)
{
	if (!depth)
		return 201;
	*out = stack[--depth];
	return 0;
}

int hipGetDevice(int *out)
{
	if (hip_device == NO_DEVICE)
		hip_device = 0;
	*out = hip_device;
	return 0;
}

int hipSetDevice(int device)
{
	if (device < 0 || device >= DEVICES)
		return 101;
	hip_device = device;
	return 0;
}
