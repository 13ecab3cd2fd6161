// SPDX-License-Identifier: MIT OR Apache-2.0
// libdmabuf_dio with handles that free themselves, and errors as exceptions.
#pragma once

#include <dmabuf_dio.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace dio {

template <auto Free> struct Freed {
	template <typename T> void operator()(T *handle) const { Free(handle); }
};
using Device = std::unique_ptr<dmabuf_dio_device, Freed<dmabuf_dio_device_free>>;
using Capture = std::unique_ptr<dmabuf_dio_capture, Freed<dmabuf_dio_capture_free>>;
using Converter = std::unique_ptr<dmabuf_dio_converter, Freed<dmabuf_dio_converter_free>>;
using Text = std::unique_ptr<char, Freed<dmabuf_dio_string_free>>;

// The failure and its remedy
inline std::string message()
{
	std::string text = dmabuf_dio_error_message(), hint = dmabuf_dio_error_hint();
	return hint.empty() ? text : text + " (" + hint + ")";
}

inline int64_t check(int64_t status)
{
	if (status < 0)
		throw std::runtime_error(message());
	return status;
}

inline Device find(const std::string &name)
{
	dmabuf_dio_device *device = nullptr;
	check(dmabuf_dio_device_find(name.c_str(), &device));
	return Device(device);
}

inline std::vector<Device> devices()
{
	std::vector<dmabuf_dio_device *> all(dmabuf_dio_device_list(nullptr, 0));
	size_t count = dmabuf_dio_device_list(all.data(), all.size());
	std::vector<Device> found;
	for (size_t i = 0; i < std::min(count, all.size()); i++)
		found.emplace_back(all[i]);
	return found;
}

// The first buffer's channels that have samples; none if the device has no buffer
inline std::vector<dmabuf_dio_channel> channels(const dmabuf_dio_device *device)
{
	int64_t count = dmabuf_dio_device_channels(device, 0, nullptr, 0);
	std::vector<dmabuf_dio_channel> all(count < 0 ? 0 : count), samples;
	if (dmabuf_dio_device_channels(device, 0, all.data(), all.size()) != count)
		return {};
	for (const auto &channel : all)
		if (std::string(channel.name).find("timestamp") == std::string::npos)
			samples.push_back(channel);
	return samples;
}

} // namespace dio
