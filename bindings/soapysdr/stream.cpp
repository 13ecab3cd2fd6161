// SPDX-License-Identifier: MIT OR Apache-2.0
// Samples: the blocks of a capture, converted into the program's buffers or lent to it as they are.
#include "stream.hpp"

#include <SoapySDR/Logger.hpp>
#include <SoapySDR/Time.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>

// SoapySDR's name of a format of one value: S16, U8, F32; empty if it has none
static std::string nameOf(const dmabuf_dio_channel &channel)
{
	bool is_float = channel.encoding == DMABUF_DIO_ENCODING_FLOAT;
	bool known = channel.storage_bits == 8 || channel.storage_bits == 16 ||
		     channel.storage_bits == 32 || (is_float && channel.storage_bits == 64);
	if (!known || channel.repeat != 1 || (channel.big_endian && channel.storage_bits > 8))
		return "";
	const char *kind = is_float ? "F" : channel.encoding == DMABUF_DIO_ENCODING_SIGNED ? "S" : "U";
	return kind + std::to_string(channel.storage_bits);
}

// Bits of a value in its place in memory, with zeros at the right
static uint32_t significant(const dmabuf_dio_channel &channel)
{
	return channel.bits + channel.shift;
}

std::string IioReceiver::getNativeStreamFormat(int direction, size_t channel, double &fullScale) const
{
	checkChannel(direction, channel);
	const auto &first = channels_[complex_ ? 2 * channel : channel];
	std::string name = nameOf(first), prefix = complex_ ? "C" : "";
	fullScale = 1;
	if (name.empty())
		return prefix + "F32";
	if (first.encoding == DMABUF_DIO_ENCODING_SIGNED)
		fullScale = std::ldexp(1, significant(first) - 1);
	else if (first.encoding == DMABUF_DIO_ENCODING_UNSIGNED)
		fullScale = std::ldexp(1, significant(first)) - 1;
	return prefix + name;
}

std::vector<std::string> IioReceiver::getStreamFormats(int direction, size_t channel) const
{
	double fullScale;
	std::vector<std::string> formats = { getNativeStreamFormat(direction, channel, fullScale) };
	for (auto name : { "S16", "F32", "S8", "U8", "U16", "S32", "F64" }) {
		std::string format = std::string(complex_ ? "C" : "") + name;
		if (format != formats.front())
			formats.push_back(format);
	}
	return formats;
}

SoapySDR::ArgInfoList IioReceiver::getStreamArgsInfo(int direction, size_t channel) const
{
	checkChannel(direction, channel);
	SoapySDR::ArgInfo length, count;
	length.key = "bufflen";
	length.name = "block length";
	length.description = "samples per block; 0: an eighth of a second, at most 16 MiB";
	count.key = "buffers";
	count.name = "number of blocks";
	count.description = "blocks; 0: 16";
	for (auto argument : { &length, &count }) {
		argument->value = "0";
		argument->type = SoapySDR::ArgInfo::INT;
	}
	return { length, count };
}

static Receiver *receiver(SoapySDR::Stream *stream)
{
	return reinterpret_cast<Receiver *>(stream);
}

static uint64_t argument(const SoapySDR::Kwargs &args, const char *key)
{
	auto found = args.find(key);
	return found == args.end() ? 0 : std::stoull(found->second);
}

SoapySDR::Stream *IioReceiver::setupStream(int direction, const std::string &format,
					   const std::vector<size_t> &wanted,
					   const SoapySDR::Kwargs &args)
{
	auto channels = wanted.empty() ? std::vector<size_t>{ 0 } : wanted;
	double fullScale;
	for (size_t channel : channels)
		checkChannel(direction, channel);
	auto formats = getStreamFormats(direction, channels.front());
	if (std::find(formats.begin(), formats.end(), format) == formats.end())
		throw std::runtime_error("the format " + format + " is not one of getStreamFormats()");
	if (receiver_)
		throw std::runtime_error("a device has only one stream at a time, with several channels "
					 "if needed: close the other stream");

	// The channels of a frame, and which of them each channel of SoapySDR is
	size_t width = complex_ ? 2 : 1;
	std::vector<size_t> places;
	for (size_t channel : channels)
		for (size_t part = 0; part < width; part++)
			places.push_back(width * channel + part);
	std::sort(places.begin(), places.end());
	if (std::adjacent_find(places.begin(), places.end()) != places.end())
		throw std::runtime_error("a channel is given twice");
	std::vector<dmabuf_dio_channel> frame;
	std::vector<const char *> names;
	for (size_t place : places) {
		frame.push_back(channels_[place]);
		names.push_back(channels_[place].name);
	}

	auto made = std::make_unique<Receiver>();
	// With the native format values are kept as they are, and not brought to the full scale of the type.
	const auto &first = channels_[width * channels.front()];
	bool native = format == getNativeStreamFormat(direction, channels.front(), fullScale) &&
		      !nameOf(first).empty();
	std::string kind = complex_ ? format.substr(1) : format, type = kind;
	type[0] = kind[0] == 'S' ? 'i' : kind[0] == 'U' ? 'u' : 'f';
	if (native && first.encoding != DMABUF_DIO_ENCODING_FLOAT)
		type = std::string("le:") + (kind[0] == 'S' ? "s" : "u") +
		       std::to_string(significant(first)) + "/" + std::to_string(first.storage_bits) + ">>0";
	for (size_t channel : channels) {
		std::vector<uint32_t> picked;
		for (size_t part = 0; part < width; part++)
			picked.push_back(std::find(places.begin(), places.end(), width * channel + part) -
					 places.begin());
		dmabuf_dio_converter *converter = nullptr;
		dio::check(dmabuf_dio_converter_open(frame.data(), frame.size(), picked.data(),
						     picked.size(), type.c_str(), &converter));
		made->converters.emplace_back(converter);
	}

	dmabuf_dio_capture_options options{};
	options.size = sizeof(options);
	options.channels = names.data();
	options.channel_count = names.size();
	options.blocks = argument(args, "buffers");
	for (const auto &channel : frame)
		options.block_size += channel.storage_bits / 8 * channel.repeat;
	options.block_size *= argument(args, "bufflen");
	dmabuf_dio_capture *capture = nullptr;
	dio::check(dmabuf_dio_capture_open(dmabuf_dio_device_id(device_.get()), &options, &capture));
	made->capture.reset(capture);
	auto fields = made->fields();
	made->frame = fields.frame_bytes;
	made->frames = fields.block_bytes / fields.frame_bytes;
	made->blocks = fields.blocks;
	// Channels are interleaved in a block: of several none is contiguous.
	made->direct = native && channels.size() == 1;
	SoapySDR::log(SOAPY_SDR_INFO, std::string("dmabuf-dio: ") + dmabuf_dio_capture_how(capture));
	receiver_ = std::move(made);
	return reinterpret_cast<SoapySDR::Stream *>(receiver_.get());
}

void IioReceiver::closeStream(SoapySDR::Stream *)
{
	receiver_.reset();
}

size_t IioReceiver::getStreamMTU(SoapySDR::Stream *stream) const
{
	return receiver(stream)->frames;
}

static int failed()
{
	SoapySDR::log(SOAPY_SDR_ERROR, "dmabuf-dio: " + dio::message());
	return SOAPY_SDR_STREAM_ERROR;
}

int IioReceiver::activateStream(SoapySDR::Stream *stream, int flags, long long, size_t numElems)
{
	auto it = receiver(stream);
	if (flags != 0 || numElems != 0)
		return SOAPY_SDR_NOT_SUPPORTED;
	if (it->active)
		return 0;
	// The rate may have been set since.
	it->rate = getSampleRate(SOAPY_SDR_RX, 0);
	if (dmabuf_dio_capture_start(it->capture.get()) < 0)
		return failed();
	it->counted = it->fields().losses_known;
	it->active = true;
	return 0;
}

int IioReceiver::deactivateStream(SoapySDR::Stream *stream, int flags, long long)
{
	auto it = receiver(stream);
	if (flags != 0)
		return SOAPY_SDR_NOT_SUPPORTED;
	it->finish();
	it->active = false;
	return dmabuf_dio_capture_stop(it->capture.get()) < 0 ? failed() : 0;
}

struct dmabuf_dio_capture_fields Receiver::fields() const
{
	struct dmabuf_dio_capture_fields fields{};
	fields.size = sizeof(fields);
	dio::check(dmabuf_dio_capture_fields(capture.get(), &fields));
	return fields;
}

int Receiver::failed()
{
	if (error != dio::message()) {
		error = dio::message();
		::failed();
	}
	return SOAPY_SDR_STREAM_ERROR;
}

void Receiver::finish()
{
	if (has_block && dmabuf_dio_capture_release(capture.get(), block.number) < 0)
		failed();
	has_block = false;
}

void Receiver::stamp(uint64_t position, int &flags, long long &timeNs) const
{
	bool timed = rate > 0 && counted && !(block.flags & DMABUF_DIO_INEXACT);
	flags = timed ? SOAPY_SDR_HAS_TIME : 0;
	timeNs = timed ? SoapySDR::ticksToTimeNs(position, rate) : 0;
}

int Receiver::next(int &flags, long long &timeNs, long timeoutUs)
{
	flags = 0;
	if (!active) {
		std::this_thread::sleep_for(std::chrono::microseconds(timeoutUs));
		return SOAPY_SDR_TIMEOUT;
	}
	if (!has_block) {
		block.size = sizeof(block);
		int status = dmabuf_dio_capture_next(capture.get(), std::max(timeoutUs, 0L), &block);
		if (status == -ETIMEDOUT)
			return SOAPY_SDR_TIMEOUT;
		if (status < 0) {
			bool again = error == dio::message();
			failed();
			// The program may try again at once: so it does not use a whole CPU.
			if (again)
				std::this_thread::sleep_for(std::chrono::microseconds(std::min(timeoutUs, 100000L)));
			return SOAPY_SDR_STREAM_ERROR;
		}
		error.clear();
		has_block = true;
		done = 0;
		if (block.gap) {
			// The samples come with the next call.
			stamp(block.position - block.gap, flags, timeNs);
			return SOAPY_SDR_OVERFLOW;
		}
	}
	stamp(block.position + done, flags, timeNs);
	return 0;
}

int IioReceiver::readStream(SoapySDR::Stream *stream, void *const *buffs, size_t numElems, int &flags,
			    long long &timeNs, long timeoutUs)
{
	auto it = receiver(stream);
	int status = it->next(flags, timeNs, timeoutUs);
	if (status < 0)
		return status;
	size_t count = std::min<size_t>(numElems, it->block.bytes / it->frame - it->done);
	auto from = static_cast<const char *>(it->block.data) + it->done * it->frame;
	for (size_t i = 0; i < it->converters.size(); i++)
		if (dmabuf_dio_convert(it->converters[i].get(), from, buffs[i], count) < 0)
			return failed();
	it->done += count;
	if (it->done * it->frame < it->block.bytes)
		flags |= SOAPY_SDR_MORE_FRAGMENTS;
	else
		it->finish();
	return count;
}

size_t IioReceiver::getNumDirectAccessBuffers(SoapySDR::Stream *stream)
{
	return receiver(stream)->direct ? receiver(stream)->blocks : 0;
}

int IioReceiver::getDirectAccessBufferAddrs(SoapySDR::Stream *stream, size_t handle, void **buffs)
{
	auto it = receiver(stream);
	dmabuf_dio_block block{};
	block.size = sizeof(block);
	if (!it->direct)
		return SOAPY_SDR_NOT_SUPPORTED;
	if (dmabuf_dio_capture_block(it->capture.get(), handle, &block) < 0)
		return failed();
	buffs[0] = const_cast<void *>(block.data);
	return 0;
}

int IioReceiver::acquireReadBuffer(SoapySDR::Stream *stream, size_t &handle, const void **buffs, int &flags,
				   long long &timeNs, long timeoutUs)
{
	auto it = receiver(stream);
	if (!it->direct)
		return SOAPY_SDR_NOT_SUPPORTED;
	int status = it->next(flags, timeNs, timeoutUs);
	if (status < 0)
		return status;
	// All of it, or what readStream() has left
	handle = it->block.number;
	buffs[0] = static_cast<const char *>(it->block.data) + it->done * it->frame;
	it->has_block = false;
	return it->block.bytes / it->frame - it->done;
}

void IioReceiver::releaseReadBuffer(SoapySDR::Stream *stream, size_t handle)
{
	if (dmabuf_dio_capture_release(receiver(stream)->capture.get(), handle) < 0)
		failed();
}

// The descriptor of a direct access buffer, for importers of dma-bufs. It belongs to the stream.
std::string IioReceiver::descriptor(size_t handle) const
{
	dmabuf_dio_block block{};
	block.size = sizeof(block);
	if (!receiver_)
		throw std::runtime_error("there is no stream");
	dio::check(dmabuf_dio_capture_block(receiver_->capture.get(), handle, &block));
	return std::to_string(block.fd);
}
