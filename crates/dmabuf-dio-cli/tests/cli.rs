// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line, run as a user does.

mod common;

use std::os::fd::AsRawFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Output;

use common::{eventually, file, folder, huge_page, ok, page_size, program, run, text};
use serde_json::Value;

/// Runs a command that has to fail with `code`. Returns its two lines on standard error.
#[track_caller]
fn fails(code: i32, arguments: &[&str]) -> String {
    let output = run(arguments);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}\n{errors}");
    assert!(errors.starts_with("dmabuf-dio: "), "{errors}");
    assert_eq!(errors.lines().count(), 2, "what failed and what to do:\n{errors}");
    errors
}

/// The keys of an object, in a line.
fn keys(value: &Value) -> String {
    let keys: Vec<_> = value.as_object().expect("an object").keys().map(String::as_str).collect();
    keys.join(" ")
}

#[test]
fn load_prints_a_report() {
    let folder = folder();
    let (path, _) = file(&folder, 100_001);
    let brief = ok(["load", text(&path)]);
    let lines: Vec<_> = brief.lines().collect();
    assert!(lines.len() == 3 || lines.len() == 4, "{brief}");
    let begins = format!("{}: 100001 bytes (97.7 KiB) in a ", path.display());
    assert!(lines[0].starts_with(&begins), "{brief}");
    assert!(lines[0].contains("in a dma-buf (") || lines[0].contains("devices cannot import"));
    assert!(lines[1].contains("B/s") && lines[2].starts_with("CPU "), "{brief}");
    let report = ok(["load", text(&path), "--verbose"]);
    for word in ["file", "buffer", "backend", "moved", "evidence", "time", "CPU", "page cache"] {
        assert!(report.lines().any(|line| line.starts_with(word)), "no {word} in\n{report}");
    }
    assert!(report.contains("100001 bytes (97.7 KiB)"), "{report}");
    assert_eq!(ok(["load", text(&path), "--quiet"]), "");
}

#[test]
fn load_verify_compares_every_byte() {
    let folder = folder();
    let (path, _) = file(&folder, 1_500_003);
    for arguments in [&[][..], &["--offset", "1K", "--length", "1MiB"], &["--backend", "buffered"]]
    {
        let arguments = [&["load", text(&path), "--verify", "-v"], arguments].concat();
        let report = ok(&arguments);
        assert!(report.contains("identical"), "{report}");
        let sums: Vec<&str> =
            report.split_ascii_whitespace().filter(|word| word.len() == 64).collect();
        assert_eq!(sums.len(), 2, "{report}");
        assert_eq!(sums[0], sums[1]);
    }
    let known = folder.path().join("abc");
    std::fs::write(&known, "abc").expect("write");
    let sum = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert!(ok(["load", text(&known), "--verify", "--verbose"]).contains(sum));
}

const F_SETSIG: i32 = 10; // linux/fcntl.h

/// Runs the command on a path that leads to `first` during the load and to `second` during the
/// verification. A lease on `first` blocks `open()` until the path has been changed.
fn load_and_verify_another(
    path: &Path,
    [first, second]: [&Path; 2],
    arguments: &[&str],
) -> Option<Output> {
    let _ = std::fs::remove_file(path);
    std::os::unix::fs::symlink(first, path).expect("link");
    let held = std::fs::File::open(first).expect("open");
    // SAFETY: the calls take numbers. A process ignores SIGURG unless it handles it.
    let lease = |command, value: i32| unsafe { libc::fcntl(held.as_raw_fd(), command, value) };
    assert_eq!(lease(F_SETSIG, libc::SIGURG), 0);
    // An io_uring closes the file some time after its process has exited.
    let mut refused = None;
    eventually("the file stays open", || {
        let failed = lease(libc::F_SETLEASE, libc::F_WRLCK) != 0;
        refused = failed.then(std::io::Error::last_os_error);
        refused.as_ref().is_none_or(|error| error.raw_os_error() != Some(libc::EAGAIN))
    });
    if let Some(error) = refused {
        println!("skipped: no lease: {error}");
        return None;
    }
    let mut command = program();
    command.args(["load", text(path), "--verify"]).args(arguments);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let child = command.spawn().expect("run dmabuf-dio");
    eventually("nobody opens the file", || lease(libc::F_GETLEASE, 0) != libc::F_WRLCK);
    std::fs::remove_file(path).expect("unlink");
    std::os::unix::fs::symlink(second, path).expect("link");
    assert_eq!(lease(libc::F_SETLEASE, libc::F_UNLCK), 0);
    Some(child.wait_with_output().expect("its end"))
}

#[test]
fn difference_exits_with_4() {
    let folder = folder();
    let (first, mut bytes) = file(&folder, 3_000_000);
    let second = folder.path().join("second");
    for at in [1_234_567, 2_999_999] {
        bytes[at] ^= 0x10;
    }
    std::fs::write(&second, &bytes).expect("write");
    let (path, marker) = (folder.path().join("path"), folder.path().join("marker"));
    let files = [first.as_path(), &second];
    for way in [&["--buffered"][..], &[], &["--backend", "buffered"]] {
        let command = [way, &["--", "touch", text(&marker)]].concat();
        let Some(output) = load_and_verify_another(&path, files, &command) else { return };
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(4), "{said}");
        assert!(said.contains("DIFFERENT") && !said.contains("identical"), "{said}");
        let failure = format!("dmabuf-dio: {}: the buffer differs", text(&path));
        let line = said.lines().find(|line| line.starts_with(&failure)).expect("what failed");
        assert!(line.ends_with(" at byte 1234567"), "{line}");
        assert!(!marker.exists(), "the command got a buffer with wrong content");

        let json = [way, &["--json", "--offset", "1300000"]].concat();
        let output = load_and_verify_another(&path, files, &json).expect("a lease again");
        assert_eq!(output.status.code(), Some(4));
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let verify = &report["verify"];
        assert_eq!(verify["identical"], false);
        assert_eq!(verify["first_difference"], 2_999_999);
        assert_ne!(verify["buffer_sha256"], verify["file_sha256"]);

        // Differences outside of the loaded range do not count.
        let part = [way, &["--length", "1234567", "--quiet"]].concat();
        let output = load_and_verify_another(&path, files, &part).expect("a lease again");
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    }
}

#[test]
fn schema_of_load_is_stable() {
    let folder = folder();
    let (path, _) = file(&folder, 10_000);
    let report = ok(["load", text(&path), "--json", "--verify", "--offset", "5000"]);
    let report: Value = serde_json::from_str(&report).expect("JSON");
    let expected = "backend buffer buffer_length bytes copied_bytes cpu_seconds data_offset dma \
        evidence file gb_per_second huge_bytes locked mode nodes notes numa offset operation \
        page_cache_grown page_size refusals schema seconds segments storage_bytes verify";
    assert_eq!(keys(&report), expected);
    assert_eq!(report["schema"], 1);
    assert_eq!(report["operation"], "load");
    assert_eq!(report["bytes"], 5000);
    assert_eq!(report["data_offset"], 5000 % page_size());
    let expected = "buffer_sha256 file_sha256 first_difference identical";
    assert_eq!(keys(&report["verify"]), expected);
    assert_eq!(report["verify"]["identical"], true);
    for refusal in report["refusals"].as_array().expect("a list") {
        assert_eq!(keys(refusal), "backend errno reason remedy");
    }
}

#[test]
fn place_and_lock_are_reported() {
    let folder = folder();
    let (path, _) = file(&folder, 10_000);
    let load = ["load", text(&path), "--kind", "memfd", "--numa", "interleave", "--lock"];
    let brief = ok(load);
    assert!(brief.contains("\nmemory: numa interleave: "), "{brief}");
    let verbose = ok([&load[..], &["--verbose"]].concat());
    assert!(verbose.contains("\nmemory      numa interleave: "), "{verbose}");
    for report in [brief, verbose] {
        assert!(report.contains("; never swapped out\n"), "{report}");
    }
    let report = ok([&load[..], &["--json"]].concat());
    let report: Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!((&report["numa"], &report["locked"]), (&"interleave".into(), &true.into()));
    let report = ok(["load", text(&path), "--numa", "0", "--json"]);
    let report: Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!((&report["numa"], &report["locked"]), (&0.into(), &false.into()));
}

#[test]
fn schema_of_doctor_is_stable() {
    let folder = folder();
    let (path, _) = file(&folder, 10_000);
    let facts: Value = serde_json::from_str(&ok(["doctor", "--json", text(&path)])).expect("JSON");
    let expected = "backends devices file huge_pages iio io_uring kernel lending machine page_size \
        schema secure_boot video";
    assert_eq!(keys(&facts), expected);
    let names: Vec<_> =
        facts["backends"].as_array().expect("a list").iter().map(|one| &one["backend"]).collect();
    let expected = ["module", "slot", "heap", "copy_file_range", "udmabuf", "memfd", "buffered"];
    assert_eq!(names, expected);
    assert_eq!(facts["file"]["length"], 10_000);
    let facts: Value = serde_json::from_str(&ok(["doctor", "--json"])).expect("JSON");
    assert_eq!(facts["file"], Value::Null);
}

/// `doctor` lists the exporters if the module is loaded, and only then.
#[test]
fn doctor_lists_exporters_that_lend() {
    let facts: Value = serde_json::from_str(&ok(["doctor", "--json"])).expect("JSON");
    let report = ok(["doctor"]);
    let lending = &facts["lending"];
    assert_eq!(facts["backends"][0]["available"] == true, !lending.is_null(), "{report}");
    assert_eq!(report.contains("Exporters that"), !lending.is_null(), "{report}");
    if lending.is_null() {
        println!("skipped: there is no module");
        return;
    }
    assert_eq!(keys(lending), "drm exporters tried");
    for device in lending["drm"].as_array().expect("a list") {
        assert_eq!(keys(device), "driver is_known path");
        let answer = if device["is_known"] == true { "yes" } else { "no " };
        let (driver, path) = (device["driver"].as_str(), device["path"].as_str());
        let (driver, path) = (driver.expect("a name"), path.expect("a path"));
        let line = format!("{answer}  buffers of the driver {driver}, from {path}");
        assert!(report.contains(&line), "{report}");
    }
    for lender in lending["tried"].as_array().expect("a list") {
        assert_eq!(keys(lender), "exporter path refusal");
        let (exporter, path) = (&lender["exporter"], lender["path"].as_str().expect("a path"));
        let exporter = exporter.as_str().expect("a name");
        let answer = if lender["refusal"].is_null() { "yes" } else { "no " };
        assert!(report.contains(&format!("{answer}  {exporter}, from {path}")), "{report}");
        if path == "/dev/dma_heap/system" || path == "/dev/udmabuf" {
            assert_eq!(answer, "yes", "{report}");
        }
    }
    let devices = facts["devices"].as_array().expect("a list");
    for device in devices.iter().filter(|device| device["error"].is_null()) {
        let path = device["path"].as_str().expect("a path");
        if path.starts_with("/dev/dma_heap/") || path == "/dev/udmabuf" {
            assert!(report.contains(&format!(", from {path}")), "{path} was not tried:\n{report}");
        }
    }
}

/// A file is mounted over the module's parameter.
#[test]
fn doctor_lists_exporters_named_by_the_administrator() {
    let parameter = "/sys/module/dmabuf_dio/parameters/exporters";
    if !Path::new(parameter).exists() || !rustix::process::geteuid().is_root() {
        println!("skipped: there is no {parameter}, or no right to mount");
        return;
    }
    let folder = folder();
    let fake = folder.path().join("exporters");
    let doctor = |content: &str, arguments: &str| {
        std::fs::write(&fake, content).expect("write");
        let script = format!(
            "mount --bind {} {parameter} && exec {} doctor {arguments}",
            text(&fake),
            env!("CARGO_BIN_EXE_dmabuf-dio")
        );
        let mut command = std::process::Command::new("unshare");
        let output = command.args(["--mount", "sh", "-c", &script]).output().expect("unshare");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    let risk = "also, at the administrator's risk: ";
    let report = doctor("carveout,vendor-heap\n", "");
    assert!(report.contains(&format!("{risk}carveout, vendor-heap\n")), "{report}");
    let facts: Value = serde_json::from_str(&doctor("carveout\n", "--json")).expect("JSON");
    assert_eq!(facts["lending"]["exporters"], serde_json::json!(["carveout"]));
    assert!(!doctor("\n", "").contains(risk));
}

#[test]
fn doctor_prints_text_for_people() {
    let folder = folder();
    let (path, _) = file(&folder, 10_000);
    let report = ok(["doctor", text(&path)]);
    let backends = dmabuf_dio::Backend::ALL.map(dmabuf_dio::Backend::name);
    for word in ["kernel", "io_uring", "O_DIRECT"].into_iter().chain(backends) {
        let word = format!("{word} ");
        assert!(report.lines().any(|line| line.starts_with(&word)), "no {word} in\n{report}");
    }
    fails(1, &["doctor", text(&folder.path().join("nothing"))]);
}

#[test]
fn load_into_save_makes_a_copy() {
    let folder = folder();
    let copy = folder.path().join("copy");
    for size in [1, 4096, 1_000_003] {
        let (path, bytes) = file(&folder, size);
        let save = [env!("CARGO_BIN_EXE_dmabuf-dio"), "save", text(&copy)];
        let report = ok([&["load", text(&path), "--"][..], &save].concat());
        assert!(report.contains(&format!("{size} bytes")), "{report}");
        assert_eq!(std::fs::read(&copy).expect("read"), bytes);
        let part = ["load", text(&path), "--offset", "0", "--length", "1", "--quiet", "--"];
        let report = ok([&part[..], &save, &["--json"]].concat());
        let report: Value = serde_json::from_str(&report).expect("JSON");
        assert_eq!(report["operation"], "save");
        assert_eq!(report["bytes"], 1);
        assert_eq!(std::fs::read(&copy).expect("read"), bytes[..1]);
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("list").count(), 4, "nothing else is left");
}

#[test]
fn schema_of_save_is_stable() {
    let folder = folder();
    let (path, _) = file(&folder, 10_000);
    let copy = folder.path().join("copy");
    let save = [env!("CARGO_BIN_EXE_dmabuf-dio"), "save", text(&copy), "--json"];
    let report = ok([&["load", text(&path), "--quiet", "--"][..], &save].concat());
    let report: Value = serde_json::from_str(&report).expect("JSON");
    let expected = "backend buf_offset buffer buffer_length bytes copied_bytes cpu_seconds dma \
        evidence file gb_per_second huge_bytes locked mode nodes notes numa operation page_cache_grown \
        page_size refusals schema seconds segments storage_bytes";
    assert_eq!(keys(&report), expected);
}

#[test]
fn save_takes_a_descriptor_and_a_part() {
    let folder = folder();
    let (path, bytes) = file(&folder, 50_000);
    let copy = folder.path().join("copy");
    let script = format!(
        "exec {} save {} --fd $DMABUF_DIO_FD --buf-offset 100 --length 4K --quiet",
        env!("CARGO_BIN_EXE_dmabuf-dio"),
        text(&copy)
    );
    let report = ok(["load", text(&path), "--quiet", "--", "sh", "-c", &script]);
    assert_eq!(report, "");
    assert_eq!(std::fs::read(&copy).expect("read"), bytes[100..4196]);
}

#[test]
fn command_inherits_the_buffer_and_sets_the_exit_code() {
    let folder = folder();
    let (path, bytes) = file(&folder, 10_000);
    let script = "test -e /proc/self/fd/$DMABUF_DIO_FD || exit 9; \
                  echo $DMABUF_DIO_OFFSET $DMABUF_DIO_LEN; exit 42";
    let output = run(["load", text(&path), "--offset", "5000", "--", "sh", "-c", script]);
    assert_eq!(output.status.code(), Some(42));
    let expected = format!("{} 5000\n", 5000 % page_size());
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "only the command's");
    assert!(String::from_utf8_lossy(&output.stderr).contains("backend"), "the report");

    // A memfd can be read through /proc.
    if ok(["load", text(&path), "--json"]).contains("\"buffer\": \"memfd\"") {
        let script = "head -c $DMABUF_DIO_LEN /proc/self/fd/$DMABUF_DIO_FD";
        let output = run(["load", text(&path), "--quiet", "--", "sh", "-c", script]);
        assert_eq!(output.stdout, bytes);
    }
    let killed = run(["load", text(&path), "--", "sh", "-c", "kill -KILL $$"]);
    assert_eq!(killed.status.signal(), Some(9));
}

#[test]
fn exit_codes_match_the_kind_of_error() {
    let folder = folder();
    let (path, _) = file(&folder, 10_000);
    let path = text(&path);
    let missing = folder.path().join("missing");
    let copy = folder.path().join("copy");
    let said = fails(1, &["load", text(&missing)]);
    assert!(said.contains("missing") && said.contains("ENOENT"), "{said}");
    fails(1, &["load", text(folder.path())]);
    let said = fails(1, &["load", path, "--length", "1M"]);
    assert!(said.contains("10000"), "{said}");
    let said = fails(2, &["load", path, "--block-size", "5"]);
    assert!(said.contains("--block-size"), "{said}");
    fails(2, &["save", text(&copy)]);
    fails(2, &["save", text(&copy), "--fd", "999"]);
    fails(1, &["save", text(&copy), "--fd", "0"]);
    fails(127, &["load", path, "--quiet", "--", "no-such-program"]);
    fails(126, &["load", path, "--quiet", "--", path]);
    for usage in [&["load"][..], &["load", path, "--offset", "4Q"], &["nothing"], &[]] {
        assert_eq!(run(usage).status.code(), Some(2), "{usage:?}");
    }
    assert!(!copy.exists());
}

#[test]
fn unavailable_backend_exits_with_3() {
    let folder = folder();
    let (path, _) = file(&folder, 10_000);
    let facts: Value = serde_json::from_str(&ok(["doctor", "--json"])).expect("JSON");
    for status in facts["backends"].as_array().expect("a list") {
        let name = status["backend"].as_str().expect("a name");
        let arguments = ["load", text(&path), "--backend", name];
        if status["available"] == true {
            assert!(ok(arguments).contains(name));
        } else {
            let said = fails(3, &arguments);
            assert!(said.contains(name), "{said}");
            // The reasons are printed on request.
            let verbose = run([&arguments[..], &["--verbose"]].concat());
            let errors = String::from_utf8_lossy(&verbose.stderr);
            assert!(errors.starts_with(&said), "{errors}");
            assert!(errors.contains(&format!("not used    {name}: ")), "{errors}");
            let json = run([&arguments[..], &["--json"]].concat());
            assert_eq!(json.status.code(), Some(3));
            let found: Value = serde_json::from_slice(&json.stdout).expect("JSON");
            assert_eq!(keys(&found), "error hint refusals schema");
            assert_eq!(found["refusals"][0]["backend"], name);
        }
    }
}

#[test]
fn command_without_dashes_gets_the_correct_line() {
    let folder = folder();
    let (path, _) = file(&folder, 10_000);
    let said = fails(2, &["load", text(&path), "cat", "-n", "{}"]);
    assert!(
        said.ends_with(&format!("write: dmabuf-dio load {} -- cat -n {{}}\n", text(&path))),
        "{said}"
    );
}

/// Runs the command with transparent huge pages disabled.
fn without_huge_pages(arguments: &[&str]) -> Value {
    use std::os::unix::process::CommandExt as _;
    let mut command = program();
    let switch_off = || {
        // SAFETY: the call takes numbers.
        match unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1_u64, 0_u64, 0_u64, 0_u64) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: the closure makes one system call, which is async-signal-safe.
    unsafe { command.pre_exec(switch_off) };
    let output = command.args(arguments).output().expect("run dmabuf-dio");
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn disabled_huge_pages_are_noted() {
    let folder = folder();
    // With pages of 64 KiB they have 512 MiB, and of a file that does not fill one nothing is said.
    let len = 3 * huge_page().min(32 << 20);
    let (path, _) = file(&folder, len.try_into().expect("a length"));
    let report = without_huge_pages(&["load", text(&path), "--backend", "memfd", "--json"]);
    if report["huge_bytes"] != 0 {
        println!("skipped: reserved huge pages");
        return;
    }
    if len >= huge_page() {
        let notes = report["notes"].to_string();
        assert!(notes.contains("PR_SET_THP_DISABLE") && !notes.contains("echo"), "{notes}");
    }
    let facts = without_huge_pages(&["doctor", "--json"]);
    let remedy = facts["huge_pages"]["remedy"].as_str().expect("there are none");
    assert!(remedy.contains("PR_SET_THP_DISABLE"), "{remedy}");
}

#[test]
fn malformed_environment_exits_with_2() {
    let folder = folder();
    let copy = folder.path().join("copy");
    for (name, value) in [("DMABUF_DIO_FD", "x"), ("DMABUF_DIO_FD", "-1")] {
        let output = program().args(["save", text(&copy)]).env(name, value).output().expect("run");
        assert_eq!(output.status.code(), Some(2), "{output:?}");
    }
    let (path, _) = file(&folder, 4096);
    let script = format!(
        "DMABUF_DIO_LEN=1000000 exec {} save {}",
        env!("CARGO_BIN_EXE_dmabuf-dio"),
        text(&copy)
    );
    let output = run(["load", text(&path), "--quiet", "--", "sh", "-c", &script]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(!copy.exists());
}

#[test]
fn help_has_examples_and_exit_codes() {
    for subcommand in ["doctor", "load", "save", "completions"] {
        let help = ok([subcommand, "--help"]);
        assert!(help.contains("Examples:"), "{help}");
    }
    for help in [ok(["--help"]), ok(["load", "--help"]), ok(["save", "--help"])] {
        assert!(help.contains("Exit codes:"), "{help}");
    }
    assert!(ok(["--version"]).starts_with("dmabuf-dio "));
}

#[test]
fn completions_contain_the_options() {
    for shell in ["bash", "zsh", "fish"] {
        let script = ok(["completions", shell]);
        assert!(script.contains("backend"), "{shell}");
        for backend in dmabuf_dio::Backend::ALL {
            assert!(script.contains(backend.name()), "{shell}: {backend}");
        }
    }
}

#[test]
fn every_subcommand_has_a_manual_page() {
    let folder = folder();
    assert_eq!(ok(["man", text(folder.path())]), "");
    for command in
        ["doctor", "devices", "load", "save", "capture", "video", "replay", "completions", "man"]
    {
        let page = folder.path().join(format!("dmabuf-dio-{command}.1"));
        let page = std::fs::read_to_string(page).expect("a page");
        assert!(page.contains("Examples:"), "{command}");
    }
    let load = std::fs::read_to_string(folder.path().join("dmabuf-dio-load.1")).expect("a page");
    for word in ["verify", "DMABUF_DIO_FD", "Exit codes"] {
        assert!(load.contains(word), "{word}");
    }
    let nowhere = folder.path().join("nowhere");
    let errors = fails(1, &["man", text(&nowhere)]);
    assert!(errors.contains("nowhere: cannot write the manual pages"), "{errors}");
}

#[test]
fn interrupted_save_leaves_nothing() {
    let folder = folder();
    // Takes long enough to be interrupted: 64 MiB of holes in small requests.
    let path = folder.path().join("holes");
    std::fs::File::create(&path).and_then(|file| file.set_len(64 << 20)).expect("create");
    let copy = folder.path().join("copy");
    std::fs::write(&copy, "before").expect("write");
    let script = format!(
        "{} save {} --block-size {} --queue-depth 1 & pid=$!
         while test -d /proc/$pid; do
             grep -q '^SigCgt:.*[4-7c-f]...$' /proc/$pid/status && break
         done
         sleep 0.1; kill -TERM $pid; wait $pid",
        env!("CARGO_BIN_EXE_dmabuf-dio"),
        text(&copy),
        page_size()
    );
    let output = run(["load", text(&path), "--quiet", "--", "sh", "-c", &script]);
    if output.status.success() {
        println!("skipped: the save was done before it could be interrupted");
        return;
    }
    assert_eq!(output.status.code(), Some(143), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("cancelled"), "{output:?}");
    assert_eq!(std::fs::read(&copy).expect("read"), b"before");
    assert_eq!(std::fs::read_dir(folder.path()).expect("list").count(), 2);
}

#[test]
fn short_help_is_one_screen_and_long_help_has_everything() {
    for command in ["doctor", "devices", "load", "save", "capture", "video", "replay"] {
        let (short, long) = (ok([command, "-h"]), ok([command, "--help"]));
        assert!(short.lines().count() <= 50, "{command}: {} lines", short.lines().count());
        for text in [&short, &long] {
            assert!(text.contains("Examples:"), "{command}: {text}");
        }
        assert!(long.contains("xit codes"), "{command}: {long}");
    }
}

#[test]
fn load_creates_the_requested_kind() {
    let folder = folder();
    let (path, _) = file(&folder, 100_001);
    for kind in ["memfd", "file", "private"] {
        let report = ok(["load", text(&path), "--kind", kind, "--json", "--verify"]);
        let report: Value = serde_json::from_str(&report).expect("JSON");
        assert_eq!(
            (&report["buffer"], &report["verify"]["identical"]),
            (&kind.into(), &true.into())
        );
    }
    let any: Value = serde_json::from_str(&ok(["load", text(&path), "--json"])).expect("JSON");
    let dma_buf = run(["load", text(&path), "--kind", "dmabuf", "--json"]);
    if any["buffer"] == "memfd" {
        assert_eq!(dma_buf.status.code(), Some(3), "{dma_buf:?}");
    } else {
        assert!(dma_buf.status.success() && any["buffer"] == "dmabuf", "{any}");
    }
    let error = fails(2, &["load", text(&path), "--kind", "private", "--", "true"]);
    assert!(error.contains("no descriptor") && error.contains("--kind memfd"), "{error}");
    let error = fails(2, &["load", text(&path), "--kind", "memfd", "--", "cat", "{}"]);
    assert!(error.contains("no path for COMMAND"), "{error}");
}
