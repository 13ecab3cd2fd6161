// SPDX-License-Identifier: MIT OR Apache-2.0
//! Dispatches to the backends. CONTRIBUTING.md says how to add one.

use crate::backend::driver::{Driver, Reach};
use crate::backend::{Backend, Refusal};
use crate::backend::{buffered, copy_file_range, heap, memfd, module, slot, udmabuf};
use crate::buffer::shared::Shared;
use crate::file::extent::Extent;
use crate::kind::Kind;
use crate::refusal;
use crate::refusal::attempt::Attempt;
use crate::transfer::task::{Fresh, Task, Transferred};

fn driver(backend: Backend) -> &'static dyn Driver {
    match backend {
        Backend::Module => &module::Module,
        Backend::UringSlot => &slot::UringSlot,
        Backend::Heap => &heap::Heap,
        Backend::CopyFileRange => &copy_file_range::CopyFileRange,
        Backend::Udmabuf => &udmabuf::Udmabuf,
        Backend::Memfd => &memfd::Memfd,
        Backend::Buffered => &buffered::Buffered,
    }
}

/// Loads into a new buffer of the given kind.
pub(crate) fn load(backend: Backend, kind: Kind, task: &Task<'_>) -> Result<Fresh, Attempt> {
    if !Backend::for_new(kind).contains(&backend) {
        return Err(backend.refuse_new(kind).into());
    }
    driver(backend).load(task, kind).map_err(|attempt| refusal::access(backend, attempt))
}

/// Transfers between a file and a range of an existing buffer.
pub(crate) fn transfer(
    backend: Backend,
    task: &Task<'_>,
    buf: &Shared,
    buf_offset: u64,
) -> Result<Transferred, Attempt> {
    if !Backend::for_existing(buf.kind()).contains(&backend) {
        return Err(backend.refuse_kind(buf.kind(), task.direction).into());
    }
    let extent = Extent { file: task.offset, buf: buf_offset, len: task.length };
    let moved = driver(backend).transfer(task, buf, extent);
    moved.map_err(|attempt| refusal::access(backend, attempt))
}

/// How the requests of a gather reach a buffer.
pub(crate) fn reach(backend: Backend, buf: &Shared) -> Result<Reach, Attempt> {
    if !Backend::for_gathering(buf.kind()).contains(&backend) {
        return Err(backend.refuse_gathering(buf.kind()).into());
    }
    driver(backend).reach(buf)
}

/// Describes what the backend would do, or why it is unavailable.
pub(crate) fn try_out(backend: Backend) -> Result<String, Refusal> {
    driver(backend).try_out().map_err(|attempt| attempt.into_refusal(backend))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{Control, Watch};
    use crate::direction::Direction;
    use crate::file::{File, Spec};
    use crate::options::Options;

    fn refused<T: std::fmt::Debug>(result: Result<T, Attempt>) -> Refusal {
        match result {
            Err(Attempt::Refused(refusal)) => refusal,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn backend_refuses_unsupported_operations() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let spec = Spec::Path(file.path().to_owned());
        let direction = Direction::Load;
        let file = File::open(&spec, direction, true).expect("open");
        let options = Options::default();
        let control = Control::default();
        let watch = Watch::start(&control, 1);
        let (offset, length) = (0, 1);
        let task =
            Task { file: &file, direction, offset, length, options: &options, watch: &watch };
        let buf = Shared::memfd(4096).expect("a memfd");
        let extent = Extent { file: 0, buf: 0, len: 1 };
        for backend in [Backend::Heap, Backend::Udmabuf] {
            for refusal in [
                refused(transfer(backend, &task, &buf, 0)),
                refused(driver(backend).transfer(&task, &buf, extent)),
            ] {
                assert_eq!(refusal.backend, backend);
                assert_eq!(refusal.reason, "it cannot load into an existing memfd");
            }
            for refusal in [refused(reach(backend, &buf)), refused(driver(backend).reach(&buf))] {
                assert_eq!(refusal.reason, "it cannot gather into a memfd");
            }
            assert_eq!(
                refused(load(backend, Kind::Memfd, &task)).reason,
                "it cannot create a memfd"
            );
        }
        for backend in Backend::for_gathering(Kind::Memfd) {
            assert!(reach(*backend, &buf).is_ok(), "{backend}");
        }
    }

    #[test]
    fn available_backend_describes_its_method() {
        let said = try_out(Backend::Buffered).expect("it needs nothing");
        assert!(said.contains("through the page cache"), "{said}");
        if let Ok(said) = try_out(Backend::Memfd) {
            assert!(said.contains("io_uring") && said.contains("memfd"), "{said}");
        }
    }
}
