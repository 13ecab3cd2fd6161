// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares this crate with the C headers: a small C program prints every size, offset and ioctl
//! number, and so do we.

use std::fmt::Write as _;
use std::mem::{offset_of, size_of};
use std::path::Path;
use std::process::Command;

use dmabuf_dio_sys::{dio, dmabuf, heap, sync_file, udmabuf};

/// Builds the C lines and the lines expected of them, side by side.
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
        dmabuf_fd, flags, length, segments, reserved,
    });
    structure!(table, "dmabuf_dio_rw", dio::ReadWrite, {
        file_fd, flags, file_offset, buf_offset, length, chunk, depth, align, done, direct,
    });
    structure!(table, "dmabuf_dio_load", dio::Load, {
        file_fd, fd_flags, flags, depth, file_offset, length, gather, chunk, dmabuf_fd, segments,
        buf_length, done, direct, align, reserved,
    });
    structure!(table, "dmabuf_dio_slot", dio::Slot, { buf_offset, length, index, flags });
    structure!(table, "dmabuf_dio_uring_cmd", dio::UringCmd, { arg, size, reserved });
    table.value("DMABUF_DIO_IOC_INFO", u64::from(dio::IOC_INFO));
    table.value("DMABUF_DIO_IOC_ATTACH", u64::from(dio::IOC_ATTACH));
    table.value("DMABUF_DIO_IOC_READ", u64::from(dio::IOC_READ));
    table.value("DMABUF_DIO_IOC_WRITE", u64::from(dio::IOC_WRITE));
    table.value("DMABUF_DIO_IOC_LOAD", u64::from(dio::IOC_LOAD));
    table.value("DMABUF_DIO_IOC_CANCEL", u64::from(dio::IOC_CANCEL));
    table.value("DMABUF_DIO_URING_REGISTER", u64::from(dio::URING_REGISTER));
    table.value("DMABUF_DIO_URING_UNREGISTER", u64::from(dio::URING_UNREGISTER));
    table.value("DMABUF_DIO_FEATURE_SLOTS", dio::FEATURE_SLOTS);
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
}

#[test]
fn same_as_the_c_headers() {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernel/module/include/uapi");
    if !include.join("linux/dmabuf_dio.h").exists() {
        println!("skipped: no kernel/module beside this crate");
        return;
    }
    if Command::new("cc").arg("--version").output().is_err() {
        println!("skipped: no C compiler");
        return;
    }
    let mut table = Table::default();
    module(&mut table);
    kernel(&mut table);

    let folder = tempfile::tempdir().expect("temporary folder");
    let source = folder.path().join("layout.c");
    let program = folder.path().join("layout");
    let text = format!(
        "#include <stddef.h>\n#include <stdio.h>\n#include <string.h>\n\
         #include <linux/dmabuf_dio.h>\n#include <linux/dma-buf.h>\n\
         #include <linux/dma-heap.h>\n#include <linux/sync_file.h>\n#include <linux/udmabuf.h>\n\
         #define P(x) printf(\"%s %llu\\n\", #x, (unsigned long long)(x))\n\
         int main(void) {{\n{}return 0;\n}}\n",
        table.c
    );
    // The macros print their argument unexpanded, so names stay names.
    std::fs::write(&source, text).expect("write the C program");
    let cc = Command::new("cc")
        .args(["-Wall", "-Werror", "-I"])
        .arg(&include)
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
