// SPDX-License-Identifier: MIT OR Apache-2.0
//! The examples work.

mod common;
#[path = "common/example.rs"]
mod example;

use std::process::Command;

use common::{file_of, folder};
use dmabuf_dio::Loader;
use example::{example, output};

#[test]
fn load_example_runs() {
    let folder = folder();
    let (path, bytes) = file_of(&folder, 5000);
    let text = output(Command::new(example("load")).arg(&path));
    assert!(text.contains("5000 bytes"), "{text}");
    assert!(text.contains(&format!("{:02x?}", &bytes[..16])), "{text}");
}

#[test]
fn inherit_example_reads_the_buffer() {
    use std::os::fd::AsRawFd as _;
    let folder = folder();
    let (path, bytes) = file_of(&folder, 5000);
    let loaded = Loader::new(path).offset(100).load().expect("load");
    rustix::io::fcntl_setfd(loaded.fd().expect("a descriptor"), rustix::io::FdFlags::empty())
        .expect("inheritable");
    let text = output(
        Command::new(example("inherit"))
            .env("DMABUF_DIO_FD", loaded.fd().expect("a descriptor").as_raw_fd().to_string())
            .env("DMABUF_DIO_OFFSET", loaded.data_offset().to_string())
            .env("DMABUF_DIO_LEN", loaded.data_len().to_string()),
    );
    assert!(text.starts_with("4900 bytes"), "{text}");
    assert!(text.contains(&format!("{:02x?}", &bytes[100..116])), "{text}");
}

/// The result of `Buffer::from_env` in an environment, from the example.
fn inherited(variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(example("inherit"));
    for name in ["DMABUF_DIO_FD", "DMABUF_DIO_OFFSET", "DMABUF_DIO_LEN"] {
        command.env_remove(name);
    }
    let output = command.envs(variables.iter().copied()).output().expect("run the example");
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn inherit_example_refuses_bad_variables() {
    let fd = ("DMABUF_DIO_FD", "777");
    let (offset, len) = (("DMABUF_DIO_OFFSET", "0"), ("DMABUF_DIO_LEN", "1"));
    for (variables, said) in [
        (&[][..], "DMABUF_DIO_FD"),
        (&[("DMABUF_DIO_FD", "x")], "\"x\""),
        (&[fd, len], "DMABUF_DIO_OFFSET"),
        (&[fd, offset, ("DMABUF_DIO_LEN", "-1")], "\"-1\""),
        (&[fd, offset, len], "EBADF"),
        (&[("DMABUF_DIO_FD", "-1"), offset, len], "EBADF"),
        (&[("DMABUF_DIO_FD", "2"), offset, len], "NotABuffer"),
    ] {
        let errors = inherited(variables);
        assert!(errors.contains(said), "{variables:?}: {errors}");
    }
}

#[test]
fn gather_example_runs() {
    let folder = folder();
    let (path, bytes) = file_of(&folder, 1 << 20);
    let rows = ["300", "70000", "5", "1", "2", "1747", "1748"];
    let text = output(Command::new(example("gather")).arg(&path).arg("600").args(rows));
    for row in [300_usize, 5, 1, 2] {
        let first = format!("{:02x?}", &bytes[row * 600..row * 600 + 8]);
        let found = text
            .lines()
            .any(|line| line.starts_with(&format!("row {row}, at ")) && line.ends_with(&first));
        assert!(found, "{row}: {text}");
    }
    assert!(text.contains("row 70000: the file ends at byte 1048576: 0 bytes"), "{text}");
    assert!(text.contains("row 1747: the file ends at byte 1048576: 376 bytes"), "{text}");
    assert!(text.contains("7 rows, "), "{text}");
    let wrong = Command::new(example("gather")).args(["x", "y"]).status();
    assert_eq!(wrong.expect("run").code(), Some(2));
}
