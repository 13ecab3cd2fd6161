// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who may read a file.

use std::os::fd::AsFd;

use rustix::io::Errno;

/// Bits of the owner.
const OWNER: u32 = 0o700;

/// The mode of a file, for all who are not its owner as its list of permissions has it: the bits of the group are those of the mask
/// there, and single users may be let in or kept out. Where they differ, nobody but the owner is left.
pub(crate) fn mode(fd: impl AsFd, mode: u32) -> u32 {
    let mut list = vec![0; 1 << 16];
    match rustix::fs::fgetxattr(fd, "system.posix_acl_access", &mut list) {
        Ok(length) if all_read(&list[..length]) => mode,
        Err(Errno::NODATA | Errno::OPNOTSUPP) => mode,
        _ => mode & !0o777 | mode & OWNER,
    }
}

/// Whether all users and groups of a list may read: `posix_acl_xattr.h`.
pub(crate) fn all_read(list: &[u8]) -> bool {
    const MASK: u16 = 0x10;
    let Some((version, entries)) = list.split_first_chunk::<4>() else { return false };
    let entries = || {
        entries.chunks_exact(8).map(|entry| {
            let number = |at: usize| u16::from_le_bytes([entry[at], entry[at + 1]]);
            (number(0), number(2) & 4 != 0)
        })
    };
    let named = [0x02, 0x04, 0x08, MASK];
    u32::from_le_bytes(*version) == 2
        && entries().all(|(tag, reads)| reads || !named.contains(&tag))
}

/// The mode of a kept file. If it has not the group of its source, members of that group are among the others.
pub(crate) fn kept(mode: u32, same_group: bool) -> u32 {
    let all = match (same_group, mode & 0o040 != 0) {
        (true, _) => 0o444,
        (false, true) => 0o404,
        (false, false) => 0o400,
    };
    mode & all | 0o400
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_are_let_in_only_where_the_group_was() {
        for (source, same, wanted) in [
            (0o644, true, 0o444),
            (0o644, false, 0o404),
            (0o604, true, 0o404),
            (0o604, false, 0o400),
            (0o640, false, 0o400),
            (0o200, true, 0o400),
        ] {
            assert_eq!(kept(source, same), wanted, "{source:o}");
        }
    }

    #[test]
    fn list_that_lets_in_or_keeps_out_single_users_leaves_the_owner() {
        let list = |entries: &[(u16, u16)]| {
            let mut bytes = 2_u32.to_le_bytes().to_vec();
            for (tag, bits) in entries {
                bytes.extend([tag.to_le_bytes(), bits.to_le_bytes(), [255; 2], [255; 2]].concat());
            }
            bytes
        };
        // Owner, a user, the group, the mask, others
        let let_in = list(&[(1, 6), (2, 4), (4, 0), (0x10, 4), (0x20, 0)]);
        let kept_out = list(&[(1, 6), (2, 0), (4, 4), (0x10, 4), (0x20, 4)]);
        let masked = list(&[(1, 6), (2, 4), (4, 4), (0x10, 0), (0x20, 4)]);
        let alike = list(&[(1, 6), (2, 6), (4, 4), (0x10, 4), (0x20, 0)]);
        for (list, wanted) in
            [(&let_in, false), (&kept_out, false), (&masked, false), (&alike, true)]
        {
            assert_eq!(all_read(list), wanted, "{list:?}");
        }
        assert!(!all_read(&[]) && !all_read(&[1, 0, 0, 0]));
    }

    #[test]
    fn file_with_a_list_is_the_owners() {
        let parent = std::env::var_os("DMABUF_DIO_TEST_DIR");
        let parent = parent.unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
        let file = tempfile::tempfile_in(parent).expect("a file");
        let mut list = 2_u32.to_le_bytes().to_vec();
        for (tag, bits, id) in [(1, 6, u32::MAX), (2, 4, 0), (4, 0, u32::MAX)]
            .into_iter()
            .chain([(0x10, 4, u32::MAX), (0x20, 0, u32::MAX)])
        {
            let (tag, bits): (u16, u16) = (tag, bits);
            list.extend([&tag.to_le_bytes()[..], &bits.to_le_bytes(), &id.to_le_bytes()].concat());
        }
        let name = "system.posix_acl_access";
        let flags = rustix::fs::XattrFlags::empty();
        match rustix::fs::fsetxattr(&file, name, &list, flags) {
            Err(Errno::OPNOTSUPP) => return println!("skipped: no lists of permissions here"),
            set => set.expect("a list"),
        }
        let found = rustix::fs::fstat(&file).expect("stat").st_mode;
        assert_eq!(found & 0o777, 0o640, "the mask");
        assert_eq!(mode(&file, found) & 0o777, 0o600);
    }
}
