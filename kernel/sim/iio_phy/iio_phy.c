// SPDX-License-Identifier: GPL-2.0-only
/*
 * An IIO device for tests with the settings of a radio, and no buffer
 *
 * "stream-phy" has attributes like those of transceivers:
 *
 *  - local oscillators, altvoltage0_RX_LO and altvoltage1_TX_LO, which the
 *    device rounds down to a multiple of 1 kHz;
 *  - gains of voltage0 and voltage1 in both directions, which the device rounds
 *    towards 0. Those of inputs are refused unless gain_control_mode is manual;
 *  - rf_bandwidth, shared by all inputs. Above 20 MHz it is refused, but the
 *    device has changed it to 20 MHz by then;
 *  - calibrate, which cannot be read, and xo_correction.
 *
 * "writes" counts all writes of attributes.
 */
#include <linux/cleanup.h>
#include <linux/iio/iio.h>
#include <linux/iio/sysfs.h>
#include <linux/kstrtox.h>
#include <linux/math64.h>
#include <linux/module.h>
#include <linux/platform_device.h>
#include <linux/string.h>

#define PHY_LO_MIN		70000000ULL
#define PHY_LO_MAX		6000000000ULL
#define PHY_LO_STEP		1000
#define PHY_BANDWIDTH_MAX	20000000
#define PHY_OUTPUTS		2	/* index of the first output's gain */

enum phy_mode {
	PHY_MANUAL,
	PHY_FAST,
	PHY_SLOW,
};

struct phy {
	struct mutex lock;	/* all of the following */
	u64 lo[2];
	int gain[4];		/* millidecibels: inputs, outputs */
	unsigned int mode;
	u32 bandwidth;
	int correction;
	u64 writes;
};

static const int phy_input_gains[] = { 0, 0, 0, 500000, 60, 0 };
static const int phy_output_gains[] = { -89, 750000, 0, 250000, 0, 0 };

static int *phy_gain(struct phy *phy, const struct iio_chan_spec *channel)
{
	return &phy->gain[channel->channel +
			  (channel->output ? PHY_OUTPUTS : 0)];
}

/* Attributes of channels that the IIO core knows */

static int phy_read_raw(struct iio_dev *indio_dev,
			const struct iio_chan_spec *channel, int *val,
			int *val2, long mask)
{
	struct phy *phy = iio_priv(indio_dev);
	int gain;

	if (mask != IIO_CHAN_INFO_HARDWAREGAIN)
		return -EINVAL;
	guard(mutex)(&phy->lock);
	gain = *phy_gain(phy, channel);
	*val = gain / 1000;
	*val2 = gain % 1000 * 1000;
	/* The fraction has the sign only if the integer is 0. */
	if (*val < 0)
		*val2 = -*val2;
	return IIO_VAL_INT_PLUS_MICRO_DB;
}

static int phy_write_raw(struct iio_dev *indio_dev,
			 const struct iio_chan_spec *channel, int val,
			 int val2, long mask)
{
	struct phy *phy = iio_priv(indio_dev);
	int step = channel->output ? 250 : 500;
	int gain;

	if (mask != IIO_CHAN_INFO_HARDWAREGAIN)
		return -EINVAL;
	gain = val * 1000 + (val < 0 ? -val2 : val2) / 1000;
	if (channel->output ? (gain < -89750 || gain > 0) :
			      (gain < 0 || gain > 60000))
		return -EINVAL;
	guard(mutex)(&phy->lock);
	phy->writes++;
	if (!channel->output && phy->mode != PHY_MANUAL)
		return -EOPNOTSUPP;
	*phy_gain(phy, channel) = gain - gain % step;
	return 0;
}

static int phy_read_avail(struct iio_dev *indio_dev,
			  const struct iio_chan_spec *channel,
			  const int **vals, int *type, int *length, long mask)
{
	if (mask != IIO_CHAN_INFO_HARDWAREGAIN)
		return -EINVAL;
	*vals = channel->output ? phy_output_gains : phy_input_gains;
	*type = IIO_VAL_INT_PLUS_MICRO;
	*length = ARRAY_SIZE(phy_input_gains);
	return IIO_AVAIL_RANGE;
}

/* Other attributes of channels */

static ssize_t phy_read_lo(struct iio_dev *indio_dev, uintptr_t private,
			   const struct iio_chan_spec *channel, char *buf)
{
	struct phy *phy = iio_priv(indio_dev);

	guard(mutex)(&phy->lock);
	return sysfs_emit(buf, "%llu\n", phy->lo[channel->channel]);
}

static ssize_t phy_write_lo(struct iio_dev *indio_dev, uintptr_t private,
			    const struct iio_chan_spec *channel,
			    const char *buf, size_t len)
{
	struct phy *phy = iio_priv(indio_dev);
	u64 hertz;
	int ret;

	ret = kstrtou64(buf, 10, &hertz);
	if (ret)
		return ret;
	guard(mutex)(&phy->lock);
	phy->writes++;
	if (hertz < PHY_LO_MIN || hertz > PHY_LO_MAX)
		return -EINVAL;
	phy->lo[channel->channel] = div_u64(hertz, PHY_LO_STEP) * PHY_LO_STEP;
	return len;
}

static ssize_t phy_lo_range(struct iio_dev *indio_dev, uintptr_t private,
			    const struct iio_chan_spec *channel, char *buf)
{
	return sysfs_emit(buf, "[%llu 1 %llu]\n", PHY_LO_MIN, PHY_LO_MAX);
}

static const struct iio_chan_spec_ext_info phy_lo_info[] = {
	{ .name = "frequency", .shared = IIO_SEPARATE,
	  .read = phy_read_lo, .write = phy_write_lo },
	{ .name = "frequency_available", .shared = IIO_SEPARATE,
	  .read = phy_lo_range },
	{ }
};

static int phy_get_mode(struct iio_dev *indio_dev,
			const struct iio_chan_spec *channel)
{
	struct phy *phy = iio_priv(indio_dev);

	guard(mutex)(&phy->lock);
	return phy->mode;
}

static int phy_set_mode(struct iio_dev *indio_dev,
			const struct iio_chan_spec *channel, unsigned int mode)
{
	struct phy *phy = iio_priv(indio_dev);

	guard(mutex)(&phy->lock);
	phy->writes++;
	phy->mode = mode;
	return 0;
}

static const char * const phy_modes[] = {
	[PHY_MANUAL] = "manual",
	[PHY_FAST] = "fast_attack",
	[PHY_SLOW] = "slow_attack",
};

static const struct iio_enum phy_mode_enum = {
	.items = phy_modes,
	.num_items = ARRAY_SIZE(phy_modes),
	.get = phy_get_mode,
	.set = phy_set_mode,
};

static ssize_t phy_read_bandwidth(struct iio_dev *indio_dev, uintptr_t private,
				  const struct iio_chan_spec *channel, char *buf)
{
	struct phy *phy = iio_priv(indio_dev);

	guard(mutex)(&phy->lock);
	return sysfs_emit(buf, "%u\n", phy->bandwidth);
}

static ssize_t phy_write_bandwidth(struct iio_dev *indio_dev,
				   uintptr_t private,
				   const struct iio_chan_spec *channel,
				   const char *buf, size_t len)
{
	struct phy *phy = iio_priv(indio_dev);
	u32 hertz;
	int ret;

	ret = kstrtou32(buf, 10, &hertz);
	if (ret)
		return ret;
	guard(mutex)(&phy->lock);
	phy->writes++;
	phy->bandwidth = min(hertz, PHY_BANDWIDTH_MAX);
	return hertz > PHY_BANDWIDTH_MAX ? -EINVAL : len;
}

static const struct iio_chan_spec_ext_info phy_input_info[] = {
	IIO_ENUM("gain_control_mode", IIO_SEPARATE, &phy_mode_enum),
	IIO_ENUM_AVAILABLE("gain_control_mode", IIO_SEPARATE, &phy_mode_enum),
	{ .name = "rf_bandwidth", .shared = IIO_SHARED_BY_TYPE,
	  .read = phy_read_bandwidth, .write = phy_write_bandwidth },
	{ }
};

#define PHY_VOLTAGE(_number, _output, _info) {				\
	.type = IIO_VOLTAGE,						\
	.indexed = 1,							\
	.channel = (_number),						\
	.output = (_output),						\
	.scan_index = -1,						\
	.info_mask_separate = BIT(IIO_CHAN_INFO_HARDWAREGAIN),		\
	.info_mask_separate_available = BIT(IIO_CHAN_INFO_HARDWAREGAIN),	\
	.ext_info = (_info),						\
}

#define PHY_LO(_number, _name) {					\
	.type = IIO_ALTVOLTAGE,						\
	.indexed = 1,							\
	.channel = (_number),						\
	.output = 1,							\
	.scan_index = -1,						\
	.extend_name = (_name),						\
	.ext_info = phy_lo_info,					\
}

static const struct iio_chan_spec phy_channels[] = {
	PHY_VOLTAGE(0, 0, phy_input_info), PHY_VOLTAGE(1, 0, phy_input_info),
	PHY_VOLTAGE(0, 1, NULL), PHY_VOLTAGE(1, 1, NULL),
	PHY_LO(0, "RX_LO"), PHY_LO(1, "TX_LO"),
};

/* Attributes of the device */

static ssize_t correction_show(struct device *dev,
			       struct device_attribute *attr, char *buf)
{
	struct phy *phy = iio_priv(dev_to_iio_dev(dev));

	guard(mutex)(&phy->lock);
	return sysfs_emit(buf, "%d\n", phy->correction);
}

static ssize_t correction_store(struct device *dev,
				struct device_attribute *attr,
				const char *buf, size_t len)
{
	struct phy *phy = iio_priv(dev_to_iio_dev(dev));
	int value;
	int ret;

	ret = kstrtoint(buf, 10, &value);
	if (ret)
		return ret;
	guard(mutex)(&phy->lock);
	phy->writes++;
	phy->correction = value;
	return len;
}

static ssize_t calibrate_store(struct device *dev,
			       struct device_attribute *attr,
			       const char *buf, size_t len)
{
	struct phy *phy = iio_priv(dev_to_iio_dev(dev));

	guard(mutex)(&phy->lock);
	phy->writes++;
	return len;
}

static ssize_t writes_show(struct device *dev, struct device_attribute *attr,
			   char *buf)
{
	struct phy *phy = iio_priv(dev_to_iio_dev(dev));

	guard(mutex)(&phy->lock);
	return sysfs_emit(buf, "%llu\n", phy->writes);
}

static IIO_DEVICE_ATTR(xo_correction, 0644, correction_show, correction_store, 0);
static IIO_DEVICE_ATTR(calibrate, 0200, NULL, calibrate_store, 0);
static IIO_DEVICE_ATTR(writes, 0444, writes_show, NULL, 0);

static struct attribute *phy_attributes[] = {
	&iio_dev_attr_xo_correction.dev_attr.attr,
	&iio_dev_attr_calibrate.dev_attr.attr,
	&iio_dev_attr_writes.dev_attr.attr,
	NULL
};

static const struct attribute_group phy_group = {
	.attrs = phy_attributes,
};

static const struct iio_info phy_info = {
	.attrs = &phy_group,
	.read_raw = phy_read_raw,
	.write_raw = phy_write_raw,
	.read_avail = phy_read_avail,
};

/* Creation and removal */

static int phy_probe(struct platform_device *pdev)
{
	struct iio_dev *indio_dev;
	struct phy *phy;
	int ret;

	indio_dev = devm_iio_device_alloc(&pdev->dev, sizeof(*phy));
	if (!indio_dev)
		return -ENOMEM;
	phy = iio_priv(indio_dev);
	ret = devm_mutex_init(&pdev->dev, &phy->lock);
	if (ret)
		return ret;
	phy->lo[0] = 2400000000ULL;
	phy->lo[1] = 2450000000ULL;
	phy->bandwidth = 18000000;
	phy->gain[0] = 30000;
	phy->gain[1] = 30000;
	phy->gain[PHY_OUTPUTS] = -10000;
	phy->gain[PHY_OUTPUTS + 1] = -10000;

	indio_dev->name = "stream-phy";
	indio_dev->info = &phy_info;
	indio_dev->modes = INDIO_DIRECT_MODE;
	indio_dev->channels = phy_channels;
	indio_dev->num_channels = ARRAY_SIZE(phy_channels);
	return devm_iio_device_register(&pdev->dev, indio_dev);
}

static struct platform_driver phy_driver = {
	.driver = { .name = "iio_phy" },
	.probe = phy_probe,
};

static struct platform_device *phy_device;

static int __init phy_init(void)
{
	int ret;

	ret = platform_driver_register(&phy_driver);
	if (ret)
		return ret;
	phy_device = platform_device_register_simple("iio_phy",
						     PLATFORM_DEVID_NONE,
						     NULL, 0);
	if (IS_ERR(phy_device)) {
		platform_driver_unregister(&phy_driver);
		return PTR_ERR(phy_device);
	}
	return 0;
}
module_init(phy_init);

static void __exit phy_exit(void)
{
	platform_device_unregister(phy_device);
	platform_driver_unregister(&phy_driver);
}
module_exit(phy_exit);

MODULE_DESCRIPTION("IIO device for tests with the settings of a radio");
MODULE_LICENSE("GPL");
