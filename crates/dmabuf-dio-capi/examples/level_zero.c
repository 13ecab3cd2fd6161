/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * level_zero FILE: loads a file into a dma-buf that an NPU or a GPU imports through Level Zero, has the device copy it
 * into memory of its own, and compares the copy with the file. Compiled by the tests, but not run: it needs the device.
 */
#include <dmabuf_dio.h>

#include <fcntl.h>
#include <level_zero/ze_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static ze_driver_handle_t driver;
static ze_device_handle_t device;
static ze_context_handle_t context;

static void ze(ze_result_t result, const char *what)
{
	if (result == ZE_RESULT_SUCCESS)
		return;
	fprintf(stderr, "level_zero: %s: error 0x%x\n", what, result);
	exit(1);
}

static void dio(int status, const char *what)
{
	if (status >= 0)
		return;
	fprintf(stderr, "level_zero: %s: %s\n  %s\n", what, dmabuf_dio_error_message(), dmabuf_dio_error_hint());
	exit(1);
}

static int imports_dmabufs(ze_device_handle_t candidate)
{
	ze_device_external_memory_properties_t external = {
		.stype = ZE_STRUCTURE_TYPE_DEVICE_EXTERNAL_MEMORY_PROPERTIES,
	};

	return zeDeviceGetExternalMemoryProperties(candidate, &external) == ZE_RESULT_SUCCESS &&
	       external.memoryAllocationImportTypes & ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF;
}

/* The first device that imports dma-bufs. NPUs and integrated GPUs read host memory at full speed. */
static void find_device(void)
{
	ze_driver_handle_t drivers[16];
	ze_device_handle_t devices[16];
	uint32_t driver_count = 16, count;

	if (zeInit(0) != ZE_RESULT_SUCCESS || zeDriverGet(&driver_count, drivers) != ZE_RESULT_SUCCESS)
		driver_count = 0;
	for (uint32_t i = 0; i < driver_count && !device; i++) {
		count = 16;
		ze(zeDeviceGet(drivers[i], &count, devices), "list the devices");
		for (uint32_t j = 0; j < count && !device; j++) {
			if (!imports_dmabufs(devices[j]))
				continue;
			driver = drivers[i];
			device = devices[j];
		}
	}
	if (!device) {
		fprintf(stderr, "level_zero: there is no device that imports dma-bufs\n");
		exit(1);
	}

	ze_device_properties_t properties = { .stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES };
	ze_context_desc_t desc = { .stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC };
	ze(zeDeviceGetProperties(device, &properties), "ask for the properties");
	printf("device: %s, %s\n", properties.name,
	       properties.flags & ZE_DEVICE_PROPERTY_FLAG_INTEGRATED ? "in the host's memory" : "with memory of its own");
	ze(zeContextCreate(driver, &desc, &context), "create a context");
}

/*
 * The drivers of Intel's NPUs and GPUs both import by zeMemAllocDevice. The memory stays where it is. Some versions close
 * the descriptor, and others do not: they get a duplicate.
 */
static void *import_dmabuf(struct dmabuf_dio_buffer *buffer)
{
	int fd = fcntl(dmabuf_dio_buffer_dmabuf_fd(buffer), F_DUPFD_CLOEXEC, 3);
	ze_external_memory_import_fd_t import = {
		.stype = ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_FD, .flags = ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF, .fd = fd,
	};
	ze_device_mem_alloc_desc_t desc = { .stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC, .pNext = &import };
	void *imported;

	ze(zeMemAllocDevice(context, &desc, lseek(fd, 0, SEEK_END), sysconf(_SC_PAGESIZE), device, &imported),
	   "import the dma-buf");
	printf("imports the dma-buf: ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF\n");
	return imported;
}

/* The first group of queues that copy. */
static uint32_t copying_queues(void)
{
	ze_command_queue_group_properties_t groups[16];
	uint32_t count = 16;

	for (int i = 0; i < 16; i++)
		groups[i] = (ze_command_queue_group_properties_t){ .stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_GROUP_PROPERTIES };
	ze(zeDeviceGetCommandQueueGroupProperties(device, &count, groups), "list the queues");
	for (uint32_t i = 0; i < count; i++)
		if (groups[i].flags & (ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY | ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE))
			return i;
	fprintf(stderr, "level_zero: the device has no queue that copies\n");
	exit(1);
}

/* Lets the device copy, and waits for it. */
static void copy(void *to, const void *from, size_t size)
{
	uint32_t group = copying_queues();
	ze_command_queue_desc_t queue_desc = { .stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC, .ordinal = group };
	ze_command_list_desc_t list_desc = { .stype = ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC, .commandQueueGroupOrdinal = group };
	ze_command_queue_handle_t queue;
	ze_command_list_handle_t list;

	ze(zeCommandQueueCreate(context, device, &queue_desc, &queue), "create a queue");
	ze(zeCommandListCreate(context, device, &list_desc, &list), "create a command list");
	ze(zeCommandListAppendMemoryCopy(list, to, from, size, NULL, 0, NULL), "append a copy");
	ze(zeCommandListClose(list), "close the command list");
	ze(zeCommandQueueExecuteCommandLists(queue, 1, &list, NULL), "submit");
	ze(zeCommandQueueSynchronize(queue, UINT64_MAX), "wait");
	zeCommandListDestroy(list);
	zeCommandQueueDestroy(queue);
}

static void compare(const unsigned char *bytes, uint64_t length, const char *path)
{
	unsigned char block[1 << 16];
	uint64_t place = 0;
	size_t count;
	FILE *file = fopen(path, "rb");

	if (!file) {
		perror(path);
		exit(1);
	}
	while ((count = fread(block, 1, sizeof(block), file)) > 0 && count <= length - place &&
	       !memcmp(block, bytes + place, count))
		place += count;
	fclose(file);
	if (count || place != length) {
		fprintf(stderr, "level_zero: the device's copy differs from %s, near byte %llu\n", path, (unsigned long long)place);
		exit(1);
	}
	printf("the device read %llu bytes, which are the file's\n", (unsigned long long)length);
}

int main(int count, char **arguments)
{
	struct dmabuf_dio_options options = { .size = sizeof(options), .kind = DMABUF_DIO_KIND_FILE };
	ze_host_mem_alloc_desc_t desc = { .stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC };
	struct dmabuf_dio_buffer *buffer;
	struct dmabuf_dio_report *report;
	void *imported, *copied;

	if (count != 2) {
		fprintf(stderr, "usage: level_zero FILE\n");
		return 1;
	}
	dio(dmabuf_dio_load(arguments[1], &options, &buffer, &report), "load");
	puts(dmabuf_dio_report_line(report));
	dmabuf_dio_report_free(report);
	dio(dmabuf_dio_buffer_dmabuf_fd(buffer), "ask for the dma-buf");

	find_device();
	imported = import_dmabuf(buffer);
	uint64_t length = dmabuf_dio_buffer_data_length(buffer);
	ze(zeMemAllocHost(context, &desc, length, 0, &copied), "allocate memory");
	copy(copied, imported, length);
	compare(copied, length, arguments[1]);

	zeMemFree(context, copied);
	zeMemFree(context, imported);
	zeContextDestroy(context);
	dmabuf_dio_buffer_free(buffer);
	return 0;
}
