// SPDX-License-Identifier: MIT OR Apache-2.0
// An IIO device as SoapySDR sees it.
#pragma once

#include "library.hpp"

#include <SoapySDR/Device.hpp>

struct Receiver;

class IioReceiver : public SoapySDR::Device {
public:
	explicit IioReceiver(const SoapySDR::Kwargs &args);
	~IioReceiver() override;

	// Identification and channels: device.cpp
	std::string getDriverKey() const override { return "dmabuf-dio"; }
	std::string getHardwareKey() const override { return dmabuf_dio_device_name(device_.get()); }
	SoapySDR::Kwargs getHardwareInfo() const override;
	size_t getNumChannels(int direction) const override;
	SoapySDR::Kwargs getChannelInfo(int direction, size_t channel) const override;
	bool getFullDuplex(int, size_t) const override { return false; }
	std::vector<std::string> listAntennas(int direction, size_t channel) const override;
	std::string getAntenna(int direction, size_t channel) const override;

	// Attributes: settings.cpp
	void setSampleRate(int direction, size_t channel, double rate) override;
	double getSampleRate(int direction, size_t channel) const override;
	std::vector<double> listSampleRates(int direction, size_t channel) const override;
	SoapySDR::RangeList getSampleRateRange(int direction, size_t channel) const override;
	std::vector<std::string> listFrequencies(int direction, size_t channel) const override;
	using SoapySDR::Device::setFrequency;
	using SoapySDR::Device::getFrequency;
	using SoapySDR::Device::getFrequencyRange;
	void setFrequency(int direction, size_t channel, const std::string &name, double frequency,
			  const SoapySDR::Kwargs &args) override;
	double getFrequency(int direction, size_t channel, const std::string &name) const override;
	SoapySDR::RangeList getFrequencyRange(int direction, size_t channel,
					      const std::string &name) const override;
	std::vector<std::string> listGains(int direction, size_t channel) const override;
	using SoapySDR::Device::setGain;
	using SoapySDR::Device::getGain;
	using SoapySDR::Device::getGainRange;
	void setGain(int direction, size_t channel, const std::string &name, double value) override;
	double getGain(int direction, size_t channel, const std::string &name) const override;
	SoapySDR::Range getGainRange(int direction, size_t channel,
				     const std::string &name) const override;
	bool hasGainMode(int direction, size_t channel) const override;
	void setGainMode(int direction, size_t channel, bool automatic) override;
	bool getGainMode(int direction, size_t channel) const override;
	void setBandwidth(int direction, size_t channel, double bandwidth) override;
	double getBandwidth(int direction, size_t channel) const override;
	SoapySDR::RangeList getBandwidthRange(int direction, size_t channel) const override;
	using SoapySDR::Device::readSetting;
	using SoapySDR::Device::writeSetting;
	std::string readSetting(const std::string &key) const override;
	void writeSetting(const std::string &key, const std::string &value) override;

	// Samples: stream.cpp
	std::vector<std::string> getStreamFormats(int direction, size_t channel) const override;
	std::string getNativeStreamFormat(int direction, size_t channel,
					  double &fullScale) const override;
	SoapySDR::ArgInfoList getStreamArgsInfo(int direction, size_t channel) const override;
	SoapySDR::Stream *setupStream(int direction, const std::string &format,
				      const std::vector<size_t> &channels,
				      const SoapySDR::Kwargs &args) override;
	void closeStream(SoapySDR::Stream *stream) override;
	size_t getStreamMTU(SoapySDR::Stream *stream) const override;
	int activateStream(SoapySDR::Stream *stream, int flags, long long timeNs,
			   size_t numElems) override;
	int deactivateStream(SoapySDR::Stream *stream, int flags, long long timeNs) override;
	int readStream(SoapySDR::Stream *stream, void *const *buffs, size_t numElems, int &flags,
		       long long &timeNs, long timeoutUs) override;
	size_t getNumDirectAccessBuffers(SoapySDR::Stream *stream) override;
	int getDirectAccessBufferAddrs(SoapySDR::Stream *stream, size_t handle,
				       void **buffs) override;
	int acquireReadBuffer(SoapySDR::Stream *stream, size_t &handle, const void **buffs,
			      int &flags, long long &timeNs, long timeoutUs) override;
	void releaseReadBuffer(SoapySDR::Stream *stream, size_t handle) override;

private:
	// Throws unless there is such a channel to receive from.
	void checkChannel(int direction, size_t channel) const;
	// The device that has an attribute: this one, or its transceiver; null if neither.
	const dmabuf_dio_device *ownerOf(const std::string &attribute) const;
	const dmabuf_dio_device *needOwnerOf(const std::string &attribute) const;
	std::string ofChannel(size_t channel, const char *attribute) const;
	std::string descriptor(size_t handle) const;

	dio::Device device_;
	// The device with oscillators and gains, if it is another one
	dio::Device phy_;
	// The channels of a frame. A SoapySDR channel is one of them, or two that form a complex one.
	std::vector<dmabuf_dio_channel> channels_;
	bool complex_;
	std::unique_ptr<Receiver> receiver_;
};
