// SPDX-License-Identifier: MIT OR Apache-2.0
//! `load` and `sum` of URLs, from a web server of the tests.

#![cfg(feature = "remote")]

mod common;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../../dmabuf-dio-remote/tests/web/server.rs"]
mod server;

use std::os::unix::process::CommandExt as _;
use std::process::{Command, Output, Stdio};

use common::{eventually, folder, program, text};

use self::server::{Fault, Server};

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 253) as u8).collect()
}

fn run(arguments: &[&str]) -> Output {
    program().args(arguments).output().expect("run dmabuf-dio")
}

fn said(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

#[track_caller]
fn fails(code: i32, arguments: &[&str]) -> String {
    let output = run(arguments);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}\n{text}");
    text
}

#[test]
fn object_is_loaded_and_compared() {
    let server = Server::new(content(5_000_001), |_| Fault::None);
    let url = server.url("/dir/model.gguf?token=secret");
    for kind in ["any", "memfd", "file", "private"] {
        let output = run(&["load", &url, "--kind", kind, "--verify", "--json"]);
        let text = said(&output);
        assert!(output.status.success() && !text.contains("secret"), "{text}");
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(report["mode"], "fetched");
        assert_eq!(report["fetched"]["bytes"], 5_000_001);
        assert_eq!(report["page_cache_grown"], serde_json::Value::Null);
        assert_eq!(report["verify"]["identical"], true);
        assert_eq!(report["file"], server.url("/dir/model.gguf"));
    }
    for more in [&["--verbose"][..], &[]] {
        let output = run(&[&["load", &url, "--offset", "4097", "--length", "1MiB"], more].concat());
        let text = said(&output);
        assert!(output.status.success() && text.contains("1048576 bytes"), "{text}");
        assert!(text.contains("fetched: no file") && !text.contains("secret"), "{text}");
        assert_eq!(text.contains("not looked at: there is no file"), !more.is_empty(), "{text}");
    }
}

#[test]
fn command_gets_an_object_by_descriptor_and_by_path() {
    let server = Server::new(content(3_000_000), |_| Fault::None);
    let url = server.url("/dir/model.gguf?token=secret");
    let script = "test \"${1##*/}\" = model.gguf && cat \"$1\"";
    let output = run(&["load", &url, "--quiet", "--", "sh", "-c", script, "x", "{}"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stdout == server.bytes(), "the command reads other bytes");
    let script = "env; tr '\\0' ' ' </proc/$PPID/cmdline; cat \"$DMABUF_DIO_FILES\"";
    let mut hidden = program();
    hidden.env("WHERE", &url).args(["load", "env:WHERE", "--quiet", "--", "sh", "-c"]);
    let output = hidden.args([script, "x", "{}"]).output().expect("run");
    let text = said(&output).replace(&format!("WHERE={url}"), "");
    assert!(output.status.success() && !text.contains("secret"), "{text}");
    assert!(text.contains("env:WHERE"), "it is the command line: {text}");
    let folder = folder();
    let copy = folder.path().join("copy");
    let save = [env!("CARGO_BIN_EXE_dmabuf-dio"), "save", text_of(&copy), "--quiet"];
    let output = run(&[&["load", &url, "--quiet", "--kind", "memfd", "--"][..], &save].concat());
    assert!(output.status.success(), "{}", said(&output));
    assert!(std::fs::read(&copy).expect("read") == server.bytes());
}

fn text_of(path: &std::path::Path) -> &str {
    text(path)
}

#[test]
fn proxy_is_asked_but_not_for_exceptions() {
    let server = Server::new(content(100_001), |_| Fault::None);
    let loads = |url: &str, proxy: &str, exceptions: &str| {
        let mut command = program();
        command.args(["load", url, "--verify"]).env("HTTP_PROXY", proxy);
        let output = command.env("NO_PROXY", exceptions).output().expect("run dmabuf-dio");
        let text = said(&output);
        assert!(output.status.success() && text.contains("identical"), "{text}");
    };
    // Nobody has this name.
    let url = "http://models.invalid/model.gguf";
    loads(url, &server.url(""), "");
    assert!(server.requests().iter().all(|request| request.path == url), "in full");
    // Nobody listens at port 1.
    loads(&server.url("/model.gguf"), "http://127.0.0.1:1", "127.0.0.1");
}

#[test]
fn cas_matter_to_https_alone() {
    let server = Server::new(content(5), |_| Fault::None);
    let load = |url: &str, variable: &str| {
        let mut load = program();
        load.env(variable, "/none").args(["load", url, "--quiet"]).output().expect("run")
    };
    for variable in ["AWS_CA_BUNDLE", "SSL_CERT_FILE"] {
        let plain = load(&server.url("/k"), variable);
        assert!(plain.status.success(), "{variable}: {}", said(&plain));
    }
    let secure = said(&load("https://127.0.0.1:1/k", "AWS_CA_BUNDLE"));
    assert!(secure.contains("the CAs of /none: "), "{secure}");
}

#[test]
fn sums_are_made_and_checked() {
    let server = Server::new(content(3_000_000), |_| Fault::None);
    let folder = folder();
    let (file, sums) = (folder.path().join("file"), folder.path().join("sums"));
    std::fs::write(&file, server.bytes()).expect("written");
    let of_file = run(&["sum", text(&file), "--chunk-size", "1MiB"]);
    let of_object = run(&["sum", &server.url("/m"), "--chunk-size", "1MiB"]);
    assert!(of_file.status.success() && of_file.stdout == of_object.stdout, "{}", said(&of_object));
    std::fs::write(&sums, of_file.stdout).expect("written");
    let good = run(&["load", &server.url("/m"), "--sums", text(&sums)]);
    assert!(good.status.success(), "{}", said(&good));

    let flipped = Server::new(content(3_000_000), |_| Fault::Flip(2_000_000));
    let error = fails(1, &["load", &flipped.url("/m"), "--sums", text(&sums)]);
    assert!(error.contains("bytes 1048576..2097152 cannot be read: the sum"), "{error}");
    let sha256 = "0".repeat(64);
    let error = fails(1, &["load", &server.url("/m"), "--sha256", &sha256]);
    assert!(error.contains("the SHA-256 is "), "{error}");
}

#[test]
fn what_does_not_fit_is_refused() {
    let folder = folder();
    let file = folder.path().join("file");
    std::fs::write(&file, "x").expect("written");
    let sha256 = "0".repeat(64);
    let error = fails(2, &["load", text(&file), "--sha256", &sha256]);
    assert!(error.contains("--verify"), "{error}");
    let error = fails(2, &["load", "keep:none", "--sha256", &sha256, "--", "true"]);
    assert!(error.contains("are for objects"), "{error}");
    fails(2, &["load", "https://host/x", "--sha256", "12"]);
    fails(2, &["load", "env:NO_SUCH_VARIABLE"]);
    for wrong in ["https:/h/x?sig=secret", " https://h/x?sig=secret"] {
        let error = fails(2, &["load", wrong]);
        assert!(error.contains("it is no URL") && !error.contains("secret"), "{error}");
        assert!(!fails(1, &["sum", wrong]).contains("secret"));
    }
    let error = fails(1, &["load", "https://host/folder/", "--", "cat", "{}"]);
    assert!(error.contains("a web server does not list its files"), "{error}");
    let server = Server::new(content(100), |_| Fault::None);
    let error = fails(3, &["load", &server.url("/x"), "--backend", "memfd"]);
    assert!(error.contains("leave the backend out"), "{error}");
    let error = fails(2, &["load", &server.url("/x"), "--min-size", "1"]);
    assert!(error.contains("--min-size needs a folder"), "{error}");
    let save = [env!("CARGO_BIN_EXE_dmabuf-dio"), "save", &server.url("/x")];
    let error = fails(1, &[&["load", text(&file), "--quiet", "--"][..], &save].concat());
    assert!(error.contains("takes no uploads in parts"), "{error}");
}

#[test]
fn interrupt_ends_a_load() {
    let server = Server::new(content(3_000_000), |request| match request.number {
        u64::MAX => Fault::None,
        _ => Fault::Stall(1000),
    });
    let mut load = program();
    load.args(["load", &server.url("/m")]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let load = load.spawn().expect("started");
    eventually("nothing was asked for", || server.requests().len() > 1);
    // SAFETY: the process is a child that was not waited for.
    assert_eq!(unsafe { libc::kill(load.id() as i32, libc::SIGINT) }, 0);
    let output = load.wait_with_output().expect("it ended");
    assert_eq!(output.status.code(), Some(130), "{}", said(&output));
}

/// The command, with this server as the store of `s3://bucket/`.
fn with_store(server: &Server) -> Command {
    let mut command = program();
    for (name, value) in [
        ("AWS_ENDPOINT_URL", server.url("").as_str()),
        ("AWS_ALLOW_HTTP", "true"),
        ("AWS_REGION", "eu-1"),
        ("AWS_ACCESS_KEY_ID", "A"),
        ("AWS_SECRET_ACCESS_KEY", "B"),
    ] {
        command.env(name, value);
    }
    command
}

/// A store that has these objects: all with the same bytes, but for those without any.
fn store(objects: &[(&str, u64)]) -> Server {
    let date = "<LastModified>2024-01-01T00:00:00.000Z</LastModified>";
    let mut list = String::from("<ListBucketResult><IsTruncated>false</IsTruncated>");
    for (key, size) in objects {
        list += "<Contents>";
        list += &format!("<Key>{key}</Key>{date}<ETag>e</ETag><Size>{size}</Size></Contents>");
    }
    list += "</ListBucketResult>";
    let list: &'static str = list.leak();
    Server::new(content(1000), move |request| {
        if request.path.contains("list-type=2") {
            return Fault::Status(200, "", list);
        }
        Fault::None
    })
}

#[test]
fn objects_that_stand_for_folders_are_left_out() {
    let server = store(&[("p/sub/", 0), ("p/sub/a~[1]", 1000), ("p/b", 1000), ("p/none", 0)]);
    let script = "cd \"$1\" && find . -not -type d | sort && cat 'sub/a~[1]'";
    let mut load = with_store(&server);
    let load =
        load.args(["load", "s3://bucket/p/", "--quiet", "--", "sh", "-c", script, "x", "{}"]);
    let output = load.output().expect("run");
    assert!(output.status.success(), "{}", said(&output));
    let expected = [b"./b\n./none\n./sub/a~[1]\n", server.bytes()].concat();
    assert!(output.stdout == expected, "{}", said(&output));
}

#[test]
fn keys_that_are_no_names_are_told_at_once() {
    for (objects, what) in [
        (&[("p/b", 1000), ("p//c", 1000)][..], "the key \"p//c\" has an empty part"),
        (&[("p/a", 1000), ("p/a/b", 1000)], "the key a is an object, and a folder of others"),
    ] {
        let server = store(objects);
        let load = with_store(&server).args(["load", "s3://bucket/p/", "--", "ls", "{}"]).output();
        let output = load.expect("run");
        let text = said(&output);
        assert!(output.status.code() == Some(1) && text.contains(what), "{text}");
        assert_eq!(server.requests().len(), 1, "it was tried again, or loaded");
    }
}

#[test]
fn interrupt_ends_what_waits_for_a_store() {
    for arguments in [
        &["load", "s3://bucket/p/", "--", "ls", "{}"][..],
        &["load", "s3://bucket/p"],
        &["sum", "s3://bucket/p"],
    ] {
        let server = Server::new(Vec::new(), |_| Fault::Status(503, "Retry-After: 60\r\n", ""));
        let mut child = with_store(&server);
        let child = child.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let child = child.expect("started");
        eventually("nothing was asked for", || !server.requests().is_empty());
        // SAFETY: the process is a child that was not waited for.
        assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGINT) }, 0);
        let output = child.wait_with_output().expect("it ended");
        assert_eq!(output.status.code(), Some(130), "{arguments:?} {}", said(&output));
    }
}

#[test]
fn more_objects_than_files_may_be_open_are_refused_at_once() {
    let names: Vec<String> = (0..20).map(|number| format!("p/{number}")).collect();
    let objects: Vec<_> = names.iter().map(|name| (name.as_str(), 1000)).collect();
    let server = store(&objects);
    let mut load = with_store(&server);
    let limit = libc::rlimit { rlim_cur: 40, rlim_max: 40 };
    // SAFETY: the limit is valid for the call.
    let lower = move || match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    };
    // SAFETY: the function makes one system call.
    unsafe { load.pre_exec(lower) };
    let output = load.args(["load", "s3://bucket/p/", "--", "ls", "{}"]).output().expect("run");
    let text = said(&output);
    assert!(text.contains("20 files are to be loaded") && text.contains("ulimit -n"), "{text}");
    assert_eq!(server.requests().len(), 1);
}
