/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Tensors of a safetensors file, one by one: names, shapes and every byte */
#include "lib.h"

#define COUNT 5

/* The order of the file is not that of the names. */
static const struct {
	const char *name, *dtype, *shape;
	uint64_t length, dimension[3];
	size_t dimensions;
} tensor[COUNT] = {
	{ "large", "F32", "[3,1048577]", 12 * 1048577, { 3, 1048577, 0 }, 2 },
	{ "scalar", "F64", "[]", 8, { 0, 0, 0 }, 0 },
	{ "empty", "U8", "[0,7]", 0, { 0, 7, 0 }, 2 },
	{ "b", "I16", "[2,2,2]", 16, { 2, 2, 2 }, 3 },
	{ "a", "U8", "[9000001]", 9000001, { 9000001, 0, 0 }, 1 },
};

struct seen {
	int wanted[COUNT];	/* which are to come */
	int next;		/* the first that may come next */
	int count;
	int stop_at;		/* ends the call with this one; 0: never */
};

static void write_model(const char *path)
{
	FILE *file = fopen(path, "w");
	char header[1024] = "{";
	uint64_t at = 0, length;
	unsigned char bytes[4096];
	int i;

	for (i = 0; i < COUNT; i++) {
		sprintf(header + strlen(header), "%s\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%llu,%llu]}",
			i ? "," : "", tensor[i].name, tensor[i].dtype, tensor[i].shape, (unsigned long long)at,
			(unsigned long long)(at + tensor[i].length));
		at += tensor[i].length;
	}
	strcat(header, "}");
	length = strlen(header);
	check(file && fwrite(&length, 8, 1, file) == 1 && fputs(header, file) >= 0);
	for (i = 0; i < COUNT; i++) {
		for (at = 0; at < tensor[i].length; at += length) {
			length = tensor[i].length - at < sizeof(bytes) ? tensor[i].length - at : sizeof(bytes);
			pattern(bytes, at, length, i + 1);
			check(fwrite(bytes, 1, length, file) == length);
		}
	}
	check(!fflush(file) && !fsync(fileno(file)) && !fclose(file));
}

static int look(const struct dmabuf_dio_tensor *found, void *data)
{
	struct seen *seen = (struct seen *)data;
	int i = seen->next;
	size_t dimension;

	while (i < COUNT && !seen->wanted[i])
		i++;
	check(i < COUNT);
	check(!strcmp(found->name, tensor[i].name) && found->name_length == strlen(tensor[i].name));
	check(!strcmp(found->dtype, tensor[i].dtype));
	expect(found->dimensions, tensor[i].dimensions);
	for (dimension = 0; dimension < found->dimensions; dimension++)
		expect(found->shape[dimension], tensor[i].dimension[dimension]);
	expect(found->length, tensor[i].length);
	expect(found->big_endian, 0);
	check(!found->bytes == !found->length);
	check_pattern(found->bytes, 0, found->length, i + 1);
	if (found->length)
		memset(found->bytes, 0, found->length);
	seen->next = i + 1;
	return ++seen->count == seen->stop_at ? 7 : 0;
}

static void all(uint64_t window)
{
	struct seen seen = { { 1, 1, 1, 1, 1 }, 0, 0, 0 };

	expect(dmabuf_dio_each_tensor("model.safetensors", NULL, 0, window, look, &seen), 0);
	expect(seen.count, COUNT);
	seen.next = 0;
	expect(dmabuf_dio_each_tensor(".", NULL, 0, window, look, &seen), 0);
	expect(seen.count, 2 * COUNT);
}

int main(void)
{
	const char *names[] = { "a", "scalar", "a" }, *missing[] = { "a", "none" }, *none[] = { NULL };
	struct seen some = { { 0, 1, 0, 0, 1 }, 0, 0, 0 }, stopped = { { 1, 1, 1, 1, 1 }, 0, 0, 2 };
	unsigned int descriptors = open_descriptors();

	write_model("model.safetensors");
	all(0);
	all(1);
	all(MIB(64));
	expect(dmabuf_dio_each_tensor("model.safetensors", names, 3, 0, look, &some), 0);
	expect(some.count, 2);
	expect(dmabuf_dio_each_tensor("model.safetensors", names, 0, 0, look, &some), 0);
	expect(some.count, 2);
	expect(dmabuf_dio_each_tensor("model.safetensors", NULL, 0, 0, look, &stopped), -ECANCELED);
	expect(stopped.count, 2);
	check(strstr(dmabuf_dio_error_message(), "scalar"));
	expect(dmabuf_dio_each_tensor("model.safetensors", missing, 2, 0, look, &some), -ENOENT);
	check(strstr(dmabuf_dio_error_message(), "none") && *dmabuf_dio_error_hint());
	expect(dmabuf_dio_each_tensor("model.safetensors", none, 1, 0, look, &some), -EFAULT);
	expect(dmabuf_dio_each_tensor("model.safetensors", NULL, 0, 0, NULL, NULL), -EFAULT);
	expect(dmabuf_dio_each_tensor(NULL, NULL, 0, 0, look, &some), -EFAULT);
	expect(dmabuf_dio_each_tensor("missing", NULL, 0, 0, look, &some), -ENOENT);
	make_file("data", 5000, 1);
	expect(dmabuf_dio_each_tensor("data", NULL, 0, 0, look, &some), -EINVAL);
	check(*dmabuf_dio_error_hint());
	expect(some.count, 2);
	expect(open_descriptors(), descriptors);
	return 0;
}
