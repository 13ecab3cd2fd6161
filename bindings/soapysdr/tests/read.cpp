// SPDX-License-Identifier: MIT OR Apache-2.0
// read TEST: receives from the counting ADC (kernel/sim/iio_stream) by SoapySDR's interface and checks every sample.
// A frame is its own number, 16 bits per channel of the device, the lowest first.
#include <SoapySDR/Device.hpp>
#include <SoapySDR/Errors.hpp>
#include <SoapySDR/Formats.hpp>
#include <SoapySDR/Logger.hpp>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <sys/mman.h>
#include <thread>

static const double RATE = 100000;
static const size_t SAMPLES = 60000;

static void expect(bool good, const std::string &what)
{
	if (!good)
		throw std::runtime_error(what);
}

struct Radio {
	explicit Radio(const std::string &args = "name=stream-adc")
		: device(SoapySDR::Device::make("driver=dmabuf-dio," + args))
	{
		device->setSampleRate(SOAPY_SDR_RX, 0, RATE);
	}
	~Radio()
	{
		close();
		SoapySDR::Device::unmake(device);
	}
	void open(const std::string &format, const std::vector<size_t> &channels, const std::string &args = "")
	{
		stream = device->setupStream(SOAPY_SDR_RX, format, channels, SoapySDR::KwargsFromString(args));
		expect(device->activateStream(stream) == 0, "it starts");
	}
	void close()
	{
		if (stream)
			device->closeStream(stream);
		stream = nullptr;
	}

	SoapySDR::Device *device;
	SoapySDR::Stream *stream = nullptr;
};

// The number of the frame that has this time
static uint64_t frame_at(long long timeNs)
{
	return std::llround(timeNs * RATE / 1e9);
}

// The value of a channel of the device
static uint16_t raw(uint64_t frame, size_t channel)
{
	return frame >> (16 * channel);
}

// The value that the samples have to have
static uint16_t as_u16(uint16_t raw) { return raw; }
static int16_t as_i16(uint16_t raw) { return raw - 32768; }
static float as_f32(uint16_t raw) { return (raw - 32768) / 32768.0f; }
// The nearest one, the even one of two
static int8_t as_i8(uint16_t raw) { return std::min(std::nearbyint((raw - 32768) / 256.0), 127.0); }

template <typename T>
static void check_all(T (*wanted)(uint16_t), const void *samples, size_t count, uint64_t frame, size_t channel,
		      size_t width)
{
	auto got = static_cast<const T *>(samples);
	for (size_t i = 0; i < count; i++)
		for (size_t part = 0; part < width; part++, got++)
			if (*got != wanted(raw(frame + i, channel + part)))
				throw std::runtime_error("frame " + std::to_string(frame + i) + " is " + std::to_string(*got));
}

static void check(const std::string &format, const void *samples, size_t count, uint64_t frame, size_t channel,
		  size_t width)
{
	if (format == "CU16")
		check_all(as_u16, samples, count, frame, channel, width);
	else if (format == "CS16")
		check_all(as_i16, samples, count, frame, channel, width);
	else if (format == "CS8")
		check_all(as_i8, samples, count, frame, channel, width);
	else
		check_all(as_f32, samples, count, frame, channel, width);
}

// Reads samples without a gap, in pieces of an odd length.
static void read(Radio &radio, const std::string &format, size_t channels, size_t width)
{
	std::vector<std::vector<char>> memory(channels, std::vector<char>(777 * 8));
	std::vector<void *> buffers;
	for (auto &one : memory)
		buffers.push_back(one.data());
	uint64_t next = 0;
	while (next < SAMPLES) {
		int flags = 0;
		long long timeNs = 0;
		int got = radio.device->readStream(radio.stream, buffers.data(), 777, flags, timeNs, 10000000);
		expect(got > 0, std::string("samples: ") + SoapySDR::errToStr(got));
		expect(flags & SOAPY_SDR_HAS_TIME, "they have a time");
		expect(frame_at(timeNs) == next, "it is that of frame " + std::to_string(next));
		for (size_t i = 0; i < channels; i++)
			check(format, buffers[i], got, next, width * i, width);
		next += got;
	}
}

static void one_channel()
{
	for (std::string format : { "CU16", "CS16", "CF32", "CS8" }) {
		Radio radio;
		double fullScale = 0;
		expect(radio.device->getNativeStreamFormat(SOAPY_SDR_RX, 0, fullScale) == "CU16", "the native format");
		expect(fullScale == 65535, "its full scale");
		radio.open(format, { 0 });
		read(radio, format, 1, 2);
	}
}

static void two_channels()
{
	Radio radio;
	expect(radio.device->getNumChannels(SOAPY_SDR_RX) == 2, "two channels");
	radio.open("CS16", { 0, 1 });
	expect(radio.device->getNumDirectAccessBuffers(radio.stream) == 0, "they are interleaved");
	read(radio, "CS16", 2, 2);
}

static void real_channels()
{
	Radio radio("name=stream-adc,iq=false");
	expect(radio.device->getNumChannels(SOAPY_SDR_RX) == 4, "four channels");
	radio.open("F32", { 0, 1, 2 });
	read(radio, "F32", 3, 1);
}

// Blocks as they are, in the device's memory
static void direct()
{
	Radio radio;
	radio.open("CU16", { 0 }, "bufflen=4096,buffers=6");
	auto device = radio.device;
	expect(device->getNumDirectAccessBuffers(radio.stream) == 6, "six blocks");
	expect(device->getStreamMTU(radio.stream) == 4096, "the length of a block");
	uint64_t next = 0;
	while (next < SAMPLES) {
		size_t handle = 0;
		const void *samples = nullptr;
		void *known = nullptr;
		int flags = 0;
		long long timeNs = 0;
		int got = device->acquireReadBuffer(radio.stream, handle, &samples, flags, timeNs, 10000000);
		expect(got == 4096, "a block");
		expect(frame_at(timeNs) == next, "its time");
		expect(device->getDirectAccessBufferAddrs(radio.stream, handle, &known) == 0 && known == samples,
		       "its address");
		check("CU16", samples, got, next, 0, 2);
		// Its dma-buf, as another device would see it
		int fd = std::stoi(device->readSetting("dmabuf:" + std::to_string(handle)));
		void *mapped = mmap(nullptr, 4096 * 4, PROT_READ, MAP_SHARED, fd, 0);
		expect(mapped != MAP_FAILED && !memcmp(mapped, samples, 4096 * 4), "its dma-buf");
		munmap(mapped, 4096 * 4);
		device->releaseReadBuffer(radio.stream, handle);
		next += got;
	}
	radio.close();
	radio.open("CS16", { 0 });
	size_t handle;
	const void *samples;
	int flags;
	long long timeNs;
	expect(device->acquireReadBuffer(radio.stream, handle, &samples, flags, timeNs) == SOAPY_SDR_NOT_SUPPORTED,
	       "blocks are not converted");
}

// A program that is too slow is told, and later samples have the right time.
static void overflow()
{
	Radio radio;
	radio.open("CU16", { 0 }, "bufflen=1024,buffers=4");
	std::vector<uint16_t> samples(2 * 500);
	void *buffers[] = { samples.data() };
	uint64_t next = 0;
	int overflows = 0, timed = 0;
	bool had_time = true;
	for (int i = 0; overflows < 3 || i % 20 != 19; i++) {
		int flags = 0;
		long long timeNs = 0;
		bool lost = false;
		int got;
		while ((got = radio.device->readStream(radio.stream, buffers, 500, flags, timeNs, 10000000)) ==
		       SOAPY_SDR_OVERFLOW) {
			expect(!lost, "an overflow is told once");
			lost = true;
			overflows++;
		}
		expect(got > 0, "samples");
		// The device's number of the first one
		uint64_t first = samples[0] | samples[1] << 16;
		check("CU16", samples.data(), got, first, 0, 2);
		// If the place of lost frames is one of several, samples have no time.
		bool has_time = flags & SOAPY_SDR_HAS_TIME, sure = has_time && had_time;
		expect(sure && lost ? first > next : sure ? first == next : first >= next, "what was lost is told");
		had_time = has_time;
		if (has_time) {
			expect(frame_at(timeNs) == first, "their time");
			timed += overflows > 0;
		}
		next = first + got;
		expect(i < 1000, "overflows are told");
		if (i % 20 == 19)
			std::this_thread::sleep_for(std::chrono::milliseconds(200));
	}
	expect(timed > 0, "samples behind a gap have a time");
}

static void again()
{
	Radio radio;
	std::vector<uint16_t> samples(2 * 100);
	void *buffers[] = { samples.data() };
	int flags;
	long long timeNs;
	for (int round = 0; round < 3; round++) {
		if (round == 0)
			radio.open("CU16", { 0 }, "bufflen=1024");
		else
			expect(radio.device->activateStream(radio.stream) == 0, "it starts again");
		for (uint64_t next = 0; next < 5000;) {
			int got = radio.device->readStream(radio.stream, buffers, 100, flags, timeNs, 10000000);
			expect(got > 0 && frame_at(timeNs) == next, "samples, from the first on");
			check("CU16", samples.data(), got, next, 0, 2);
			next += got;
		}
		expect(radio.device->deactivateStream(radio.stream) == 0, "it stops");
		expect(radio.device->readStream(radio.stream, buffers, 100, flags, timeNs, 1000) == SOAPY_SDR_TIMEOUT,
		       "no samples then");
	}
}

static void settings()
{
	Radio radio;
	auto device = radio.device;
	expect(device->getSampleRate(SOAPY_SDR_RX, 0) == RATE, "the rate");
	expect(device->getHardwareInfo().at("phy") == "stream-phy", "the transceiver");
	device->setFrequency(SOAPY_SDR_RX, 0, 868000700);
	expect(device->getFrequency(SOAPY_SDR_RX, 0) == 868000000, "a frequency, which the device rounds");
	auto range = device->getFrequencyRange(SOAPY_SDR_RX, 0);
	expect(range.size() == 1 && range[0].minimum() == 70e6 && range[0].maximum() == 6e9, "the frequencies");
	device->setGainMode(SOAPY_SDR_RX, 1, true);
	expect(device->getGainMode(SOAPY_SDR_RX, 1), "automatic");
	device->setGainMode(SOAPY_SDR_RX, 1, false);
	expect(!device->getGainMode(SOAPY_SDR_RX, 1), "manual");
	device->setGain(SOAPY_SDR_RX, 1, 30.5);
	device->setGain(SOAPY_SDR_RX, 0, 12);
	expect(device->getGain(SOAPY_SDR_RX, 1) == 30.5 && device->getGain(SOAPY_SDR_RX, 0) == 12, "gains");
	expect(device->getGainRange(SOAPY_SDR_RX, 0).maximum() == 60, "the most gain");
	device->setBandwidth(SOAPY_SDR_RX, 0, 1500000);
	expect(device->getBandwidth(SOAPY_SDR_RX, 0) == 1500000, "the bandwidth");
	expect(device->readSetting("voltage0.sampling_frequency") == "100000", "an attribute");
}

static int logged;

static void count(const SoapySDRLogLevel level, const char *)
{
	logged += level <= SOAPY_SDR_ERROR;
}

// A device that goes away is told once, however often the program reads.
static void gone()
{
	Radio radio;
	std::vector<uint16_t> samples(2 * 100);
	void *buffers[] = { samples.data() };
	int flags;
	long long timeNs;
	radio.open("CU16", { 0 });
	std::ofstream("/sys/bus/platform/drivers/iio_stream/unbind") << "iio_stream";
	SoapySDR::registerLogHandler(count);
	int errors = 0;
	// Earlier samples may still be read.
	for (int calls = 0; errors < 20; calls++) {
		expect(calls < 100000, "it fails");
		errors += radio.device->readStream(radio.stream, buffers, 100, flags, timeNs, 10000) ==
			SOAPY_SDR_STREAM_ERROR;
	}
	SoapySDR::registerLogHandler(nullptr);
	radio.close();
	std::ofstream("/sys/bus/platform/drivers/iio_stream/bind") << "iio_stream";
	expect(logged == 1, std::to_string(logged) + " messages");
}

static void throws(const std::string &what, const std::function<void()> &call)
{
	try {
		call();
	} catch (const std::exception &error) {
		return;
	}
	expect(false, what + " is refused");
}

static void refusals()
{
	Radio radio;
	auto device = radio.device;
	throws("a frequency", [&] { device->setFrequency(SOAPY_SDR_RX, 0, 1e6); });
	throws("a rate", [&] { device->setSampleRate(SOAPY_SDR_RX, 0, 5e9); });
	throws("an attribute", [&] { device->readSetting("voltage0.nothing"); });
	throws("transmission", [&] { device->setupStream(SOAPY_SDR_TX, "CS16"); });
	throws("a format", [&] { device->setupStream(SOAPY_SDR_RX, "CS12"); });
	throws("a channel", [&] { device->setupStream(SOAPY_SDR_RX, "CS16", { 2 }); });
	throws("a channel", [&] { device->setupStream(SOAPY_SDR_RX, "CS16", { 1, 1 }); });
	throws("a device", [] { Radio other("name=stream-dac"); });
	radio.open("CS16", { 1 });
	throws("a second stream", [&] { device->setupStream(SOAPY_SDR_RX, "CS16"); });
	throws("a buffer that is in use", [] {
		Radio other("name=stream-adc,iq=false");
		other.open("F32", { 0 });
	});
}

int main(int count, char **arguments) try {
	const std::map<std::string, void (*)()> tests = {
		{ "one-channel", one_channel }, { "two-channels", two_channels }, { "real-channels", real_channels },
		{ "direct", direct }, { "overflow", overflow }, { "again", again },
		{ "gone", gone }, { "settings", settings }, { "refusals", refusals },
	};
	for (const auto &[name, test] : tests)
		if (count == 1)
			std::puts(name.c_str());
		else if (name == arguments[1])
			test();
	return 0;
} catch (const std::exception &error) {
	std::fprintf(stderr, "read: %s\n", error.what());
	return 1;
}
