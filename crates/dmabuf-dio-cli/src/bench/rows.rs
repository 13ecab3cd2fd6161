// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rows of the table: those of the `copy_file_range` thread, in its order.

use super::buffers::Kind;
use super::disk::Mode;
use super::ways::Way;

/// What one row measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Row {
    pub(crate) kind: Kind,
    pub(crate) mode: Mode,
    pub(crate) way: Way,
}

impl Row {
    pub(crate) fn name(self) -> String {
        format!("{} {} {}", self.kind.name(), self.mode.name(), self.way.name())
    }
}

/// All rows. The thread has a 23rd, the first once more: here rows take turns instead.
pub(crate) const ROWS: [Row; 22] = {
    use Kind::{DmaBuf, Memfd, Udmabuf, UdmabufMemfd};
    use Mode::{Buffer, Direct};
    use Way::{CopyFileRange, ReadWrite, Sendfile, Splice};
    [
        row(DmaBuf, Buffer, ReadWrite),
        row(Udmabuf, Buffer, ReadWrite),
        row(Memfd, Buffer, ReadWrite),
        row(Memfd, Direct, ReadWrite),
        row(Memfd, Buffer, Sendfile),
        row(Memfd, Direct, Sendfile),
        row(Memfd, Buffer, Splice),
        row(Memfd, Direct, Splice),
        row(Memfd, Buffer, CopyFileRange),
        row(Memfd, Direct, CopyFileRange),
        row(UdmabufMemfd, Buffer, ReadWrite),
        row(UdmabufMemfd, Direct, ReadWrite),
        row(UdmabufMemfd, Buffer, Sendfile),
        row(UdmabufMemfd, Direct, Sendfile),
        row(UdmabufMemfd, Buffer, Splice),
        row(UdmabufMemfd, Direct, Splice),
        row(UdmabufMemfd, Buffer, CopyFileRange),
        row(UdmabufMemfd, Direct, CopyFileRange),
        row(Udmabuf, Buffer, CopyFileRange),
        row(Udmabuf, Direct, CopyFileRange),
        row(DmaBuf, Buffer, CopyFileRange),
        row(DmaBuf, Direct, CopyFileRange),
    ]
};

const fn row(kind: Kind, mode: Mode, way: Way) -> Row {
    Row { kind, mode, way }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn all_rows_are_different() {
        assert_eq!(ROWS.iter().collect::<HashSet<_>>().len(), 22);
        assert_eq!(ROWS.map(Row::name).iter().collect::<HashSet<_>>().len(), 22);
    }

    /// The numbers by which the thread speaks of them.
    #[test]
    fn order_is_that_of_the_thread() {
        for (number, name) in [
            (1, "dmabuf buffer R/W"),
            (3, "memfd buffer R/W"),
            (8, "memfd direct splice"),
            (12, "u+memfd direct R/W"),
            (18, "u+memfd direct c_f_r"),
            (20, "udmabuf direct c_f_r"),
            (22, "dmabuf direct c_f_r"),
        ] {
            assert_eq!(ROWS[number - 1].name(), name);
        }
    }

    /// A dma-buf that no memfd is behind has neither direct R/W nor sendfile nor splice.
    #[test]
    fn dmabufs_are_read_or_copied() {
        for row in ROWS.iter().filter(|row| row.kind.moves_dmabuf()) {
            match row.way {
                Way::ReadWrite => assert_eq!(row.mode, Mode::Buffer),
                way => assert_eq!(way, Way::CopyFileRange),
            }
        }
    }
}
