// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names with a number at their end, in folders of sysfs.

use std::fs;
use std::path::Path;

/// The numbers of the names that begin with `prefix`, in order; none if there is no such folder.
pub(crate) fn numbered(folder: &Path, prefix: &str) -> Vec<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let number = |name: &str| name.strip_prefix(prefix)?.parse().ok();
    let mut numbers: Vec<_> =
        entries.filter_map(|entry| number(entry.file_name().to_str()?)).collect();
    numbers.sort_unstable();
    numbers
}
