// SPDX-License-Identifier: MIT OR Apache-2.0
//! The operations, and their text: a name and numbers, one operation a line.
//!
//! An operation names its objects by place: `buf=2` is whatever buffer is there. One whose objects
//! are missing does nothing, so that any part of a sequence is a sequence.

use std::fmt;

macro_rules! ops {
    ($($(#[$doc:meta])* $variant:ident $name:literal { $($field:ident),* })*) => {
        /// An operation. Offsets and lengths are in bytes, unless they are called pages.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub(crate) enum Op {
            $($(#[$doc])* $variant { $($field: u64),* },)*
        }

        impl fmt::Display for Op {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$variant { $($field),* } => {
                        write!(f, $name)?;
                        $(write!(f, concat!(" ", stringify!($field), "={}"), $field)?;)*
                        Ok(())
                    })*
                }
            }
        }

        impl Op {
            fn from_words(name: &str, value: &mut dyn FnMut(&str) -> Result<u64, String>) -> Result<Self, String> {
                match name {
                    $($name => Ok(Self::$variant { $($field: value(stringify!($field))?),* }),)*
                    _ => Err(format!("no operation is called '{name}'")),
                }
            }
        }
    };
}

ops! {
    /// A memfd for udmabufs.
    Store "store" { store, pages }
    /// One of hugetlb, of one huge page, written.
    StoreHuge "store-huge" { store, stamp }
    /// Against all writing but that of buffers which have its pages.
    StoreSeal "store-seal" { store }
    StoreWrite "store-write" { store, page, pages, stamp }
    /// Both are written page by page in turn, so that neighbours are not adjacent in memory.
    StoreScatter "store-scatter" { store, store2, stamp }
    /// As `StoreWrite`, through a mapping.
    StoreMapWrite "store-map-write" { store, page, pages, stamp }
    /// Reads through a mapping, which fills holes with clean zeroes.
    StoreTouch "store-touch" { store, page, pages }
    /// `fallocate()`
    StoreAllocate "store-allocate" { store, page, pages }
    StorePunch "store-punch" { store, page, pages }
    /// Swaps out what can be, drops what is clean.
    StoreOut "store-out" { store }
    /// Asks for huge pages in place of what there is.
    StoreCollapse "store-collapse" { store }
    StoreClose "store-close" { store }

    /// A buffer of the system heap.
    Heap "heap" { buf, pages }
    Udmabuf "udmabuf" { buf, store, page, pages }
    /// A udmabuf over two ranges, of any two memfds.
    UdmabufPair "udmabuf-pair" { buf, store, page, pages, store2, page2, pages2 }
    /// A buffer whose pages must not be lent.
    Odd "odd" { buf, pages, oddities }
    /// LOAD; `other`: if a signal interrupts it, 1 another range is loaded, 2 with other access.
    Load "load" { buf, file, at, length, chunk, depth, gather, direct, writable, other }
    /// A file with a hole is loaded `count` times; then no memory may be gone.
    LoadOften "load-often" { length, count }
    /// More than the machine's memory, which must be refused before anything is allocated.
    LoadTooMuch "load-too-much" {}
    /// A heap's buffer with a file's content, on kernels with that flag.
    HeapLoad "heap-load" { buf, file, at, length, direct }
    Attach "attach" { buf }
    /// Closes the context.
    Detach "detach" { buf }
    /// Closes the context of LOADs.
    LoaderClose "loader-close" {}
    /// Closes the descriptor and the mapping, not the context.
    Close "close" { buf }
    /// The CPU stores into the buffer.
    Fill "fill" { buf, offset, length, stamp }

    /// `kind`: 0 written, 1 a hole, 2 allocated, 3 encrypted, 4 compressed; the last two written.
    File "file" { file, length, kind, stamp }
    FileWrite "file-write" { file, at, length, stamp }
    FileTruncate "file-truncate" { file, length }
    FilePunch "file-punch" { file, at, length }
    FileAllocate "file-allocate" { file, at, length }
    /// The range gets the blocks of another file's, on file systems that share blocks.
    FileClone "file-clone" { file, from, at, source, length }
    /// Takes the file from the page cache.
    FileUncache "file-uncache" { file }
    FileClose "file-close" { file }

    Read "read" { buf, file, at, offset, length, chunk, depth, direct }
    Write "write" { buf, file, at, offset, length, chunk, depth, direct }
    /// `copy_file_range()` into the buffer, on kernels that can.
    CopyIn "copy-in" { buf, file, at, offset, length, direct }
    CopyOut "copy-out" { buf, file, at, offset, length, direct }

    /// WRITE to a new file on a disk that has room for about `left` pages.
    WriteFull "write-full" { buf, length, direct, left }
    /// WRITE to a file of a tmpfs that has `left` pages.
    WriteSmall "write-small" { buf, length, direct, left }
    /// READ while the file is cut at `to` and gets its length again, or `kind` 1: also its bytes.
    ChangedRead "changed-read" { buf, file, at, offset, length, chunk, depth, direct, to, kind }
    /// WRITE while the file is cut at `to` and gets its length again.
    ChangedWrite "changed-write" { buf, file, at, offset, length, chunk, depth, direct, to }
    ChangedLoad "changed-load" { buf, file, at, length, direct, to, kind }
    /// READ by a child again and again, until it is killed or, `exec`, starts another program.
    ChildRead "child-read" { buf, file, at, offset, length, chunk, depth, direct, microseconds, exec }
    ChildWrite "child-write" { buf, file, at, offset, length, chunk, depth, direct, microseconds, exec }
    /// `READ_FIXED` by a child with a ring of its own, or `write`: `WRITE_FIXED`, until it is killed.
    ChildSlot "child-slot" { buf, file, at, offset, length, direct, write, microseconds }
    /// LOAD by a child, which sends the buffer through a socket and is killed.
    ChildLoad "child-load" { buf, file, at, length, direct }
    /// LOAD of a file that was not written, by a child that may have `limit` bytes of memory.
    LimitedLoad "limited-load" { buf, length, direct, limit }
    /// READ through the page cache by a child that may have `limit` bytes beside the buffer.
    LimitedRead "limited-read" { length, limit }
    /// READ from a disk that is unplugged, or gives no answer, after so long: `plug.rs`.
    UnpluggedRead "unplugged-read" { buf, at, offset, length, chunk, depth, disk, microseconds }
    UnpluggedWrite "unplugged-write" { buf, at, offset, length, chunk, depth, disk, microseconds }

    /// `flags`: 1 for `READ_FIXED`, 2 for `WRITE_FIXED`.
    Slot "slot" { slot, buf, page, length, flags }
    Join "join" { slot, buf, buf2, flags }
    SlotRead "slot-read" { slot, file, at, skip, length, direct }
    SlotWrite "slot-write" { slot, file, at, skip, length, direct }
    SlotClear "slot-clear" { slot }
    /// REGISTER with structures of all sizes that are wrong.
    SlotSize "slot-size" { slot, buf }

    /// A device that is not coherent gets the buffer.
    Import "import" { device, buf }
    DeviceRead "device-read" { device }
    DeviceWrite "device-write" { device, at, length, stamp }
    DeviceDrop "device-drop" { device }

    /// A part of the disk fails.
    Break "break" { at, length }
    /// A part of the disk answers later.
    Slow "slow" { at, length, milliseconds }
    Heal "heal" {}
    /// A signal arrives during the next transfer.
    Signal "signal" { microseconds }
    /// The process stands still during the next transfer; `how`: the freezer, 1 stop signals, 2 the
    /// machine is suspended.
    Freeze "freeze" { microseconds, how }
    /// A device has a fence on the buffer during the next transfer; `stores`: as a writer.
    Fence "fence" { buf, stores, microseconds }
    /// Another thread does something while the next transfer runs: `disturb.rs`.
    Beside "beside" { kind, place }
    /// The next operations, if they are transfers, run at the same time.
    Together "together" { count }
    /// Then those on the disk get no answer before all others have ended.
    Stall "stall" {}
    /// Then the file system of the files is frozen until all but WRITEs to it have ended.
    StallFiles "stall-files" {}
    /// The module is removed and loaded again, so often while somebody opens it; or that is
    /// refused, as contexts, buffers or slots are left.
    Reload "reload" { count }
    /// The next transfer is tried with each of its allocations failing.
    FailEach "fail-each" {}

    /// A load of the library into a new buffer of a kind; `backend`: its number from 1, 0: any; `direct`: 2 the file
    /// is open with `O_DIRECT`; `cancel`: it is cancelled when so many bytes less one are done.
    LibLoad "lib-load" { held, kind, file, at, length, backend, block, depth, step, direct, cancel }
    /// Into a buffer of the round, or one that the library has loaded.
    LibLoadInto "lib-load-into" { place, file, at, offset, length, backend, block, depth, direct, cancel }
    LibDrop "lib-drop" { held }
    /// A view: a range of it is read and, with a stamp, written.
    LibView "lib-view" { place, offset, length, stamp }
    /// `count` pieces that `seed` determines; `overlap`: 1 the spare pages overlap one, 2 two overlap.
    LibGather "lib-gather" { place, file, seed, count, spare, overlap, backend, depth, direct }
    /// To a path, whose old file is replaced.
    LibSave "lib-save" { name, place, offset, length, backend, block, depth, direct, cancel }
    /// To an open file.
    LibSaveIn "lib-save-in" { place, file, at, offset, length, backend, block, depth, direct, cancel }
    /// From a reader, which fails after `stop` bytes.
    LibSaveFrom "lib-save-from" { name, length, stamp, stop, block, depth, direct, cancel }
    /// Over a file of a tmpfs with `left` pages.
    LibSaveSmall "lib-save-small" { place, offset, length, left, direct }
    /// Keeps a saved file under a name, by which another process takes it.
    Keep "keep" { kept, name, direct, cancel }
    KeepDrop "keep-drop" { kept }
    /// A process holds a saved file, hands it over by a socket and is killed; `devices`: as a dma-buf.
    KeepHold "keep-hold" { name, devices }
    /// The simulated ADC to a file; `copied`: by `read()`; `loss`: frames that the device loses.
    Capture "capture" { name, frames, block, blocks, rate, loss, copied, cancel }
    /// A file to the simulated DAC.
    Replay "replay" { name, frames, block, blocks, rate, copied, cancel }
    /// A capture of the command is killed so long after it has a description.
    CaptureKilled "capture-killed" { microseconds }
}

/// The text of a sequence.
pub(crate) fn text(ops: &[Op]) -> String {
    ops.iter().fold(String::new(), |text, op| text + &format!("{op}\n"))
}

/// Reads a sequence; lines that begin with `#` are comments.
pub(crate) fn parse(text: &str) -> Result<Vec<Op>, String> {
    let lines = text.lines().map(str::trim).enumerate();
    lines
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(number, line)| parse_line(line).map_err(|why| format!("line {}: {why}", number + 1)))
        .collect()
}

fn parse_line(line: &str) -> Result<Op, String> {
    let mut words = line.split_whitespace();
    let name = words.next().unwrap_or_default();
    let mut given: Vec<&str> = words.collect();
    let op = Op::from_words(name, &mut |field| {
        let place = given.iter().position(|word| word.split('=').next() == Some(field));
        let word = given.remove(place.ok_or_else(|| format!("'{name}' needs '{field}='"))?);
        let value = word.split_once('=').map_or("", |(_, value)| value);
        value.parse().map_err(|_| format!("'{word}' is not a number"))
    })?;
    match given.first() {
        Some(word) => Err(format!("'{name}' does not take '{word}'")),
        None => Ok(op),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_back() {
        let ops =
            [Op::Heal {}, Op::SlotWrite { slot: 1, file: 2, at: 3, skip: 4, length: 5, direct: 1 }];
        let text = format!("# a comment\n\n{}\n{}\n", ops[0], ops[1]);
        assert_eq!(parse(&text).unwrap(), ops);
    }

    #[test]
    fn kept_sequences_are_read() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/torture/kept");
        let kept: Vec<_> = std::fs::read_dir(folder).unwrap().flatten().collect();
        assert!(!kept.is_empty());
        for file in kept {
            let text = std::fs::read_to_string(file.path()).unwrap();
            parse(&text).unwrap_or_else(|why| panic!("{}: {why}", file.path().display()));
        }
    }

    #[test]
    fn wrong_lines_are_refused_by_number() {
        for (text, why) in [
            ("heal\nheel", "line 2: no operation is called 'heel'"),
            ("attach", "line 1: 'attach' needs 'buf='"),
            ("attach buf=x", "line 1: 'buf=x' is not a number"),
            ("attach buf=1 file=1", "line 1: 'attach' does not take 'file=1'"),
        ] {
            assert_eq!(parse(text).unwrap_err(), why);
        }
    }
}
