// SPDX-License-Identifier: MIT OR Apache-2.0
//! The system's huge page settings, and how to change them.

use super::page::{huge_page, page_size};
use super::sizes::PageSizes;

/// The setting for huge pages of memfds.
const SHMEM_ENABLED: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";

/// The remedy allows this many bytes of reserved huge pages, on demand.
const RESERVED: u64 = 8 << 30;

/// The active value of [`SHMEM_ENABLED`].
pub(crate) fn shmem_enabled() -> Option<String> {
    let text = std::fs::read_to_string(SHMEM_ENABLED).ok()?;
    Some(text.split_once('[')?.1.split_once(']')?.0.to_owned())
}

/// Whether memfds get huge pages without asking for them.
pub(crate) fn memfds_are_huge() -> bool {
    shmem_enabled().is_some_and(|value| huge_unasked(&value))
}

/// Whether memfds that ask for huge pages get them.
pub(crate) fn memfds_get_huge_pages() -> bool {
    shmem_enabled().is_some_and(|value| huge_unasked(&value) || value == "advise")
}

/// How to enable transparent huge pages for memfds, or else reserved ones.
pub(crate) fn shared_huge_remedy() -> String {
    if thp_is_switched_off() {
        THP_SWITCHED_OFF.into()
    } else if shmem_enabled().is_some() {
        format!("echo advise | sudo tee {SHMEM_ENABLED}")
    } else {
        // Their size is part of the name; the plain setting is for the default size, which can be another.
        let kib = huge_page() / 1024;
        format!(
            "echo {} | sudo tee /sys/kernel/mm/hugepages/hugepages-{kib}kB/nr_overcommit_hugepages",
            (RESERVED / huge_page()).max(1)
        )
    }
}

/// How to enable transparent huge pages for private memory.
pub(crate) fn private_huge_remedy() -> &'static str {
    if thp_is_switched_off() {
        THP_SWITCHED_OFF
    } else {
        "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"
    }
}

/// The note on how to get huge pages, if memory of `len` bytes could have them and has none.
pub(crate) fn page_note(
    pages: Option<PageSizes>,
    len: u64,
    remedy: impl FnOnce() -> String,
) -> Option<String> {
    let is_small = pages?.page_size < huge_page();
    (is_small && len >= huge_page()).then(|| {
        let size = page_size() / 1024;
        format!("the memory has pages of {size} KiB: for huge pages, {}", remedy())
    })
}

const THP_SWITCHED_OFF: &str = "start this process without prctl(PR_SET_THP_DISABLE), which it has \
                                inherited or called: THP_enabled in /proc/self/status is 0";

/// Whether transparent huge pages are disabled for this process, whatever the system's settings. (3
/// means that it gets them on request, and this library requests them.)
fn thp_is_switched_off() -> bool {
    // SAFETY: the call takes numbers only.
    unsafe { libc::prctl(libc::PR_GET_THP_DISABLE, 0_u64, 0_u64, 0_u64, 0_u64) == 1 }
}

fn huge_unasked(shmem_enabled: &str) -> bool {
    ["always", "within_size", "force"].contains(&shmem_enabled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_page_setting_is_the_bracketed_word() {
        for (value, unasked) in [
            ("always", true),
            ("within_size", true),
            ("force", true),
            ("advise", false),
            ("never", false),
            ("deny", false),
        ] {
            assert_eq!(huge_unasked(value), unasked, "{value}");
        }
        let Ok(text) = std::fs::read_to_string(SHMEM_ENABLED) else {
            assert_eq!((shmem_enabled(), memfds_are_huge()), (None, false));
            assert!(!memfds_get_huge_pages());
            return;
        };
        let value = shmem_enabled().expect("a setting");
        assert!(text.contains(&format!("[{value}]")), "{text}");
        assert_eq!(memfds_are_huge(), huge_unasked(&value));
        assert_eq!(memfds_get_huge_pages(), value == "advise" || huge_unasked(&value));
    }

    #[test]
    fn huge_page_remedies_name_the_setting() {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let off =
            status.lines().any(|line| line.starts_with("THP_enabled:") && line.ends_with('0'));
        let remedies = [shared_huge_remedy(), private_huge_remedy().to_owned()];
        for remedy in remedies {
            assert!(remedy.contains("hugepage") || remedy.contains("THP"), "{remedy}");
            assert_eq!(remedy.contains("PR_SET_THP_DISABLE"), off, "{remedy}");
        }
    }

    #[test]
    fn only_large_memory_gets_the_huge_page_note() {
        let note = |size, len| {
            let pages = PageSizes { page_size: size, huge_bytes: 0 };
            page_note(Some(pages), len, || "do this".into())
        };
        let said = note(page_size(), huge_page()).expect("a note");
        assert!(
            said.contains(&format!("pages of {} KiB", page_size() / 1024))
                && said.ends_with("do this"),
            "{said}"
        );
        assert_eq!(note(page_size(), huge_page() - 1), None, "too little for one");
        assert_eq!(note(huge_page(), huge_page()), None, "it has them");
        assert_eq!(page_note(None, huge_page(), String::new), None, "nobody knows");
    }
}
