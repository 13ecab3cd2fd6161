// SPDX-License-Identifier: MIT OR Apache-2.0
//! A kernel setting in `/proc/sys` or `/sys`, changed temporarily.

use std::fs::File;
use std::io;

use rustix::fs::{FlockOperation, flock};

use crate::args::PROGRAM;

/// Restores the setting when it is dropped. Other programs that change it in this way wait until then.
#[derive(Debug)]
pub(crate) struct Setting {
    path: String,
    /// The value to restore, if it was changed.
    before: Option<String>,
    _locked: File,
}

impl Setting {
    /// Needs no permission if the setting already has the value.
    pub(crate) fn set(path: &str, value: &str) -> io::Result<Self> {
        let locked = File::open(path)?;
        flock(&locked, FlockOperation::LockExclusive)?;
        let before = Some(read(path)?).filter(|before| before != value);
        if before.is_some() {
            std::fs::write(path, value)?;
        }
        Ok(Self { path: path.to_owned(), before, _locked: locked })
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        let Some(before) = &self.before else { return };
        if let Err(error) = std::fs::write(&self.path, before) {
            eprintln!("{PROGRAM}: {} cannot be restored to {before}: {error}", self.path);
        }
    }
}

/// The value. If the kernel lists all possible ones, the one in brackets.
fn read(path: &str) -> io::Result<String> {
    let text = std::fs::read_to_string(path)?;
    let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    Ok(chosen.map_or(text.trim(), |(chosen, _)| chosen).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_take_turns_and_are_restored() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(&file, "always [madvise] never\n").expect("write");
        let name = file.path().to_str().expect("text");
        drop(Setting::set(name, "madvise").expect("nothing to do"));
        assert!(std::fs::read_to_string(&file).expect("read").contains('['), "not written");
        let setting = Setting::set(name, "never").expect("set");
        std::thread::scope(|scope| {
            let other = scope.spawn(|| drop(Setting::set(name, "always").expect("set in turn")));
            std::thread::sleep(std::time::Duration::from_millis(50));
            assert_eq!(read(name).expect("read"), "never", "the other one waits");
            drop(setting);
            other.join().expect("no panic");
        });
        assert_eq!(read(name).expect("read"), "madvise");
        assert!(Setting::set("/no/such", "1").is_err());
    }
}
