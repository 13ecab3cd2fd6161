// SPDX-License-Identifier: MIT OR Apache-2.0
//! Filters of system calls, as container engines install them (seccomp(2)).

use std::io;

/// A call and its number.
pub(crate) type Call = (&'static str, libc::c_long);

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
pub(crate) const NEEDED: &[Call] = &[
    ("openat", libc::SYS_openat),
    ("read", libc::SYS_read),
    ("write", libc::SYS_write),
    ("close", libc::SYS_close),
    ("mmap", libc::SYS_mmap),
    ("munmap", libc::SYS_munmap),
    ("mprotect", libc::SYS_mprotect),
    ("brk", libc::SYS_brk),
    ("futex", libc::SYS_futex),
    ("clone3", libc::SYS_clone3),
    ("clone", libc::SYS_clone),
    ("exit", libc::SYS_exit),
    ("exit_group", libc::SYS_exit_group),
    ("rt_sigaction", libc::SYS_rt_sigaction),
    ("rt_sigprocmask", libc::SYS_rt_sigprocmask),
    ("rt_sigreturn", libc::SYS_rt_sigreturn),
    ("sigaltstack", libc::SYS_sigaltstack),
    ("set_robust_list", libc::SYS_set_robust_list),
    ("rseq", libc::SYS_rseq),
    ("gettid", libc::SYS_gettid),
    ("getpid", libc::SYS_getpid),
    ("geteuid", libc::SYS_geteuid),
    #[cfg(target_arch = "x86_64")]
    ("open", libc::SYS_open),
    ("tgkill", libc::SYS_tgkill),
    ("execve", libc::SYS_execve),
    ("restart_syscall", libc::SYS_restart_syscall),
    ("sched_yield", libc::SYS_sched_yield),
];

/// What the library calls in loads, views, gathers and loads by path.
pub(crate) const OURS: &[Call] = &[
    ("statx", libc::SYS_statx),
    ("fstat", libc::SYS_fstat),
    ("newfstatat", libc::SYS_newfstatat),
    ("statfs", libc::SYS_statfs),
    ("fstatfs", libc::SYS_fstatfs),
    ("lseek", libc::SYS_lseek),
    ("pread64", libc::SYS_pread64),
    ("preadv", libc::SYS_preadv),
    ("pwrite64", libc::SYS_pwrite64),
    ("fcntl", libc::SYS_fcntl),
    ("ioctl", libc::SYS_ioctl),
    ("memfd_create", libc::SYS_memfd_create),
    ("ftruncate", libc::SYS_ftruncate),
    ("fallocate", libc::SYS_fallocate),
    ("madvise", libc::SYS_madvise),
    ("mremap", libc::SYS_mremap),
    ("mincore", libc::SYS_mincore),
    ("fadvise64", libc::SYS_fadvise64),
    ("io_uring_setup", libc::SYS_io_uring_setup),
    ("io_uring_enter", libc::SYS_io_uring_enter),
    ("io_uring_register", libc::SYS_io_uring_register),
    ("getrandom", libc::SYS_getrandom),
    ("getrusage", libc::SYS_getrusage),
    ("prlimit64", libc::SYS_prlimit64),
    ("sched_getaffinity", libc::SYS_sched_getaffinity),
    ("getdents64", libc::SYS_getdents64),
    ("readlinkat", libc::SYS_readlinkat),
    #[cfg(target_arch = "x86_64")]
    ("readlink", libc::SYS_readlink),
    ("faccessat2", libc::SYS_faccessat2),
    ("uname", libc::SYS_uname),
    ("sysinfo", libc::SYS_sysinfo),
    ("cachestat", 451),
    ("flock", libc::SYS_flock),
    ("prctl", libc::SYS_prctl),
    ("ppoll", libc::SYS_ppoll),
    ("clock_nanosleep", libc::SYS_clock_nanosleep),
];
