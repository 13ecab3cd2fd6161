// SPDX-License-Identifier: MIT OR Apache-2.0
//! Refusals: the backend, the reason and the remedy. The layers below return plain errors; they are
//! turned into text here.

pub(crate) mod attempt;
pub(crate) mod node;

use io_uring::IoUring;

use crate::backend::{Backend, Refusal};
use crate::buffer::shared::BEGIN_ACCESS;
use crate::errno::{Errno, IntoErrno};
use crate::error::Error;
use crate::file::File;
use crate::lend::{self, LendError, NotLent};
use crate::refusal::attempt::Attempt;
use crate::refusal::node::Node;
use crate::transfer::task::Task;

/// The remedy if the kernel lacks a feature of the patch series.
pub(crate) const SERIES: &str = "boot a kernel with the patch series in kernel/series";

const MODULE: Node = Node {
    path: dmabuf_dio_sys::dio::DEVICE,
    access: "rw",
    missing: ": the kernel module is not loaded",
    remedy: "sudo modprobe dmabuf_dio; to install it, the package dmabuf-dio-dkms, or sudo make dkms in the source",
};

const OTHER_MODULE: &str = "build and load the module that belongs to this release";

/// The module's parameter that lists the exporters an administrator vouches for.
const EXPORTERS: &str = "/sys/module/dmabuf_dio/parameters/exporters";

/// The module's parameter with the bytes that its loads leave to others.
const RESERVE: &str = "/sys/module/dmabuf_dio/parameters/reserve";

/// The most names that `EXPORTERS` takes: `dbx_exporters[]` in kernel/module/exporter.c.
const MOST_EXPORTERS: usize = 16;

/// Buffers that work. Debian's arm64 kernels, for example, have no heaps.
const OTHER_BUFFER: &str = "allocate the buffer from /dev/dma_heap/system, or by dmabuf-dio load where there are \
                            no heaps, and import it into the device";

const CHECKED: &str = "use a buffer from /dev/dma_heap/system, or the backend module if it takes the buffer: it \
                       checks before each transfer";

/// Why nothing can be lent to `backend`.
pub(crate) fn lending(backend: Backend, error: &LendError) -> Attempt {
    let plain = |remedy: &str| {
        let refusal = backend.refuse(error.to_string()).remedy(remedy);
        Refusal { errno: error.errno(), ..refusal }
    };
    match error {
        LendError::NoModule { errno } => MODULE.refuse(backend, *errno),
        LendError::OtherModule { .. } => plain(OTHER_MODULE),
        LendError::NoSlots => plain("boot Linux 7.3 or later"),
        LendError::NotLent { exporter, why, errno } => {
            not_lent(backend, exporter, *why).errno(*errno)
        }
        LendError::Attach { errno, .. } if errno.raw() == libc::ENOMEM => {
            return Error::Buffer { call: "attach", errno: *errno }.into();
        }
        LendError::Attach { .. } => {
            plain("use a buffer in system memory, such as /dev/dma_heap/system")
        }
        LendError::Ring { errno } => no_ring(backend, *errno),
        LendError::Table { .. } | LendError::Slot { .. } => {
            plain("free memory, or use another backend")
        }
    }
    .into()
}

/// Why [`Ring::lending`](crate::lend::Ring::lending) failed, reported for [`Backend::UringSlot`].
impl From<LendError> for Refusal {
    fn from(error: LendError) -> Self {
        lending(Backend::UringSlot, &error).into_refusal(Backend::UringSlot)
    }
}

/// Refuses where the CPU cannot access the backend's buffer: other backends create other buffers, or
/// need no such access. It begins before any byte is moved, or the same bytes are moved again.
pub(crate) fn access(backend: Backend, attempt: Attempt) -> Attempt {
    match attempt {
        Attempt::Failed(Error::Buffer { call: BEGIN_ACCESS, errno })
            if errno.raw() == libc::EIO =>
        {
            no_access(backend, errno).into()
        }
        other => other,
    }
}

/// The exporter's own mapping fails with `EIO`: Linux's udmabuf (6.12 and 7.3) maps pieces that bounce
/// buffers do not hold.
pub(crate) fn no_access(backend: Backend, errno: Errno) -> Refusal {
    backend
        .refuse(
            "CPU access to the buffer cannot begin: this kernel's udmabuf fails behind bounce \
             buffers (swiotlb) if its memory is contiguous",
        )
        .errno(errno)
        .remedy(
            "load the kernel module, use a buffer from /dev/dma_heap/system, or boot a kernel with \
             the fix in kernel/series",
        )
}

/// Creates a ring for a backend. It polls for completions if `polled`.
pub(crate) fn ring(backend: Backend, depth: u32, polled: bool) -> Result<IoUring, Refusal> {
    lend::create(depth, polled)
        .map_err(|error| no_ring(backend, error.errno().unwrap_or(Errno::from_raw(libc::EIO))))
}

/// Refuses a ring for files that `io_uring` may corrupt.
///
/// After a short read or write, `io_uring` continues by itself. On a FUSE file that is open with
/// `direct_io`, with a server without `async_dio`, it continues at the start of the request, not
/// where the short result ended (Linux 6.12 and 7.3): bytes land in the wrong place, undetected.
pub(crate) fn check_ring(backend: Backend, file: &File) -> Result<(), Refusal> {
    if !file.is_fuse() {
        return Ok(());
    }
    Err(backend
        .refuse(
            "io_uring may continue at the wrong offset of a FUSE file after a short read or write",
        )
        .remedy(format!("use another backend: {}", Backend::Module)))
}

/// The ring for moving `len` bytes, if one is needed and the file allows it.
pub(crate) fn ring_for(
    backend: Backend,
    task: &Task<'_>,
    len: u64,
) -> Result<Option<IoUring>, Refusal> {
    if !task.needs_ring(len) {
        return Ok(None);
    }
    ring(backend, task.depth(), false).map(Some)
}

/// Explains why there is no ring.
fn no_ring(backend: Backend, errno: Errno) -> Refusal {
    // Linux has the setting since 6.6, if it has io_uring.
    let setting = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok();
    let disabled = setting.map(|text| text.trim().parse().unwrap_or(0));
    no_ring_because(backend, errno, disabled)
}

/// `setting` is `kernel.io_uring_disabled`, if this kernel has it.
fn no_ring_because(backend: Backend, errno: Errno, setting: Option<u32>) -> Refusal {
    let disabled = setting.unwrap_or(0);
    let refusal = |reason: String, remedy: &str| backend.refuse(reason).errno(errno).remedy(remedy);
    match errno.raw() {
        libc::EPERM if disabled > 0 => refusal(
            format!("io_uring is switched off: kernel.io_uring_disabled = {disabled}"),
            "sudo sysctl kernel.io_uring_disabled=0",
        ),
        // Podman's filter says ENOSYS of calls that it does not know.
        libc::ENOSYS if setting.is_none() => refusal(
            "this kernel has no io_uring".into(),
            "boot a kernel with CONFIG_IO_URING=y; in a container, allow the system calls io_uring_*",
        ),
        libc::EPERM | libc::EACCES | libc::ENOSYS => refusal(
            "io_uring is forbidden, most likely by seccomp in a container".into(),
            "allow the container the system calls io_uring_*",
        ),
        libc::ENOMEM => refusal(
            format!("io_uring cannot lock enough memory (RLIMIT_MEMLOCK is {})", memlock()),
            "ulimit -l unlimited",
        ),
        _ => refusal(format!("io_uring cannot be set up: {errno}"), "see dmesg"),
    }
}

/// Explains why an available backend cannot handle this file.
pub(crate) fn file(backend: Backend, task: &Task<'_>, errno: impl IntoErrno) -> Refusal {
    backend
        .refuse(format!("the kernel does not support it for {}", task.file.path.display()))
        .errno(errno)
        .remedy("move the file to a file system on a disk, or choose another backend")
}

/// The refusal if the module does not know the call.
pub(crate) fn call(backend: Backend, errno: Errno) -> Refusal {
    backend.refuse("the module does not support the call").errno(errno).remedy(OTHER_MODULE)
}

/// The limit on locked memory, for messages.
fn memlock() -> String {
    match crate::limit::current(rustix::process::Resource::Memlock) {
        Some(bytes) => format!("{} KiB", bytes / 1024),
        None => "unlimited".into(),
    }
}

/// Refuses a buffer of that exporter on behalf of a backend.
fn not_lent(backend: Backend, exporter: &str, why: NotLent) -> Refusal {
    let (reason, remedy) = match why {
        NotLent::Exporter => (
            format!(
                "dmabuf_dio does not borrow from exporter {exporter}: it is not known that its \
                     buffers stay in place and are mapped cached"
            ),
            // Copies by the CPU would lose data, and many drivers are called drm, some of which move buffers:
            // docs/design.md.
            if exporter.ends_with("-uncached") || exporter == "drm" {
                OTHER_BUFFER.to_owned()
            } else {
                format!(
                    "{OTHER_BUFFER}; or, at your own risk, if it neither moves its buffers nor maps them \
                     uncached, name the exporter: {}",
                    name_exporter(exporter, &named_exporters())
                )
            },
        ),
        NotLent::Pages => (
            format!(
                "dmabuf_dio does not borrow this buffer of exporter {exporter}: it has memory \
                     that file I/O must not reference (uncounted or reserved pages, or memory of a \
                     device)"
            ),
            OTHER_BUFFER.to_owned(),
        ),
        NotLent::Mapping => (
            format!(
                "dmabuf_dio does not borrow this buffer of exporter {exporter}: the kernel's \
                     mapping does not map its pages (as with a udmabuf over huge pages before \
                     Linux 6.13), the last page is the first of a huge page, or there is no mapping"
            ),
            if exporter == "udmabuf" {
                "create the udmabuf from a memfd in small pages, or use a buffer from \
                     /dev/dma_heap/system"
                    .to_owned()
            } else {
                OTHER_BUFFER.to_owned()
            },
        ),
        NotLent::Unsynced => (
            format!(
                "dmabuf_dio does not lend the pages of this buffer of exporter {exporter}{}: the \
                     exporter does not synchronise devices that use bounce buffers or do not see \
                     the CPU's caches, or its memory is mapped past these",
                if backend == Backend::Module { "" } else { " to a ring" },
            ),
            match (backend, exporter) {
                (Backend::Module, _) => OTHER_BUFFER.to_owned(),
                (_, "udmabuf") => format!("{CHECKED}, or a kernel with the fix in kernel/series"),
                _ => CHECKED.to_owned(),
            },
        ),
        NotLent::Unfilled => (
            format!(
                "dmabuf_dio does not borrow this buffer of exporter {exporter}: its memfd has pages \
                     that were only allocated (fallocate) and never written, which the first write to \
                     the memfd, or access by a mapping of it, zeroes"
            ),
            "write these pages, or touch them with MADV_POPULATE_WRITE, before creating the udmabuf"
                .to_owned(),
        ),
        NotLent::Poisoned => (
            format!(
                "dmabuf_dio does not borrow this buffer of exporter {exporter}: a page of its memory, \
                     or of a huge page that it shares, has a hardware memory error"
            ),
            "copy what is intact to a new memfd or heap buffer, and create the buffer from that: the \
             page stays where it is"
                .to_owned(),
        ),
    };
    Refusal { not_lent: Some(why), ..backend.refuse(reason).remedy(remedy) }
}

/// The command that adds an exporter to those the module borrows from.
fn name_exporter(exporter: &str, named: &[String]) -> String {
    let plain = |name: &&str| {
        !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.@".contains(&byte))
    };
    let all: Vec<&str> = named.iter().map(String::as_str).chain([exporter]).collect();
    if !all.iter().all(plain) || all.len() > MOST_EXPORTERS {
        return "see the parameter exporters of dmabuf_dio".to_owned();
    }
    let load = format!("sudo modprobe dmabuf_dio exporters={}", all.join(","));
    format!("sudo modprobe -r dmabuf_dio && {load}")
}

/// The exporters in the module's parameter; none if it is empty or missing.
pub(crate) fn named_exporters() -> Vec<String> {
    names(&std::fs::read_to_string(EXPORTERS).unwrap_or_default())
}

/// The bytes that the module's loads leave to others; `None` if the parameter is missing.
pub(crate) fn reserve() -> Option<u64> {
    std::fs::read_to_string(RESERVE).ok()?.trim().parse().ok()
}

fn names(text: &str) -> Vec<String> {
    text.trim().split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exporter_limit_matches_the_module() {
        let source = include_str!("../../../../kernel/module/exporter.c");
        assert!(source.contains(&format!("dbx_exporters[{MOST_EXPORTERS}];")));
    }

    #[test]
    fn every_errno_has_its_own_message() {
        let all = [
            NotLent::Exporter,
            NotLent::Pages,
            NotLent::Mapping,
            NotLent::Unsynced,
            NotLent::Unfilled,
            NotLent::Poisoned,
        ];
        let mut reasons = Vec::new();
        for (number, why) in (1..).zip(all) {
            assert_eq!(NotLent::from_number(number), Some(why));
            let refusal = not_lent(Backend::Module, "vgem", why);
            assert_eq!((refusal.backend, refusal.not_lent), (Backend::Module, Some(why)));
            assert!(refusal.reason.contains("exporter vgem"), "{refusal}");
            let remedy = refusal.remedy.expect("what would work instead");
            assert_ne!(remedy.contains("/dev/dma_heap/system"), why.is_of_the_memory(), "{remedy}");
            assert_eq!(remedy.contains("exporters=vgem"), why == NotLent::Exporter, "{remedy}");
            reasons.push(refusal.reason);
        }
        reasons.dedup();
        assert_eq!(reasons.len(), all.len());
        assert_eq!((NotLent::from_number(0), NotLent::from_number(7)), (None, None));
        for never in ["system-uncached", "drm"] {
            let refusal = not_lent(Backend::Module, never, NotLent::Exporter);
            assert_eq!(
                refusal.remedy.as_deref(),
                Some(OTHER_BUFFER),
                "{never} is never to be named"
            );
        }
    }

    #[test]
    fn suggested_command_keeps_named_exporters() {
        let named = ["carveout".to_owned(), "vendor-heap".to_owned()];
        let command = name_exporter("ours", &named);
        assert!(command.ends_with("modprobe dmabuf_dio exporters=carveout,vendor-heap,ours"));
        // Names with a special meaning to a shell must not appear in a command.
        for odd in ["a b", "$(reboot)", "x;y", "unknown: no /proc", ""] {
            assert!(!name_exporter(odd, &[]).contains("modprobe"), "{odd}");
        }
    }

    #[test]
    fn exporter_parameter_is_parsed_as_a_list() {
        assert_eq!(names("\n"), [""; 0]);
        assert_eq!(names("vgem\n"), ["vgem"]);
        assert_eq!(names("vgem,,drm\n"), ["vgem", "drm"]);
    }

    #[test]
    fn every_lend_error_has_reason_errno_and_remedy() {
        let errno = Errno::from_raw(libc::EACCES);
        let exporter = || "vgem".to_owned();
        for (error, reason, remedy) in [
            (LendError::NoModule { errno }, "cannot be opened", "setfacl"),
            (LendError::OtherModule { errno }, "does not answer", "this release"),
            (LendError::Attach { exporter: exporter(), errno }, "vgem", "system memory"),
            (LendError::Ring { errno }, "forbidden", "io_uring_*"),
            (
                LendError::Table { entries: 7, of: "buffers", errno },
                "table of 7",
                "another backend",
            ),
            (
                LendError::Slot { what: "the module refuses", index: 3, length: 9, errno },
                "refuses slot 3 of 9 bytes",
                "another backend",
            ),
            (
                LendError::NotLent { exporter: exporter(), why: NotLent::Pages, errno },
                "vgem",
                "/dev/dma_heap/system",
            ),
        ] {
            let Attempt::Refused(refusal) = lending(Backend::UringSlot, &error) else {
                panic!("{error}")
            };
            assert!(refusal.reason.contains(reason), "{refusal}");
            assert!(
                refusal.remedy.as_deref().is_some_and(|said| said.contains(remedy)),
                "{refusal:?}"
            );
            assert_eq!((refusal.errno, error.errno()), (Some(errno), Some(errno)));
        }
        let old = lending(Backend::UringSlot, &LendError::NoSlots).into_refusal(Backend::UringSlot);
        assert_eq!((old.errno, old.remedy.as_deref()), (None, Some("boot Linux 7.3 or later")));
        // That says nothing about the buffer: no other backend would do.
        let errno = Errno::from_raw(libc::ENOMEM);
        let short = lending(Backend::Module, &LendError::Attach { exporter: exporter(), errno });
        assert!(
            matches!(short, Attempt::Failed(Error::Buffer { call: "attach", .. })),
            "{short:?}"
        );
        let refusal = short.into_refusal(Backend::Module);
        assert_eq!((refusal.backend, refusal.errno), (Backend::Module, Some(errno)));
    }

    #[test]
    fn only_failed_begin_access_is_a_refusal() {
        let after = |call, errno| {
            let errno = Errno::from_raw(errno);
            access(Backend::Udmabuf, Error::Buffer { call, errno }.into())
        };
        let Attempt::Refused(refusal) = after(BEGIN_ACCESS, libc::EIO) else {
            panic!("no refusal")
        };
        assert_eq!((refusal.backend, refusal.errno), (Backend::Udmabuf, Some(Errno::IO)));
        assert!(refusal.remedy.is_some_and(|said| said.contains("/dev/dma_heap/system")));
        for (call, errno) in [(BEGIN_ACCESS, libc::ENOMEM), ("end CPU access to", libc::EIO)] {
            let failed = after(call, errno);
            assert!(matches!(failed, Attempt::Failed(Error::Buffer { .. })), "{failed:?}");
        }
    }

    #[test]
    fn every_ring_refusal_has_its_own_message() {
        let said = |number| no_ring_because(Backend::Memfd, Errno::from_raw(number), Some(0));
        let without = no_ring_because(Backend::Memfd, Errno::from_raw(libc::ENOSYS), None);
        assert!(without.reason.contains("no io_uring"));
        assert!(said(libc::ENOSYS).reason.contains("seccomp"), "this kernel has it");
        assert!(said(libc::ENOMEM).reason.contains("RLIMIT_MEMLOCK is "));
        assert!(memlock() == "unlimited" || memlock().ends_with(" KiB"), "{}", memlock());
        assert!(said(libc::EMFILE).reason.contains("EMFILE"));
        assert!(said(libc::EPERM).reason.contains("seccomp"), "it is not switched off");
        for setting in [1, 2] {
            let off =
                |number| no_ring_because(Backend::Memfd, Errno::from_raw(number), Some(setting));
            let reason = off(libc::EPERM).reason;
            assert!(reason.ends_with(&format!("io_uring_disabled = {setting}")), "{reason}");
            assert!(off(libc::EACCES).reason.contains("seccomp"));
        }
        assert_eq!(no_ring(Backend::Memfd, Errno::from_raw(libc::ENOSYS)).backend, Backend::Memfd);
    }

    #[test]
    fn refused_huge_udmabuf_suggests_small_pages() {
        let remedy = |exporter| not_lent(Backend::Module, exporter, NotLent::Mapping).remedy;
        assert!(remedy("udmabuf").is_some_and(|said| said.contains("memfd in small pages")));
        assert_eq!(remedy("system").as_deref(), Some(OTHER_BUFFER));
    }

    #[test]
    fn ring_refuses_only_files_on_fuse() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let spec = crate::file::Spec::Path(file.path().to_owned());
        let file = File::open(&spec, crate::direction::Direction::Load, true).expect("open");
        assert_eq!(check_ring(Backend::Memfd, &file).is_ok(), !file.is_fuse());
    }
}
