// SPDX-License-Identifier: GPL-2.0-only
/*
 * An IIO device for tests that needs a trigger
 *
 * "stream-sensor" pushes a frame each time its trigger fires: two channels of
 * 16 bits, the number of the frame since the buffer was enabled and its
 * complement, and a timestamp. Without a trigger it cannot be enabled. Its own
 * rate, 13 Hz, belongs to a trigger that it does not have. Two devices without
 * samples are both called "stream-twin".
 */
#include <linux/iio/buffer.h>
#include <linux/iio/iio.h>
#include <linux/iio/trigger_consumer.h>
#include <linux/iio/triggered_buffer.h>
#include <linux/module.h>
#include <linux/platform_device.h>

struct sensor {
	u16 next;
	struct {
		__le16 values[2];
		aligned_s64 timestamp;
	} frame;
};

#define SENSOR_CHANNEL(_number, _scan_index) {				\
	.type = IIO_VOLTAGE,						\
	.indexed = 1,							\
	.channel = (_number),						\
	.scan_index = (_scan_index),					\
	.scan_type = {							\
		.sign = 'u',						\
		.realbits = 16,						\
		.storagebits = 16,					\
		.endianness = IIO_LE,					\
	},								\
	.info_mask_shared_by_all = BIT(IIO_CHAN_INFO_SAMP_FREQ),	\
}

static const struct iio_chan_spec sensor_channels[] = {
	SENSOR_CHANNEL(0, 0),
	SENSOR_CHANNEL(1, 1),
	IIO_CHAN_SOFT_TIMESTAMP(2),
};

/* Only frames of both channels */
static const unsigned long sensor_masks[] = { 0x3, 0 };

static irqreturn_t sensor_fired(int irq, void *data)
{
	struct iio_poll_func *func = data;
	struct iio_dev *indio_dev = func->indio_dev;
	struct sensor *sensor = iio_priv(indio_dev);

	sensor->frame.values[0] = cpu_to_le16(sensor->next);
	sensor->frame.values[1] = cpu_to_le16(~sensor->next);
	sensor->next++;
	iio_push_to_buffers_with_timestamp(indio_dev, &sensor->frame,
					   iio_get_time_ns(indio_dev));
	iio_trigger_notify_done(indio_dev->trig);
	return IRQ_HANDLED;
}

static int sensor_preenable(struct iio_dev *indio_dev)
{
	struct sensor *sensor = iio_priv(indio_dev);

	sensor->next = 0;
	return 0;
}

static const struct iio_buffer_setup_ops sensor_setup = {
	.preenable = sensor_preenable,
};

static int sensor_read_raw(struct iio_dev *indio_dev,
			   struct iio_chan_spec const *channel, int *val,
			   int *val2, long mask)
{
	*val = 13;
	return mask == IIO_CHAN_INFO_SAMP_FREQ ? IIO_VAL_INT : -EINVAL;
}

static const struct iio_info sensor_info = {
	.read_raw = sensor_read_raw,
};

static int sensor_twin(struct device *dev)
{
	struct iio_dev *indio_dev = devm_iio_device_alloc(dev, 0);

	if (!indio_dev)
		return -ENOMEM;
	indio_dev->name = "stream-twin";
	indio_dev->info = &sensor_info;
	indio_dev->modes = INDIO_DIRECT_MODE;
	return devm_iio_device_register(dev, indio_dev);
}

static int sensor_probe(struct platform_device *pdev)
{
	struct iio_dev *indio_dev;
	int ret;

	ret = sensor_twin(&pdev->dev);
	if (!ret)
		ret = sensor_twin(&pdev->dev);
	if (ret)
		return ret;

	indio_dev = devm_iio_device_alloc(&pdev->dev, sizeof(struct sensor));
	if (!indio_dev)
		return -ENOMEM;
	indio_dev->name = "stream-sensor";
	indio_dev->info = &sensor_info;
	indio_dev->modes = INDIO_DIRECT_MODE;
	indio_dev->channels = sensor_channels;
	indio_dev->num_channels = ARRAY_SIZE(sensor_channels);
	indio_dev->available_scan_masks = sensor_masks;
	ret = devm_iio_triggered_buffer_setup(&pdev->dev, indio_dev, NULL,
					      sensor_fired, &sensor_setup);
	if (ret)
		return ret;
	return devm_iio_device_register(&pdev->dev, indio_dev);
}

static struct platform_driver sensor_driver = {
	.driver = { .name = "iio_sensor" },
	.probe = sensor_probe,
};

static struct platform_device *sensor_device;

static int __init sensor_init(void)
{
	int ret;

	ret = platform_driver_register(&sensor_driver);
	if (ret)
		return ret;
	sensor_device = platform_device_register_simple("iio_sensor",
							PLATFORM_DEVID_NONE,
							NULL, 0);
	if (IS_ERR(sensor_device)) {
		platform_driver_unregister(&sensor_driver);
		return PTR_ERR(sensor_device);
	}
	return 0;
}
module_init(sensor_init);

static void __exit sensor_exit(void)
{
	platform_device_unregister(sensor_device);
	platform_driver_unregister(&sensor_driver);
}
module_exit(sensor_exit);

MODULE_DESCRIPTION("IIO device for tests that needs a trigger");
MODULE_LICENSE("GPL");
