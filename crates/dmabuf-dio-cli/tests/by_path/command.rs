// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commands that cannot be run, and how commands end.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::common::{self, file, folder, text};
use crate::{fails, load, model, run};

#[test]
fn the_exit_code_is_passed_on() {
    let folder = folder();
    let (path, _) = file(&folder, 5000);
    let path = text(&path);
    for code in [0, 1, 7, 255] {
        let script = format!("exit {code}");
        assert_eq!(run(&[path, "--", "sh", "-c", &script, "{}"]).status.code(), Some(code));
    }
    for signal in [libc::SIGTERM, libc::SIGKILL, libc::SIGSEGV] {
        let script = format!("ulimit -c 0; kill -{signal} $$");
        let output = run(&[path, "-q", "--", "sh", "-c", &script, "{}"]);
        assert_eq!(output.status.code(), Some(128 + signal), "{output:?}");
    }
    assert!(fails(127, &[path, "-q", "--", "no-such-program", "{}"]).contains("not found"));
    assert!(fails(126, &[path, "-q", "--", "/etc/passwd", "{}"]).contains("cannot be run"));
}

#[test]
fn a_missing_command_is_noticed_before_the_load() {
    let folder = folder();
    let (path, _) = file(&folder, 5000);
    let path = text(&path);
    let plain = folder.path().join("plain");
    fs::write(&plain, "").expect("write");
    let missing = folder.path().join("missing");
    for (code, program, what) in [
        (127, "no-such-program", "not found"),
        (127, text(&missing), "not found"),
        (126, text(&plain), "cannot be run"),
        (126, text(folder.path()), "cannot be run"),
        (127, "", "not found"),
    ] {
        for place in [&["{}"][..], &[]] {
            let arguments = [&[path, "--", program], place].concat();
            let errors = fails(code, &arguments);
            assert!(errors.contains(what), "{arguments:?}: {errors}");
            assert_eq!(errors.lines().count(), 2, "nothing was loaded: {errors}");
        }
    }
    // In the folder that the user is in, and in the folders of $PATH
    let script = folder.path().join("script");
    fs::write(&script, "#!/bin/sh\nexit 5\n").expect("write");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("permissions");
    let temporary = common::folder();
    for (name, search) in
        [("./script", None), ("script", Some(":")), ("script", Some("/nowhere:."))]
    {
        let mut command = load(&temporary, &[path, "-q", "--", name, "{}"]);
        command.current_dir(folder.path());
        if let Some(search) = search {
            command.env("PATH", search);
        }
        assert_eq!(command.output().expect("run").status.code(), Some(5), "{name} {search:?}");
    }
}

#[test]
fn errors_have_remedies() {
    let folder = folder();
    let root = model(&folder);
    let root = text(&root);
    for (code, arguments, what, hint) in [
        (1, &[root, "--", "true"][..], "a folder can only be loaded", "-- COMMAND {}"),
        (1, &[root][..], "a folder can only be loaded", "-- COMMAND {}"),
        (2, &[root, "--offset", "1", "--", "true", "{}"], "a range of a folder", "--offset"),
        (1, &[root, "--", "true", "{}"], "no file is 16 MiB or larger", "--min-size"),
        (1, &["/nowhere", "--", "true", "{}"], "cannot open it", "check the path"),
        (
            3,
            &[root, "--min-size", "1M", "--backend", "module", "--", "true", "{}"],
            "cannot create a memfd",
            "memfd, buffered",
        ),
    ] {
        let errors = fails(code, arguments);
        let lines: Vec<&str> = errors.lines().collect();
        assert_eq!(lines.len(), 2, "{arguments:?}: {errors}");
        assert!(lines[0].contains(what) && lines[1].contains(hint), "{arguments:?}: {errors}");
    }
}

/// Standard error has no reader any more.
#[test]
fn exit_codes_survive_a_closed_stderr() {
    let folder = folder();
    let (path, _) = file(&folder, 5000);
    let path = text(&path);
    let writes = [path, "-q", "--", "sh", "-c", "echo x >$(dirname $0)/result; exit 7", "{}"];
    for (code, arguments) in [
        (1, &["/nowhere", "-q", "--", "cat", "{}"] as &[&str]),
        (7, &writes),
        (127, &[path, "-q", "--", "no-such-program", "{}"]),
    ] {
        let temporary = common::folder();
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        drop(reader);
        let status = load(&temporary, arguments).stderr(writer).status().expect("run");
        assert_eq!(status.code(), Some(code), "{arguments:?}");
    }
}
