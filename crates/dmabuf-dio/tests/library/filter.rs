// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads in which system calls fail.

/// A system call, optionally only with a certain third argument.
pub(crate) struct Call {
    number: libc::c_long,
    third: Option<u32>,
}

impl Call {
    pub(crate) const fn any(number: libc::c_long) -> Self {
        Self { number, third: None }
    }

    pub(crate) const fn with(number: libc::c_long, third: i32) -> Self {
        Self { number, third: Some(third as u32) }
    }
}

/// Makes calls fail in the calling thread until it exits.
fn without(calls: &[Call], errno: i32) -> std::io::Result<()> {
    let statement = |code: u32, k| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let load = |offset: usize| statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset as u32);
    let equal = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    let unless = |k, skipped| libc::sock_filter { code: equal, jt: 0, jf: skipped, k };
    let fail = statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | errno as u32);
    // The lower half of the argument: these calls' values fit into it.
    let lower = if cfg!(target_endian = "big") { 4 } else { 0 };
    let third = std::mem::offset_of!(libc::seccomp_data, args) + 2 * 8 + lower;
    let mut filter = Vec::new();
    for call in calls {
        filter.push(load(std::mem::offset_of!(libc::seccomp_data, nr)));
        match call.third {
            None => filter.extend([unless(call.number as u32, 1), fail]),
            Some(value) => {
                filter.extend([unless(call.number as u32, 3), load(third), unless(value, 1), fail]);
            }
        }
    }
    filter.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW));
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program lives until the call, which copies it, returns.
    let failed = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        let mode = libc::SECCOMP_SET_MODE_FILTER;
        libc::syscall(libc::SYS_seccomp, mode, 0, &raw const program) != 0
    };
    if failed { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

/// Runs `test` in a thread in which these calls fail with that number, if that is possible here.
/// Threads that it starts inherit this.
pub(crate) fn failing(calls: &[Call], errno: i32, test: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let test = || match without(calls, errno) {
            Ok(()) => test(),
            Err(error) => println!("skipped: no filters for system calls: {error}"),
        };
        scope.spawn(test).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}
