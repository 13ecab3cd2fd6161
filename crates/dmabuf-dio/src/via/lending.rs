// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whose pages the kernel module borrows, and the words for those whose it does not.

use dmabuf_dio_sys::dio;

use crate::backend::{Backend, NotLent, Refusal};

/// The module's parameter with the exporters that an administrator vouches for.
const EXPORTERS: &str = "/sys/module/dmabuf_dio/parameters/exporters";

/// A buffer that works everywhere.
const HEAP_BUFFER: &str =
    "allocate the buffer from /dev/dma_heap/system and import it into the device";

impl NotLent {
    /// What the module says with `EOPNOTSUPP` or `EBUSY`.
    pub(crate) fn from_number(refusal: u32) -> Option<Self> {
        match refusal {
            dio::REFUSED_EXPORTER => Some(Self::Exporter),
            dio::REFUSED_PAGES => Some(Self::Pages),
            dio::REFUSED_MAPPING => Some(Self::Mapping),
            dio::REFUSED_UNSYNCED => Some(Self::Unsynced),
            _ => None,
        }
    }

    /// Refuses a buffer of that exporter in the name of a backend.
    pub(crate) fn refuse(self, backend: Backend, exporter: &str) -> Refusal {
        let (reason, remedy) = match self {
            Self::Exporter => (
                format!(
                    "dmabuf_dio does not borrow from exporter {exporter}: nobody vouches that its \
                     buffers stay in place"
                ),
                format!(
                    "{HEAP_BUFFER}; or, at your own risk, name the exporter: {}",
                    name_exporter(exporter, &named_exporters())
                ),
            ),
            Self::Pages => (
                format!(
                    "dmabuf_dio does not borrow this buffer of exporter {exporter}: it has memory \
                     that file I/O must not reference (uncounted or reserved pages, or memory of a \
                     device)"
                ),
                HEAP_BUFFER.to_owned(),
            ),
            Self::Mapping => (
                format!(
                    "dmabuf_dio does not borrow this buffer of exporter {exporter}: the kernel's \
                     mapping of it is not of its pages, as with a udmabuf over huge pages before \
                     Linux 7.3, or there is none"
                ),
                if exporter == "udmabuf" {
                    "make the udmabuf of a memfd in small pages, or use a buffer from \
                     /dev/dma_heap/system"
                        .to_owned()
                } else {
                    HEAP_BUFFER.to_owned()
                },
            ),
            Self::Unsynced => (
                format!(
                    "dmabuf_dio does not lend the pages of this buffer of exporter {exporter} for \
                     long: this kernel's udmabuf does not synchronise the devices that have it \
                     attached"
                ),
                "use a buffer from /dev/dma_heap/system, the backend module, which looks before each \
                 transfer, or a kernel with the repair in kernel/series"
                    .to_owned(),
            ),
        };
        Refusal { not_lent: Some(self), ..backend.refuse(reason).remedy(remedy) }
    }
}

/// The command that has the module borrow from one more exporter.
fn name_exporter(exporter: &str, named: &[String]) -> String {
    let plain = |name: &&str| {
        !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.,@".contains(&byte))
    };
    let all: Vec<&str> = named.iter().map(String::as_str).chain([exporter]).collect();
    if !all.iter().all(plain) {
        return "see the parameter exporters of dmabuf_dio".to_owned();
    }
    let load = format!("modprobe dmabuf_dio exporters={}", all.join(":"));
    format!("modprobe -r dmabuf_dio && {load}")
}

/// The exporters in the module's parameter: none if it is empty, or there is no such parameter.
pub(crate) fn named_exporters() -> Vec<String> {
    names(&std::fs::read_to_string(EXPORTERS).unwrap_or_default())
}

fn names(text: &str) -> Vec<String> {
    let text = text.trim();
    // What the kernel prints for a string that was never set.
    let text = if text == "(null)" { "" } else { text };
    text.split(':').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_its_own_words() {
        let all = [NotLent::Exporter, NotLent::Pages, NotLent::Mapping, NotLent::Unsynced];
        let mut reasons = Vec::new();
        for (number, not_lent) in (1..).zip(all) {
            assert_eq!(NotLent::from_number(number), Some(not_lent));
            let refusal = not_lent.refuse(Backend::Module, "vgem");
            assert_eq!((refusal.backend, refusal.not_lent), (Backend::Module, Some(not_lent)));
            assert!(refusal.reason.contains("exporter vgem"), "{refusal}");
            let remedy = refusal.remedy.expect("what would work instead");
            assert!(remedy.contains("/dev/dma_heap/system"), "{remedy}");
            assert_eq!(
                remedy.contains("exporters=vgem"),
                not_lent == NotLent::Exporter,
                "{remedy}"
            );
            reasons.push(refusal.reason);
        }
        reasons.dedup();
        assert_eq!(reasons.len(), all.len());
        assert_eq!((NotLent::from_number(0), NotLent::from_number(5)), (None, None));
    }

    #[test]
    fn the_command_keeps_those_that_are_named() {
        let named = ["carveout".to_owned(), "vendor-heap".to_owned()];
        let command = name_exporter("drm", &named);
        assert!(command.ends_with("modprobe dmabuf_dio exporters=carveout:vendor-heap:drm"));
        // Names that a shell would take for something else are no part of a command.
        for odd in ["a b", "$(reboot)", "x;y", "unknown: no /proc", ""] {
            assert!(!name_exporter(odd, &[]).contains("modprobe"), "{odd}");
        }
    }

    #[test]
    fn the_parameter_is_a_list() {
        assert_eq!(names("\n"), [""; 0]);
        assert_eq!(names("(null)\n"), [""; 0]);
        assert_eq!(names("vgem\n"), ["vgem"]);
        assert_eq!(names("vgem::drm:\n"), ["vgem", "drm"]);
    }
}
