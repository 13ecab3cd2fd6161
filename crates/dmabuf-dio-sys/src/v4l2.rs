// SPDX-License-Identifier: MIT OR Apache-2.0
//! Capture devices of V4L2: formats, and a queue of buffers that are dma-bufs
//! (`linux/videodev2.h`; `Documentation/userspace-api/media/v4l/`).
//!
//! Only what a capture needs, of the interfaces with one buffer per frame: single-planar, and
//! multi-planar with one plane.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::OFlags;
use rustix::ioctl::{self, Opcode, opcode};
use rustix::mm::{MapFlags, ProtFlags};

use crate::call::{self, ioctl};
use crate::layout::pin_layout;
use crate::{Errno, Result};

/// Pixel formats are four characters: `YUYV`, `NV12`. The first is in the lowest byte.
pub type FourCc = u32;

/// Type of a single-planar queue of captured frames.
pub const CAPTURE: u32 = 1;
/// Type of a multi-planar queue of captured frames.
pub const CAPTURE_MPLANE: u32 = 9;

/// Buffers that the driver allocates.
pub const MEMORY_MMAP: u32 = 1;
/// Buffers that are imported dma-bufs.
pub const MEMORY_DMABUF: u32 = 4;

/// The device has a single-planar queue of captured frames.
pub const CAP_CAPTURE: u32 = 1;
/// The device has a multi-planar queue of captured frames.
pub const CAP_CAPTURE_MPLANE: u32 = 0x1000;
/// The device has queues of buffers.
pub const CAP_STREAMING: u32 = 0x0400_0000;
/// [`Capability::device_caps`] is filled in.
pub const CAP_DEVICE_CAPS: u32 = 0x8000_0000;

/// A queue accepts dma-bufs ([`RequestBuffers::capabilities`]; Linux 4.20).
pub const BUF_CAP_DMABUF: u32 = 4;

/// The content of the buffer may be damaged.
pub const FLAG_ERROR: u32 = 0x40;
/// The bits that identify the clock of the timestamp.
pub const FLAG_TIMESTAMP_MASK: u32 = 0xe000;
/// The timestamp is of `CLOCK_MONOTONIC`.
pub const FLAG_TIMESTAMP_MONOTONIC: u32 = 0x2000;
/// The timestamp is of the start of the exposure, not of the end of the frame.
pub const FLAG_TIMESTAMP_START: u32 = 0x1_0000;

/// The frames of a format are compressed, and differ in length.
pub const FORMAT_COMPRESSED: u32 = 1;

/// The driver can change the time per frame ([`CaptureParameters::capability`]).
pub const PARM_TIME_PER_FRAME: u32 = 0x1000;

/// Frames are progressive: no interlaced fields.
pub const FIELD_NONE: u32 = 1;

/// `struct v4l2_capability`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capability {
    /// Name of the driver, NUL-terminated.
    pub driver: [u8; 16],
    /// Name of the device, NUL-terminated.
    pub card: [u8; 32],
    /// The connection of the device, NUL-terminated.
    pub bus_info: [u8; 32],
    /// Version of the kernel.
    pub version: u32,
    /// Capabilities of the whole device: `CAP_...`
    pub capabilities: u32,
    /// Capabilities of this node: `CAP_...`
    pub device_caps: u32,
    /// Zero.
    pub reserved: [u32; 3],
}

pin_layout!(Capability: 104 {
    driver @ 0, card @ 16, bus_info @ 48, version @ 80, capabilities @ 84, device_caps @ 88,
    reserved @ 92,
});

/// `struct v4l2_fmtdesc`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FormatDescription {
    /// In: number of the format, from 0.
    pub index: u32,
    /// In: type of the queue.
    pub kind: u32,
    /// [`FORMAT_COMPRESSED`] and others.
    pub flags: u32,
    /// Description for users, NUL-terminated.
    pub description: [u8; 32],
    /// The format.
    pub pixelformat: FourCc,
    /// In: 0 for all formats.
    pub mbus_code: u32,
    /// Zero.
    pub reserved: [u32; 3],
}

pin_layout!(FormatDescription: 64 {
    index @ 0, kind @ 4, flags @ 8, description @ 12, pixelformat @ 44, mbus_code @ 48,
    reserved @ 52,
});

/// `struct v4l2_frmsizeenum`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameSize {
    /// In: number of the size, from 0.
    pub index: u32,
    /// In: the format.
    pub pixel_format: FourCc,
    /// 1: one size, in the first two of `size`; 2 and 3: a range.
    pub kind: u32,
    /// Width and height; or minimum, maximum and step of the width, then of the height.
    pub size: [u32; 6],
    /// Zero.
    pub reserved: [u32; 2],
}

pin_layout!(FrameSize: 44 { index @ 0, pixel_format @ 4, kind @ 8, size @ 12, reserved @ 36 });

/// `struct v4l2_pix_format`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PixFormat {
    /// Pixels in a line.
    pub width: u32,
    /// Lines.
    pub height: u32,
    /// The format.
    pub pixelformat: FourCc,
    /// [`FIELD_NONE`], or how fields are interlaced.
    pub field: u32,
    /// Bytes from one line to the next; 0 if the format has no lines.
    pub bytesperline: u32,
    /// Bytes of a buffer.
    pub sizeimage: u32,
    /// Colour space, `enum v4l2_colorspace`.
    pub colorspace: u32,
    /// The fields after it are valid if this is [`PixFormat::MAGIC`].
    pub private: u32,
    /// Flags of the format.
    pub flags: u32,
    /// Encoding of the colours.
    pub ycbcr_enc: u32,
    /// Range of the values.
    pub quantization: u32,
    /// Transfer function.
    pub xfer_func: u32,
}

pin_layout!(PixFormat: 48 {
    width @ 0, height @ 4, pixelformat @ 8, field @ 12, bytesperline @ 16, sizeimage @ 20,
    colorspace @ 24, private @ 28, flags @ 32, ycbcr_enc @ 36, quantization @ 40, xfer_func @ 44,
});

impl PixFormat {
    /// `V4L2_PIX_FMT_PRIV_MAGIC`.
    pub const MAGIC: u32 = 0xfeed_cafe;
}

/// `struct v4l2_plane_pix_format`, which is packed.
#[repr(C, packed)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlaneFormat {
    /// Bytes of the plane's buffer.
    pub sizeimage: u32,
    /// Bytes from one line to the next.
    pub bytesperline: u32,
    /// Zero.
    pub reserved: [u16; 6],
}

pin_layout!(PlaneFormat: 20 { sizeimage @ 0, bytesperline @ 4, reserved @ 8 });

/// `struct v4l2_pix_format_mplane`, which is packed.
#[repr(C, packed)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PixFormatMplane {
    /// Pixels in a line.
    pub width: u32,
    /// Lines.
    pub height: u32,
    /// The format.
    pub pixelformat: FourCc,
    /// [`FIELD_NONE`], or how fields are interlaced.
    pub field: u32,
    /// Colour space, `enum v4l2_colorspace`.
    pub colorspace: u32,
    /// The planes.
    pub plane_fmt: [PlaneFormat; 8],
    /// Number of planes, each with a buffer of its own.
    pub num_planes: u8,
    /// Flags of the format.
    pub flags: u8,
    /// Encoding of the colours.
    pub ycbcr_enc: u8,
    /// Range of the values.
    pub quantization: u8,
    /// Transfer function.
    pub xfer_func: u8,
    /// Zero.
    pub reserved: [u8; 7],
}

pin_layout!(PixFormatMplane: 192 {
    width @ 0, height @ 4, pixelformat @ 8, field @ 12, colorspace @ 16, plane_fmt @ 20,
    num_planes @ 180, flags @ 181, ycbcr_enc @ 182, quantization @ 183, xfer_func @ 184,
    reserved @ 185,
});

/// The union in `struct v4l2_format`. `align` gives it the alignment of the pointers that another
/// of its members has.
#[repr(C)]
#[derive(Clone, Copy)]
union AnyFormat {
    pix: PixFormat,
    pix_mp: PixFormatMplane,
    raw: [u8; 200],
    align: usize,
}

/// `struct v4l2_format`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RawFormat {
    kind: u32,
    fmt: AnyFormat,
}

#[cfg(target_pointer_width = "64")]
pin_layout!(RawFormat: 208 { kind @ 0, fmt @ 8 });

/// A format of one of the two kinds of queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The format of a [`CAPTURE`] queue.
    Single(PixFormat),
    /// The format of a [`CAPTURE_MPLANE`] queue.
    Multi(PixFormatMplane),
}

impl Format {
    fn raw(self) -> RawFormat {
        let mut fmt = AnyFormat { raw: [0; 200] };
        match self {
            Self::Single(pix) => fmt.pix = pix,
            Self::Multi(pix_mp) => fmt.pix_mp = pix_mp,
        }
        let kind = if matches!(self, Self::Single(_)) { CAPTURE } else { CAPTURE_MPLANE };
        RawFormat { kind, fmt }
    }

    fn of(raw: &RawFormat) -> Self {
        if raw.kind == CAPTURE {
            // SAFETY: all 200 bytes are initialised, and every value of them is a `PixFormat`.
            Self::Single(unsafe { raw.fmt.pix })
        } else {
            // SAFETY: all 200 bytes are initialised, and every value of them is one.
            Self::Multi(unsafe { raw.fmt.pix_mp })
        }
    }
}

/// `struct v4l2_fract`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fraction {
    /// Numerator.
    pub numerator: u32,
    /// Denominator.
    pub denominator: u32,
}

pin_layout!(Fraction: 8 { numerator @ 0, denominator @ 4 });

/// `struct v4l2_captureparm`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CaptureParameters {
    /// [`PARM_TIME_PER_FRAME`], if the driver can change that.
    pub capability: u32,
    /// Zero.
    pub capturemode: u32,
    /// Seconds per frame.
    pub timeperframe: Fraction,
    /// Zero.
    pub extendedmode: u32,
    /// Buffers that the driver uses for `read()`.
    pub readbuffers: u32,
    /// Zero.
    pub reserved: [u32; 4],
}

pin_layout!(CaptureParameters: 40 {
    capability @ 0, capturemode @ 4, timeperframe @ 8, extendedmode @ 16, readbuffers @ 20,
    reserved @ 24,
});

/// `struct v4l2_streamparm`, of a queue of captured frames.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RawParameters {
    kind: u32,
    capture: CaptureParameters,
    rest: [u8; 160],
}

pin_layout!(RawParameters: 204 { kind @ 0, capture @ 4, rest @ 44 });

/// `struct v4l2_requestbuffers`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestBuffers {
    /// In: number of buffers, 0 to free them. Out: number of buffers that the driver allocated.
    pub count: u32,
    /// In: type of the queue.
    pub kind: u32,
    /// In: [`MEMORY_MMAP`] or [`MEMORY_DMABUF`].
    pub memory: u32,
    /// Out: [`BUF_CAP_DMABUF`] and others; 0 before Linux 4.20.
    pub capabilities: u32,
    /// Zero.
    pub flags: u8,
    /// Zero.
    pub reserved: [u8; 3],
}

pin_layout!(RequestBuffers: 20 {
    count @ 0, kind @ 4, memory @ 8, capabilities @ 12, flags @ 16, reserved @ 17,
});

/// `struct v4l2_exportbuffer`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportBuffer {
    /// In: type of the queue.
    pub kind: u32,
    /// In: number of the buffer.
    pub index: u32,
    /// In: number of the plane.
    pub plane: u32,
    /// In: `O_CLOEXEC` and the access mode.
    pub flags: u32,
    /// Out: the dma-buf. [`export`] returns it owned.
    pub fd: i32,
    /// Zero.
    pub reserved: [u32; 11],
}

pin_layout!(ExportBuffer: 64 {
    kind @ 0, index @ 4, plane @ 8, flags @ 12, fd @ 16, reserved @ 20,
});

/// The memory of a buffer: a union of `struct v4l2_buffer` and `struct v4l2_plane`.
#[repr(C)]
#[derive(Clone, Copy)]
union Memory {
    offset: u32,
    fd: i32,
    planes: *mut Plane,
}

/// `struct v4l2_plane`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Plane {
    bytesused: u32,
    length: u32,
    m: Memory,
    data_offset: u32,
    reserved: [u32; 11],
}

#[cfg(target_pointer_width = "64")]
pin_layout!(Plane: 64 {
    bytesused @ 0, length @ 4, m @ 8, data_offset @ 16, reserved @ 20,
});

/// `struct v4l2_buffer`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RawBuffer {
    index: u32,
    kind: u32,
    bytesused: u32,
    flags: u32,
    field: u32,
    /// Seconds and microseconds.
    timestamp: [i64; 2],
    timecode: [u32; 4],
    sequence: u32,
    memory: u32,
    m: Memory,
    length: u32,
    reserved2: u32,
    request_fd: i32,
}

#[cfg(target_pointer_width = "64")]
pin_layout!(RawBuffer: 88 {
    index @ 0, kind @ 4, bytesused @ 8, flags @ 12, field @ 16, timestamp @ 24, timecode @ 40,
    sequence @ 56, memory @ 60, m @ 64, length @ 72, reserved2 @ 76, request_fd @ 80,
});

/// A buffer that the driver has filled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dequeued {
    /// Number of the buffer.
    pub index: u32,
    /// Bytes of the frame.
    pub bytes: u32,
    /// Offset of the data in the buffer.
    pub data_offset: u32,
    /// [`FLAG_ERROR`] and others.
    pub flags: u32,
    /// Number of the frame since the start; the driver counts those it lost.
    pub sequence: u32,
    /// When it was captured, in microseconds of the clock given by the flags.
    pub microseconds: i64,
}

/// Number of the ioctl that [`capability`] makes.
pub const IOC_QUERYCAP: Opcode = opcode::read::<Capability>(b'V', 0);
/// Number of the ioctl that [`describe_format`] makes.
pub const IOC_ENUM_FMT: Opcode = opcode::read_write::<FormatDescription>(b'V', 2);
/// Number of the ioctl that [`format()`] makes.
pub const IOC_G_FMT: Opcode = opcode::read_write::<RawFormat>(b'V', 4);
/// Number of the ioctl that [`set_format`] makes.
pub const IOC_S_FMT: Opcode = opcode::read_write::<RawFormat>(b'V', 5);
/// Number of the ioctl that [`request_buffers`] makes.
pub const IOC_REQBUFS: Opcode = opcode::read_write::<RequestBuffers>(b'V', 8);
/// Number of the ioctl that [`MappedBuffer::new`] makes.
pub const IOC_QUERYBUF: Opcode = opcode::read_write::<RawBuffer>(b'V', 9);
/// Number of the ioctl that [`queue`] makes.
pub const IOC_QBUF: Opcode = opcode::read_write::<RawBuffer>(b'V', 15);
/// Number of the ioctl that [`export`] makes.
pub const IOC_EXPBUF: Opcode = opcode::read_write::<ExportBuffer>(b'V', 16);
/// Number of the ioctl that [`dequeue`] makes.
pub const IOC_DQBUF: Opcode = opcode::read_write::<RawBuffer>(b'V', 17);
/// Number of the ioctl that [`stream_on`] makes.
pub const IOC_STREAMON: Opcode = opcode::write::<i32>(b'V', 18);
/// Number of the ioctl that [`stream_off`] makes.
pub const IOC_STREAMOFF: Opcode = opcode::write::<i32>(b'V', 19);
/// Number of the ioctl that [`parameters`] makes.
pub const IOC_G_PARM: Opcode = opcode::read_write::<RawParameters>(b'V', 21);
/// Number of the ioctl that [`set_parameters`] makes.
pub const IOC_S_PARM: Opcode = opcode::read_write::<RawParameters>(b'V', 22);
/// Number of the ioctl that [`frame_size`] makes.
pub const IOC_ENUM_FRAMESIZES: Opcode = opcode::read_write::<FrameSize>(b'V', 74);

/// Opens a device, so that [`dequeue`] does not block.
///
/// # Errors
///
/// `ENOENT`, `EACCES`, `ENODEV`; `EBUSY` of a driver that can be open only once.
pub fn open(path: &str) -> Result<OwnedFd> {
    call::open(path, OFlags::RDWR | OFlags::NONBLOCK)
}

/// The identity and the capabilities of a device.
///
/// # Errors
///
/// `ENOTTY`: not a device of V4L2. `ENODEV`: it is gone.
pub fn capability(device: BorrowedFd<'_>) -> Result<Capability> {
    let mut value = Capability::default();
    // SAFETY: IOC_QUERYCAP writes a `struct v4l2_capability`.
    unsafe { ioctl(device, ioctl::Updater::<IOC_QUERYCAP, _>::new(&mut value))? };
    Ok(value)
}

/// Format number `index` that a queue offers.
///
/// # Errors
///
/// `EINVAL`: there are no more, or no such queue.
pub fn describe_format(device: BorrowedFd<'_>, kind: u32, index: u32) -> Result<FormatDescription> {
    let mut value = FormatDescription { index, kind, ..FormatDescription::default() };
    // SAFETY: IOC_ENUM_FMT reads and writes a `struct v4l2_fmtdesc`.
    unsafe { ioctl(device, ioctl::Updater::<IOC_ENUM_FMT, _>::new(&mut value))? };
    Ok(value)
}

/// Frame size number `index` that a device offers for a format.
///
/// # Errors
///
/// `EINVAL`: there are no more. `ENOTTY`: the driver does not list them.
pub fn frame_size(device: BorrowedFd<'_>, format: FourCc, index: u32) -> Result<FrameSize> {
    let mut value = FrameSize { index, pixel_format: format, ..FrameSize::default() };
    // SAFETY: IOC_ENUM_FRAMESIZES reads and writes a `struct v4l2_frmsizeenum`.
    unsafe { ioctl(device, ioctl::Updater::<IOC_ENUM_FRAMESIZES, _>::new(&mut value))? };
    Ok(value)
}

/// The format of a queue of type `kind`.
///
/// # Errors
///
/// `EINVAL`: there is no such queue.
pub fn format(device: BorrowedFd<'_>, kind: u32) -> Result<Format> {
    let mut value = RawFormat { kind, fmt: AnyFormat { raw: [0; 200] } };
    // SAFETY: IOC_G_FMT reads and writes a `struct v4l2_format`.
    unsafe { ioctl(device, ioctl::Updater::<IOC_G_FMT, _>::new(&mut value))? };
    Ok(Format::of(&value))
}

/// Sets the format. Returns the format that the driver chose, which may differ.
///
/// # Errors
///
/// `EBUSY`: a program has allocated buffers. `EINVAL`: there is no such queue.
pub fn set_format(device: BorrowedFd<'_>, format: Format) -> Result<Format> {
    let mut value = format.raw();
    // SAFETY: IOC_S_FMT reads and writes a `struct v4l2_format`.
    unsafe { ioctl(device, ioctl::Updater::<IOC_S_FMT, _>::new(&mut value))? };
    Ok(Format::of(&value))
}

/// The parameters of a queue: the time per frame.
///
/// # Errors
///
/// `ENOTTY`, `EINVAL`: the driver has none.
pub fn parameters(device: BorrowedFd<'_>, kind: u32) -> Result<CaptureParameters> {
    let mut value = RawParameters { kind, capture: CaptureParameters::default(), rest: [0; 160] };
    // SAFETY: IOC_G_PARM reads and writes a `struct v4l2_streamparm`.
    unsafe { ioctl(device, ioctl::Updater::<IOC_G_PARM, _>::new(&mut value))? };
    Ok(value.capture)
}

/// Sets the parameters of a queue. Returns the parameters that the driver chose.
///
/// # Errors
///
/// As for [`parameters`], and `EBUSY`.
pub fn set_parameters(
    device: BorrowedFd<'_>,
    kind: u32,
    capture: CaptureParameters,
) -> Result<CaptureParameters> {
    let mut value = RawParameters { kind, capture, rest: [0; 160] };
    // SAFETY: IOC_S_PARM reads and writes a `struct v4l2_streamparm`.
    unsafe { ioctl(device, ioctl::Updater::<IOC_S_PARM, _>::new(&mut value))? };
    Ok(value.capture)
}

/// Makes this descriptor the owner of a queue, with `count` buffers of a kind of memory; 0 releases
/// the queue. Returns the request with the driver's answer.
///
/// # Errors
///
/// `EINVAL`: the kind of memory is not supported. `EBUSY`: the queue is another descriptor's.
/// `ENOMEM`.
pub fn request_buffers(
    device: BorrowedFd<'_>,
    kind: u32,
    memory: u32,
    count: u32,
) -> Result<RequestBuffers> {
    let mut value = RequestBuffers { count, kind, memory, ..RequestBuffers::default() };
    // SAFETY: IOC_REQBUFS reads and writes a `struct v4l2_requestbuffers`.
    unsafe { ioctl(device, ioctl::Updater::<IOC_REQBUFS, _>::new(&mut value))? };
    Ok(value)
}

/// A buffer of [`MEMORY_MMAP`], of one plane, as a dma-buf.
///
/// # Errors
///
/// `EINVAL`: there is no such buffer, or the driver cannot export it.
pub fn export(device: BorrowedFd<'_>, kind: u32, index: u32) -> Result<OwnedFd> {
    let flags = (libc::O_RDWR | libc::O_CLOEXEC) as u32;
    let mut value = ExportBuffer { kind, index, flags, ..ExportBuffer::default() };
    // SAFETY: IOC_EXPBUF reads and writes a `struct v4l2_exportbuffer`.
    unsafe { ioctl(device, ioctl::Updater::<IOC_EXPBUF, _>::new(&mut value))? };
    // SAFETY: the call succeeded and returned a new descriptor, which nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(value.fd) })
}

/// A buffer and its only plane, for a call.
fn with_plane(
    kind: u32,
    memory: u32,
    call: impl FnOnce(&mut RawBuffer) -> Result<()>,
) -> Result<(RawBuffer, Plane)> {
    let none = Memory { planes: std::ptr::null_mut() };
    let mut plane = Plane { bytesused: 0, length: 0, m: none, data_offset: 0, reserved: [0; 11] };
    let mut buffer = RawBuffer {
        index: 0,
        kind,
        bytesused: 0,
        flags: 0,
        field: 0,
        timestamp: [0; 2],
        timecode: [0; 4],
        sequence: 0,
        memory,
        m: none,
        length: 0,
        reserved2: 0,
        request_fd: 0,
    };
    if kind == CAPTURE_MPLANE {
        buffer.m.planes = &raw mut plane;
        buffer.length = 1;
    }
    call(&mut buffer)?;
    Ok((buffer, plane))
}

/// The memory of a buffer of [`MEMORY_MMAP`], of one plane, mapped to be read.
#[derive(Debug)]
pub struct MappedBuffer {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread.
unsafe impl Send for MappedBuffer {}

impl MappedBuffer {
    /// Maps buffer number `index`.
    ///
    /// # Errors
    ///
    /// `EINVAL`: there is no such buffer, or it cannot be mapped. `ENOMEM`.
    pub fn new(device: BorrowedFd<'_>, kind: u32, index: u32) -> Result<Self> {
        let (buffer, plane) = with_plane(kind, MEMORY_MMAP, |buffer| {
            buffer.index = index;
            // SAFETY: IOC_QUERYBUF reads and writes a `struct v4l2_buffer`, and its `length` planes.
            unsafe { ioctl(device, ioctl::Updater::<IOC_QUERYBUF, _>::new(buffer)) }
        })?;
        let (length, place) = if kind == CAPTURE_MPLANE {
            (plane.length, plane.m)
        } else {
            (buffer.length, buffer.m)
        };
        // SAFETY: for this kind of memory, the driver has filled in the offset.
        let offset = unsafe { place.offset };
        let length = length as usize;
        let (prot, flags) = (ProtFlags::READ, MapFlags::SHARED);
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let start = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), length, prot, flags, device, offset.into())
        };
        let start = start.map_err(|errno| Errno::from_raw(errno.raw_os_error()))?;
        let start = NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
        Ok(Self { start, length })
    }

    /// Copies the bytes from `offset` on.
    ///
    /// # Errors
    ///
    /// `EINVAL`: they are not all in the buffer.
    pub fn copy_to(&self, offset: usize, out: &mut [u8]) -> Result<()> {
        if offset.checked_add(out.len()).is_none_or(|end| end > self.length) {
            return Err(Errno::INVAL);
        }
        // SAFETY: the range is in the mapping, and `out` is not. No reference to the memory is made,
        // so concurrent writes are harmless.
        unsafe {
            std::ptr::copy_nonoverlapping(
                self.start.as_ptr().add(offset),
                out.as_mut_ptr(),
                out.len(),
            );
        }
        Ok(())
    }
}

impl Drop for MappedBuffer {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing refers to it any more.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// Gives the driver buffer number `index` to fill. `dmabuf` is its memory, unless the driver has
/// allocated it.
///
/// # Errors
///
/// `EINVAL`: no such buffer, already queued, not a dma-buf, or too short. `EFAULT`: the device
/// cannot use this memory, for example because it is not contiguous. `EIO`, `ENODEV`, `ENOMEM`.
pub fn queue(
    device: BorrowedFd<'_>,
    kind: u32,
    index: u32,
    dmabuf: Option<BorrowedFd<'_>>,
) -> Result<()> {
    let memory = if dmabuf.is_some() { MEMORY_DMABUF } else { MEMORY_MMAP };
    with_plane(kind, memory, |buffer| {
        buffer.index = index;
        if let Some(dmabuf) = dmabuf {
            let fd = Memory { fd: dmabuf.as_raw_fd() };
            if kind == CAPTURE_MPLANE {
                // SAFETY: `with_plane` has set `planes` to its plane, which lives during this call.
                unsafe { (*buffer.m.planes).m = fd };
            } else {
                buffer.m = fd;
            }
        }
        // SAFETY: IOC_QBUF reads and writes a `struct v4l2_buffer`, and its `length` planes.
        unsafe { ioctl(device, ioctl::Updater::<IOC_QBUF, _>::new(buffer)) }
    })?;
    Ok(())
}

/// Takes the next buffer that the driver has filled.
///
/// # Errors
///
/// `EAGAIN`: none yet. `EIO`: the queue has failed. `EINVAL`: not streaming. `ENODEV`: the device is
/// gone.
pub fn dequeue(device: BorrowedFd<'_>, kind: u32, memory: u32) -> Result<Dequeued> {
    let (buffer, plane) = with_plane(kind, memory, |buffer| {
        // SAFETY: IOC_DQBUF reads and writes a `struct v4l2_buffer`, and its `length` planes.
        unsafe { ioctl(device, ioctl::Updater::<IOC_DQBUF, _>::new(buffer)) }
    })?;
    let multi = kind == CAPTURE_MPLANE;
    let [seconds, microseconds] = buffer.timestamp;
    Ok(Dequeued {
        index: buffer.index,
        bytes: if multi { plane.bytesused } else { buffer.bytesused },
        data_offset: if multi { plane.data_offset } else { 0 },
        flags: buffer.flags,
        sequence: buffer.sequence,
        microseconds: seconds.saturating_mul(1_000_000).saturating_add(microseconds),
    })
}

/// Starts the flow of frames.
///
/// # Errors
///
/// `EINVAL`: too few buffers. `EBUSY`, `EPIPE`, `ENOLINK`: a part of the device is not ready.
/// `ENOSPC`: the bus has no bandwidth left.
pub fn stream_on(device: BorrowedFd<'_>, kind: u32) -> Result<()> {
    // SAFETY: IOC_STREAMON reads an `int`.
    unsafe { ioctl(device, ioctl::Setter::<IOC_STREAMON, i32>::new(kind as i32)) }
}

/// Stops the flow of frames. All buffers, full ones as well, leave the queue.
///
/// # Errors
///
/// `ENODEV`: the device is gone.
pub fn stream_off(device: BorrowedFd<'_>, kind: u32) -> Result<()> {
    // SAFETY: IOC_STREAMOFF reads an `int`.
    unsafe { ioctl(device, ioctl::Setter::<IOC_STREAMOFF, i32>::new(kind as i32)) }
}
