// SPDX-License-Identifier: MIT OR Apache-2.0
//! Range and destination of `dmabuf-dio save`.

mod common;

use common::{file, folder, ok, run, text};

#[test]
fn save_resolves_targets_as_cp_does() {
    let folder = folder();
    let (path, bytes) = file(&folder, 10_000);
    let (missing, link) = (folder.path().join("missing"), folder.path().join("link"));
    std::os::unix::fs::symlink("missing", &link).expect("link");
    let save = |target: &str| {
        let save = [env!("CARGO_BIN_EXE_dmabuf-dio"), "save", target, "--quiet"];
        run([&["load", text(&path), "--quiet", "--"][..], &save].concat())
    };
    let new_folder = format!("{}/", text(&missing));
    for (target, what) in [(&*new_folder, "name a file"), (text(&link), "remove the link")] {
        let output = save(target);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert!(errors.contains(target) && errors.contains(what), "{errors}");
        assert_eq!(errors.lines().count(), 2, "{errors}");
        assert!(!missing.exists() && link.is_symlink(), "{target}");
    }
    std::fs::write(&missing, "there").expect("write");
    assert!(save(text(&link)).status.success());
    assert!(link.is_symlink());
    assert_eq!(std::fs::read(&missing).expect("read"), bytes);
}

#[test]
fn saved_part_ends_with_the_inherited_range() {
    let folder = folder();
    let (path, bytes) = file(&folder, 10_000);
    let copy = folder.path().join("copy");
    let save = [env!("CARGO_BIN_EXE_dmabuf-dio"), "save", text(&copy), "--buf-offset", "4096"];
    ok([&["load", text(&path), "--quiet", "--"][..], &save].concat());
    assert_eq!(std::fs::read(&copy).expect("read"), bytes[4096..]);
}

/// The command refuses what `DmaBuf::from_env` of the library refuses.
#[test]
fn incomplete_environment_is_refused() {
    let folder = folder();
    let (path, _) = file(&folder, 5000);
    let copy = folder.path().join("copy");
    for name in ["DMABUF_DIO_FD", "DMABUF_DIO_OFFSET", "DMABUF_DIO_LEN"] {
        for (how, what) in [("unset ", "is not set"), ("export ", "is not a number: x")] {
            let value = if how == "unset " { "" } else { "=x" };
            let program = env!("CARGO_BIN_EXE_dmabuf-dio");
            let script = format!("{how}{name}{value}; exec {program} save {}", text(&copy));
            let output = run(["load", text(&path), "--quiet", "--", "sh", "-c", &script]);
            let errors = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{script}: {errors}");
            assert!(errors.contains(&format!("{name} {what}")), "{errors}");
            assert!(errors.contains("--fd NUMBER"), "{errors}");
        }
    }
    assert!(!copy.exists());
}
