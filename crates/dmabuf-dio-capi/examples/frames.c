/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * frames WIDTH HEIGHT FILE OUT: loads a file of raw RGB frames and plays it through GStreamer: each frame is a
 * part of one dma-buf, which elements that know dma-bufs import and others map. No frame is copied. This pipeline
 * stores the frames as BGR in OUT.
 */
#include <dmabuf_dio.h>

#include <gst/allocators/gstdmabuf.h>
#include <gst/app/gstappsrc.h>
#include <gst/gst.h>
#include <stdio.h>
#include <stdlib.h>

static int failed(const char *what)
{
	fprintf(stderr, "frames: %s: %s\n  %s\n", what, dmabuf_dio_error_message(), dmabuf_dio_error_hint());
	return 1;
}

/* The file's content as memory of GStreamer. The allocator takes the descriptor over and closes it. */
static GstMemory *wrap(struct dmabuf_dio_buffer *buffer)
{
	GstAllocator *allocator = gst_dmabuf_allocator_new();
	int fd = dmabuf_dio_buffer_dup(buffer);
	GstMemory *whole = gst_dmabuf_allocator_alloc(allocator, fd, dmabuf_dio_buffer_length(buffer));

	gst_object_unref(allocator);
	return whole;
}

int main(int count, char **arguments)
{
	gst_init(&count, &arguments);
	if (count != 5)
		return fprintf(stderr, "usage: frames WIDTH HEIGHT FILE OUT\n"), 2;
	int width = atoi(arguments[1]), height = atoi(arguments[2]);
	/* GStreamer's rows of RGB are padded to four bytes. */
	gsize size = (gsize)((width * 3 + 3) / 4 * 4) * height;

	struct dmabuf_dio_buffer *buffer;
	struct dmabuf_dio_report *report;
	if (dmabuf_dio_load(arguments[3], NULL, &buffer, &report) < 0)
		return failed(arguments[3]);
	puts(dmabuf_dio_report_line(report));
	dmabuf_dio_report_free(report);
	gsize start = dmabuf_dio_buffer_data_offset(buffer);
	gsize frames = dmabuf_dio_buffer_data_length(buffer) / size;
	GstMemory *memory = wrap(buffer);
	dmabuf_dio_buffer_free(buffer);

	gchar *text = g_strdup_printf(
		"appsrc name=source format=time caps=video/x-raw,format=RGB,width=%d,height=%d,framerate=30/1 ! "
		"videoconvert ! video/x-raw,format=BGR ! filesink location=\"%s\"", width, height, arguments[4]);
	GError *error = NULL;
	GstElement *pipeline = gst_parse_launch(text, &error);
	g_free(text);
	if (!pipeline)
		return fprintf(stderr, "frames: %s\n", error->message), 1;
	GstElement *source = gst_bin_get_by_name(GST_BIN(pipeline), "source");
	gst_element_set_state(pipeline, GST_STATE_PLAYING);
	for (gsize i = 0; i < frames; i++) {
		GstBuffer *frame = gst_buffer_new();

		gst_buffer_append_memory(frame, gst_memory_share(memory, start + i * size, size));
		GST_BUFFER_PTS(frame) = i * GST_SECOND / 30;
		gst_app_src_push_buffer(GST_APP_SRC(source), frame);
	}
	gst_memory_unref(memory);
	gst_app_src_end_of_stream(GST_APP_SRC(source));

	GstBus *bus = gst_element_get_bus(pipeline);
	GstMessage *end = gst_bus_timed_pop_filtered(bus, 60 * GST_SECOND, GST_MESSAGE_EOS | GST_MESSAGE_ERROR);
	int ok = end && GST_MESSAGE_TYPE(end) == GST_MESSAGE_EOS;
	if (end && !ok) {
		gst_message_parse_error(end, &error, NULL);
		fprintf(stderr, "frames: %s\n", error->message);
	}
	printf("%" G_GSIZE_FORMAT " frames of %" G_GSIZE_FORMAT " bytes\n", frames, size);
	gst_element_set_state(pipeline, GST_STATE_NULL);
	if (end)
		gst_message_unref(end);
	gst_object_unref(bus);
	gst_object_unref(source);
	gst_object_unref(pipeline);
	return ok ? 0 : 1;
}
