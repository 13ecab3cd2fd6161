// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buffers of each kind.

use std::os::fd::{AsFd, OwnedFd};

use crate::common::{buffers, bytes, fill, page};
use dmabuf_dio::{Buffer, DmaBuf, Error, Kind};

#[test]
fn buffer_from_its_descriptor_is_the_same_buffer() {
    let len = 3 * page() as u64;
    for (mut buf, _) in buffers(len) {
        fill(&mut buf, 0x42);
        assert_eq!(buf.len(), len);
        assert!(!buf.is_empty());
        let kind = buf.kind();
        let clone = buf.try_clone().expect("clone");
        let fd: OwnedFd = buf.into_fd().expect("its descriptor");
        let again = Buffer::try_from(fd).expect("a buffer");
        assert_eq!((again.kind(), again.len()), (kind, len));
        assert!(bytes(&clone).iter().all(|byte| *byte == 0x42));
        assert!(again.exporter().is_some());
    }
}

#[test]
fn only_dma_bufs_can_be_named() {
    for (buf, _) in buffers(4096) {
        match buf.kind() {
            Kind::Memfd => {
                let error = buf.set_name("weights").expect_err("a memfd");
                assert!(matches!(error, Error::NotADmaBuf { kind: Kind::Memfd, .. }), "{error}");
            }
            Kind::DmaBuf => {
                buf.set_name("weights").expect("set the name");
                assert_eq!(buf.name().as_deref(), Some("weights"));
                let long = "x".repeat(32);
                assert!(matches!(buf.set_name(&long), Err(Error::Buffer { .. })));
            }
            kind => panic!("{kind}"),
        }
    }
}

fn whole_pages(len: u64) -> u64 {
    len.next_multiple_of(page() as u64)
}

#[test]
fn new_buffers_are_zero() {
    for (buf, _) in buffers(5000) {
        assert_eq!(buf.len(), whole_pages(5000), "rounded up to pages");
        assert!(bytes(&buf).iter().all(|byte| *byte == 0));
    }
}

#[test]
fn views_share_their_bytes() {
    for (mut buf, _) in buffers(4096) {
        let clone = buf.try_clone().expect("clone");
        let reader = clone.map().expect("map");
        let mut writer = buf.map_mut().expect("map");
        writer.write_at(100, b"shared").expect("write");
        writer.finish().expect("end");
        let mut out = [0; 6];
        reader.read_at(100, &mut out).expect("read");
        assert_eq!(&out, b"shared");
        // SAFETY: nobody writes the buffer while the slice lives.
        assert_eq!(unsafe { &reader.as_slice()[100..106] }, b"shared");
    }
}

#[test]
fn a_mapping_has_the_address_of_the_content() {
    use dmabuf_dio::lend::Access;
    let len = 2 * page();
    for (mut buf, _) in buffers(len as u64) {
        fill(&mut buf, 0x42);
        let mapping = buf.mapping(true).expect("map");
        assert!(mapping.as_ptr().addr() % page() == 0 && mapping.len() == len as u64);
        buf.begin_cpu_access(Access::ReadWrite).expect("begin");
        // SAFETY: the mapping has `len` bytes, and nobody else uses the buffer.
        unsafe {
            assert_eq!(mapping.as_ptr().add(len - 1).read(), 0x42);
            mapping.as_ptr().write(7);
        }
        buf.end_cpu_access(Access::ReadWrite).expect("end");
        assert_eq!(bytes(&buf)[..2], [7, 0x42]);
    }
}

#[test]
fn foreign_memfd_becomes_a_buffer() {
    let fd = rustix::fs::memfd_create("other", rustix::fs::MemfdFlags::CLOEXEC).expect("memfd");
    rustix::fs::ftruncate(&fd, 100).expect("set the length");
    let buf = Buffer::from_fd(fd.as_fd().try_clone_to_owned().expect("clone")).expect("a buffer");
    assert_eq!((buf.len(), buf.kind()), (100, Kind::Memfd));
    assert_eq!(buf.name().as_deref(), Some("other"));
}

#[test]
fn buffers_come_from_every_heap() {
    for name in ["", "..", "../null", "a/b", "no-such-heap"] {
        let error = DmaBuf::alloc_from(name, 4096).expect_err("no heap");
        let Error::Heap { heap, errno } = &error else { panic!("{error}") };
        let wanted = if name == "no-such-heap" { libc::ENOENT } else { libc::EINVAL };
        assert_eq!((heap.as_str(), errno.raw()), (name, wanted));
        assert!(error.hint().to_string().contains("/dev/dma_heap"), "{}", error.hint());
    }
    let Ok(heaps) = std::fs::read_dir("/dev/dma_heap") else {
        return println!("skipped: no heaps");
    };
    for heap in heaps {
        let name = heap.expect("a heap").file_name().into_string().expect("text");
        let mut buf = Buffer::from(DmaBuf::alloc_from(&name, 5000).expect("a buffer"));
        assert_eq!((buf.len(), buf.kind()), (whole_pages(5000), Kind::DmaBuf), "{name}");
        assert!(bytes(&buf).iter().all(|byte| *byte == 0), "{name}");
        fill(&mut buf, 9);
        assert!(bytes(&buf).iter().all(|byte| *byte == 9), "{name}");
    }
}
