// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rows of the table: those of the `copy_file_range` thread, in its order.

use crate::buffer::BufferKind;
use crate::buffer::transfer::TransferMethod;
use crate::disk::IoMode;

/// What one row measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TableRow {
    pub(crate) kind: BufferKind,
    pub(crate) mode: IoMode,
    pub(crate) method: TransferMethod,
}

impl TableRow {
    pub(crate) fn name(self) -> String {
        format!("{} {} {}", self.kind.name(), self.mode.name(), self.method.name())
    }
}

/// All rows. The thread's table has a 23rd, the first repeated: here rows alternate instead.
pub(crate) const ROWS: [TableRow; 22] = {
    use BufferKind::{DmaBuf, Memfd, Udmabuf, UdmabufMemfd};
    use IoMode::{Buffer, Direct};
    use TransferMethod::{CopyFileRange, ReadWrite, Sendfile, Splice};
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

const fn row(kind: BufferKind, mode: IoMode, method: TransferMethod) -> TableRow {
    TableRow { kind, mode, method }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn table_rows_are_unique() {
        assert_eq!(ROWS.iter().collect::<HashSet<_>>().len(), 22);
        assert_eq!(ROWS.map(TableRow::name).iter().collect::<HashSet<_>>().len(), 22);
    }

    /// The numbers of the rows in the thread.
    #[test]
    fn rows_are_ordered_as_in_the_mail_thread() {
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

    /// A dma-buf without a memfd supports neither direct R/W nor sendfile nor splice.
    #[test]
    fn dmabufs_are_read_or_copied() {
        for row in ROWS.iter().filter(|row| row.kind.moves_dmabuf()) {
            match row.method {
                TransferMethod::ReadWrite => assert_eq!(row.mode, IoMode::Buffer),
                method => assert_eq!(method, TransferMethod::CopyFileRange),
            }
        }
    }
}
