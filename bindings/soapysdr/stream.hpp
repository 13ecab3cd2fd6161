// SPDX-License-Identifier: MIT OR Apache-2.0
// A stream of SoapySDR: a capture, and the block that is being read.
#pragma once

#include "device.hpp"

struct Receiver {
	struct dmabuf_dio_capture_fields fields() const;
	// Gets a block, unless there is one. Returns 0, or SoapySDR's error: SOAPY_SDR_OVERFLOW before the
	// first sample behind a gap.
	int next(int &flags, long long &timeNs, long timeoutUs);
	// Gives the block back, if there is one.
	void finish();
	// Logs the error, unless it was the last one, too.
	int failed();
	// The time of a frame of the block, if it is known.
	void stamp(uint64_t position, int &flags, long long &timeNs) const;

	dio::Capture capture;
	// One for each channel
	std::vector<dio::Converter> converters;
	size_t frame = 0; // bytes
	size_t frames = 0; // in a block
	size_t blocks = 0;
	bool direct = false;
	bool active = false;
	double rate = 0;
	// The device tells its losses.
	bool counted = false;

	// The last error, until a block comes
	std::string error;

	bool has_block = false;
	dmabuf_dio_block block{};
	size_t done = 0; // frames of the block
};
