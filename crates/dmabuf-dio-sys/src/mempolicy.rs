// SPDX-License-Identifier: MIT OR Apache-2.0
//! NUMA memory policy: `mbind(2)`, `set_mempolicy(2)`, `get_mempolicy(2)`, and `move_pages(2)`, which says
//! where many pages are.

use std::ffi::{c_int, c_long, c_ulong, c_void};
use std::ptr;

use crate::{Errno, Result};

/// The most nodes that a kernel can have, in any configuration.
const MOST: usize = 1024;
const BITS: usize = c_ulong::BITS as usize;

/// A set of nodes, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nodes([c_ulong; MOST / BITS]);

impl Nodes {
    /// No node.
    pub const NONE: Self = Self([0; MOST / BITS]);

    /// One node; `None` if the number is above that of any kernel.
    pub fn one(node: u32) -> Option<Self> {
        let mut nodes = Self::NONE;
        let index = node as usize;
        *nodes.0.get_mut(index / BITS)? |= 1 << (index % BITS);
        Some(nodes)
    }

    /// These and others.
    #[must_use]
    pub fn with(mut self, others: Self) -> Self {
        for (word, more) in self.0.iter_mut().zip(others.0) {
            *word |= more;
        }
        self
    }

    /// Whether the node is one of them.
    pub fn has(&self, node: u32) -> bool {
        let index = node as usize;
        self.0.get(index / BITS).is_some_and(|word| word >> (index % BITS) & 1 == 1)
    }

    /// Their numbers, ascending.
    pub fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        (0..MOST as u32).filter(|node| self.has(*node))
    }
}

/// Where the kernel allocates pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// `MPOL_*` and its flags, as in `set_mempolicy(2)`.
    pub mode: c_int,
    /// The nodes that it is about.
    pub nodes: Nodes,
}

impl Policy {
    /// The nodes, and no other (`MPOL_BIND`).
    pub fn bind(nodes: Nodes) -> Self {
        Self { mode: libc::MPOL_BIND, nodes }
    }

    /// The node, and others where it has no memory (`MPOL_PREFERRED`).
    pub fn prefer(nodes: Nodes) -> Self {
        Self { mode: libc::MPOL_PREFERRED, nodes }
    }

    /// The nodes in turn (`MPOL_INTERLEAVE`).
    pub fn interleave(nodes: Nodes) -> Self {
        Self { mode: libc::MPOL_INTERLEAVE, nodes }
    }

    /// The node of the processor that touches or allocates a page (`MPOL_LOCAL`).
    pub fn local() -> Self {
        Self { mode: libc::MPOL_LOCAL, nodes: Nodes::NONE }
    }
}

/// The kernel takes the number of bits and one more.
const MAXNODE: c_ulong = MOST as c_ulong + 1;

fn result(returned: c_long) -> Result<()> {
    if returned == -1 { Err(Errno::from(&std::io::Error::last_os_error())) } else { Ok(()) }
}

/// Sets where pages of mapped memory will be allocated, from the address `start`, a multiple of the page size, on. Those
/// that exist stay where they are. For memory of a tmpfs or memfd it holds for the file.
///
/// # Errors
///
/// `EINVAL`: no node of the policy has memory that this process may use. `EFAULT`: part of the range is not
/// mapped. `ENOSYS`: a kernel without NUMA, or blocked. `EPERM`: blocked. `ENOMEM`.
pub fn bind(start: usize, len: usize, policy: &Policy) -> Result<()> {
    let (mode, nodes) = (policy.mode as c_ulong, policy.nodes.0.as_ptr());
    // SAFETY: the call reads as many nodes as there are, and changes neither content nor validity of memory.
    result(unsafe { libc::syscall(libc::SYS_mbind, start, len, mode, nodes, MAXNODE, 0_u32) })
}

/// Sets where pages that this thread allocates will be, unless their memory has a policy of its own.
///
/// # Errors
///
/// As for [`bind`].
pub fn set_thread(policy: &Policy) -> Result<()> {
    // The default has no nodes.
    let is_empty = policy.nodes == Nodes::NONE;
    let nodes = if is_empty { ptr::null() } else { policy.nodes.0.as_ptr() };
    let most = if is_empty { 0 } else { MAXNODE };
    // SAFETY: the call reads as many nodes as there are.
    result(unsafe { libc::syscall(libc::SYS_set_mempolicy, policy.mode, nodes, most) })
}

/// The policy of this thread, for [`set_thread`].
///
/// # Errors
///
/// `ENOSYS`: a kernel without NUMA, or blocked. `EPERM`: blocked.
pub fn thread() -> Result<Policy> {
    get(0)
}

/// The nodes with memory that this thread may use.
///
/// # Errors
///
/// As for [`thread`].
pub fn allowed() -> Result<Nodes> {
    get(MEMS_ALLOWED).map(|policy| policy.nodes)
}

/// `MPOL_F_NODE`.
const NODE: c_ulong = 1 << 0;
/// `MPOL_F_ADDR`.
const ADDR: c_ulong = 1 << 1;

/// The node of the page at an address of the process. The page is read, so that it exists.
///
/// # Errors
///
/// `EFAULT`: nothing is mapped there, or there is no page. `ENOSYS`: a kernel without NUMA, or blocked. `EPERM`: blocked.
pub fn place(page: *const c_void) -> Result<u32> {
    let (mut node, none) = (0_u32, ptr::null_mut::<c_ulong>());
    let address = page.addr();
    // SAFETY: the call stores a number, and the content of the page does not change.
    result(unsafe {
        libc::syscall(libc::SYS_get_mempolicy, &raw mut node, none, 0_usize, address, NODE | ADDR)
    })?;
    Ok(node)
}

/// `MPOL_F_MEMS_ALLOWED`.
const MEMS_ALLOWED: c_ulong = 1 << 2;

fn get(flags: c_ulong) -> Result<Policy> {
    let (mut mode, mut nodes) = (0, Nodes::NONE);
    let (to, none) = (nodes.0.as_mut_ptr(), ptr::null::<c_void>());
    // Here there is no other bit: for one more, a 32-bit program would get one more word.
    let most = MOST as c_ulong;
    // SAFETY: the call fills a number and as many nodes as there is room for, and looks at no address.
    result(unsafe {
        libc::syscall(libc::SYS_get_mempolicy, &raw mut mode, to, most, none, flags)
    })?;
    Ok(Policy { mode, nodes })
}

/// The node of the processor that runs this thread.
///
/// # Errors
///
/// `ENOSYS` or `EPERM`: blocked.
pub fn here() -> Result<u32> {
    let mut node = 0_u32;
    let none = ptr::null_mut::<u32>();
    // SAFETY: the call stores a number.
    result(unsafe { libc::syscall(libc::SYS_getcpu, none, &raw mut node, none) })?;
    Ok(node)
}

/// Stores in `found` the nodes of the pages at these addresses of the process; a negative number is an error
/// number: `-ENOENT` or `-EFAULT` for a page that is not there.
///
/// # Errors
///
/// `ENOSYS`: a kernel without NUMA, or blocked. `EPERM`: blocked.
///
/// # Panics
///
/// If `found` has not as many places as there are addresses.
pub fn places(pages: &[*const c_void], found: &mut [c_int]) -> Result<()> {
    assert_eq!(pages.len(), found.len());
    let none = ptr::null::<c_int>();
    let (count, to) = (pages.len() as c_ulong, found.as_mut_ptr());
    // SAFETY: the call reads the addresses and stores as many numbers. Without nodes it moves nothing.
    result(unsafe { libc::syscall(libc::SYS_move_pages, 0, count, pages.as_ptr(), none, to, 0) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_nodes_have_their_numbers() {
        let last = Nodes::one(MOST as u32 - 1).expect("a node");
        assert_eq!(last.numbers().collect::<Vec<_>>(), [MOST as u32 - 1]);
        assert_eq!(Nodes::one(MOST as u32), None);
        let three = Nodes::one(3).expect("a node");
        assert!(three.has(3) && !three.has(2) && !three.has(u32::MAX));
        assert_eq!(Nodes::NONE.numbers().count(), 0);
    }

    #[test]
    fn policy_of_a_thread_is_restored() {
        let before = match thread() {
            Ok(policy) => policy,
            Err(errno) => return println!("skipped: no NUMA: {errno}"),
        };
        let allowed = allowed().expect("the same call");
        assert!(allowed.numbers().count() > 0);
        let interleave = Policy::interleave(allowed);
        set_thread(&interleave).expect("set");
        assert_eq!(thread(), Ok(interleave));
        set_thread(&before).expect("restored");
        assert_eq!(thread(), Ok(before));
        assert_eq!(set_thread(&Policy::bind(Nodes::NONE)), Err(Errno::INVAL));
    }

    #[test]
    fn pages_are_found_on_the_node_that_was_set() {
        let Ok(allowed) = allowed() else { return println!("skipped: no NUMA") };
        let page = rustix::param::page_size();
        let (none, flags) = (ptr::null_mut(), libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: new memory at an address of the kernel's choice.
        let memory =
            unsafe { libc::mmap(none, 2 * page, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        assert_ne!(memory, libc::MAP_FAILED);
        let last = allowed.numbers().last().expect("a node");
        bind(memory.addr(), 2 * page, &Policy::bind(Nodes::one(last).expect("a node")))
            .expect("bound");
        // SAFETY: within the memory.
        unsafe { memory.cast::<u8>().write_volatile(1) };
        let mut found = [-1; 2];
        // SAFETY: within the memory.
        let pages = unsafe { [memory.cast_const(), memory.byte_add(page).cast_const()] };
        assert_eq!(place(pages[0]), Ok(last));
        match places(&pages, &mut found) {
            Ok(()) => {
                assert_eq!(found[0], last as c_int);
                assert!(found[1] < 0, "it was not touched: {}", found[1]);
            }
            Err(errno) => println!("not looked at: {errno}"),
        }
        // SAFETY: nothing else uses the memory.
        unsafe { libc::munmap(memory, 2 * page) };
    }
}
