// SPDX-License-Identifier: MIT OR Apache-2.0
//! Captures: blocks of samples of an IIO device.

use std::ffi::{CString, c_char, c_int, c_void};
use std::mem::size_of;
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use dmabuf_dio::lend::{Access, Mapping};
use dmabuf_dio_stream::{self as stream, BlockRing, IioSource, frame_bytes};

use crate::buffer::output;
use crate::device::{find, set_rate, text};
use crate::failure::{Failure, Outcome, guard};
use crate::pointers::{c_string, exclusive, free, shared};
use crate::report::DMABUF_DIO_UNKNOWN;
use crate::sized::{self, Grows};

/// Flag of a block: its position may be wrong, because the number of lost frames is unknown, or because
/// frames were lost in several places and the device's counter gives only their sum. The sum is counted
/// before the first of these blocks, although some of the frames are missing after it. The flag is
/// cleared as soon as the position is exact again.
pub const DMABUF_DIO_INEXACT: u32 = 1;

/// Blocks, unless the options say how many.
const BLOCKS: u32 = 16;
/// Blocks per second, unless the options say how long they are, and most bytes of one.
const PER_SECOND: f64 = 8.0;
const LARGEST: u64 = 16 << 20;
/// Bytes of a block of a device without a rate.
const UNTIMED: u64 = 64 << 10;

/// A capture: an IIO device fills dma-bufs with samples, one after the other; the program takes each
/// block and releases it. No other program can use the device's buffer meanwhile.
///
/// Use it from one thread at a time, and not in a child of fork(2).
#[derive(Debug)]
pub struct Capture {
    blocks: stream::Capture,
    /// Mappings of all blocks, in the order of their numbers.
    mappings: Vec<Mapping>,
    /// Whether there is CPU access to them.
    begun: Vec<bool>,
    rate: f64,
    how: CString,
}

/// Settings of a capture. All zero but `size` means the defaults, as does a null pointer in place of the
/// structure. Can grow: see `size`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CaptureOptions {
    /// `sizeof(struct dmabuf_dio_capture_options)`; see `struct dmabuf_dio_options`.
    pub size: usize,
    /// Names of the channels to capture, such as `in_voltage0`, in any order; a null pointer: all
    /// except timestamps.
    pub channels: *const *const c_char,
    /// Number of names in `channels`.
    pub channel_count: usize,
    /// Bytes of a block: a multiple of the frame and of the device's DMA alignment; 0: an eighth of a
    /// second, at most 16 MiB, or 64 KiB if the device has no rate.
    pub block_size: u64,
    /// Frames per second to set, as by `dmabuf_dio_device_set_rate`; 0: the rate is not changed.
    pub rate: f64,
    /// Number of blocks, 2 to 4096; 0: 16.
    pub blocks: u32,
    /// Number of the device's buffer.
    pub buffer: u32,
}

// SAFETY: words in the order of C, without padding.
unsafe impl Grows for CaptureOptions {
    const NAME: &'static str = "dmabuf_dio_capture_options";
    const FIRST: usize = 48;
}

const _: () = assert!(size_of::<CaptureOptions>() >= CaptureOptions::FIRST);

/// A block of a capture. Can grow: see `size`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Block {
    /// In: `sizeof(struct dmabuf_dio_block)`. Additional fields of a larger structure, up to 4096
    /// bytes, are set to 0.
    pub size: usize,
    /// Address of the first byte, a multiple of the page size. It does not change until the capture is
    /// freed. The memory is read-only.
    pub data: *const c_void,
    /// Number of filled bytes: whole frames.
    pub bytes: u64,
    /// Number of frames from the start to this block: those returned before it, and those known to be
    /// lost.
    pub position: u64,
    /// Number of frames lost before this block, since the one before it: 0 if there is no gap,
    /// `DMABUF_DIO_UNKNOWN` if the device does not report the number. See `flags`.
    pub gap: u64,
    /// The dma-buf. It belongs to the capture, and is closed when the capture is freed.
    pub fd: i32,
    /// The number of the block, from 0.
    pub number: u32,
    /// `DMABUF_DIO_INEXACT`.
    pub flags: u32,
    /// Always 0.
    pub reserved: u32,
}

// SAFETY: words in the order of C, without padding.
unsafe impl Grows for Block {
    const NAME: &'static str = "dmabuf_dio_block";
    const FIRST: usize = 56;
}

const _: () = assert!(size_of::<Block>() >= Block::FIRST);

/// Properties of a capture, and counts since its last start. Can grow: see `size`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CaptureFields {
    /// In: `sizeof(struct dmabuf_dio_capture_fields)`. Additional fields of a larger structure, up to
    /// 4096 bytes, are set to 0.
    pub size: usize,
    /// Bytes of a frame, which has a sample of each channel.
    pub frame_bytes: u64,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Number of blocks.
    pub blocks: u64,
    /// Frames per second; 0 if the device does not report them.
    pub rate: f64,
    /// Frames in the blocks that were returned.
    pub frames: u64,
    /// Frames lost before or between them, as far as known.
    pub lost_frames: u64,
    /// Number of gaps.
    pub gaps: u64,
    /// 1 if all losses are known; 0 if there may be more, or longer ones, for example if the device is
    /// read with `read()` and has no counter.
    pub losses_known: u64,
}

// SAFETY: words in the order of C, without padding.
unsafe impl Grows for CaptureFields {
    const NAME: &'static str = "dmabuf_dio_capture_fields";
    const FIRST: usize = 72;
}

const _: () = assert!(size_of::<CaptureFields>() >= CaptureFields::FIRST);

impl CaptureOptions {
    const DEFAULT: Self = Self {
        size: size_of::<Self>(),
        channels: std::ptr::null(),
        channel_count: 0,
        block_size: 0,
        rate: 0.0,
        blocks: 0,
        buffer: 0,
    };

    /// The wanted channels of all that there are.
    ///
    /// # Safety
    ///
    /// As the header demands.
    unsafe fn choose(&self, all: Vec<stream::Channel>) -> Outcome<Vec<stream::Channel>> {
        if self.channels.is_null() {
            let is_sample = |one: &stream::Channel| !one.name.ends_with("timestamp");
            return Ok(all.into_iter().filter(is_sample).collect());
        }
        let mut names = Vec::with_capacity(self.channel_count);
        for number in 0..self.channel_count {
            // SAFETY: there are as many strings, as the caller promises.
            let name = unsafe { text(*self.channels.add(number), "a channel") }?;
            if !all.iter().any(|channel| channel.name == name) {
                let known: Vec<_> = all.iter().map(|channel| channel.name.as_str()).collect();
                let hint = format!("choose from these: {}", known.join(", "));
                return Err(Failure::invalid(format!("there is no channel {name}"), hint));
            }
            names.push(name);
        }
        Ok(all.into_iter().filter(|channel| names.contains(&&*channel.name)).collect())
    }

    /// Bytes of a block.
    fn block_size(&self, frame: u64, rate: f64) -> u64 {
        if self.block_size != 0 {
            return self.block_size;
        }
        let wanted = match rate {
            rate if rate > 0.0 => (rate / PER_SECOND * frame as f64).min(LARGEST as f64) as u64,
            _ => UNTIMED,
        };
        // Whole frames, which DMA and direct I/O can take.
        let step = frame * (4096 >> frame.trailing_zeros().min(12));
        (wanted / step).max(1) * step
    }
}

impl Capture {
    fn open(name: &str, options: &CaptureOptions) -> Outcome<Self> {
        let device = find(name)?;
        let all = device.channels(options.buffer)?;
        // SAFETY: the options are the caller's, as the header demands.
        let channels = unsafe { options.choose(all) }?;
        let source = IioSource::open(device.clone(), options.buffer, &channels)?;
        if options.rate != 0.0 {
            set_rate(&device, options.buffer, options.rate)?;
        }
        let rate = device.rate(options.buffer).unwrap_or(0.0);
        let count = if options.blocks == 0 { BLOCKS } else { options.blocks };
        let size = options.block_size(frame_bytes(&channels), rate);
        let ring = BlockRing::new(count as usize, size)?;
        let mappings = ring.blocks().iter().map(|block| block.mapping(false));
        let mappings = mappings.collect::<dmabuf_dio::Result<Vec<_>>>()?;
        let blocks = stream::Capture::new(source, ring)?;
        let how = c_string(blocks.how());
        Ok(Self { blocks, begun: vec![false; mappings.len()], mappings, rate, how })
    }

    fn block(&self, number: u32) -> Outcome<Block> {
        let Some(mapping) = self.mappings.get(number as usize) else {
            let count = self.mappings.len();
            let message = format!("there is no block {number}");
            return Err(Failure::invalid(
                message,
                format!("there are {count} blocks, numbered from 0"),
            ));
        };
        let fd = self.blocks.ring().block(number as usize).fd()?.as_raw_fd();
        let data: *const c_void = mapping.as_ptr().cast_const().cast();
        let (bytes, position, gap, flags, reserved) = (0, 0, 0, 0, 0);
        Ok(Block {
            size: size_of::<Block>(),
            data,
            bytes,
            position,
            gap,
            fd,
            number,
            flags,
            reserved,
        })
    }

    /// Waits for a block and begins CPU access to it.
    fn next(&mut self, limit: Duration) -> Outcome<Block> {
        let Some(captured) = self.blocks.next(limit)? else {
            return Err(if self.blocks.is_running() {
                Failure::new(libc::ETIMEDOUT, "no block is full yet", "wait longer")
            } else {
                Failure::new(libc::ENODATA, "the capture is stopped", "start it")
            });
        };
        let number = captured.filled.block;
        if let Err(error) = self.blocks.ring().block(number).begin_cpu_access(Access::Read) {
            let _ = self.blocks.release(number);
            return Err(error.into());
        }
        self.begun[number] = true;
        let gap = captured.gap.map(|gap| gap.frames.unwrap_or(DMABUF_DIO_UNKNOWN));
        Ok(Block {
            bytes: captured.filled.bytes,
            position: captured.position,
            gap: gap.unwrap_or(0),
            flags: if captured.exact { 0 } else { DMABUF_DIO_INEXACT },
            ..self.block(number as u32)?
        })
    }

    fn release(&mut self, number: u32) -> Outcome<()> {
        let block = number as usize;
        let begun = self.begun.get_mut(block).is_some_and(std::mem::take);
        let ended = if begun {
            self.blocks.ring().block(block).end_cpu_access(Access::Read)
        } else {
            Ok(())
        };
        self.blocks.release(block)?;
        Ok(ended?)
    }

    fn fields(&self) -> CaptureFields {
        let (losses, frame_bytes) = (self.blocks.losses(), self.blocks.frame());
        CaptureFields {
            size: size_of::<CaptureFields>(),
            frame_bytes,
            block_bytes: self.blocks.ring().size(),
            blocks: self.mappings.len() as u64,
            rate: self.rate,
            frames: self.blocks.bytes() / frame_bytes,
            lost_frames: losses.frames,
            gaps: losses.gaps,
            losses_known: losses.known.into(),
        }
    }
}

/// Opens a buffer of the IIO device with this name, label or number, selects its channels, sets its
/// rate and allocates the blocks from the system heap. No samples flow until
/// `dmabuf_dio_capture_start`.
///
/// If the device or the kernel (before 6.11) does not support dma-bufs, samples are read with `read()`
/// into the same blocks: see `dmabuf_dio_capture_how`.
///
/// Returns 0; `-ENODEV` if there is no such device; `-ENOENT` if it has no such buffer or no rate;
/// `-EACCES`; `-EBUSY` if the buffer is in use; `-EOPNOTSUPP` if it is an output; `-EINVAL` if a
/// channel does not exist or there is none, or the device does not support the rate or the block size;
/// `-ENOMEM` if less than 64 MiB would be left; `-EMFILE`. After an error the device is closed; its
/// channels or rate may have been set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_capture_open(
    device: *const c_char,
    options: *const CaptureOptions,
    capture: *mut *mut Capture,
) -> c_int {
    let make = || {
        let options = if options.is_null() {
            CaptureOptions::DEFAULT
        } else {
            // SAFETY: as long as it says, as the header demands.
            unsafe { sized::read(options) }?
        };
        // SAFETY: a string, as the header demands.
        Capture::open(unsafe { text(device, "device") }?, &options)
    };
    // SAFETY: as the header demands.
    guard(|| unsafe { output(capture, "capture", make) })
}

/// Starts the flow of samples. After a stop, positions and counts begin at 0 again, and blocks filled
/// before are dropped. Does nothing if the capture is running.
///
/// Returns 0; `-ENOBUFS` if the program holds all blocks; `-EINVAL` if the device refuses the channels,
/// or needs a trigger; `-ENODEV`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_capture_start(capture: *mut Capture) -> c_int {
    guard(|| {
        // SAFETY: a capture, as the header demands.
        unsafe { exclusive(capture, "capture") }?.blocks.start()?;
        Ok(0)
    })
}

/// Waits for the next full block and begins CPU access to it, so that the samples can be read at once.
/// The program owns the block until `dmabuf_dio_capture_release`: it is not written to until then.
/// Other devices may import its dma-buf. Blocks are returned in the order of their samples.
///
/// Blocks for at most `timeout_us` microseconds; 0 does not block, a negative number waits
/// indefinitely. A signal does not end the wait. A device that has no free block loses samples.
///
/// Returns 0; `-ETIMEDOUT`; `-ENODATA` if the capture is not started, or is stopped and has no more
/// full blocks; `-ENOBUFS` if the program holds all blocks; `-ENODEV` if the device is gone or was
/// stopped by another program; `-EINVAL` or `-E2BIG` for the structure's size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_capture_next(
    capture: *mut Capture,
    timeout_us: i64,
    block: *mut Block,
) -> c_int {
    guard(|| {
        // SAFETY: as the header demands.
        let capture = unsafe { exclusive(capture, "capture") }?;
        // SAFETY: as above; before a block is taken that could not be returned.
        unsafe { check_block(block) }?;
        let limit = u64::try_from(timeout_us).map_or(Duration::MAX, Duration::from_micros);
        let next = capture.next(limit)?;
        // SAFETY: as above.
        unsafe { sized::write(block, &next) }?;
        Ok(0)
    })
}

/// # Safety
///
/// Null, or a structure as long as it says.
unsafe fn check_block(block: *mut Block) -> Outcome<()> {
    // SAFETY: as the caller promises.
    unsafe {
        exclusive(block.cast::<usize>(), "block")?;
        sized::check(block)
    }
}

/// Stores the descriptor and the address of a block in `block`, even if it is not filled, so that the
/// program can prepare its importers. The other fields are 0. Read the memory only while the program
/// holds the block.
///
/// Returns 0; `-EINVAL` if there is no such block, or for the structure's size; `-E2BIG`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_capture_block(
    capture: *const Capture,
    number: u32,
    block: *mut Block,
) -> c_int {
    guard(|| {
        // SAFETY: as the header demands.
        unsafe {
            let capture = shared(capture, "capture")?;
            check_block(block)?;
            sized::write(block, &capture.block(number)?)?;
        }
        Ok(0)
    })
}

/// Ends CPU access to a block and returns it to the device, which may fill it again. The program, and
/// any device or process that it passed the dma-buf to, must no longer use it. Blocks may be released
/// in any order.
///
/// Returns 0; `-EINVAL` if the program does not hold the block; `-ENODEV` and others if the device does
/// not accept it: the program no longer owns the block in that case, either.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_capture_release(capture: *mut Capture, number: u32) -> c_int {
    guard(|| {
        // SAFETY: a capture, as the header demands.
        unsafe { exclusive(capture, "capture") }?.release(number)?;
        Ok(0)
    })
}

/// Fills in the fields of a capture, as many as the caller's structure has.
///
/// Returns 0; `-EINVAL` if `size` is too small; `-E2BIG` if it is more than 4096.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_capture_fields(
    capture: *const Capture,
    fields: *mut CaptureFields,
) -> c_int {
    guard(|| {
        // SAFETY: as the header demands.
        unsafe {
            let capture = shared(capture, "capture")?;
            exclusive(fields.cast::<usize>(), "fields")?;
            sized::write(fields, &capture.fields())?;
        }
        Ok(0)
    })
}

/// Returns a line of text that says how samples get into the blocks: by the device's DMA, or copied by
/// the CPU, with the reason. The string belongs to the capture.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_capture_how(capture: *const Capture) -> *const c_char {
    // SAFETY: a capture, as the header demands.
    unsafe { capture.as_ref() }.map_or(std::ptr::null(), |capture| capture.how.as_ptr())
}

/// Stops the flow of samples. Full blocks can still be taken, and the program keeps those that it
/// holds. Samples in a partly filled block are lost.
///
/// Returns 0, or the kernel's error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_capture_stop(capture: *mut Capture) -> c_int {
    guard(|| {
        // SAFETY: a capture, as the header demands.
        unsafe { exclusive(capture, "capture") }?.blocks.stop()?;
        Ok(0)
    })
}

/// Stops the capture, closes the device, unmaps and closes the blocks. Does nothing for a null pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_capture_free(capture: *mut Capture) {
    // SAFETY: the handle is not used any more, as the header demands.
    unsafe { free(capture) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_blocks_cover_an_eighth_of_a_second() {
        let of = |frame, rate| CaptureOptions::DEFAULT.block_size(frame, rate);
        for frame in [1, 2, 4, 6, 8, 12, 16, 24, 10, 8192] {
            for rate in [0.0, 1.0, 48_000.0, 30.72e6, 1e12] {
                let size = of(frame, rate);
                assert!(size > 0 && size % frame == 0 && size % 4096 == 0, "{frame} {rate}");
            }
        }
        assert_eq!(of(8, 1e6), 999_424);
        assert_eq!((of(4, 1e9), of(4, 0.0), of(4, 100.0)), (16 << 20, 64 << 10, 4096));
        let chosen = CaptureOptions { block_size: 24, ..CaptureOptions::DEFAULT };
        assert_eq!(chosen.block_size(8, 1e6), 24);
    }
}
