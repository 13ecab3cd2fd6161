// SPDX-License-Identifier: MIT OR Apache-2.0
//! Valid and invalid targets of a save.

use std::os::unix::fs::symlink;
use std::path::Path;

use crate::common::{assert_same, fill, folder};
use dmabuf_dio::{Buffer, Error, Saver};

const LEN: u64 = 10_000;

fn buffer() -> Buffer {
    let mut buf = Buffer::memfd(LEN).expect("a memfd");
    fill(&mut buf, 7);
    buf
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("list");
    let mut names: Vec<_> = entries
        .map(|one| one.expect("an entry").file_name().into_string().expect("text"))
        .collect();
    names.sort();
    names
}

#[track_caller]
fn refused(target: &Path) -> Error {
    let error = Saver::new(target).save(&buffer(), ..LEN).expect_err("refused");
    let path = target.to_str().expect("text");
    assert!(error.to_string().contains(path), "{error}");
    error
}

#[test]
fn missing_folder_is_not_created_as_a_file() {
    let folder = folder();
    for end in ["new/", "new//", "new/.", "new/./"] {
        let error = refused(&folder.path().join(end));
        assert_eq!(error.errno().map(dmabuf_dio::Errno::raw), Some(libc::EISDIR), "{error}");
        assert!(error.hint().to_string().contains("name a file"), "{}", error.hint());
    }
    let error = refused(&folder.path().join("missing/new"));
    assert!(error.hint().to_string().contains("folder must exist"), "{}", error.hint());
    let error = refused(&folder.path().join("."));
    assert!(matches!(error, Error::NotAFile { found: "a directory", .. }), "{error}");
    assert_eq!(names(folder.path()), [""; 0]);
}

#[test]
fn save_through_a_link_keeps_the_link() {
    let folder = folder();
    let (link, file) = (folder.path().join("link"), folder.path().join("file"));
    symlink("file", &link).expect("link");
    let error = refused(&link);
    assert!(error.to_string().ends_with("link to file, which does not exist"), "{error}");
    let (wanted, path) = ("or remove the link: rm ", link.to_str().expect("text"));
    assert!(error.hint().to_string().contains(&format!("{wanted}{path}")), "{}", error.hint());
    assert_eq!(names(folder.path()), ["link"]);
    std::fs::write(&file, "before").expect("write");
    Saver::new(&link).save(&buffer(), ..LEN).expect("save");
    assert_same("saved", &std::fs::read(&file).expect("read"), &[7; LEN as usize]);
    assert_eq!(std::fs::read_link(&link).expect("a link"), Path::new("file"));
    assert_eq!(names(folder.path()), ["file", "link"]);
}

/// Makes a folder the root of the calling thread, if this user may.
fn confine(folder: &Path) -> std::io::Result<()> {
    // SAFETY: gives the thread its own root, as intended.
    if unsafe { libc::unshare(libc::CLONE_FS) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    std::os::unix::fs::chroot(folder)?;
    std::env::set_current_dir("/")
}

#[test]
fn save_works_without_proc() {
    let folder = folder();
    let buf = buffer();
    std::fs::write(folder.path().join("old"), "before").expect("write");
    let confined = || {
        if let Err(error) = confine(folder.path()) {
            println!("skipped: no root of its own: {error}");
            return;
        }
        for direct in [true, false] {
            for file in ["/old", "/new", "relative"] {
                Saver::new(file).direct(direct).save(&buf, ..LEN).expect("save");
                assert_same(file, &std::fs::read(file).expect("read"), &[7; LEN as usize]);
            }
        }
        let token = dmabuf_dio::CancelToken::new();
        token.cancel();
        let error = Saver::new("/other").cancel(token).save(&buf, ..LEN).expect_err("cancelled");
        assert!(matches!(error, Error::Cancelled { .. }), "{error}");
        assert_eq!(names(Path::new("/")), ["new", "old", "relative"]);
    };
    std::thread::scope(|scope| {
        scope.spawn(confined).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

#[test]
fn save_beyond_the_file_size_limit_writes_nothing() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    // So large that no other test notices.
    const LIMIT: u64 = 1 << 50;
    let before = getrlimit(Resource::Fsize);
    if before.current.is_some_and(|limit| limit < LIMIT) {
        return println!("skipped: {before:?}");
    }
    let folder = folder();
    let path = folder.path().join("file");
    std::fs::write(&path, "before").expect("write");
    let file = std::fs::File::options().read(true).write(true).open(&path).expect("open");
    setrlimit(Resource::Fsize, Rlimit { current: Some(LIMIT), ..before }).expect("limited");
    let result = Saver::from(&file).offset(LIMIT).save(&buffer(), ..1);
    setrlimit(Resource::Fsize, before).expect("as before");
    let error = result.expect_err("one byte too many");
    let Error::Target { step, errno, .. } = &error else { panic!("{error}") };
    assert_eq!((*step, errno.raw()), ("write all of it", libc::EFBIG));
    assert_eq!(std::fs::read(&path).expect("read"), b"before");
}
