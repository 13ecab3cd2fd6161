// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares this crate with the C headers: a small C program prints every size, offset and ioctl
//! number.

use std::fmt::Write as _;
use std::mem::{offset_of, size_of};
use std::path::{Path, PathBuf};
use std::process::Command;

use dmabuf_dio_sys::{dio, dmabuf, functionfs, heap, iio, sync_file, udmabuf, v4l2};

/// The lines of the C program, and the output expected of them.
#[derive(Default)]
struct Table {
    c: String,
    rust: String,
}

impl Table {
    fn value(&mut self, expression: &str, value: u64) {
        writeln!(self.c, "P({expression});").expect("write to a string");
        writeln!(self.rust, "{expression} {value}").expect("write to a string");
    }
}

macro_rules! structure {
    ($table:ident, $c:literal, $rust:ty, { $($field:ident),+ $(,)? }) => {
        $table.value(concat!("sizeof(struct ", $c, ")"), size_of::<$rust>() as u64);
        $($table.value(
            concat!("offsetof(struct ", $c, ", ", stringify!($field), ")"),
            offset_of!($rust, $field) as u64,
        );)+
    };
}

fn module(table: &mut Table) {
    structure!(table, "dmabuf_dio_info", dio::Info, {
        features, max_depth, reserved, max_chunk, default_chunk, default_gather, default_depth,
        reserved2,
    });
    structure!(table, "dmabuf_dio_attach", dio::Attach, {
        dmabuf_fd, flags, length, segments, refusal,
    });
    structure!(table, "dmabuf_dio_rw", dio::ReadWrite, {
        file_fd, flags, file_offset, buf_offset, length, chunk, depth, align, done, direct,
        refusal, reserved,
    });
    structure!(table, "dmabuf_dio_load", dio::Load, {
        file_fd, fd_flags, flags, depth, file_offset, length, gather, chunk, dmabuf_fd, segments,
        buf_length, done, direct, align, reserved,
    });
    structure!(table, "dmabuf_dio_slot", dio::Slot, { buf_offset, length, index, flags });
    structure!(table, "dmabuf_dio_join", dio::Join, { contexts, count, index, flags, reserved });
    structure!(table, "dmabuf_dio_uring_cmd", dio::UringCmd, { arg, size, reserved });
    table.value("DMABUF_DIO_IOC_INFO", u64::from(dio::IOC_INFO));
    table.value("DMABUF_DIO_IOC_ATTACH", u64::from(dio::IOC_ATTACH));
    table.value("DMABUF_DIO_IOC_READ", u64::from(dio::IOC_READ));
    table.value("DMABUF_DIO_IOC_WRITE", u64::from(dio::IOC_WRITE));
    table.value("DMABUF_DIO_IOC_LOAD", u64::from(dio::IOC_LOAD));
    table.value("DMABUF_DIO_IOC_CANCEL", u64::from(dio::IOC_CANCEL));
    table.value("DMABUF_DIO_URING_REGISTER", u64::from(dio::URING_REGISTER));
    table.value("DMABUF_DIO_URING_JOIN", u64::from(dio::URING_JOIN));
    table.value("DMABUF_DIO_FEATURE_SLOTS", dio::FEATURE_SLOTS);
    table.value("DMABUF_DIO_FEATURE_JOIN", dio::FEATURE_JOIN);
    table.value("DMABUF_DIO_FEATURE_PREMAP", dio::FEATURE_PREMAP);
    table.value("DMABUF_DIO_JOIN_MAX", dio::JOIN_MAX as u64);
    table.value("DMABUF_DIO_REFUSED_EXPORTER", u64::from(dio::REFUSED_EXPORTER));
    table.value("DMABUF_DIO_REFUSED_PAGES", u64::from(dio::REFUSED_PAGES));
    table.value("DMABUF_DIO_REFUSED_MAPPING", u64::from(dio::REFUSED_MAPPING));
    table.value("DMABUF_DIO_REFUSED_UNSYNCED", u64::from(dio::REFUSED_UNSYNCED));
    table.value("DMABUF_DIO_REFUSED_UNFILLED", u64::from(dio::REFUSED_UNFILLED));
    table.value("DMABUF_DIO_REFUSED_POISONED", u64::from(dio::REFUSED_POISONED));
    table.value("DMABUF_DIO_SLOT_READ", u64::from(dio::SLOT_READ));
    table.value("DMABUF_DIO_SLOT_WRITE", u64::from(dio::SLOT_WRITE));
    table.value(&format!("!strcmp(DMABUF_DIO_DEVICE, \"{}\")", dio::DEVICE), 1);
}

fn kernel(table: &mut Table) {
    structure!(table, "dma_buf_sync", dmabuf::Sync, { flags });
    table.value("DMA_BUF_IOCTL_SYNC", u64::from(dmabuf::IOC_SYNC));
    table.value("DMA_BUF_SET_NAME_B", u64::from(dmabuf::IOC_SET_NAME));
    table.value("DMA_BUF_NAME_LEN", dmabuf::NAME_LEN as u64);
    structure!(table, "dma_buf_export_sync_file", dmabuf::ExportSyncFile, { flags, fd });
    table.value("DMA_BUF_IOCTL_EXPORT_SYNC_FILE", u64::from(dmabuf::IOC_EXPORT_SYNC_FILE));
    structure!(table, "sync_file_info", sync_file::Info, {
        name, status, flags, num_fences, pad, sync_fence_info,
    });
    table.value("SYNC_IOC_FILE_INFO", u64::from(sync_file::IOC_FILE_INFO));
    structure!(table, "dma_heap_allocation_data", heap::Allocation, {
        len, fd, fd_flags, heap_flags,
    });
    table.value("DMA_HEAP_IOCTL_ALLOC", u64::from(heap::IOC_ALLOC));
    structure!(table, "udmabuf_create", udmabuf::Create, { memfd, flags, offset, size });
    table.value("UDMABUF_CREATE", u64::from(udmabuf::IOC_CREATE));
    structure!(table, "udmabuf_create_item", udmabuf::Item, { memfd, offset, size });
    structure!(table, "udmabuf_create_list", udmabuf::List, { flags, count });
    table.value("UDMABUF_CREATE_LIST", u64::from(udmabuf::IOC_CREATE_LIST));
}

/// Interfaces that the headers of Linux 6.1 lack.
fn devices(table: &mut Table) {
    structure!(table, "iio_dmabuf", iio::Enqueue, { fd, flags, bytes_used });
    table.value("IIO_BUFFER_DMABUF_CYCLIC", u64::from(iio::CYCLIC));
    table.value("IIO_BUFFER_GET_FD_IOCTL", u64::from(iio::IOC_GET_FD));
    table.value("IIO_BUFFER_DMABUF_ATTACH_IOCTL", u64::from(iio::IOC_ATTACH));
    table.value("IIO_BUFFER_DMABUF_DETACH_IOCTL", u64::from(iio::IOC_DETACH));
    table.value("IIO_BUFFER_DMABUF_ENQUEUE_IOCTL", u64::from(iio::IOC_ENQUEUE));

    structure!(table, "usb_ffs_dmabuf_transfer_req", functionfs::Transfer, { fd, flags, length });
    table.value("FUNCTIONFS_DMABUF_ATTACH", u64::from(functionfs::IOC_ATTACH));
    table.value("FUNCTIONFS_DMABUF_DETACH", u64::from(functionfs::IOC_DETACH));
    table.value("FUNCTIONFS_DMABUF_TRANSFER", u64::from(functionfs::IOC_TRANSFER));
    table.value("FUNCTIONFS_ENDPOINT_REVMAP", u64::from(functionfs::IOC_ENDPOINT_REVMAP));
    table.value("sizeof(struct usb_functionfs_event)", functionfs::EVENT_BYTES as u64);
    let enable = |at: usize, value| {
        let mut event = [0; functionfs::EVENT_BYTES];
        event[at] = value;
        functionfs::is_enable(&event)
    };
    let places =
        (0..functionfs::EVENT_BYTES).flat_map(|at| (0..=255).map(move |value| (at, value)));
    let found: Vec<_> = places.filter(|(at, value)| enable(*at, *value)).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    table.value("offsetof(struct usb_functionfs_event, type)", found[0].0 as u64);
    table.value("FUNCTIONFS_ENABLE", found[0].1.into());

    let word = |bytes: &[u8], at: usize| {
        u32::from_le_bytes(bytes[4 * at..4 * at + 4].try_into().expect("four bytes")).into()
    };
    let descriptors = functionfs::descriptors::bulk_in();
    table.value("FUNCTIONFS_DESCRIPTORS_MAGIC_V2", word(&descriptors, 0));
    table.value(
        "FUNCTIONFS_HAS_FS_DESC | FUNCTIONFS_HAS_HS_DESC | FUNCTIONFS_HAS_SS_DESC",
        word(&descriptors, 2),
    );
    let strings = functionfs::descriptors::strings("x");
    table.value("FUNCTIONFS_STRINGS_MAGIC", word(&strings, 0));
    table.value("sizeof(struct usb_functionfs_strings_head)", 16);
    assert_eq!(word(&strings, 1), strings.len() as u64);
}

/// Fails unless a C program with these `includes` prints the expected output.
fn compare(table: &Table, arguments: &[&Path], includes: &str) {
    let folder = tempfile::tempdir().expect("temporary folder");
    let source = folder.path().join("layout.c");
    let program = folder.path().join("layout");
    // The macro prints its argument unexpanded.
    let text = format!(
        "#include <stddef.h>\n#include <stdio.h>\n#include <string.h>\n{includes}\
         #define P(x) printf(\"%s %llu\\n\", #x, (unsigned long long)(x))\n\
         int main(void) {{\n{}return 0;\n}}\n",
        table.c
    );
    std::fs::write(&source, text).expect("write the C program");
    let cc = Command::new("cc")
        .args(["-Wall", "-Werror"])
        .args(arguments)
        .arg("-o")
        .arg(&program)
        .arg(&source)
        .output()
        .expect("run cc");
    assert!(cc.status.success(), "{}", String::from_utf8_lossy(&cc.stderr));
    let output = Command::new(&program).output().expect("run the C program");
    let c = String::from_utf8(output.stdout).expect("the C program prints text");
    // A string literal is printed with its quotes.
    for (ours, theirs) in table.rust.lines().zip(c.lines()) {
        assert_eq!(ours, theirs);
    }
    assert_eq!(table.rust.lines().count(), c.lines().count());
}

fn has_compiler() -> bool {
    let has = Command::new("cc").arg("--version").output().is_ok();
    if !has {
        println!("skipped: no C compiler");
    }
    has
}

#[test]
fn layouts_match_the_module_headers() {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernel/module/include/uapi");
    if !include.join("linux/dmabuf_dio.h").exists() {
        println!("skipped: no kernel/module beside this crate");
        return;
    }
    if !has_compiler() {
        return;
    }
    let mut table = Table::default();
    module(&mut table);
    kernel(&mut table);
    let includes = "#include <linux/dmabuf_dio.h>\n#include <linux/dma-buf.h>\n\
         #include <linux/dma-heap.h>\n#include <linux/sync_file.h>\n#include <linux/udmabuf.h>\n";
    compare(&table, &[Path::new("-I"), &include], includes);
}

fn video(table: &mut Table) {
    structure!(table, "v4l2_capability", v4l2::Capability, {
        driver, card, bus_info, version, capabilities, device_caps, reserved,
    });
    structure!(table, "v4l2_pix_format", v4l2::PixFormat, {
        width, height, pixelformat, field, bytesperline, sizeimage, colorspace, flags, ycbcr_enc,
        quantization, xfer_func,
    });
    structure!(table, "v4l2_plane_pix_format", v4l2::PlaneFormat, {
        sizeimage, bytesperline, reserved,
    });
    structure!(table, "v4l2_pix_format_mplane", v4l2::PixFormatMplane, {
        width, height, pixelformat, field, colorspace, plane_fmt, num_planes, flags, ycbcr_enc,
        quantization, xfer_func, reserved,
    });
    structure!(table, "v4l2_fract", v4l2::Fraction, { numerator, denominator });
    structure!(table, "v4l2_captureparm", v4l2::CaptureParameters, {
        capability, capturemode, timeperframe, extendedmode, readbuffers, reserved,
    });
    structure!(table, "v4l2_requestbuffers", v4l2::RequestBuffers, {
        count, memory, capabilities, flags, reserved,
    });
    structure!(table, "v4l2_exportbuffer", v4l2::ExportBuffer, {
        index, plane, flags, fd, reserved,
    });
    structure!(table, "v4l2_fmtdesc", v4l2::FormatDescription, {
        index, flags, description, pixelformat, mbus_code, reserved,
    });
    structure!(table, "v4l2_frmsizeenum", v4l2::FrameSize, { index, pixel_format, reserved });
    // Structures with private fields check their layout themselves, with these numbers.
    for (expression, value) in [
        ("sizeof(struct v4l2_format)", 208),
        ("offsetof(struct v4l2_format, fmt)", 8),
        ("sizeof(struct v4l2_streamparm)", 204),
        ("offsetof(struct v4l2_streamparm, parm)", 4),
        ("sizeof(struct v4l2_plane)", 64),
        ("offsetof(struct v4l2_plane, bytesused)", 0),
        ("offsetof(struct v4l2_plane, length)", 4),
        ("offsetof(struct v4l2_plane, m)", 8),
        ("offsetof(struct v4l2_plane, data_offset)", 16),
        ("sizeof(struct v4l2_buffer)", 88),
        ("offsetof(struct v4l2_buffer, index)", 0),
        ("offsetof(struct v4l2_buffer, type)", 4),
        ("offsetof(struct v4l2_buffer, bytesused)", 8),
        ("offsetof(struct v4l2_buffer, flags)", 12),
        ("offsetof(struct v4l2_buffer, field)", 16),
        ("offsetof(struct v4l2_buffer, timestamp)", 24),
        ("offsetof(struct v4l2_buffer, timecode)", 40),
        ("offsetof(struct v4l2_buffer, sequence)", 56),
        ("offsetof(struct v4l2_buffer, memory)", 60),
        ("offsetof(struct v4l2_buffer, m)", 64),
        ("offsetof(struct v4l2_buffer, length)", 72),
        ("offsetof(struct v4l2_buffer, request_fd)", 80),
        ("offsetof(struct v4l2_fmtdesc, type)", offset_of!(v4l2::FormatDescription, kind) as u64),
        ("offsetof(struct v4l2_frmsizeenum, type)", offset_of!(v4l2::FrameSize, kind) as u64),
        ("offsetof(struct v4l2_frmsizeenum, discrete)", offset_of!(v4l2::FrameSize, size) as u64),
        ("offsetof(struct v4l2_pix_format, priv)", offset_of!(v4l2::PixFormat, private) as u64),
        (
            "offsetof(struct v4l2_requestbuffers, type)",
            offset_of!(v4l2::RequestBuffers, kind) as u64,
        ),
        ("offsetof(struct v4l2_exportbuffer, type)", offset_of!(v4l2::ExportBuffer, kind) as u64),
    ] {
        table.value(expression, value);
    }
    for (name, value) in [
        ("V4L2_BUF_TYPE_VIDEO_CAPTURE", v4l2::CAPTURE),
        ("V4L2_BUF_TYPE_VIDEO_CAPTURE_MPLANE", v4l2::CAPTURE_MPLANE),
        ("V4L2_MEMORY_MMAP", v4l2::MEMORY_MMAP),
        ("V4L2_MEMORY_DMABUF", v4l2::MEMORY_DMABUF),
        ("V4L2_CAP_VIDEO_CAPTURE", v4l2::CAP_CAPTURE),
        ("V4L2_CAP_VIDEO_CAPTURE_MPLANE", v4l2::CAP_CAPTURE_MPLANE),
        ("V4L2_CAP_STREAMING", v4l2::CAP_STREAMING),
        ("V4L2_CAP_DEVICE_CAPS", v4l2::CAP_DEVICE_CAPS),
        ("V4L2_BUF_CAP_SUPPORTS_DMABUF", v4l2::BUF_CAP_DMABUF),
        ("V4L2_BUF_FLAG_ERROR", v4l2::FLAG_ERROR),
        ("V4L2_BUF_FLAG_TIMESTAMP_MASK", v4l2::FLAG_TIMESTAMP_MASK),
        ("V4L2_BUF_FLAG_TIMESTAMP_MONOTONIC", v4l2::FLAG_TIMESTAMP_MONOTONIC),
        ("V4L2_BUF_FLAG_TSTAMP_SRC_SOE", v4l2::FLAG_TIMESTAMP_START),
        ("V4L2_FMT_FLAG_COMPRESSED", v4l2::FORMAT_COMPRESSED),
        ("V4L2_CAP_TIMEPERFRAME", v4l2::PARM_TIME_PER_FRAME),
        ("V4L2_FIELD_NONE", v4l2::FIELD_NONE),
        ("V4L2_PIX_FMT_PRIV_MAGIC", v4l2::PixFormat::MAGIC),
    ] {
        table.value(name, u64::from(value));
    }
}

/// The numbers of a video device's calls.
fn video_calls(table: &mut Table) {
    for (name, opcode) in [
        ("VIDIOC_QUERYCAP", v4l2::IOC_QUERYCAP),
        ("VIDIOC_ENUM_FMT", v4l2::IOC_ENUM_FMT),
        ("VIDIOC_G_FMT", v4l2::IOC_G_FMT),
        ("VIDIOC_S_FMT", v4l2::IOC_S_FMT),
        ("VIDIOC_REQBUFS", v4l2::IOC_REQBUFS),
        ("VIDIOC_QBUF", v4l2::IOC_QBUF),
        ("VIDIOC_EXPBUF", v4l2::IOC_EXPBUF),
        ("VIDIOC_DQBUF", v4l2::IOC_DQBUF),
        ("VIDIOC_STREAMON", v4l2::IOC_STREAMON),
        ("VIDIOC_STREAMOFF", v4l2::IOC_STREAMOFF),
        ("VIDIOC_G_PARM", v4l2::IOC_G_PARM),
        ("VIDIOC_S_PARM", v4l2::IOC_S_PARM),
        ("VIDIOC_ENUM_FRAMESIZES", v4l2::IOC_ENUM_FRAMESIZES),
    ] {
        table.value(name, u64::from(opcode));
    }
}

#[test]
fn video_layouts_match_the_c_header() {
    if !has_compiler() {
        return;
    }
    if !Path::new("/usr/include/linux/videodev2.h").exists() {
        println!("skipped: no linux/videodev2.h");
        return;
    }
    let mut table = Table::default();
    video(&mut table);
    video_calls(&mut table);
    compare(&table, &[], "#include <linux/videodev2.h>\n");
}

/// The uapi headers of a kernel with dma-bufs in IIO and `FunctionFS`: this machine's, an installed
/// kernel's or a guest kernel's.
fn kernel_headers() -> Option<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let guests = std::env::var_os("DMABUF_DIO_CACHE")
        .map_or_else(|| home.join(".cache/dmabuf-dio"), PathBuf::from);
    let below = |folder: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path().join("include/uapi")).collect()
    };
    let kernels = ["/usr/src".into(), guests.join("src"), guests.join("debian-6.12/usr/src")];
    let trees = kernels.iter().flat_map(|folder| below(folder));
    std::iter::once("/usr/include".into()).chain(trees).find(|include: &PathBuf| {
        [("linux/iio/buffer.h", "IIO_BUFFER_DMABUF"), ("linux/usb/functionfs.h", "FS_DMABUF")]
            .iter()
            .all(|(header, name)| {
                std::fs::read_to_string(include.join(header)).is_ok_and(|text| text.contains(name))
            })
    })
}

#[test]
fn layouts_match_the_kernel_headers() {
    if !has_compiler() {
        return;
    }
    let Some(include) = kernel_headers() else {
        println!("skipped: no headers of Linux 6.11 or later");
        return;
    };
    let mut table = Table::default();
    devices(&mut table);
    // Included by path. Their own includes may be this machine's.
    let include = include.display();
    let includes = format!(
        "#include <linux/ioctl.h>\n#include \"{include}/linux/iio/buffer.h\"\n\
         #include \"{include}/linux/usb/functionfs.h\"\n"
    );
    compare(&table, &[], &includes);
}

/// The numbers in the headers of Linux 7.3, for machines without them.
#[test]
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
fn device_ioctl_numbers_match_linux_7_3() {
    let numbers = [
        (iio::IOC_GET_FD, 0xc004_6991_u32),
        (iio::IOC_ATTACH, 0x4004_6992),
        (iio::IOC_DETACH, 0x4004_6993),
        (iio::IOC_ENQUEUE, 0x4010_6994),
        (functionfs::IOC_ATTACH, 0x4004_6783),
        (functionfs::IOC_DETACH, 0x4004_6784),
        (functionfs::IOC_TRANSFER, 0x4010_6785),
        (functionfs::IOC_ENDPOINT_REVMAP, 0x6781),
    ];
    for (ours, theirs) in numbers {
        assert_eq!(u64::from(ours), theirs.into(), "{theirs:#x}");
    }
    assert_eq!(iio::CYCLIC, 1);
}
