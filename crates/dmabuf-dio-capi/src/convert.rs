// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conversion of samples.

use std::ffi::{c_char, c_int, c_void};

use dmabuf_dio_stream::convert::{self, Layout, SampleType};

use crate::buffer::output;
use crate::device::{Channel, text};
use crate::failure::{Failure, Outcome, guard};
use crate::pointers::{exclusive, free};

/// A conversion of samples from the format of a device to another format, by the CPU.
///
/// Full scale is preserved: 1.0 for floating-point numbers, all significant bits for integers; the zero
/// of unsigned integers is the middle of their range. Values beyond full scale become the largest or
/// smallest value.
///
/// Use it from one thread at a time.
#[derive(Debug)]
pub struct Converter {
    of: convert::Converter,
}

impl Converter {
    fn of(channels: &[Channel], picked: Option<&[u32]>, to: &str) -> Outcome<Self> {
        let formats = channels.iter().map(Channel::format).collect::<Outcome<Vec<_>>>()?;
        let whole = Layout::of(&formats);
        let from = match picked {
            None => whole,
            Some(picked) => {
                let picked: Vec<_> = picked.iter().map(|index| *index as usize).collect();
                let no_such = || {
                    let (message, count) = ("no such value in a frame", whole.count());
                    Failure::invalid(message, format!("it has {count} values, numbered from 0"))
                };
                whole.select(&picked).ok_or_else(no_such)?
            }
        };
        let parsed = to.parse::<SampleType>().map_err(|error| Failure::invalid(error, ""))?;
        let to = Layout::uniform(parsed.format, from.count());
        Ok(Self { of: convert::Converter::new(from, to)? })
    }
}

/// Prepares a conversion of frames. `channels` are the `count` channels of a frame, in its order, as
/// stored by `dmabuf_dio_device_channels`: exactly the channels of the capture.
///
/// `picked` has the indexes, from 0, of the `picked_count` values of a frame that the result contains,
/// in this order and without gaps. Pairs of channels can thus be converted separately. A channel has
/// one value unless it repeats. If `picked` is a null pointer, the result contains all values in order.
///
/// `to` is the format of the result: a SigMF name such as `i16`, `f32` or `u8` (a leading `c` has no
/// effect), or a format as in sysfs: `le:s12/16>>4`.
///
/// Returns 0; `-EINVAL` for an unknown format, an index that does not exist, or no values;
/// `-EOPNOTSUPP` for a format that is not converted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_converter_open(
    channels: *const Channel,
    count: usize,
    picked: *const u32,
    picked_count: usize,
    to: *const c_char,
    converter: *mut *mut Converter,
) -> c_int {
    let make = || {
        if channels.is_null() {
            return Err(Failure::null("channels"));
        }
        // SAFETY: there are as many, as the header demands.
        let channels = unsafe { std::slice::from_raw_parts(channels, count) };
        let picked = if picked.is_null() {
            None
        } else {
            // SAFETY: as above.
            Some(unsafe { std::slice::from_raw_parts(picked, picked_count) })
        };
        // SAFETY: a string, as the header demands.
        Converter::of(channels, picked, unsafe { text(to, "to") }?)
    };
    // SAFETY: as the header demands.
    guard(|| unsafe { output(converter, "converter", make) })
}

/// Converts `frames` frames. `from` has that many whole frames, and `to` has room for as many converted
/// ones; memory beyond these is not changed. They must not overlap. Neither needs to be aligned.
///
/// Returns 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_convert(
    converter: *mut Converter,
    from: *const c_void,
    to: *mut c_void,
    frames: usize,
) -> c_int {
    guard(|| {
        if frames == 0 {
            return Ok(0);
        }
        if from.is_null() || to.is_null() {
            return Err(Failure::null(if from.is_null() { "from" } else { "to" }));
        }
        // SAFETY: a converter, as the header demands.
        let converter = &mut unsafe { exclusive(converter, "converter") }?.of;
        let bytes =
            |frame: u64| frames.checked_mul(frame as usize).filter(|n| isize::try_from(*n).is_ok());
        let lengths = bytes(converter.from().frame()).zip(bytes(converter.to().frame()));
        let Some((from_len, to_len)) = lengths else {
            return Err(Failure::new(libc::EOVERFLOW, format!("{frames} frames wrap"), ""));
        };
        // SAFETY: both are as long, apart, and nobody writes to them meanwhile, as the header demands.
        let (from, to) = unsafe {
            let from = std::slice::from_raw_parts(from.cast::<u8>(), from_len);
            (from, std::slice::from_raw_parts_mut(to.cast::<u8>(), to_len))
        };
        converter.convert(from, to);
        Ok(0)
    })
}

/// Frees a converter. Does nothing for a null pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_converter_free(converter: *mut Converter) {
    // SAFETY: the handle is not used any more, as the header demands.
    unsafe { free(converter) };
}
