// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits of this process.

use rustix::process::Resource;

/// The current limit; `None` if there is none, or if the call is blocked. In that case exceeding the
/// limit fails later.
///
/// rustix takes it for a call that cannot fail.
pub(crate) fn current(resource: Resource) -> Option<u64> {
    let mut limit = libc::rlimit64 { rlim_cur: libc::RLIM64_INFINITY, rlim_max: 0 };
    // SAFETY: the call writes the limit, which exists; 0 is this process.
    let failed = unsafe {
        let (old, none) = (&raw mut limit, std::ptr::null::<libc::rlimit64>());
        libc::syscall(libc::SYS_prlimit64, 0, resource as libc::c_int, none, old)
    };
    (failed == 0 && limit.rlim_cur != libc::RLIM64_INFINITY).then_some(limit.rlim_cur)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn current_limits_match_getrlimit() {
        for resource in [Resource::Nofile, Resource::Memlock, Resource::Fsize, Resource::Stack] {
            assert_eq!(current(resource), rustix::process::getrlimit(resource).current);
        }
    }
}
