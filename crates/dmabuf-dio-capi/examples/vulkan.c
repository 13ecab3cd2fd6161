/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * vulkan FILE OUT [FILE OUT]...: loads a file into memory that a Vulkan device uses as it is, has the device copy it into
 * memory of its own, and writes what the device has read to OUT. The device imports the dma-buf, or, if it cannot, the
 * memfd's mapping. Further files, no longer than the first, are loaded into the same memory, once the device has it.
 */
#include <dmabuf_dio.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <vulkan/vulkan.h>

static VkInstance instance;
static VkPhysicalDevice physical;
static VkDevice device;
static uint32_t family;

static void vk(VkResult result, const char *what)
{
	if (result == VK_SUCCESS)
		return;
	fprintf(stderr, "vulkan: %s: error %d\n", what, result);
	exit(1);
}

static void dio(int status, const char *what)
{
	if (status >= 0)
		return;
	fprintf(stderr, "vulkan: %s: %s\n  %s\n", what, dmabuf_dio_error_message(), dmabuf_dio_error_hint());
	exit(1);
}

static int has(const char *extension)
{
	VkExtensionProperties all[512];
	uint32_t count = 512;

	vk(vkEnumerateDeviceExtensionProperties(physical, NULL, &count, all), "list extensions");
	for (uint32_t i = 0; i < count; i++)
		if (!strcmp(all[i].extensionName, extension))
			return 1;
	return 0;
}

/* The first device, with a queue that copies, and the extensions to import by. */
static void open_device(const char *const *extensions, uint32_t count)
{
	float priority = 1;
	VkDeviceQueueCreateInfo queue = {
		.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, .queueFamilyIndex = family, .queueCount = 1,
		.pQueuePriorities = &priority,
	};
	VkDeviceCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO, .queueCreateInfoCount = 1, .pQueueCreateInfos = &queue,
		.enabledExtensionCount = count, .ppEnabledExtensionNames = extensions,
	};

	vk(vkCreateDevice(physical, &info, NULL, &device), "create a device");
}

static void find_device(void)
{
	VkApplicationInfo application = { .sType = VK_STRUCTURE_TYPE_APPLICATION_INFO, .apiVersion = VK_API_VERSION_1_1 };
	VkInstanceCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO, .pApplicationInfo = &application,
	};
	VkPhysicalDeviceProperties properties;
	uint32_t count = 1;

	vk(vkCreateInstance(&info, NULL, &instance), "create an instance");
	if (vkEnumeratePhysicalDevices(instance, &count, &physical) < 0 || !count) {
		fprintf(stderr, "vulkan: there is no device\n");
		exit(1);
	}
	vkGetPhysicalDeviceProperties(physical, &properties);
	printf("device: %s\n", properties.deviceName);
}

/* A type of memory among `types`; the CPU can map it if `visible`. */
static uint32_t memory_type(uint32_t types, int visible)
{
	VkPhysicalDeviceMemoryProperties memory;
	VkMemoryPropertyFlags wanted = visible ? VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT : 0;

	vkGetPhysicalDeviceMemoryProperties(physical, &memory);
	for (uint32_t i = 0; i < memory.memoryTypeCount; i++)
		if (types >> i & 1 && (memory.memoryTypes[i].propertyFlags & wanted) == wanted)
			return i;
	fprintf(stderr, "vulkan: the device has no such memory\n");
	exit(1);
}

/* A buffer over memory: of the kind in `handle`, imported as `import` says, or the device's own. */
static VkBuffer buffer_of(VkDeviceSize size, VkExternalMemoryHandleTypeFlagBits handle, const void *import, uint32_t types,
			  VkDeviceMemory *memory)
{
	VkExternalMemoryBufferCreateInfo external = {
		.sType = VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO, .handleTypes = handle,
	};
	VkBufferCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO, .pNext = import ? &external : NULL, .size = size,
		.usage = import ? VK_BUFFER_USAGE_TRANSFER_SRC_BIT : VK_BUFFER_USAGE_TRANSFER_DST_BIT,
	};
	VkMemoryAllocateInfo allocate = { .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, .pNext = import };
	VkMemoryRequirements needs;
	VkBuffer buffer;

	vk(vkCreateBuffer(device, &info, NULL, &buffer), "create a buffer");
	vkGetBufferMemoryRequirements(device, buffer, &needs);
	/* Imported memory keeps its length. */
	allocate.allocationSize = import ? size : needs.size;
	allocate.memoryTypeIndex = memory_type(needs.memoryTypeBits & types, !import);
	vk(vkAllocateMemory(device, &allocate, NULL, memory), import ? "import the memory" : "allocate memory");
	vk(vkBindBufferMemory(device, buffer, *memory, 0), "bind the memory");
	return buffer;
}

/* Lets the device copy, and waits for it. */
static void copy(VkBuffer from, VkBuffer to, VkDeviceSize size)
{
	VkCommandPoolCreateInfo info = { .sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO, .queueFamilyIndex = family };
	VkCommandBufferAllocateInfo allocate = { .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO, .commandBufferCount = 1 };
	VkCommandBufferBeginInfo begin = { .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO };
	VkMemoryBarrier barrier = {
		.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER, .srcAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT,
		.dstAccessMask = VK_ACCESS_HOST_READ_BIT,
	};
	VkBufferCopy region = { .size = size };
	VkCommandBuffer commands;
	VkQueue queue;

	vk(vkCreateCommandPool(device, &info, NULL, &allocate.commandPool), "create a command pool");
	vk(vkAllocateCommandBuffers(device, &allocate, &commands), "allocate commands");
	vk(vkBeginCommandBuffer(commands, &begin), "begin");
	vkCmdCopyBuffer(commands, from, to, 1, &region);
	vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &barrier, 0, NULL, 0, NULL);
	vk(vkEndCommandBuffer(commands), "end");
	VkSubmitInfo submit = { .sType = VK_STRUCTURE_TYPE_SUBMIT_INFO, .commandBufferCount = 1, .pCommandBuffers = &commands };
	vkGetDeviceQueue(device, family, 0, &queue);
	vk(vkQueueSubmit(queue, 1, &submit, VK_NULL_HANDLE), "submit");
	vk(vkQueueWaitIdle(queue), "wait");
	vkDestroyCommandPool(device, allocate.commandPool, NULL);
}

/* The dma-buf goes to the device: it owns the duplicate from then on. */
static VkBuffer import_dmabuf(struct dmabuf_dio_buffer *buffer, VkDeviceMemory *memory)
{
	int fd = fcntl(dmabuf_dio_buffer_dmabuf_fd(buffer), F_DUPFD_CLOEXEC, 3);
	VkMemoryFdPropertiesKHR of_fd = { .sType = VK_STRUCTURE_TYPE_MEMORY_FD_PROPERTIES_KHR };
	VkImportMemoryFdInfoKHR import = {
		.sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_FD_INFO_KHR, .fd = fd,
		.handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_DMA_BUF_BIT_EXT,
	};
	PFN_vkGetMemoryFdPropertiesKHR properties =
		(PFN_vkGetMemoryFdPropertiesKHR)vkGetDeviceProcAddr(device, "vkGetMemoryFdPropertiesKHR");

	vk(properties(device, import.handleType, fd, &of_fd), "ask for the properties of the dma-buf");
	printf("imports the dma-buf: VK_EXT_external_memory_dma_buf\n");
	return buffer_of(lseek(fd, 0, SEEK_END), import.handleType, &import, of_fd.memoryTypeBits, memory);
}

/* The mapping stays for as long as the device has it. Its last page goes beyond the file's end, with zeros. */
static VkBuffer import_mapping(struct dmabuf_dio_buffer *buffer, struct dmabuf_dio_map **map, VkDeviceMemory *memory)
{
	uint64_t page = sysconf(_SC_PAGESIZE);
	VkMemoryHostPointerPropertiesEXT of_pointer = { .sType = VK_STRUCTURE_TYPE_MEMORY_HOST_POINTER_PROPERTIES_EXT };
	VkImportMemoryHostPointerInfoEXT import = {
		.sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT,
		.handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT,
	};
	PFN_vkGetMemoryHostPointerPropertiesEXT properties =
		(PFN_vkGetMemoryHostPointerPropertiesEXT)vkGetDeviceProcAddr(device, "vkGetMemoryHostPointerPropertiesEXT");

	dio(dmabuf_dio_map(buffer, DMABUF_DIO_ACCESS_READ | DMABUF_DIO_ACCESS_WRITE, map), "map");
	import.pHostPointer = dmabuf_dio_map_address(*map);
	vk(properties(device, import.handleType, import.pHostPointer, &of_pointer), "ask for the properties of the mapping");
	printf("imports the memfd's mapping: VK_EXT_external_memory_host\n");
	return buffer_of((dmabuf_dio_buffer_length(buffer) + page - 1) / page * page, import.handleType, &import,
			 of_pointer.memoryTypeBits, memory);
}

/* Writes the data that the device reads from the imported memory to a file */
static void read_back(VkBuffer from, uint64_t length, const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	VkDeviceMemory memory;
	VkBuffer to = buffer_of(length, 0, NULL, ~0u, &memory);
	void *bytes;

	copy(from, to, length);
	vk(vkMapMemory(device, memory, 0, length, 0, &bytes), "map");
	for (uint64_t done = 0; done < length;) {
		ssize_t written = write(fd, (char *)bytes + done, length - done);

		if (written <= 0) {
			perror(path);
			exit(1);
		}
		done += written;
	}
	close(fd);
	printf("the device read %llu bytes\n", (unsigned long long)length);
	vkDestroyBuffer(device, to, NULL);
	vkFreeMemory(device, memory, NULL);
}

int main(int count, char **arguments)
{
	static const char *by_dmabuf[] = { "VK_KHR_external_memory_fd", "VK_EXT_external_memory_dma_buf" };
	static const char *by_mapping[] = { "VK_EXT_external_memory_host" };
	struct dmabuf_dio_options options = { .size = sizeof(options), .kind = DMABUF_DIO_KIND_FILE };
	struct dmabuf_dio_buffer *buffer;
	struct dmabuf_dio_report *report;
	struct dmabuf_dio_map *map = NULL;
	VkDeviceMemory imported;
	VkBuffer from;

	if (count < 3 || count % 2 == 0) {
		fprintf(stderr, "usage: vulkan FILE OUT [FILE OUT]...\n");
		return 1;
	}
	dio(dmabuf_dio_load(arguments[1], &options, &buffer, &report), "load");
	puts(dmabuf_dio_report_line(report));
	dmabuf_dio_report_free(report);
	int has_dmabuf = dmabuf_dio_buffer_dmabuf_fd(buffer) >= 0;
	if (!has_dmabuf)
		printf("%s\n", dmabuf_dio_error_message());

	find_device();
	printf("VK_EXT_external_memory_dma_buf: %s\n", has(by_dmabuf[1]) ? "yes" : "no");
	if (has_dmabuf && has(by_dmabuf[1])) {
		open_device(by_dmabuf, 2);
		from = import_dmabuf(buffer, &imported);
	} else if (has(by_mapping[0])) {
		open_device(by_mapping, 1);
		from = import_mapping(buffer, &map, &imported);
	} else {
		fprintf(stderr, "vulkan: the device imports neither dma-bufs nor mappings\n");
		return 1;
	}
	read_back(from, dmabuf_dio_buffer_data_length(buffer), arguments[2]);

	/* The last page of the dma-buf is a copy, unless it is whole: the files that follow end before it. */
	for (int i = 3; i < count; i += 2) {
		dio(dmabuf_dio_load_into(buffer, 0, arguments[i], NULL, &report), "load into the buffer");
		struct dmabuf_dio_report_fields fields = { .size = sizeof(fields) };
		dio(dmabuf_dio_report_fields(report, &fields), "fields");
		dmabuf_dio_report_free(report);
		read_back(from, fields.bytes, arguments[i + 1]);
	}

	vkDestroyBuffer(device, from, NULL);
	vkFreeMemory(device, imported, NULL);
	vkDestroyDevice(device, NULL);
	vkDestroyInstance(instance, NULL);
	if (map)
		dmabuf_dio_unmap(map);
	dmabuf_dio_buffer_free(buffer);
	return 0;
}
