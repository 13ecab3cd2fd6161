// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that commands open by path.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use dmabuf_dio::{Buffer, probe};
use rustix::fs::SealFlags;
use rustix::mm::{MapFlags, ProtFlags};

use crate::common::{file, folder, huge_page, text};
use crate::{fails, ok, shell};

/// This program as the command: `consumer` below, with its arguments in variables.
fn consumer_of(original: &Path, path: &str) -> Vec<String> {
    let own = std::env::current_exe().expect("this program");
    let mut words = vec!["env".to_owned(), format!("DIO_PATH={path}")];
    words.push(format!("DIO_ORIGINAL={}", text(original)));
    words.push(text(&own).to_owned());
    words.extend(["files::consumer", "--exact", "--ignored", "--nocapture"].map(str::to_owned));
    words
}

/// The command that other tests run: reads the file at `DIO_PATH`, and tries to change it.
#[test]
#[ignore = "other tests run it"]
fn consumer() {
    let path = PathBuf::from(std::env::var_os("DIO_PATH").expect("run by another test"));
    let wanted = fs::read(std::env::var_os("DIO_ORIGINAL").expect("its file")).expect("read");
    let stat = fs::metadata(&path).expect("stat");
    assert!(stat.is_file());
    assert_eq!(stat.len(), wanted.len() as u64);
    assert!(fs::read(&path).expect("read") == wanted, "other bytes");

    let file = File::open(&path).expect("open");
    let map = |prot| {
        let (any, len) = (std::ptr::null_mut(), wanted.len());
        // SAFETY: requests new address space.
        unsafe { rustix::mm::mmap(any, len, prot, MapFlags::SHARED, &file, 0) }
    };
    let start = map(ProtFlags::READ).expect("map");
    // SAFETY: the mapping has this length and stays; nobody can write the file.
    let bytes = unsafe { std::slice::from_raw_parts(start.cast::<u8>(), wanted.len()) };
    assert!(bytes == wanted, "other bytes in a mapping");
    assert_eq!(map(ProtFlags::READ | ProtFlags::WRITE), Err(rustix::io::Errno::ACCESS));

    // Its permissions do not stop root.
    match OpenOptions::new().write(true).open(&path) {
        Ok(file) => {
            let refused = |error: std::io::Error| error.raw_os_error() == Some(libc::EPERM);
            assert!(refused(file.write_at(b"x", 0).expect_err("it is sealed")));
            assert!(refused(file.set_len(0).expect_err("it is sealed")));
            assert!(refused(file.set_len(stat.len() + 1).expect_err("it is sealed")));
        }
        Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EACCES)),
    }
    let seals = rustix::fs::fcntl_get_seals(&file).expect("seals");
    assert!(seals.contains(SealFlags::SHRINK | SealFlags::GROW), "{seals:?}");
    assert!(seals.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE), "{seals:?}");

    let huge = probe::system().huge_pages;
    let buf = Buffer::from_fd(file.into()).expect("a buffer");
    let pages = buf.page_sizes().expect("page sizes");
    if huge.transparent || huge.collapsed {
        let whole = stat.len() / huge_page() * huge_page();
        assert!(pages.huge_bytes >= whole, "{pages:?} of {}", stat.len());
    }
    println!("every byte is there");
}

#[test]
fn programs_read_the_file_by_path() {
    let folder = folder();
    for len in [1, 4095, 4096, 4097, (2 << 20) + 1, (16 << 20) + 123] {
        let (path, _) = file(&folder, len);
        let arguments =
            [vec![text(&path).to_owned(), "--quiet".into(), "--".into()], consumer_of(&path, "{}")];
        let arguments = arguments.concat();
        let said = ok(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(said.contains("every byte is there"), "{len}: {said}");
    }
}

#[test]
fn loaded_range_is_a_file_of_its_own() {
    let folder = folder();
    let (path, bytes) = file(&folder, 100_000);
    let part = folder.path().join("part");
    fs::write(&part, &bytes[5000..5000 + 70_001]).expect("write");
    let range = ["--offset", "5000", "--length", "70001"];
    ok(&[&[text(&path)], &range[..], &["--", "cmp", text(&part), "{}"]].concat());
}

#[test]
fn path_keeps_the_name_of_the_file() {
    let folder = folder();
    let (path, _) = file(&folder, 5000);
    let blob = folder.path().join("model-00001-of-00001.safetensors");
    std::os::unix::fs::symlink(&path, &blob).expect("link");
    let script = "echo $1 $2; stat -c %a $(dirname $1)";
    let said = ok(&shell(&[text(&blob)], script, &["{}", "--m={{}}{}"]));
    let words: Vec<&str> = said.split_ascii_whitespace().collect();
    assert!(words[0].ends_with("/model-00001-of-00001.safetensors"), "{said}");
    assert_eq!(words[1], format!("--m={{}}{}", words[0]));
    assert_eq!(words[2], "700");
}

#[test]
fn command_without_placeholder_inherits_a_descriptor() {
    let folder = folder();
    let (path, _) = file(&folder, 5000);
    let script = "echo $1 $DMABUF_DIO_FILES $DMABUF_DIO_LEN";
    let said = ok(&shell(&[text(&path)], script, &["{{}}"]));
    assert_eq!(said, "{} 5000\n");
}

/// Workers close descriptors that they do not know.
#[test]
fn workers_without_descriptors_read_the_path() {
    let folder = folder();
    let (path, _) = file(&folder, 3_000_000);
    let close = "for fd in $(ls /proc/self/fd); do [ $fd -gt 2 ] && eval \"exec $fd>&-\"; done; \
                 (cmp $1 $2 && sh -c 'cmp $1 $2' x $1 $2) && setsid -w cmp $1 $2";
    ok(&[text(&path), "--", "bash", "-c", close, "x", text(&path), "{}"]);
}

#[test]
fn loaded_file_keeps_mtime_and_is_read_only() {
    let folder = folder();
    let (path, _) = file(&folder, 5000);
    let old = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    File::options().write(true).open(&path).expect("open").set_modified(old).expect("its time");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("permissions");
    assert_eq!(
        ok(&[text(&path), "--", "stat", "-L", "-c", "%Y %a %s", "{}"]),
        "1000000000 440 5000\n"
    );
}

#[test]
fn split_model_has_all_parts() {
    let folder = folder();
    let name = |part: usize| folder.path().join(format!("m-0000{part}-of-00003.gguf"));
    for part in 1..=3 {
        fs::write(name(part), vec![part as u8; part * 10_000]).expect("write");
    }
    let script = "for n in 1 2 3; do cmp $(dirname $1)/m-0000$n-of-00003.gguf $2/m-0000$n-of-00003.gguf || exit 9; done; \
                  ls $(dirname $1); readlink $(dirname $1)/* | grep -c ^/proc/";
    let said = ok(&[text(&name(1)), "--", "sh", "-c", script, "x", "{}", text(folder.path())]);
    assert!(said.ends_with("m-00003-of-00003.gguf\n3\n"), "{said}");
    let counted =
        ok(&[text(&name(2)), "--offset", "1", "--", "sh", "-c", "ls $(dirname $0) | wc -l", "{}"]);
    assert_eq!(counted, "1\n", "a range is of one file");
    fs::remove_file(name(2)).expect("remove");
    let errors = fails(1, &[text(&name(1)), "--", "true", "{}"]);
    assert!(errors.contains("there is no m-00002-of-00003.gguf in the same folder"), "{errors}");
}

#[test]
fn single_file_is_inherited_as_a_buffer() {
    let folder = folder();
    let (path, bytes) = file(&folder, 70_001);
    let copy = folder.path().join("copy");
    let save = env!("CARGO_BIN_EXE_dmabuf-dio");
    ok(&[text(&path), "--", "env", "X={}", save, "save", text(&copy), "--quiet"]);
    assert!(fs::read(&copy).expect("read") == bytes);
}
