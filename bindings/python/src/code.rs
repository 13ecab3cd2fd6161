// SPDX-License-Identifier: MIT OR Apache-2.0
//! The extension's own code in memory.

use std::ffi::{c_int, c_void};

use crate::page::page_size;

/// Maps all pages of the extension, some megabytes. Without this the first load after a cold start
/// waits for the disk again and again, whenever it reaches code that is not in memory.
///
/// Does nothing before Linux 5.14 (`MADV_POPULATE_READ`, see madvise(2)).
pub(crate) fn populate() {
    let here = populate as fn() as usize;
    // SAFETY: the callback takes what the C library passes, and a pointer to `here`, which outlives the call.
    unsafe {
        libc::dl_iterate_phdr(Some(populate_if_here), std::ptr::from_ref(&here).cast_mut().cast())
    };
}

/// Populates the object that contains the address `*here`, and ends the iteration.
unsafe extern "C" fn populate_if_here(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    here: *mut c_void,
) -> c_int {
    // SAFETY: the C library passes a valid description, whose headers stay for as long as the object is loaded.
    let (base, headers) = unsafe {
        let info = &*info;
        if info.dlpi_phdr.is_null() {
            return 0;
        }
        (
            info.dlpi_addr as usize,
            std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()),
        )
    };
    // SAFETY: `populate` passes a reference to a number.
    let here = unsafe { *here.cast::<usize>() };
    let segments: Vec<_> = headers
        .iter()
        .filter(|header| header.p_type == libc::PT_LOAD)
        .map(|header| {
            let start = base + header.p_vaddr as usize;
            start..start + header.p_memsz as usize
        })
        .collect();
    if !segments.iter().any(|range| range.contains(&here)) {
        return 0;
    }
    let page = page_size();
    // Also those that relocations are written to: not all of their pages are.
    for range in segments {
        let start = range.start / page * page;
        let address = std::ptr::with_exposed_provenance_mut(start);
        // SAFETY: the range is mapped, and reading it changes nothing.
        unsafe { libc::madvise(address, range.end - start, libc::MADV_POPULATE_READ) };
    }
    1
}
