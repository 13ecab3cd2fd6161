// SPDX-License-Identifier: MIT OR Apache-2.0
// Rates, frequencies and gains, by the device's attributes. A program's locale must not matter: no std::stod.
#include "device.hpp"

#include <locale>
#include <sstream>

static const char *const OSCILLATOR = "RX_LO.frequency";

static std::istringstream words(const std::string &text)
{
	std::istringstream stream(text);
	stream.imbue(std::locale::classic());
	return stream;
}

// The number at the start: drivers add units.
static double number(const std::string &text)
{
	double value = 0;
	words(text) >> value;
	return value;
}

static std::string text(double value)
{
	std::ostringstream stream;
	stream.imbue(std::locale::classic());
	stream.precision(17);
	stream << value;
	return stream.str();
}

static std::string read(const dmabuf_dio_device *device, const std::string &attribute)
{
	char *value = nullptr;
	dio::check(dmabuf_dio_attribute_read(device, attribute.c_str(), &value));
	return dio::Text(value).get();
}

static void set(const dmabuf_dio_device *device, const std::string &attribute,
		const std::string &value)
{
	dio::check(dmabuf_dio_attribute_set(device, attribute.c_str(), value.c_str()));
}

// The values that the driver offers: `1 2 3` or `[MIN STEP MAX]`; empty if unknown
static std::string available(const dmabuf_dio_device *device, const std::string &attribute)
{
	char *values = nullptr;
	dio::check(dmabuf_dio_attribute_available(device, attribute.c_str(), &values));
	return values ? dio::Text(values).get() : "";
}

static std::vector<double> list(const std::string &values)
{
	std::vector<double> numbers;
	auto stream = words(values);
	for (double value; stream >> value;)
		numbers.push_back(value);
	return numbers;
}

static SoapySDR::RangeList ranges(const std::string &values)
{
	if (!values.empty() && values.front() == '[') {
		auto range = list(values.substr(1));
		if (range.size() == 3)
			return { SoapySDR::Range(range[0], range[2], range[1]) };
	}
	SoapySDR::RangeList all;
	for (double value : list(values))
		all.emplace_back(value, value);
	return all;
}

const dmabuf_dio_device *IioReceiver::ownerOf(const std::string &attribute) const
{
	for (auto device : { device_.get(), phy_.get() }) {
		char *value = nullptr;
		if (device && dmabuf_dio_attribute_read(device, attribute.c_str(), &value) == 0) {
			dmabuf_dio_string_free(value);
			return device;
		}
	}
	return nullptr;
}

const dmabuf_dio_device *IioReceiver::needOwnerOf(const std::string &attribute) const
{
	auto owner = ownerOf(attribute);
	if (!owner)
		throw std::runtime_error("the device has no " + attribute +
					 ": name the one that has it by phy=NAME");
	return owner;
}

// Transceivers number their receivers: in_voltage0 is the first, of both I and Q.
std::string IioReceiver::ofChannel(size_t channel, const char *attribute) const
{
	return "in_voltage" + std::to_string(channel) + "." + attribute;
}

void IioReceiver::setSampleRate(int direction, size_t channel, double rate)
{
	checkChannel(direction, channel);
	dio::check(dmabuf_dio_device_set_rate(device_.get(), 0, rate));
}

double IioReceiver::getSampleRate(int direction, size_t channel) const
{
	checkChannel(direction, channel);
	double rate = 0;
	dio::check(dmabuf_dio_device_rate(device_.get(), 0, &rate));
	return rate;
}

static std::string rates(const dmabuf_dio_device *device)
{
	char *values = nullptr;
	dio::check(dmabuf_dio_device_rates(device, 0, &values));
	return values ? dio::Text(values).get() : "";
}

std::vector<double> IioReceiver::listSampleRates(int direction, size_t channel) const
{
	checkChannel(direction, channel);
	return list(rates(device_.get()));
}

SoapySDR::RangeList IioReceiver::getSampleRateRange(int direction, size_t channel) const
{
	checkChannel(direction, channel);
	auto offered = ranges(rates(device_.get()));
	if (!offered.empty())
		return offered;
	// The device does not say, and refuses what it does not support.
	return { SoapySDR::Range(1, 1e10) };
}

std::vector<std::string> IioReceiver::listFrequencies(int direction, size_t) const
{
	if (direction != SOAPY_SDR_RX || !ownerOf(OSCILLATOR))
		return {};
	return { "RF" };
}

void IioReceiver::setFrequency(int direction, size_t channel, const std::string &, double frequency,
			       const SoapySDR::Kwargs &)
{
	checkChannel(direction, channel);
	std::ostringstream hertz;
	hertz.imbue(std::locale::classic());
	hertz << static_cast<long long>(frequency + 0.5);
	set(needOwnerOf(OSCILLATOR), OSCILLATOR, hertz.str());
}

double IioReceiver::getFrequency(int, size_t, const std::string &) const
{
	auto owner = ownerOf(OSCILLATOR);
	return owner ? number(read(owner, OSCILLATOR)) : 0;
}

SoapySDR::RangeList IioReceiver::getFrequencyRange(int, size_t, const std::string &) const
{
	auto owner = ownerOf(OSCILLATOR);
	return owner ? ranges(available(owner, OSCILLATOR)) : SoapySDR::RangeList();
}

std::vector<std::string> IioReceiver::listGains(int direction, size_t channel) const
{
	if (direction != SOAPY_SDR_RX || !ownerOf(ofChannel(channel, "hardwaregain")))
		return {};
	return { "hardwaregain" };
}

void IioReceiver::setGain(int direction, size_t channel, const std::string &, double value)
{
	checkChannel(direction, channel);
	auto attribute = ofChannel(channel, "hardwaregain");
	set(needOwnerOf(attribute), attribute, text(value));
}

double IioReceiver::getGain(int, size_t channel, const std::string &) const
{
	auto attribute = ofChannel(channel, "hardwaregain");
	auto owner = ownerOf(attribute);
	return owner ? number(read(owner, attribute)) : 0;
}

SoapySDR::Range IioReceiver::getGainRange(int, size_t channel, const std::string &) const
{
	auto attribute = ofChannel(channel, "hardwaregain");
	auto owner = ownerOf(attribute);
	auto offered = owner ? ranges(available(owner, attribute)) : SoapySDR::RangeList();
	if (offered.empty())
		return SoapySDR::Range();
	return SoapySDR::Range(offered.front().minimum(), offered.back().maximum(),
			       offered.front().step());
}

bool IioReceiver::hasGainMode(int direction, size_t channel) const
{
	return direction == SOAPY_SDR_RX && ownerOf(ofChannel(channel, "gain_control_mode"));
}

void IioReceiver::setGainMode(int direction, size_t channel, bool automatic)
{
	checkChannel(direction, channel);
	auto attribute = ofChannel(channel, "gain_control_mode");
	auto owner = needOwnerOf(attribute);
	std::string mode = automatic ? "slow_attack" : "manual", first, one;
	auto modes = words(available(owner, attribute));
	while (modes >> one)
		if (one == mode)
			return set(owner, attribute, mode);
		else if (first.empty() && one != "manual")
			first = one;
	set(owner, attribute, automatic && !first.empty() ? first : mode);
}

bool IioReceiver::getGainMode(int direction, size_t channel) const
{
	auto attribute = ofChannel(channel, "gain_control_mode");
	return hasGainMode(direction, channel) && read(ownerOf(attribute), attribute) != "manual";
}

void IioReceiver::setBandwidth(int direction, size_t channel, double bandwidth)
{
	checkChannel(direction, channel);
	auto attribute = ofChannel(channel, "rf_bandwidth");
	set(needOwnerOf(attribute), attribute, std::to_string(static_cast<long long>(bandwidth)));
}

double IioReceiver::getBandwidth(int, size_t channel) const
{
	auto attribute = ofChannel(channel, "rf_bandwidth");
	auto owner = ownerOf(attribute);
	return owner ? number(read(owner, attribute)) : 0;
}

SoapySDR::RangeList IioReceiver::getBandwidthRange(int, size_t channel) const
{
	auto attribute = ofChannel(channel, "rf_bandwidth");
	auto owner = ownerOf(attribute);
	return owner ? ranges(available(owner, attribute)) : SoapySDR::RangeList();
}

// Any attribute, such as voltage0.hardwaregain, and the descriptors of direct access buffers: dmabuf:0
std::string IioReceiver::readSetting(const std::string &key) const
{
	if (key.compare(0, 7, "dmabuf:") == 0)
		return descriptor(std::stoul(key.substr(7)));
	return read(needOwnerOf(key), key);
}

void IioReceiver::writeSetting(const std::string &key, const std::string &value)
{
	set(needOwnerOf(key), key, value);
}
