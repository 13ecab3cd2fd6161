// SPDX-License-Identifier: MIT OR Apache-2.0
// raii FROM TO: copies a file through a buffer, with handles that free themselves and errors as exceptions.
#include <dmabuf_dio.h>

#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <system_error>

template <auto Free> struct Freed {
	template <typename T> void operator()(T *handle) const { Free(handle); }
};
using Buffer = std::unique_ptr<dmabuf_dio_buffer, Freed<dmabuf_dio_buffer_free>>;
using Report = std::unique_ptr<dmabuf_dio_report, Freed<dmabuf_dio_report_free>>;
using Map = std::unique_ptr<struct dmabuf_dio_map, Freed<dmabuf_dio_unmap>>;

static void check(int status)
{
	if (status < 0)
		throw std::system_error(-status, std::generic_category(), dmabuf_dio_error_message());
}

static Buffer load(const std::string &path)
{
	dmabuf_dio_options options{};
	options.size = sizeof(options);
	options.kind = DMABUF_DIO_KIND_ANY;
	dmabuf_dio_buffer *buffer = nullptr;
	check(dmabuf_dio_load(path.c_str(), &options, &buffer, nullptr));
	return Buffer(buffer);
}

static Map map(const Buffer &buffer)
{
	struct dmabuf_dio_map *made = nullptr;
	check(dmabuf_dio_map(buffer.get(), DMABUF_DIO_ACCESS_READ, &made));
	return Map(made);
}

int main(int count, char **arguments) try {
	if (count != 3)
		throw std::invalid_argument("usage: raii FROM TO");
	Buffer buffer = load(arguments[1]);
	auto start = dmabuf_dio_buffer_data_offset(buffer.get());
	auto length = dmabuf_dio_buffer_data_length(buffer.get());
	{
		Map view = map(buffer);
		auto *bytes = static_cast<unsigned char *>(dmabuf_dio_map_address(view.get())) + start;
		std::printf("first byte: %02x\n", bytes[0]);
	} // The CPU's access ends here.
	dmabuf_dio_report *report = nullptr;
	check(dmabuf_dio_save(buffer.get(), start, length, arguments[2], nullptr, &report));
	std::puts(dmabuf_dio_report_line(Report(report).get()));
} catch (const std::exception &error) {
	std::fprintf(stderr, "raii: %s\n", error.what());
	return 1;
}
