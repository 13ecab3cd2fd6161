// SPDX-License-Identifier: MIT OR Apache-2.0
//! IIO devices: their channels, rates and attributes.

use std::ffi::{CStr, CString, c_char, c_int};

use dmabuf_dio_stream::{self as stream, Encoding, Format, Settings};

use crate::buffer::output;
use crate::failure::{Failure, Outcome, guard};
use crate::pointers::{c_string, exclusive, free, give, shared};

/// Encoding of a sample: an unsigned integer.
pub const DMABUF_DIO_ENCODING_UNSIGNED: u32 = 0;
/// Encoding of a sample: a two's complement integer.
pub const DMABUF_DIO_ENCODING_SIGNED: u32 = 1;
/// Encoding of a sample: an IEEE 754 floating-point number.
pub const DMABUF_DIO_ENCODING_FLOAT: u32 = 2;

/// How far from the wanted rate that of a device may be, as a part of it.
const TOLERANCE: f64 = 0.01;

/// An IIO device. The handle stores its number and names; it does not keep the device open.
///
/// Several threads may use it at the same time. Free it once, when no thread uses it any more.
#[derive(Debug)]
pub struct Device {
    pub(crate) of: stream::Device,
    id: CString,
    name: CString,
    label: Option<CString>,
}

/// A channel whose samples a buffer can hold. The structure never grows.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Channel {
    /// Its name, such as `in_voltage0`, NUL-terminated.
    pub name: [c_char; 64],
    /// Its position among the channels of a frame. There may be gaps between positions.
    pub index: u32,
    /// `DMABUF_DIO_ENCODING_*`.
    pub encoding: u32,
    /// Number of significant bits.
    pub bits: u32,
    /// Number of bits in memory: 8, 16, 32, 64 or 128. A sample is aligned to its size.
    pub storage_bits: u32,
    /// Number of insignificant bits at the right.
    pub shift: u32,
    /// Number of consecutive values.
    pub repeat: u32,
    /// 1 if the most significant byte comes first, else 0.
    pub big_endian: u32,
    /// Always 0.
    pub reserved: u32,
}

impl Channel {
    fn of(channel: &stream::Channel) -> Self {
        let mut name = [0; 64];
        for (to, from) in name[..63].iter_mut().zip(channel.name.bytes()) {
            *to = from as c_char;
        }
        let Format { big_endian, kind, bits, storage_bits, shift, repeat } = channel.format;
        let encoding = match kind {
            Encoding::Unsigned => DMABUF_DIO_ENCODING_UNSIGNED,
            Encoding::Signed => DMABUF_DIO_ENCODING_SIGNED,
            Encoding::Float => DMABUF_DIO_ENCODING_FLOAT,
        };
        let (index, big_endian) = (channel.index, u32::from(big_endian));
        let (reserved, bits) = (0, bits);
        Self { name, index, encoding, bits, storage_bits, shift, repeat, big_endian, reserved }
    }

    /// The format, if it is one that can be converted.
    pub(crate) fn format(&self) -> Outcome<Format> {
        let kind = match self.encoding {
            DMABUF_DIO_ENCODING_UNSIGNED => Encoding::Unsigned,
            DMABUF_DIO_ENCODING_SIGNED => Encoding::Signed,
            DMABUF_DIO_ENCODING_FLOAT => Encoding::Float,
            other => return Err(crate::names::unknown("encoding", other, "DMABUF_DIO_ENCODING_*")),
        };
        let Self { bits, storage_bits, shift, repeat, .. } = *self;
        let big_endian = self.big_endian != 0;
        let format = Format { big_endian, kind, bits, storage_bits, shift, repeat };
        // Parsing the text checks the format.
        format
            .to_string()
            .parse()
            .map_err(|error| Failure::invalid(error, "pass a channel of a device"))
    }
}

impl From<stream::Device> for Device {
    fn from(device: stream::Device) -> Self {
        let (id, name) = (c_string(device.id().into()), c_string(device.name().into()));
        let label = device.read("label").ok().map(c_string);
        Self { of: device, id, name, label }
    }
}

/// # Safety
///
/// Null, or a string that lives for `'a`.
pub(crate) unsafe fn text<'a>(text: *const c_char, argument: &str) -> Outcome<&'a str> {
    if text.is_null() {
        return Err(Failure::null(argument));
    }
    // SAFETY: as the caller promises.
    let text = unsafe { CStr::from_ptr(text) }.to_str();
    text.map_err(|_| Failure::invalid(format!("{argument} is not UTF-8"), ""))
}

/// Finds a device by name, label or number.
pub(crate) fn find(name: &str) -> Outcome<stream::Device> {
    let mut all = stream::Device::matching(name);
    if all.len() > 1 {
        let ids: Vec<_> = all.iter().map(stream::Device::id).collect();
        let hint = format!("choose one of them: {}", ids.join(", "));
        return Err(Failure::invalid(format!("{} devices are called {name}", ids.len()), hint));
    }
    all.pop().ok_or_else(|| {
        let message = format!("there is no IIO device {name}");
        Failure::new(libc::ENODEV, message, "list the devices: dmabuf-dio devices")
    })
}

/// Sets a rate, or restores the former one if the device chooses a different rate: some drivers use
/// only the lower 32 bits of a number.
pub(crate) fn set_rate(device: &stream::Device, buffer: u32, hertz: f64) -> Outcome<()> {
    let before = device.rate(buffer);
    device.set_rate(buffer, hertz)?;
    let got = device.rate(buffer).unwrap_or(hertz);
    if (got - hertz).abs() <= hertz * TOLERANCE {
        return Ok(());
    }
    if let Some(before) = before {
        device.set_rate(buffer, before)?;
    }
    let message = format!("{} runs at {got} instead of {hertz}", device.name());
    let rates = device.rates(buffer).map(|rates| format!("supported rates: {rates}"));
    Err(Failure::invalid(message, rates.unwrap_or_else(|| "choose another rate".into())))
}

/// Stores handles of the IIO devices of this system, in the order of their numbers, in `devices`, which
/// has room for `room` of them. Each belongs to the caller, who frees it with `dmabuf_dio_device_free`.
///
/// Returns the number of devices, which may exceed `room`; 0 if the kernel has no IIO.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_device_list(devices: *mut *mut Device, room: usize) -> i64 {
    guard(|| {
        if devices.is_null() && room > 0 {
            return Err(Failure::null("devices"));
        }
        let all = stream::Device::all();
        let count = all.len() as i64;
        for (number, device) in all.into_iter().take(room).enumerate() {
            // SAFETY: there is room, as the header demands.
            unsafe { devices.add(number).write(give(device.into())) };
        }
        Ok(count)
    })
}

/// Finds the device with this name, label or number: `cf-ad9361-lpc`, `iio:device0`, `0`.
///
/// Returns 0; `-ENODEV` if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_device_find(
    name: *const c_char,
    device: *mut *mut Device,
) -> c_int {
    // SAFETY: as the header demands.
    guard(|| unsafe { output(device, "device", || Ok(find(text(name, "name")?)?.into())) })
}

/// Frees a device and its strings. Does nothing for a null pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_device_free(device: *mut Device) {
    // SAFETY: the handle is not used any more, as the header demands.
    unsafe { free(device) };
}

/// Returns the number of the device with a prefix, `iio:device0`. The string belongs to the device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_device_id(device: *const Device) -> *const c_char {
    // SAFETY: a device, as the header demands.
    unsafe { device.as_ref() }.map_or(std::ptr::null(), |device| device.id.as_ptr())
}

/// Returns the name that the device reports. The string belongs to the device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_device_name(device: *const Device) -> *const c_char {
    // SAFETY: a device, as the header demands.
    unsafe { device.as_ref() }.map_or(std::ptr::null(), |device| device.name.as_ptr())
}

/// Returns the label of the device, which distinguishes devices with the same name; a null pointer if
/// it has none. The string belongs to the device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_device_label(device: *const Device) -> *const c_char {
    // SAFETY: a device, as the header demands.
    let label = unsafe { device.as_ref() }.and_then(|device| device.label.as_ref());
    label.map_or(std::ptr::null(), |label| label.as_ptr())
}

/// Stores the channels of a buffer in `channels`, which has room for `room` of them, in the order of
/// their samples in a frame. Buffers are numbered from 0; most devices have one.
///
/// Returns the number of channels, which may exceed `room`; `-ENOENT` if there is no such buffer;
/// `-EPROTO` for an unknown format.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_device_channels(
    device: *const Device,
    buffer: u32,
    channels: *mut Channel,
    room: usize,
) -> i64 {
    guard(|| {
        // SAFETY: a device, as the header demands.
        let all = unsafe { shared(device, "device") }?.of.channels(buffer)?;
        if channels.is_null() && room > 0 {
            return Err(Failure::null("channels"));
        }
        for (number, channel) in all.iter().take(room).enumerate() {
            // SAFETY: there is room, as the header demands.
            unsafe { channels.add(number).write(Channel::of(channel)) };
        }
        Ok(all.len() as i64)
    })
}

/// Returns 1 if the buffer is an output, 0 if it is an input or does not exist, `-EFAULT`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_device_is_output(device: *const Device, buffer: u32) -> c_int {
    // SAFETY: a device, as the header demands.
    guard(|| Ok(unsafe { shared(device, "device") }?.of.is_output(buffer).into()))
}

/// Stores the rate of a buffer in `hertz`, in frames per second; 0 if the device does not report it.
///
/// Returns 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_device_rate(
    device: *const Device,
    buffer: u32,
    hertz: *mut f64,
) -> c_int {
    guard(|| {
        // SAFETY: as the header demands.
        let (device, hertz) = unsafe { (shared(device, "device")?, exclusive(hertz, "hertz")?) };
        *hertz = device.of.rate(buffer).unwrap_or(0.0);
        Ok(0)
    })
}

/// Sets the rate of a buffer, in frames per second. The device may choose a similar rate, at most 1 %
/// away: `dmabuf_dio_device_rate` returns it.
///
/// Returns 0; `-ENOENT` if the device has no rate; `-EINVAL` if it does not support this one, in which
/// case the rate is unchanged; `-EACCES`; `-EBUSY` while samples flow.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_device_set_rate(
    device: *const Device,
    buffer: u32,
    hertz: f64,
) -> c_int {
    guard(|| {
        // SAFETY: a device, as the header demands.
        set_rate(&unsafe { shared(device, "device") }?.of, buffer, hertz)?;
        Ok(0)
    })
}

/// Stores the rates that the device supports for a buffer in `rates`, in the form of
/// `dmabuf_dio_attribute_available`; a null pointer if the device does not list them.
///
/// Returns 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_device_rates(
    device: *const Device,
    buffer: u32,
    rates: *mut *mut c_char,
) -> c_int {
    guard(|| {
        // SAFETY: as the header demands.
        let (device, rates) = unsafe { (shared(device, "device")?, exclusive(rates, "rates")?) };
        *rates = device.of.rates(buffer).map_or(std::ptr::null_mut(), strdup);
        Ok(0)
    })
}

fn strdup(text: String) -> *mut c_char {
    c_string(text).into_raw()
}

/// Reads an attribute of the device, or of a channel, and stores its value in `value`, to be freed with
/// `dmabuf_dio_string_free`.
///
/// The name is that in sysfs, `in_voltage0_hardwaregain`, or the name or label of a channel, with or
/// without its direction, and an attribute: `voltage0.hardwaregain`, `RX_LO.frequency`. An attribute
/// that channels share can be named by each of them.
///
/// Returns 0; `-ENOENT` if there is no such attribute; `-EINVAL` if the name is ambiguous; `-EACCES` if
/// it cannot be read; or the driver's error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_attribute_read(
    device: *const Device,
    name: *const c_char,
    value: *mut *mut c_char,
) -> c_int {
    guard(|| {
        // SAFETY: as the header demands.
        let value = unsafe { exclusive(value, "value") }?;
        *value = std::ptr::null_mut();
        // SAFETY: as above.
        *value = strdup(unsafe { attribute(device, name) }?.read()?);
        Ok(0)
    })
}

/// Stores the values that an attribute accepts in `values`, to be freed with `dmabuf_dio_string_free`:
/// separated by spaces, or `[MIN STEP MAX]` for a range of numbers. A null pointer if the driver does
/// not list them.
///
/// Returns 0, or errors as for `dmabuf_dio_attribute_read`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_attribute_available(
    device: *const Device,
    name: *const c_char,
    values: *mut *mut c_char,
) -> c_int {
    guard(|| {
        // SAFETY: as the header demands.
        let values = unsafe { exclusive(values, "values") }?;
        *values = std::ptr::null_mut();
        // SAFETY: as above.
        let available = unsafe { attribute(device, name) }?.available();
        let text = available.map(|available| match available {
            stream::Available::List(all) => all.join(" "),
            stream::Available::Range { min, step, max } => format!("[{min} {step} {max}]"),
        });
        *values = text.map_or(std::ptr::null_mut(), strdup);
        Ok(0)
    })
}

/// Sets an attribute. The driver may round the value: `dmabuf_dio_attribute_read` returns the result.
/// The attribute keeps its value after the program ends.
///
/// Returns 0; `-ENOENT` if there is no such attribute; `-EINVAL` if the name is ambiguous, the driver
/// does not offer the value, or the attribute can only be read or only be written; `-EACCES`; `-EBUSY`;
/// or the driver's error, after which the former value is restored if the driver permits it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_attribute_set(
    device: *const Device,
    name: *const c_char,
    value: *const c_char,
) -> c_int {
    guard(|| {
        // SAFETY: as the header demands.
        let (attribute, value) = unsafe { (attribute(device, name)?, text(value, "value")?) };
        Settings::check([(attribute, value.to_owned())])?.write()?;
        Ok(0)
    })
}

/// # Safety
///
/// As the header demands.
unsafe fn attribute(device: *const Device, name: *const c_char) -> Outcome<stream::Attribute> {
    // SAFETY: as the caller promises.
    let (device, name) = unsafe { (shared(device, "device")?, text(name, "name")?) };
    Ok(device.of.attribute(name)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_convert_to_c_and_back() {
        for text in ["le:s12/16>>4", "be:u10/16>>6", "le:f32/32>>0", "le:u8/8X4>>0"] {
            let format: Format = text.parse().expect(text);
            let channel = stream::Channel { name: "in_voltage0".repeat(9), index: 3, format };
            let mut c = Channel::of(&channel);
            assert_eq!(c.format().expect(text), format);
            assert_eq!((c.index, c.name[63], c.name[62]), (3, 0, b'a' as c_char));
            c.storage_bits = 7;
            assert_eq!(c.format().map_err(|error| error.errno), Err(libc::EINVAL));
        }
    }
}
