// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls with any arguments, and memory for them.

use super::domain::MEMORY;

/// What a call returns: a number, or its error.
pub(crate) type Answer = Result<u64, i32>;

/// Makes a system call. Its arguments may be wrong in every way: what it may overwrite is not Rust's.
pub(crate) fn call(number: libc::c_long, args: [u64; 6]) -> Answer {
    // SAFETY: the callers give addresses of memory that they have mapped for it, or none that is mapped.
    let ret =
        unsafe { libc::syscall(number, args[0], args[1], args[2], args[3], args[4], args[5]) };
    if ret < 0 {
        return Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0));
    }
    Ok(ret as u64)
}

pub(crate) fn ioctl(fd: i32, request: u64, address: u64) -> Answer {
    call(libc::SYS_ioctl, [fd as u64, request, address, 0, 0, 0])
}

/// `_IOC()`
pub(crate) fn request(dir: u64, kind: u64, number: u64, size: u64) -> u64 {
    (dir & 3) << 30 | (size & 0x3fff) << 16 | (kind & 0xff) << 8 | number & 0xff
}

pub(crate) fn close(fd: i32) -> Answer {
    call(libc::SYS_close, [fd as u64, 0, 0, 0, 0, 0])
}

/// `fd`: -1 for new memory.
pub(crate) fn map(length: u64, access: i32, flags: i32, fd: i32, at: u64) -> Answer {
    call(libc::SYS_mmap, [0, length, access as u64, flags as u64, fd as u64, at])
}

/// Integers one after the other, each with its width in bytes.
pub(crate) fn pack(fields: &[(u64, usize)]) -> Vec<u8> {
    fields.iter().flat_map(|(value, width)| value.to_ne_bytes().into_iter().take(*width)).collect()
}

/// The integer of a place; `None` if the structure ends before.
pub(crate) fn unpack(bytes: &[u8], at: usize, width: usize) -> Option<u64> {
    let mut whole = [0; 8];
    whole[..width].copy_from_slice(bytes.get(at..at + width)?);
    Some(u64::from_ne_bytes(whole))
}

const PAGE: u64 = 4096;
/// Bytes for a structure; none is mapped behind.
const ROOM: u64 = 5 * PAGE;
/// Before a structure
const CANARY: [u8; 32] = [0x5a; 32];

/// A structure in memory, which stays mapped: threads and rings may still use it.
pub(crate) struct Placed {
    pub(crate) address: u64,
    /// What is there can be looked at.
    length: Option<usize>,
}

fn store(address: u64, bytes: &[u8]) {
    // SAFETY: the callers have mapped as many bytes there, for nothing else.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), address as *mut u8, bytes.len()) };
}

fn load(address: u64, length: usize) -> Vec<u8> {
    // SAFETY: as many bytes are mapped there; the calls that use them have ended.
    unsafe { std::slice::from_raw_parts(address as *const u8, length) }.to_vec()
}

/// Puts a structure where `memory` says; `shared`: a buffer for that.
pub(crate) fn place(bytes: &[u8], memory: u64, shared: i32) -> Placed {
    let bytes = &bytes[..bytes.len().min(ROOM as usize - CANARY.len() - 1)];
    let length = bytes.len() as u64;
    let nowhere = |address| Placed { address, length: None };
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let word = MEMORY.get(memory as usize).copied().unwrap_or("null");
    match word {
        "null" => return nowhere(0),
        "kernel" => return nowhere(0xffff_8880_0010_0000),
        "beyond" => return nowhere((1 << 47) - length / 2),
        "wraps" => return nowhere(u64::MAX - length / 2),
        "buffer" => {
            let Ok(start) = map(4 * PAGE, access, libc::MAP_SHARED, shared, 0) else {
                return nowhere(0);
            };
            let address = start + PAGE - length / 2;
            store(address.max(start), &bytes[..bytes.len().min(2 * PAGE as usize)]);
            return nowhere(address.max(start));
        }
        _ => {}
    }
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let Ok(start) = map(ROOM + PAGE, access, flags, -1, 0) else { return nowhere(0) };
    let end = start + ROOM;
    let _ = call(libc::SYS_mprotect, [end, PAGE, 0, 0, 0, 0]);
    let address = match word {
        // The last bytes are not there.
        "cut" => end - length + 4.min(length),
        "odd-address" => end - length - 1,
        _ => end - length,
    };
    store(address - CANARY.len() as u64, &CANARY);
    store(address, &bytes[..bytes.len().min((end - address) as usize)]);
    if word == "read-only" {
        let access = libc::PROT_READ as u64;
        let _ = call(libc::SYS_mprotect, [start, ROOM, access, 0, 0, 0]);
    }
    Placed { address, length: (word != "cut").then_some(bytes.len()) }
}

impl Placed {
    /// What is there now.
    pub(crate) fn bytes(&self) -> Option<Vec<u8>> {
        self.length.map(|length| load(self.address, length))
    }

    /// Is what lies before it as it was?
    pub(crate) fn is_alone(&self) -> bool {
        let before = |_| load(self.address - CANARY.len() as u64, CANARY.len()) == CANARY;
        self.length.is_none_or(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_end_where_nothing_is_mapped() {
        let placed = place(&[1, 2, 3], 0, -1);
        assert_eq!(placed.bytes(), Some(vec![1, 2, 3]));
        assert_eq!((placed.address + 3) % PAGE, 0);
        assert!(placed.is_alone());
        store(placed.address - 1, &[0]);
        assert!(!placed.is_alone());
        assert_eq!(place(&[1], 4, -1).bytes(), None);
    }

    #[test]
    fn integers_are_packed() {
        let bytes = pack(&[(0x0102, 4), (u64::MAX, 8)]);
        assert_eq!(bytes.len(), 12);
        assert_eq!(unpack(&bytes, 0, 4), Some(0x0102));
        assert_eq!(unpack(&bytes, 4, 8), Some(u64::MAX));
        assert_eq!(unpack(&bytes, 8, 8), None);
        assert_eq!(request(3, 0xdb, 2, 72), u64::from(dmabuf_dio_sys::dio::IOC_READ));
    }
}
