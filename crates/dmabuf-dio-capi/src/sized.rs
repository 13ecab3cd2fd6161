// SPDX-License-Identifier: MIT OR Apache-2.0
//! Structures that can grow: they begin with their size as the caller knows it, as in openat2(2).

use std::mem::{MaybeUninit, size_of};
use std::ptr;

use crate::failure::{Failure, Outcome};

/// A structure that begins with its size.
///
/// # Safety
///
/// `repr(C)`, without padding; the first field is a `usize`; every pattern of bits, zeroes among
/// them, is a value.
pub(crate) unsafe trait Grows: Copy {
    /// Its name in C.
    const NAME: &'static str;
    /// Its size in version 0.1: the least that a caller can have.
    const FIRST: usize;
}

/// No structure is larger than a page, in any version. A size that was not set usually is.
const LARGEST: usize = 4096;

fn check_size<T: Grows>(size: usize) -> Outcome<()> {
    let errno = match size {
        size if size < T::FIRST => libc::EINVAL,
        size if size > LARGEST => libc::E2BIG,
        _ => return Ok(()),
    };
    let name = T::NAME;
    let message = format!("the size of struct {name} cannot be {size}");
    Err(Failure::new(errno, message, format!("set size to sizeof(struct {name})")))
}

/// Checks the size of a structure that is to be filled later.
///
/// # Safety
///
/// `to` points to as many bytes as its first field says.
pub(crate) unsafe fn check<T: Grows>(to: *const T) -> Outcome<()> {
    // SAFETY: the structure begins with its size.
    check_size::<T>(unsafe { to.cast::<usize>().read() })
}

/// Reads a structure. Missing fields read as zero; extra ones must be zero.
///
/// # Safety
///
/// `from` points to as many bytes as its first field says.
pub(crate) unsafe fn read<T: Grows>(from: *const T) -> Outcome<T> {
    // SAFETY: the structure begins with its size.
    let size = unsafe { from.cast::<usize>().read() };
    check_size::<T>(size)?;
    let mut value = MaybeUninit::<T>::zeroed();
    let known = size.min(size_of::<T>());
    // SAFETY: both have `known` bytes, and zeroes as well as the caller's bytes are a value.
    let value = unsafe {
        ptr::copy_nonoverlapping(from.cast::<u8>(), value.as_mut_ptr().cast(), known);
        value.assume_init()
    };
    // SAFETY: the caller's structure has `size` bytes.
    if (known..size).any(|at| unsafe { from.cast::<u8>().add(at).read() } != 0) {
        return Err(Failure::new(
            libc::E2BIG,
            format!("struct {} has a setting that this version does not know", T::NAME),
            "leave what is new at 0, or use the library that the header belongs to",
        ));
    }
    Ok(value)
}

/// Fills the caller's structure. Fields that this version does not know are set to zero.
///
/// # Safety
///
/// `to` points to as many bytes as its first field says, which may be written.
pub(crate) unsafe fn write<T: Grows>(to: *mut T, value: &T) -> Outcome<()> {
    // SAFETY: the structure begins with its size.
    let size = unsafe { to.cast::<usize>().read() };
    check_size::<T>(size)?;
    let known = size.min(size_of::<T>());
    let head = size_of::<usize>();
    // SAFETY: the caller's structure has `size` bytes, this one `known`; both begin with the size,
    // which stays.
    unsafe {
        let (from, to) = (ptr::from_ref(value).cast::<u8>(), to.cast::<u8>());
        ptr::copy_nonoverlapping(from.add(head), to.add(head), known - head);
        ptr::write_bytes(to.add(known), 0, size - known);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Now {
        size: usize,
        first: u64,
        second: u64,
    }

    // SAFETY: three words.
    unsafe impl Grows for Now {
        const NAME: &'static str = "now";
        const FIRST: usize = 16;
    }

    fn read_words(words: &[u64]) -> Outcome<Now> {
        // SAFETY: each test passes as many words as the first says, but where that is too small.
        unsafe { read(words.as_ptr().cast()) }
    }

    #[test]
    fn missing_fields_read_as_zero_and_extra_ones_must_be_zero() {
        let old = read_words(&[16, 7]).expect("an older program");
        assert_eq!((old.first, old.second), (7, 0));
        let new = read_words(&[32, 7, 8, 0]).expect("a newer program");
        assert_eq!((new.size, new.first, new.second), (32, 7, 8));
        let error = read_words(&[32, 7, 8, 1 << 63]).map(|_| ()).expect_err("unknown");
        assert_eq!(error.errno, libc::E2BIG);
        let error = read_words(&[15, 7]).map(|_| ()).expect_err("too small");
        assert_eq!(error.errno, libc::EINVAL);
    }

    #[test]
    fn no_byte_is_written_beyond_the_size() {
        let value = Now { size: 0, first: 1, second: 2 };
        let mut words: [u64; 4] = [16, 9, 9, 9];
        // SAFETY: there are more words than the first says.
        unsafe { write(words.as_mut_ptr().cast(), &value) }.expect("an older program");
        assert_eq!(words, [16, 1, 9, 9]);
        words[0] = 32;
        // SAFETY: as above.
        unsafe { write(words.as_mut_ptr().cast(), &value) }.expect("a newer program");
        assert_eq!(words, [32, 1, 2, 0]);
    }

    /// The size is like the content of an uninitialised structure on the stack.
    #[test]
    fn absurd_structure_size_is_refused() {
        for size in [1 << 20, u64::MAX] {
            let mut words = [size, 7, 8, 9];
            let error = read_words(&words).map(|_| ()).expect_err("too large");
            assert_eq!(error.errno, libc::E2BIG);
            let value = Now { size: 0, first: 1, second: 2 };
            // SAFETY: nothing is written if the size is too large.
            let error = unsafe { write(words.as_mut_ptr().cast(), &value) }.expect_err("too large");
            assert_eq!((error.errno, words), (libc::E2BIG, [size, 7, 8, 9]));
        }
    }
}
