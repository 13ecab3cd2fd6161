// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a transfer may leave behind. After a failure a byte of the destination is what it was,
//! what was to come, or zero; which one is then known.

use dmabuf_dio_sys::Errno;

use crate::file::Known;
use crate::pages::{PAGE, Page, difference, parts, store};
use crate::world::Outcome;

/// How a transfer ended.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moved {
    pub(crate) done: u64,
    pub(crate) errno: Option<Errno>,
    /// The alignment that was asked for.
    pub(crate) align: u32,
}

/// A range of a file and one of a buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) file: u64,
    /// In the file.
    pub(crate) at: u64,
    /// In the buffer.
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) direct: u64,
}

/// What is left where the transfer did not come to.
pub(crate) fn one_of(what: &str, at: usize, actual: u8, old: u8, new: Option<u8>) -> Outcome {
    if actual == old || Some(actual) == new || actual == 0 {
        return Ok(());
    }
    Err(format!(
        "{what}: {actual:#04x} at {at:#x}, neither the old byte {old:#04x} nor the new one {new:x?} nor zero"
    ))
}

/// Takes a transfer into pages into the model. `source`: the bytes of the file from the start of
/// the range, fewer than the range has if the file ends. `actual`: the bytes of the page with a
/// number, if they can be seen. Returns false if they cannot, and are not known.
pub(crate) fn into_pages(
    pages: &[Page],
    span: Span,
    source: &[u8],
    moved: Moved,
    actual: &dyn Fn(usize) -> Option<Vec<u8>>,
) -> Result<bool, String> {
    let available = (source.len() as u64).min(span.length);
    if moved.done > available {
        return Err(format!("{} bytes said to be done, the file has {available}", moved.done));
    }
    if moved.errno.is_none() && moved.done < available {
        return Err(format!("{} bytes done of {available}, without an error", moved.done));
    }
    store(pages, span.offset as usize, &source[..moved.done as usize]);
    let rest = (span.offset + moved.done) as usize..(span.offset + span.length) as usize;
    for (page, part) in parts(rest) {
        let Some(seen) = actual(page) else { return Ok(false) };
        for place in part {
            let at = page * PAGE + place;
            let new = source.get(at - span.offset as usize).copied();
            let mut known = pages[page].borrow_mut();
            one_of("after the end of the transfer", at, seen[place], known[place], new)?;
            known[place] = seen[place];
        }
    }
    Ok(true)
}

/// Takes a transfer into a file into the model. `actual`: the file's bytes in fact.
pub(crate) fn note_file(
    file: &mut Known,
    actual: &[u8],
    span: Span,
    source: &[u8],
    moved: Moved,
) -> Outcome {
    if moved.done > span.length || (moved.errno.is_none() && moved.done < span.length) {
        return Err(format!("{} bytes said to be done of {}", moved.done, span.length));
    }
    let before = file.bytes.len();
    file.note(span.at, &source[..moved.done as usize]);
    let (end, most) = (file.bytes.len(), before.max((span.at + span.length) as usize));
    if moved.errno.is_some() && (end..=most).contains(&actual.len()) {
        file.bytes.resize(actual.len(), 0);
        let rest = (span.at + moved.done) as usize..(most.min(actual.len()));
        for at in rest {
            let new = source.get(at - span.at as usize).copied();
            one_of("after the end of the transfer", at, actual[at], file.bytes[at], new)?;
            file.bytes[at] = actual[at];
        }
    }
    Ok(())
}

/// Also compares the file.
pub(crate) fn into_file(
    file: &mut Known,
    actual: &[u8],
    span: Span,
    source: &[u8],
    moved: Moved,
) -> Outcome {
    note_file(file, actual, span, source, moved)?;
    difference("the file", actual, &file.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::{bytes, zero_pages};

    const SPAN: Span = Span { file: 0, at: 0, offset: 10, length: 20, direct: 0 };

    #[test]
    fn what_was_reported_must_be_there() {
        let pages = zero_pages(1);
        let moved = Moved { done: 20, ..Moved::default() };
        assert_eq!(into_pages(&pages, SPAN, &[7; 20], moved, &|_| None), Ok(true));
        assert_eq!(bytes(&pages, 9..31), [&[0][..], &[7; 20], &[0]].concat());
        let short = Moved { done: 19, ..Moved::default() };
        assert!(into_pages(&pages, SPAN, &[7; 20], short, &|_| None).is_err());
        assert!(into_pages(&pages, SPAN, &[7; 19], moved, &|_| None).is_err());
    }

    #[test]
    fn the_rest_is_old_new_or_zero() {
        let moved = Moved { done: 5, errno: Some(Errno::IO), align: 0 };
        for (byte, right) in [(3, true), (7, true), (0, true), (0xaa, false)] {
            let pages = zero_pages(1);
            store(&pages, 0, &[3; PAGE]);
            let mut seen = [3; PAGE];
            seen[10..15].fill(7);
            seen[20] = byte;
            let result = into_pages(&pages, SPAN, &[7; 20], moved, &|_| Some(seen.to_vec()));
            assert_eq!(result.is_ok(), right, "{byte}");
            if right {
                assert_eq!(bytes(&pages, 0..PAGE), seen);
            }
        }
    }
}
