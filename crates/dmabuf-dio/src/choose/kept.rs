// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a buffer stays mapped for a disk behind an IOMMU, if the disk's driver can use that.

use crate::backend::Backend;
use crate::file::dma::not_lent;
use crate::known::Known;
use crate::lend::Context;

/// Why a buffer does not stay mapped if `backend` moves the data; `None` if it does.
pub(crate) fn not_kept(backend: Option<Backend>) -> Option<String> {
    match backend {
        Some(Backend::Module | Backend::UringSlot) => {
            (!kernel_keeps()).then(|| "this kernel cannot keep buffers mapped".into())
        }
        _ => Some(not_lent()),
    }
}

/// Whether the module and the kernel keep buffers mapped. Asked until there is a module, then kept:
/// this is on the way of every report.
fn kernel_keeps() -> bool {
    static KEEPS: Known = Known::new();
    if let Some(keeps) = KEEPS.get() {
        return keeps == 1;
    }
    let Ok(module) = Context::open() else { return false };
    KEEPS.get_or_find(|| module.keeps_mapped().into()) == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_module_lends_mapped_memory() {
        assert!(not_kept(Some(Backend::Memfd)).is_some_and(|why| why.contains("module")));
        assert!(not_kept(None).is_some());
    }
}
