// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the targets of the fuzzer call: tests/fuzz/library. Each panics if a promise is broken.

use crate::backend::Backend;
use crate::kind::Kind;
use crate::memory::page::page_size;
use crate::memory::sizes::PageSizes;
use crate::memory::{available, page, place};
use crate::numa::Numa;
use crate::refusal::node;

/// Any text as a file of `/proc` or `/sys`, and as a word that a program passes on.
pub fn texts(bytes: &[u8]) {
    const LEN: u64 = 6 << 20;
    let sizes = PageSizes::parse(bytes, 0x7f00_0000_0000, LEN);
    assert!(sizes.huge_bytes <= LEN && sizes.page_size >= page_size(), "{sizes:?}");
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for page in [4096, 16384, 65536] {
        let huge = page::parse(text, page);
        assert!(huge > page && huge.is_power_of_two(), "{huge}");
    }
    let _ = place::of_node(text);
    for number in [0, 1, u32::MAX] {
        let _ = place::kept_free(text, number);
        if let Some(name) = node::name_of(number, text) {
            assert!(text.contains(&format!("{name}:")) && !name.contains('\n'), "{name}");
        }
    }
    let _ = (available::field(text, "inactive_file"), available::field_kib(text, "MemAvailable"));
    if let Ok(numa) = text.parse::<Numa>() {
        assert_eq!(numa.to_string().parse(), Ok(numa));
    }
    if let Ok(kind) = text.parse::<Kind>() {
        assert_eq!(kind.name(), text);
    }
    if let Ok(backend) = text.parse::<Backend>() {
        assert_eq!(backend.name(), text);
    }
}

#[cfg(fuzzed)]
pub use by_bytes::{extents, gathers, staging, transfers};

#[cfg(fuzzed)]
mod by_bytes {
    use crate::drawn::with;
    use crate::{file, gather, transfer};

    /// Plans of gathers, against a device that fails in every way.
    pub fn gathers(bytes: &[u8]) {
        use gather::properties::*;
        with(bytes, || {
            every_piece_has_its_bytes_or_a_reason();
            requests_and_shared_pieces_add_up();
            pieces_are_refused_if_they_do_not_fit();
        });
    }

    /// Plans of transfers, against a device that fails in every way.
    pub fn transfers(bytes: &[u8]) {
        with(bytes, transfer::properties::all_bytes_that_are_said_to_be_done_are_the_files);
    }

    /// Loads through the staging window.
    pub fn staging(bytes: &[u8]) {
        with(bytes, transfer::staging::every_byte_is_copied_before_it_is_read_over);
    }

    /// Ranges of files, cut into what direct I/O can move.
    pub fn extents(bytes: &[u8]) {
        use file::properties::*;
        with(bytes, || {
            ranges_are_cut_at_blocks();
            buffers_are_laid_out_as_the_file();
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kept_inputs::try_all;

    #[test]
    fn kept_texts_keep_their_promises() {
        try_all("texts", texts);
    }
}
