// SPDX-License-Identifier: MIT OR Apache-2.0
// Lists the devices and their channels.
#include "stream.hpp"

#include <SoapySDR/Modules.hpp>
#include <SoapySDR/Registry.hpp>

static std::string label(const dmabuf_dio_device *device)
{
	const char *label = dmabuf_dio_device_label(device);
	return label ? label : "";
}

static SoapySDR::KwargsList find(const SoapySDR::Kwargs &args)
{
	SoapySDR::KwargsList found;
	for (const auto &device : dio::devices()) {
		std::string id = dmabuf_dio_device_id(device.get());
		std::string name = dmabuf_dio_device_name(device.get());
		auto is = [&](const char *key, std::initializer_list<std::string> values) {
			auto wanted = args.find(key);
			if (wanted == args.end())
				return true;
			for (const auto &value : values)
				if (value == wanted->second)
					return true;
			return false;
		};
		// Without channels there are only attributes.
		if (dio::channels(device.get()).empty() ||
		    dmabuf_dio_device_is_output(device.get(), 0) ||
		    !is("device", { id }) || !is("name", { name, label(device.get()) }))
			continue;
		SoapySDR::Kwargs one = { { "device", id }, { "name", name },
					 { "label", name + " (" + id + ")" } };
		found.push_back(one);
	}
	return found;
}

static SoapySDR::Device *make(const SoapySDR::Kwargs &args)
{
	return new IioReceiver(args);
}

static SoapySDR::Registry registry("dmabuf-dio", &find, &make, SOAPY_SDR_ABI_VERSION);
static SoapySDR::ModuleVersion version(std::to_string(DMABUF_DIO_VERSION_MAJOR) + "." +
				       std::to_string(DMABUF_DIO_VERSION_MINOR) + "." +
				       std::to_string(DMABUF_DIO_VERSION_PATCH));

// The transceiver of cf-ad9361-lpc is ad9361-phy.
static dio::Device findPhy(const SoapySDR::Kwargs &args, const std::string &name)
{
	auto given = args.find("phy");
	if (given != args.end())
		return dio::find(given->second);
	for (auto &device : dio::devices()) {
		std::string phy = dmabuf_dio_device_name(device.get());
		size_t end = phy.rfind("-phy");
		if (end != std::string::npos && end + 4 == phy.size() && end > 0 &&
		    name.find(phy.substr(0, end)) != std::string::npos)
			return std::move(device);
	}
	return nullptr;
}

IioReceiver::IioReceiver(const SoapySDR::Kwargs &args)
{
	auto devices = find(args);
	if (devices.empty())
		throw std::runtime_error("there is no such IIO device with samples to receive: list "
					 "the devices with SoapySDRUtil --find=driver=dmabuf-dio");
	device_ = dio::find(devices.front().at("device"));
	phy_ = findPhy(args, dmabuf_dio_device_name(device_.get()));
	channels_ = dio::channels(device_.get());
	// A receiver has pairs of channels, of the same format.
	complex_ = channels_.size() % 2 == 0 && !(args.count("iq") && args.at("iq") == "false");
}

IioReceiver::~IioReceiver() = default;

SoapySDR::Kwargs IioReceiver::getHardwareInfo() const
{
	SoapySDR::Kwargs info = { { "device", dmabuf_dio_device_id(device_.get()) } };
	if (dmabuf_dio_device_label(device_.get()))
		info["label"] = label(device_.get());
	if (phy_)
		info["phy"] = dmabuf_dio_device_name(phy_.get());
	return info;
}

size_t IioReceiver::getNumChannels(int direction) const
{
	return direction == SOAPY_SDR_RX ? channels_.size() / (complex_ ? 2 : 1) : 0;
}

void IioReceiver::checkChannel(int direction, size_t channel) const
{
	if (direction != SOAPY_SDR_RX)
		throw std::runtime_error("this module only receives: use dmabuf-dio replay to transmit");
	if (channel >= getNumChannels(direction))
		throw std::out_of_range("there is no channel " + std::to_string(channel));
}

SoapySDR::Kwargs IioReceiver::getChannelInfo(int direction, size_t channel) const
{
	checkChannel(direction, channel);
	if (!complex_)
		return { { "name", channels_[channel].name } };
	return { { "i", channels_[2 * channel].name }, { "q", channels_[2 * channel + 1].name } };
}

std::vector<std::string> IioReceiver::listAntennas(int direction, size_t) const
{
	if (direction != SOAPY_SDR_RX)
		return {};
	return { "RX" };
}

std::string IioReceiver::getAntenna(int direction, size_t) const
{
	return direction == SOAPY_SDR_RX ? "RX" : "";
}
