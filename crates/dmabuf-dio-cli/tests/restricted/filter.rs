// SPDX-License-Identifier: MIT OR Apache-2.0
//! Filters of system calls, as container engines install them (seccomp(2)).

use std::io;

/// A call and its number.
pub(crate) type Call = (&'static str, libc::c_long);

/// Calls by the names of their numbers, and others.
macro_rules! calls {
    ($($call:ident)*; $($others:tt)*) => {
        &[$((stringify!($call), libc::$call),)* $($others)*]
    };
}

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;

/// One call fails with `errno` from now on, in this thread and those that it starts.
pub(crate) fn block(call: libc::c_long, errno: i32) -> io::Result<()> {
    let refuse = libc::SECCOMP_RET_ERRNO | errno as u32;
    install(&mut [load_number(), jump(call, 0, 1), ret(refuse), ret(ALLOW)])
}

/// Calls other than these end the process.
pub(crate) fn only(calls: &[Call]) -> io::Result<()> {
    let mut program = vec![load_number()];
    for (number, (_, call)) in calls.iter().enumerate() {
        // To the last instruction
        program.push(jump(*call, (calls.len() - number) as u8, 0));
    }
    program.extend([ret(libc::SECCOMP_RET_KILL_PROCESS), ret(ALLOW)]);
    install(&mut program)
}

fn load_number() -> libc::sock_filter {
    // The number is the first field of struct seccomp_data.
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0)
}

fn jump(call: libc::c_long, if_equal: u8, otherwise: u8) -> libc::sock_filter {
    instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, call as u32, if_equal, otherwise)
}

fn ret(action: u32) -> libc::sock_filter {
    instruction(libc::BPF_RET | libc::BPF_K, action, 0, 0)
}

fn instruction(code: u32, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

/// Allocates nothing: it is called between fork and exec.
fn install(program: &mut [libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the first call takes numbers, the second reads the program, which exists.
    let failed = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
            || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) != 0
    };
    if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// No program runs without these, or none of this test.
pub(crate) const NEEDED: &[Call] = calls! {
    SYS_openat SYS_read SYS_write SYS_close SYS_mmap SYS_munmap SYS_mprotect SYS_brk SYS_futex SYS_clone3
    SYS_clone SYS_exit SYS_exit_group SYS_rt_sigaction SYS_rt_sigprocmask SYS_rt_sigreturn SYS_sigaltstack
    SYS_set_robust_list SYS_rseq SYS_gettid SYS_getpid SYS_geteuid SYS_tgkill SYS_execve SYS_restart_syscall
    SYS_sched_yield;
    #[cfg(target_arch = "x86_64")] ("SYS_open", libc::SYS_open)
};

/// System calls of the library in loads, views, gathers and loads by path.
pub(crate) const OURS: &[Call] = calls! {
    SYS_statx SYS_fstat SYS_newfstatat SYS_statfs SYS_fstatfs SYS_lseek SYS_pread64 SYS_preadv SYS_pwrite64
    SYS_fcntl SYS_ioctl SYS_memfd_create SYS_ftruncate SYS_fallocate SYS_madvise SYS_mremap SYS_mincore
    SYS_fadvise64 SYS_io_uring_setup SYS_io_uring_enter SYS_io_uring_register SYS_getrandom SYS_getrusage
    SYS_prlimit64 SYS_sched_getaffinity SYS_getdents64 SYS_readlinkat SYS_faccessat2 SYS_uname SYS_sysinfo
    SYS_flock SYS_prctl SYS_ppoll SYS_clock_nanosleep;
    #[cfg(target_arch = "x86_64")] ("SYS_readlink", libc::SYS_readlink), ("SYS_cachestat", 451)
};
