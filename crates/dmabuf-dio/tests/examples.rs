// SPDX-License-Identifier: MIT OR Apache-2.0
//! The examples work.

mod common;

use std::path::PathBuf;
use std::process::Command;

use common::{file_of, folder};
use dmabuf_dio::Loader;

/// Where cargo puts the examples, beside the tests that it builds with them.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("path of this test");
    test.parent().and_then(|deps| deps.parent()).expect("a folder").join("examples").join(name)
}

fn output(command: &mut Command) -> String {
    let output = command.output().expect("run the example");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn load() {
    let folder = folder();
    let (path, bytes) = file_of(&folder, 5000);
    let text = output(Command::new(example("load")).arg(&path));
    assert!(text.contains("5000 bytes"), "{text}");
    assert!(text.contains(&format!("{:02x?}", &bytes[..16])), "{text}");
}

#[test]
fn inherit() {
    use std::os::fd::AsRawFd as _;
    let folder = folder();
    let (path, bytes) = file_of(&folder, 5000);
    let loaded = Loader::new(path).offset(100).load().expect("load");
    rustix::io::fcntl_setfd(&loaded.buf, rustix::io::FdFlags::empty()).expect("inheritable");
    let text = output(
        Command::new(example("inherit"))
            .env("DMABUF_DIO_FD", loaded.buf.as_raw_fd().to_string())
            .env("DMABUF_DIO_OFFSET", loaded.data_offset.to_string())
            .env("DMABUF_DIO_LEN", loaded.len.to_string()),
    );
    assert!(text.starts_with("4900 bytes"), "{text}");
    assert!(text.contains(&format!("{:02x?}", &bytes[100..116])), "{text}");
}
