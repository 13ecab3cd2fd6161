// SPDX-License-Identifier: MIT OR Apache-2.0
//! Another user puts another file at the path of a source.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use dmabuf_dio_keep::{Error, Files, Loading, OnDisk, Result, Source, Store};

use crate::common::{disk, name, tmpfs, write};

/// A source at whose path another file is whenever it is not looked at.
#[derive(Debug)]
struct Swapped {
    path: PathBuf,
    mine: PathBuf,
    secret: PathBuf,
}

impl Source for Swapped {
    fn shown(&self) -> String {
        self.path.display().to_string()
    }

    fn files(&self) -> Result<Files> {
        let mut files = OnDisk::new(&self.mine).files()?;
        let _ = fs::remove_file(&self.path);
        std::os::unix::fs::symlink(&self.secret, &self.path).expect("a link");
        files.files[0].path = Some(self.path.clone());
        Ok(files)
    }
}

#[test]
fn file_that_is_swapped_for_the_load_is_not_kept() {
    let (Some(folder), disk) = (tmpfs(), disk()) else { return };
    let store = Store::create(folder.path()).expect("a store");
    let at = |name: &str| disk.path().join(name);
    write(&at("mine"), b"public");
    write(&at("secret"), b"secret");
    fs::set_permissions(at("secret"), fs::Permissions::from_mode(0o600)).expect("a mode");
    for secret in ["secret", "fifo"] {
        if secret == "fifo" {
            let mode = rustix::fs::Mode::from_raw_mode(0o644);
            let fifo = rustix::fs::FileType::Fifo;
            rustix::fs::mknodat(rustix::fs::CWD, at(secret), fifo, mode, 0).expect("a FIFO");
        }
        let source = Swapped { path: at("f"), mine: at("mine"), secret: at(secret) };
        let error = store.keep(&name("m"), &source, &Loading::default()).expect_err("swapped");
        assert!(matches!(error, Error::Changed { .. }), "{error}");
        assert!(!folder.path().join("m").exists());
    }
}
