/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A capture of the counting ADC (kernel/sim/iio_stream): every frame, gaps, blocks that are kept, stops */
#include "lib.h"

#include <sys/mman.h>

#define ADC "stream-adc"
#define BLOCKS 4
#define MANY 16
#define BYTES 32768
#define FRAMES (BYTES / 8)

static struct dmabuf_dio_capture_options small_blocks(double rate)
{
	struct dmabuf_dio_capture_options options;

	memset(&options, 0, sizeof(options));
	options.size = sizeof(options);
	options.block_size = BYTES;
	options.blocks = BLOCKS;
	options.rate = rate;
	return options;
}

static struct dmabuf_dio_capture *open_capture(const struct dmabuf_dio_capture_options *options)
{
	struct dmabuf_dio_capture *capture;

	expect(dmabuf_dio_capture_open(ADC, options, &capture), 0);
	return capture;
}

static struct dmabuf_dio_block next_block(struct dmabuf_dio_capture *capture)
{
	struct dmabuf_dio_block block;

	memset(&block, 0xff, sizeof(block));
	block.size = sizeof(block);
	expect(dmabuf_dio_capture_next(capture, 60000000, &block), 0);
	return block;
}

static struct dmabuf_dio_capture_fields figures_of(const struct dmabuf_dio_capture *capture)
{
	struct dmabuf_dio_capture_fields fields;

	fields.size = sizeof(fields);
	expect(dmabuf_dio_capture_fields(capture, &fields), 0);
	return fields;
}

/* Each frame of a block is its number. */
static void check_frames(const struct dmabuf_dio_block *block)
{
	const uint64_t *frames = (const uint64_t *)block->data;
	uint64_t i;

	expect(block->bytes, BYTES);
	for (i = 0; i < FRAMES; i++)
		expect(frames[i], block->position + i);
}

static void set(struct dmabuf_dio_device *device, const char *name, const char *value)
{
	expect(dmabuf_dio_attribute_set(device, name, value), 0);
}

static void every_frame(void)
{
	struct dmabuf_dio_capture_options options = small_blocks(50000);
	struct dmabuf_dio_capture *capture;
	struct dmabuf_dio_capture_fields fields;
	struct dmabuf_dio_block block, kept, same;
	uint64_t wanted = 0;
	void *mapped;
	int i;

	/* Enough for a second in which the machine does something else */
	options.blocks = MANY;
	capture = open_capture(&options);
	check(strstr(dmabuf_dio_capture_how(capture), "dma-buf"));
	block.size = sizeof(block);
	expect(dmabuf_dio_capture_next(capture, -1, &block), -ENODATA);
	expect(dmabuf_dio_capture_release(capture, 0), -EINVAL);
	expect(dmabuf_dio_capture_start(capture), 0);

	kept = next_block(capture);
	for (i = 0; i < 2 * MANY; i++, wanted += FRAMES) {
		block = i ? next_block(capture) : kept;
		expect(block.position, wanted);
		expect(block.gap, 0);
		expect(block.flags, 0);
		check_frames(&block);
		same.size = sizeof(same);
		expect(dmabuf_dio_capture_block(capture, block.number, &same), 0);
		check(same.data == block.data && same.fd == block.fd);
		/* The dma-buf has the same samples for whoever imports it. */
		mapped = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, block.fd, 0);
		check(mapped != MAP_FAILED && !memcmp(mapped, block.data, BYTES));
		munmap(mapped, BYTES);
		/* The first is kept: nothing is written to it. */
		if (i)
			expect(dmabuf_dio_capture_release(capture, block.number), 0);
	}
	check_frames(&kept);
	expect(dmabuf_dio_capture_release(capture, kept.number), 0);
	expect(dmabuf_dio_capture_release(capture, kept.number), -EINVAL);
	expect(dmabuf_dio_capture_block(capture, MANY, &same), -EINVAL);

	fields = figures_of(capture);
	expect(fields.frame_bytes, 8);
	expect(fields.block_bytes, BYTES);
	expect(fields.blocks, MANY);
	expect(fields.rate, 50000);
	expect(fields.frames, wanted);
	expect(fields.lost_frames, 0);
	expect(fields.gaps, 0);
	expect(fields.losses_known, 1);
	dmabuf_dio_capture_free(capture);
}

/* Without a block the device loses frames, whose number the next block has. */
static void gaps(void)
{
	struct dmabuf_dio_capture_options options = small_blocks(200000);
	struct dmabuf_dio_capture *capture = open_capture(&options);
	struct dmabuf_dio_block block, all[BLOCKS];
	struct dmabuf_dio_capture_fields fields;
	int i;

	expect(dmabuf_dio_capture_start(capture), 0);
	for (i = 0; i < BLOCKS; i++)
		all[i] = next_block(capture);
	block.size = sizeof(block);
	expect(dmabuf_dio_capture_next(capture, -1, &block), -ENOBUFS);
	usleep(100000);
	for (i = 0; i < BLOCKS; i++)
		check_frames(&all[i]);
	for (i = 0; i < BLOCKS; i++)
		expect(dmabuf_dio_capture_release(capture, all[i].number), 0);
	block = next_block(capture);
	check(block.gap > 0 && block.gap != DMABUF_DIO_UNKNOWN);
	expect(block.position, BLOCKS * FRAMES + block.gap);
	if (!block.flags)
		check_frames(&block);
	expect(dmabuf_dio_capture_release(capture, block.number), 0);
	fields = figures_of(capture);
	expect(fields.lost_frames, block.gap);
	expect(fields.gaps, 1);
	expect(fields.losses_known, 1);
	/* Positions that are exact are true however slow the program is. */
	for (i = 0; i < 100; i++) {
		block = next_block(capture);
		if (!block.flags)
			check_frames(&block);
		if (i % 10 == 0)
			usleep(50000);
		expect(dmabuf_dio_capture_release(capture, block.number), 0);
	}
	dmabuf_dio_capture_free(capture);
}

/* A wait ends with its time, and at once when the capture is stopped. */
static void waits(void)
{
	struct dmabuf_dio_capture_options options = small_blocks(100);
	struct dmabuf_dio_capture *capture = open_capture(&options);
	struct dmabuf_dio_block block;

	block.size = sizeof(block);
	expect(dmabuf_dio_capture_start(capture), 0);
	expect(dmabuf_dio_capture_next(capture, 0, &block), -ETIMEDOUT);
	expect(dmabuf_dio_capture_next(capture, 700000, &block), -ETIMEDOUT);
	expect(dmabuf_dio_capture_stop(capture), 0);
	expect(dmabuf_dio_capture_next(capture, -1, &block), -ENODATA);
	dmabuf_dio_capture_free(capture);
}

/* A stop leaves full blocks to be got; a start begins anew. */
static void stops(void)
{
	struct dmabuf_dio_capture_options options = small_blocks(200000);
	struct dmabuf_dio_capture *capture = open_capture(&options);
	struct dmabuf_dio_block block, kept;
	unsigned int got;
	int round;

	for (round = 0; round < 3; round++) {
		expect(dmabuf_dio_capture_start(capture), 0);
		expect(dmabuf_dio_capture_start(capture), 0);
		kept = next_block(capture);
		expect(kept.position, 0);
		check_frames(&kept);
		usleep(200000);
		expect(dmabuf_dio_capture_stop(capture), 0);
		block.size = sizeof(block);
		for (got = 1; dmabuf_dio_capture_next(capture, -1, &block) == 0; got++) {
			expect(block.position, got * FRAMES);
			check_frames(&block);
			expect(dmabuf_dio_capture_release(capture, block.number), 0);
		}
		check(got > 1 && got <= BLOCKS);
		expect(dmabuf_dio_capture_next(capture, 0, &block), -ENODATA);
		expect(dmabuf_dio_capture_release(capture, kept.number), 0);
	}
	dmabuf_dio_capture_free(capture);
	dmabuf_dio_capture_free(NULL);
}

/* Two of the channels, and conversions of a part of a frame */
static void channels(void)
{
	static const char *const two[] = { "in_voltage3", "in_voltage2" };
	static const uint32_t second[] = { 1 };
	struct dmabuf_dio_capture_options options = small_blocks(100000);
	struct dmabuf_dio_capture *capture;
	struct dmabuf_dio_converter *converter;
	struct dmabuf_dio_channel all[8];
	struct dmabuf_dio_device *device;
	struct dmabuf_dio_block block;
	static int16_t values[BYTES / 4];
	const uint16_t *frames;
	uint64_t i;

	expect(dmabuf_dio_device_find(ADC, &device), 0);
	expect(dmabuf_dio_device_channels(device, 0, NULL, 0), 4);
	expect(dmabuf_dio_device_channels(device, 0, all, 8), 4);
	expect(dmabuf_dio_device_channels(device, 1, all, 8), -ENOENT);
	check(!strcmp(all[3].name, "in_voltage3"));
	expect(all[3].encoding, DMABUF_DIO_ENCODING_UNSIGNED);
	expect(all[3].bits, 16);
	expect(all[3].storage_bits, 16);

	options.channels = two;
	options.channel_count = 2;
	capture = open_capture(&options);
	expect(figures_of(capture).frame_bytes, 4);
	expect(dmabuf_dio_capture_start(capture), 0);
	block = next_block(capture);
	frames = (const uint16_t *)block.data;
	for (i = 0; i < BYTES / 4; i++) {
		/* The device writes the lower bytes of the number, whatever the channels. */
		expect(frames[2 * i], i & 0xffff);
		expect(frames[2 * i + 1], i >> 16);
	}
	expect(dmabuf_dio_converter_open(&all[2], 2, second, 1, "ci16", &converter), 0);
	expect(dmabuf_dio_convert(converter, block.data, values, BYTES / 4), 0);
	for (i = 0; i < BYTES / 4; i++)
		expect(values[i], (int64_t)(i >> 16) - 32768);
	dmabuf_dio_converter_free(converter);
	expect(dmabuf_dio_converter_open(&all[2], 1, second, 1, "ci16", &converter), -EINVAL);
	expect(dmabuf_dio_converter_open(&all[2], 2, NULL, 0, "c16", &converter), -EINVAL);
	all[2].storage_bits = 9;
	expect(dmabuf_dio_converter_open(&all[2], 2, NULL, 0, "ci16", &converter), -EINVAL);
	dmabuf_dio_capture_free(capture);
	dmabuf_dio_device_free(device);
}

/* A refused capture leaves the device free. */
static void refusals(void)
{
	struct dmabuf_dio_capture_options options = small_blocks(0);
	static const char *const none[] = { "in_voltage9" };
	struct dmabuf_dio_capture *capture, *second;

	expect(dmabuf_dio_capture_open("no such device", NULL, &capture), -ENODEV);
	expect(dmabuf_dio_capture_open("stream-dac", NULL, &capture), -EOPNOTSUPP);
	options.buffer = 1;
	expect(dmabuf_dio_capture_open(ADC, &options, &capture), -ENOENT);
	options = small_blocks(0);
	options.channels = none;
	options.channel_count = 1;
	expect(dmabuf_dio_capture_open(ADC, &options, &capture), -EINVAL);
	check(strstr(dmabuf_dio_error_hint(), "in_voltage3"));
	options.channel_count = 0;
	expect(dmabuf_dio_capture_open(ADC, &options, &capture), -EINVAL);
	options = small_blocks(0);
	options.block_size = BYTES + 1;
	expect(dmabuf_dio_capture_open(ADC, &options, &capture), -EINVAL);
	options = small_blocks(5e9);
	expect(dmabuf_dio_capture_open(ADC, &options, &capture), -EINVAL);
	check(!capture);
	options = small_blocks(0);
	options.size = 8;
	expect(dmabuf_dio_capture_open(ADC, &options, &capture), -EINVAL);
	expect(dmabuf_dio_capture_open(ADC, NULL, &capture), 0);
	expect(dmabuf_dio_capture_open(ADC, NULL, &second), -EBUSY);
	dmabuf_dio_capture_free(capture);
}

static void attributes(struct dmabuf_dio_device *device)
{
	char *text;
	double rate;

	set(device, "sampling_frequency", "50000");
	expect(dmabuf_dio_device_rate(device, 0, &rate), 0);
	expect(rate, 50000);
	expect(dmabuf_dio_device_set_rate(device, 0, 100000), 0);
	expect(dmabuf_dio_attribute_read(device, "voltage0.sampling_frequency", &text), 0);
	check(!strcmp(text, "100000"));
	dmabuf_dio_string_free(text);
	expect(dmabuf_dio_attribute_available(device, "sampling_frequency", &text), 0);
	check(!text);
	expect(dmabuf_dio_device_rates(device, 0, &text), 0);
	check(!text);
	expect(dmabuf_dio_attribute_read(device, "voltage0.gain", &text), -ENOENT);
	expect(dmabuf_dio_attribute_set(device, "lost_frames", "1"), -EINVAL);
	expect(dmabuf_dio_attribute_set(device, "sampling_frequency", "-1"), -EINVAL);
	expect(dmabuf_dio_device_is_output(device, 0), 0);
	check(!strcmp(dmabuf_dio_device_name(device), ADC) && !dmabuf_dio_device_label(device));
	check(!strncmp(dmabuf_dio_device_id(device), "iio:device", 10));
}

int main(void)
{
	struct dmabuf_dio_device *devices[16], *device;
	int64_t count, i, found = 0;

	expect(dmabuf_dio_device_find("no such device", &device), -ENODEV);
	check(!device);
	if (dmabuf_dio_device_find(ADC, &device) < 0)
		skip("there is no simulated ADC");
	count = dmabuf_dio_device_list(devices, 16);
	expect(dmabuf_dio_device_list(NULL, 0), count);
	for (i = 0; i < count; i++) {
		found += !strcmp(dmabuf_dio_device_id(devices[i]), dmabuf_dio_device_id(device));
		dmabuf_dio_device_free(devices[i]);
	}
	expect(found, 1);
	attributes(device);
	dmabuf_dio_device_free(device);
	every_frame();
	gaps();
	waits();
	stops();
	channels();
	refusals();
	return 0;
}
