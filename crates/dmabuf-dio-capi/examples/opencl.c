/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * opencl FILE [FILE]...: loads a file into memory that an OpenCL device uses as it is, and compares the sum of its bytes
 * that the device computes with that of the file on the disk. The device imports the dma-buf, or, if it cannot, uses the
 * memfd's mapping. Further files, no longer than the first, are loaded into the same memory, once the device has it.
 */
#define CL_TARGET_OPENCL_VERSION 300
#include <dmabuf_dio.h>

#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { ITEMS = 4096 };

/* The bytes are weighted by their places: others in other places have another sum. The last number is the address. */
static const char *source =
	"kernel void sum(global const uchar *bytes, ulong length, global ulong *sums)\n"
	"{\n"
	"	size_t item = get_global_id(0), items = get_global_size(0);\n"
	"	ulong sum = 0;\n"
	"	for (ulong i = item; i < length; i += items)\n"
	"		sum += (bytes[i] + 1) * (i + 1);\n"
	"	sums[item] = sum;\n"
	"	if (item == 0)\n"
	"		sums[items] = (ulong)bytes;\n"
	"}\n";

static cl_platform_id platform;
static cl_device_id device;
static cl_context context;
static cl_command_queue queue;
static cl_kernel kernel;

/* The memory that the device has: a dma-buf, which it acquires and releases, or a mapping, which the CPU maps and unmaps. */
static cl_mem memory;
static size_t memory_size;
static void *mapping;
static clEnqueueAcquireExternalMemObjectsKHR_fn acquire;
static clEnqueueReleaseExternalMemObjectsKHR_fn release;

static void cl(cl_int result, const char *what)
{
	if (result == CL_SUCCESS)
		return;
	fprintf(stderr, "opencl: %s: error %d\n", what, result);
	exit(1);
}

static void dio(int status, const char *what)
{
	if (status >= 0)
		return;
	fprintf(stderr, "opencl: %s: %s\n  %s\n", what, dmabuf_dio_error_message(), dmabuf_dio_error_hint());
	exit(1);
}

static int imports_dmabufs(cl_device_id candidate)
{
	cl_external_memory_handle_type_khr types[16];
	size_t size;

	if (clGetDeviceInfo(candidate, CL_DEVICE_EXTERNAL_MEMORY_IMPORT_HANDLE_TYPES_KHR, sizeof(types), types, &size))
		return 0;
	for (size_t i = 0; i < size / sizeof(types[0]); i++)
		if (types[i] == CL_EXTERNAL_MEMORY_HANDLE_DMA_BUF_KHR)
			return 1;
	return 0;
}

/* The first device that imports dma-bufs, or the first. Returns whether it imports them. */
static int find_device(void)
{
	cl_platform_id platforms[16];
	cl_device_id devices[16];
	cl_uint platform_count = 0, count;
	int imports = 0;
	char name[256];

	clGetPlatformIDs(16, platforms, &platform_count);
	for (cl_uint i = 0; i < platform_count && i < 16; i++) {
		if (clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_ALL, 16, devices, &count))
			continue;
		for (cl_uint j = 0; j < count && j < 16 && !imports; j++) {
			imports = imports_dmabufs(devices[j]);
			if (device && !imports)
				continue;
			platform = platforms[i];
			device = devices[j];
		}
	}
	if (!device) {
		fprintf(stderr, "opencl: there is no device\n");
		exit(1);
	}
	cl(clGetDeviceInfo(device, CL_DEVICE_NAME, sizeof(name), name, NULL), "ask for the name");
	printf("device: %s\n", name);
	printf("imports dma-bufs, CL_EXTERNAL_MEMORY_HANDLE_DMA_BUF_KHR: %s\n", imports ? "yes" : "no");
	return imports;
}

static void open_device(void)
{
	cl_int result;

	context = clCreateContext(NULL, 1, &device, NULL, NULL, &result);
	cl(result, "create a context");
	queue = clCreateCommandQueueWithProperties(context, device, NULL, &result);
	cl(result, "create a queue");

	cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &result);
	cl(result, "create a program");
	cl(clBuildProgram(program, 1, &device, NULL, NULL, NULL), "build the program");
	kernel = clCreateKernel(program, "sum", &result);
	cl(result, "create a kernel");
	clReleaseProgram(program);
}

/* The dma-buf goes to the device: it owns the duplicate from then on. */
static void import_dmabuf(struct dmabuf_dio_buffer *buffer)
{
	int fd = fcntl(dmabuf_dio_buffer_dmabuf_fd(buffer), F_DUPFD_CLOEXEC, 3);
	cl_mem_properties properties[] = { CL_EXTERNAL_MEMORY_HANDLE_DMA_BUF_KHR, fd, 0 };
	cl_int result;

	acquire = (clEnqueueAcquireExternalMemObjectsKHR_fn)
		clGetExtensionFunctionAddressForPlatform(platform, "clEnqueueAcquireExternalMemObjectsKHR");
	release = (clEnqueueReleaseExternalMemObjectsKHR_fn)
		clGetExtensionFunctionAddressForPlatform(platform, "clEnqueueReleaseExternalMemObjectsKHR");
	memory_size = lseek(fd, 0, SEEK_END);
	memory = clCreateBufferWithProperties(context, properties, CL_MEM_READ_ONLY, memory_size, NULL, &result);
	cl(result, "import the dma-buf");
	printf("imports the dma-buf: cl_khr_external_memory_dma_buf\n");
}

/*
 * The mapping stays for as long as the device has it. A device in the host's memory uses whole pages as they are, others
 * copy them; the last page goes beyond the file's end, with zeros.
 */
static void use_mapping(struct dmabuf_dio_buffer *buffer, struct dmabuf_dio_map **map)
{
	size_t page = sysconf(_SC_PAGESIZE);
	cl_int result;

	dio(dmabuf_dio_map(buffer, DMABUF_DIO_ACCESS_READ | DMABUF_DIO_ACCESS_WRITE, map), "map");
	mapping = dmabuf_dio_map_address(*map);
	memory_size = (dmabuf_dio_buffer_length(buffer) + page - 1) / page * page;
	memory = clCreateBuffer(context, CL_MEM_READ_ONLY | CL_MEM_USE_HOST_PTR, memory_size, mapping, &result);
	cl(result, "use the mapping");
	printf("uses the memfd's mapping: CL_MEM_USE_HOST_PTR\n");
}

/* The content changes only between these two: a device that copies the mapping copies it again. */
static void take_from_device(void)
{
	cl_int result;

	if (!mapping)
		return;
	clEnqueueMapBuffer(queue, memory, CL_TRUE, CL_MAP_WRITE, 0, memory_size, 0, NULL, NULL, &result);
	cl(result, "map");
}

static void give_to_device(void)
{
	if (mapping)
		cl(clEnqueueUnmapMemObject(queue, memory, mapping, 0, NULL, NULL), "unmap");
}

/* A dma-buf is acquired for the kernel only: other access has to wait until it is released. */
static cl_ulong sum_on_device(cl_ulong length)
{
	size_t items = ITEMS;
	cl_ulong results[ITEMS + 1], sum = 0;
	cl_int result;
	cl_mem sums = clCreateBuffer(context, CL_MEM_WRITE_ONLY, sizeof(results), NULL, &result);

	cl(result, "allocate memory");
	cl(clSetKernelArg(kernel, 0, sizeof(memory), &memory), "pass the bytes");
	cl(clSetKernelArg(kernel, 1, sizeof(length), &length), "pass their number");
	cl(clSetKernelArg(kernel, 2, sizeof(sums), &sums), "pass the sums");
	if (!mapping)
		cl(acquire(queue, 1, &memory, 0, NULL, NULL), "acquire the dma-buf");
	cl(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &items, NULL, 0, NULL, NULL), "run the kernel");
	if (!mapping)
		cl(release(queue, 1, &memory, 0, NULL, NULL), "release the dma-buf");
	cl(clEnqueueReadBuffer(queue, sums, CL_TRUE, 0, sizeof(results), results, 0, NULL, NULL), "read the sums");
	clReleaseMemObject(sums);

	if (mapping && results[ITEMS] == (uintptr_t)mapping)
		printf("no copy: the device reads at the mapping's address\n");
	for (int i = 0; i < ITEMS; i++)
		sum += results[i];
	return sum;
}

static cl_ulong sum_of_file(const char *path)
{
	unsigned char block[1 << 16];
	cl_ulong sum = 0, place = 0;
	size_t count;
	FILE *file = fopen(path, "rb");

	if (!file) {
		perror(path);
		exit(1);
	}
	while ((count = fread(block, 1, sizeof(block), file)) > 0)
		for (size_t i = 0; i < count; i++)
			sum += (block[i] + 1) * ++place;
	fclose(file);
	return sum;
}

static void compare(const char *path, uint64_t length)
{
	cl_ulong of_device = sum_on_device(length), of_file = sum_of_file(path);

	if (of_device != of_file) {
		fprintf(stderr, "opencl: the device's sum of %s is %llx, the file's is %llx\n", path,
			(unsigned long long)of_device, (unsigned long long)of_file);
		exit(1);
	}
	printf("the device read %llu bytes, and their sum is the file's: %llx\n", (unsigned long long)length,
	       (unsigned long long)of_file);
}

int main(int count, char **arguments)
{
	struct dmabuf_dio_options options = { .size = sizeof(options), .kind = DMABUF_DIO_KIND_FILE };
	struct dmabuf_dio_buffer *buffer;
	struct dmabuf_dio_report *report;
	struct dmabuf_dio_map *map = NULL;

	if (count < 2) {
		fprintf(stderr, "usage: opencl FILE [FILE]...\n");
		return 1;
	}
	dio(dmabuf_dio_load(arguments[1], &options, &buffer, &report), "load");
	puts(dmabuf_dio_report_line(report));
	dmabuf_dio_report_free(report);
	int has_dmabuf = dmabuf_dio_buffer_dmabuf_fd(buffer) >= 0;
	if (!has_dmabuf)
		printf("%s\n", dmabuf_dio_error_message());

	int imports = find_device();
	open_device();
	if (has_dmabuf && imports)
		import_dmabuf(buffer);
	else
		use_mapping(buffer, &map);
	compare(arguments[1], dmabuf_dio_buffer_data_length(buffer));

	/* The last page of the dma-buf is a copy, unless it is whole: the files that follow end before it. */
	for (int i = 2; i < count; i++) {
		struct dmabuf_dio_report_fields fields = { .size = sizeof(fields) };

		take_from_device();
		dio(dmabuf_dio_load_into(buffer, 0, arguments[i], NULL, &report), "load into the buffer");
		give_to_device();
		dio(dmabuf_dio_report_fields(report, &fields), "fields");
		dmabuf_dio_report_free(report);
		compare(arguments[i], fields.bytes);
	}

	clReleaseMemObject(memory);
	clReleaseKernel(kernel);
	clReleaseCommandQueue(queue);
	clReleaseContext(context);
	if (map)
		dmabuf_dio_unmap(map);
	dmabuf_dio_buffer_free(buffer);
	return 0;
}
