// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shared memory in huge pages that nobody has to configure: a file without a name, in a tmpfs
//! that is mounted for it and attached nowhere.
//!
//! A memfd gets huge pages only if root has set
//! `/sys/kernel/mm/transparent_hugepage/shmem_enabled`, but every tmpfs has an option of its own
//! for that (tmpfs(5), `huge=always`). Who may mount, mounts one; anyone else may do so in a user
//! namespace, where that is not forbidden. The mount goes when the file does.

use std::ffi::{CStr, CString, c_int, c_void};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno as Os;
use rustix::mount::{self, FsMountFlags, FsOpenFlags, MountAttrFlags};

use crate::memory::{HUGE_PAGE, round_up};

/// Creates a file for up to `len` bytes, of length 0.
pub(crate) fn create(len: u64) -> rustix::io::Result<OwnedFd> {
    // The limit counts huge pages as a whole, also the last one.
    let size = round_up(len, HUGE_PAGE).ok_or(Os::OVERFLOW)?.to_string();
    let size = CString::new(size).map_err(|_| Os::INVAL)?;
    match create_here(&size) {
        Err(Os::PERM) => create_in_user_namespace(&size),
        result => result,
    }
}

/// With the rights of the calling thread. Allocates nothing: a child process calls it, too.
fn create_here(size: &CStr) -> rustix::io::Result<OwnedFd> {
    let tmpfs = mount::fsopen(c"tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    mount::fsconfig_set_string(&tmpfs, c"huge", c"always")?;
    mount::fsconfig_set_string(&tmpfs, c"size", size)?;
    mount::fsconfig_create(&tmpfs)?;
    let root = mount::fsmount(&tmpfs, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    fs::openat(&root, c".", flags, Mode::RUSR | Mode::WUSR)
}

/// What the child process needs, made before it starts.
struct Job<'a> {
    size: &'a CStr,
    uid_map: String,
    gid_map: String,
    /// The descriptor that is to become the file.
    place: RawFd,
    result: rustix::io::Result<()>,
}

/// Lets a child process do it, which has the rights in a user namespace of its own.
fn create_in_user_namespace(size: &CStr) -> rustix::io::Result<OwnedFd> {
    let place = fs::open(c"/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut job = Job {
        size,
        uid_map: format!("0 {} 1", rustix::process::geteuid().as_raw()),
        gid_map: format!("0 {} 1", rustix::process::getegid().as_raw()),
        place: place.as_raw_fd(),
        result: Err(Os::CHILD),
    };
    let mut stack = vec![0_u128; 4096];
    let blocked = BlockedSignals::new();
    // As posix_spawn(3) does it: the child runs on this memory, with a stack of its own, while
    // this thread waits. It shares the table of descriptors, so that its file becomes ours, and
    // tells nobody of its end.
    let flags = libc::CLONE_VM
        | libc::CLONE_VFORK
        | libc::CLONE_FILES
        | libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS;
    // SAFETY: the stack is 64 KiB, aligned, and grows down from the end that is given; it and
    // the job live until the child is gone, as CLONE_VFORK waits for that. The child makes
    // system calls and touches nothing but the job.
    let child = unsafe {
        libc::clone(child_main, stack.as_mut_ptr_range().end.cast(), flags, (&raw mut job).cast())
    };
    let error = std::io::Error::last_os_error();
    drop(blocked);
    if child < 0 {
        return Err(Os::from_io_error(&error).unwrap_or(Os::PERM));
    }
    // SAFETY: waits for the child just started; it wants no status.
    while unsafe { libc::waitpid(child, std::ptr::null_mut(), libc::__WALL) } < 0
        && std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted
    {}
    job.result.map(|()| place)
}

extern "C" fn child_main(job: *mut c_void) -> c_int {
    // SAFETY: the job that `create_in_user_namespace` passes, which it leaves alone meanwhile.
    let job = unsafe { &mut *job.cast::<Job<'_>>() };
    job.result = child(job);
    0
}

fn child(job: &Job<'_>) -> rustix::io::Result<()> {
    // Without them the owner of the file would be nobody, whom tmpfs does not let own one.
    write(c"/proc/self/setgroups", "deny")?;
    write(c"/proc/self/uid_map", &job.uid_map)?;
    write(c"/proc/self/gid_map", &job.gid_map)?;
    let file = create_here(job.size)?;
    // SAFETY: replaces a descriptor that the parent opened for that.
    match unsafe { libc::dup3(file.as_raw_fd(), job.place, libc::O_CLOEXEC) } {
        -1 => Err(Os::MFILE),
        _ => Ok(()),
    }
}

fn write(path: &CStr, text: &str) -> rustix::io::Result<()> {
    let file = fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(&file, text.as_bytes()).map(|_| ())
}

/// No signal is delivered to this thread, nor to its child, while this lives.
struct BlockedSignals(libc::sigset_t);

impl BlockedSignals {
    fn new() -> Self {
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: the first call fills `all`, the second reads it and fills `before`.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            Self(before.assume_init())
        }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: sets back the mask that `new` found.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut())
        };
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::FromRawFd as _;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn with_rights_and_without() {
        for made in [create(5 << 20), create_in_user_namespace(c"6291456")] {
            let Ok(file) = made else { continue };
            fs::ftruncate(&file, 5 << 20).expect("a length");
            assert_eq!(rustix::io::pwrite(&file, b"x", 5 << 19), Ok(1));
            assert_eq!(fs::fstat(&file).expect("stat").st_nlink, 0);
        }
    }

    #[test]
    fn the_child_is_gone_and_signals_are_as_before() {
        let _ = create_in_user_namespace(c"4096");
        // SAFETY: asks for any child that has ended; there may be none.
        let left = unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::__WALL | libc::WNOHANG) };
        assert!(left <= 0, "child {left} is left");
        let mut now = MaybeUninit::uninit();
        // SAFETY: fills `now` with the present mask, which is then read.
        let usr1 = unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), now.as_mut_ptr());
            libc::sigismember(now.as_ptr(), libc::SIGUSR1)
        };
        assert_eq!(usr1, 0);
    }

    static DELIVERED: AtomicU32 = AtomicU32::new(0);

    extern "C" fn count(_: c_int) {
        DELIVERED.fetch_add(1, Ordering::Relaxed);
    }

    /// Holds every `openat` of the calling thread and its children until somebody who has the
    /// descriptor lets it go on, or says why that cannot be.
    fn hold_openat() -> std::io::Result<OwnedFd> {
        let number = std::mem::offset_of!(libc::seccomp_data, nr) as u32;
        let (load, jump) = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, libc::BPF_JMP);
        let result = |value| statement(libc::BPF_RET | libc::BPF_K, value);
        let equal = (jump | libc::BPF_JEQ | libc::BPF_K) as u16;
        let mut filter = [
            statement(load, number),
            libc::sock_filter { code: equal, jt: 0, jf: 1, k: libc::SYS_openat as u32 },
            result(libc::SECCOMP_RET_USER_NOTIF),
            result(libc::SECCOMP_RET_ALLOW),
        ];
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
        // SAFETY: the program lives until the call is over, which copies it; the descriptor that
        // comes back is nobody's yet.
        unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            let (mode, flag) =
                (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER);
            match libc::syscall(libc::SYS_seccomp, mode, flag, &raw const program) {
                -1 => Err(std::io::Error::last_os_error()),
                fd => Ok(OwnedFd::from_raw_fd(fd as RawFd)),
            }
        }
    }

    fn statement(code: u32, k: u32) -> libc::sock_filter {
        libc::sock_filter { code: code as u16, jt: 0, jf: 0, k }
    }

    /// Sends a signal to everyone but `parent` whose `openat` is held, until there is nobody left
    /// who could be. Returns how many these were.
    fn signal_children(held: &OwnedFd, parent: i32) -> u32 {
        let mut children = 0;
        loop {
            let mut poll = libc::pollfd { fd: held.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: the structures are of the kernel's layout, zero before they are filled, and
            // live on this stack; signals go to a child of this process, which waits for us.
            unsafe {
                libc::poll(&raw mut poll, 1, -1);
                if poll.revents & libc::POLLIN == 0 {
                    return children;
                }
                let mut call: libc::seccomp_notif = std::mem::zeroed();
                if libc::ioctl(poll.fd, libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut call) != 0 {
                    continue;
                }
                if call.pid as i32 != parent {
                    children += 1;
                    libc::kill(call.pid as i32, libc::SIGUSR1);
                }
                let mut answer: libc::seccomp_notif_resp = std::mem::zeroed();
                answer.id = call.id;
                answer.flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
                libc::ioctl(poll.fd, libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut answer);
            }
        }
    }

    #[test]
    fn no_signal_is_delivered_to_the_child() {
        // SAFETY: the handler adds to a counter, which is all that other tests could notice.
        unsafe { libc::signal(libc::SIGUSR1, count as *const () as libc::sighandler_t) };
        let (send, receive) = std::sync::mpsc::channel();
        let parent = std::thread::spawn(move || {
            // SAFETY: has no effect but to return the number.
            let number = unsafe { libc::gettid() };
            let held = hold_openat().inspect_err(|error| println!("skipped: {error}"));
            drop(send.send((held.ok(), number)));
            drop(send);
            create_in_user_namespace(c"2097152").map(|_| ())
        });
        let (held, number) = receive.recv().expect("a thread");
        let children = held.map_or(0, |held| signal_children(&held, number));
        let made = parent.join().expect("no panic");
        if children == 0 {
            println!("skipped: no child could be had: {made:?}");
        }
        assert_eq!(DELIVERED.load(Ordering::Relaxed), 0, "in the memory of the parent");
    }
}
