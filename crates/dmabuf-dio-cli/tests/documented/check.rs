// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks whether a documented command can work.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::markdown::{Documented, Place};

/// Programs that are not run here, with the reason. Paths must exist in the repository.
const NOT_RUN: &[(&str, &str)] = &[
    ("SoapySDRUtil", "needs the module and a device; tests/soapysdr runs it"),
    ("bench/device/run", "needs a GPU, and torch; bench/device/selftest runs it without"),
    ("bench/device/selftest", "needs what bench/peers/compare downloads"),
    ("bench/device/wheels", "downloads other loaders; bench/device/selftest runs it"),
    ("bench/kept", "measures"),
    ("bench/peers/compare", "downloads 2.5 GB"),
    ("bench/peers/consumers", "needs what tests/consumers/python-drop-in downloads"),
    ("bench/peers/load", "needs the loaders that bench/peers/compare downloads"),
    ("bench/peers/memory", "needs the loaders that bench/peers/compare downloads"),
    ("bench/peers/tensors", "needs torch and safetensors; `make bench-tensors` runs it"),
    ("bench/stores/run", "downloads other loaders, and builds a server"),
    ("bindings/python/examples/mooncake/move.py", "needs Mooncake; tests/fleet/mooncake runs it"),
    ("bindings/python/examples/nixl/fetch.py", "needs NIXL; tests/fleet/nixl runs it"),
    ("bindings/python/examples/nixl/serve.py", "needs NIXL; tests/fleet/nixl runs it"),
    ("cmp", "compares with an object; tests/fleet/proxy runs it"),
    ("install", "writes to /etc; tests/containers/run runs it"),
    ("jq", "reads a file of Podman; tests/containers/run runs it"),
    ("nc", "waits for a connection"),
    ("apt", "installs the Debian packages; packages/selftest looks into them"),
    ("pip", "builds the Python bindings; bindings/python/test installs the wheel"),
    ("podman", "needs an image and devices; tests/containers/run runs the commands in a guest"),
    ("ssh", "needs another machine"),
    ("stat", "needs the module; tests/containers/run runs it"),
    ("systemctl", "needs systemd; tests/keep runs what the units start"),
    ("tar", "packs a capture, which needs a device; tests/clients does"),
    ("tests/kselftests", "runs in a guest"),
    ("tests/nightly", "runs for hours; the names of its parts are checked"),
    ("tests/coverage/library", "needs nightly Rust; `make coverage-library` runs it"),
    ("tests/coverage/report", "reads what guests have written"),
    ("tests/sanitize/run", "needs nightly Rust, and an hour; `make sanitize` runs it"),
    ("tests/stores/run", "starts servers of stores; `make nightly ONLY=stores` runs it"),
    ("tests/fuzz/library/run", "needs cargo-fuzz; make fuzz runs it"),
    ("tests/powercut/prove", "puts in defects, for minutes; make powercut-proof runs it"),
    ("tests/torture/prove", "builds a module for each defect, and boots guests"),
    ("tests/torture/run", "boots guests for hours"),
    ("tools/check-series", "needs the kernels' sources; `make lint` runs it"),
    ("tools/check-capi", "writes a file of the repository; `make lint` runs it"),
    ("tools/count-public", "needs rustdoc's pages of all crates"),
    ("tools/collect-rust-tests", "builds the tests; `make programs` runs it"),
    (
        "tools/compile-everywhere",
        "downloads the headers of every kernel; `make nightly ONLY=compile` runs it",
    ),
    ("tools/build-kselftests", "builds the kernel's tests; `make programs` runs it"),
    ("tools/lint-kernel", "needs a kernel's headers; `make lint` runs it"),
    ("tools/mutate-module", "builds a module for each mutant, and boots guests"),
    ("vllm", "needs a GPU; tests/consumers/vllm runs the loader"),
    ("vm/kernel", "downloads or builds a kernel"),
    ("vm/modules", "builds for a kernel that has to be downloaded"),
    ("vm/root", "downloads packages"),
    ("vm/selftest", "boots guests; tests/matrix runs it"),
];

/// Programs of Debian, which every guest has.
const OF_DEBIAN: [&str; 8] = ["cat", "dd", "getconf", "ls", "sh", "sha256sum", "true", "uname"];

/// Programs of readers. Tests run `./runtime` in their place.
pub(crate) const READERS: [&str; 3] = ["./runtime", "llama-cli", "vllm"];

/// Targets of other makefiles.
const OTHER_TARGETS: [&str; 1] = ["mrproper"]; // Linux

/// Fails with the error of `vm/run` if its arguments are wrong.
const VM_RUN: &str = "
import sys
from runner import options
options.parse(sys.argv[1:])
";

/// Prints the line that sets PATH in a guest.
const GUEST_PATH: &str = "
import types
from runner import job, kernels
options = types.SimpleNamespace(fs='ext4', device='nvme', icount=False)
kernel = kernels.Kernel('7.3', '7.3', None, None)
script = job.command_script(options, kernel, None, 'modules', ['true'])
print(next(line for line in script.splitlines() if line.startswith('export PATH=')))
";

type Verdict = Result<(), String>;

pub(crate) fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn python(script: &str, arguments: &[String]) -> Result<String, String> {
    let mut command = Command::new("python3");
    command.args(["-B", "-c", script]).args(arguments).current_dir(repository().join("vm"));
    let output = command.output().expect("python3");
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(errors.lines().last().unwrap_or("no reason").to_owned())
}

/// The place in which a command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Where {
    Host,
    Guest,
}

/// The targets of make and the `PATH` of a guest, to check commands against.
pub(crate) struct Checker {
    targets: Vec<String>,
    guest_path: String,
}

impl Checker {
    pub(crate) fn new() -> Self {
        let makefile = fs::read_to_string(repository().join("Makefile")).expect("the Makefile");
        let phony = makefile.lines().filter_map(|line| line.strip_prefix(".PHONY: "));
        let targets = phony.flat_map(|names| names.split(' ')).map(str::to_owned).collect();
        Self { targets, guest_path: python(GUEST_PATH, &[]).expect("the guest's PATH") }
    }

    pub(crate) fn check(&self, one: &Documented) -> Verdict {
        self.line(&one.line, one.place, Where::Host)
    }

    fn line(&self, line: &str, place: Place, at: Where) -> Verdict {
        let words = shlex::split(line).ok_or("a quote is open")?;
        for word in &words {
            if let Some((_, inner)) = word.split_once("$(") {
                self.line(inner.split_once(')').ok_or("$( is open")?.0, place, at)?;
            }
        }
        for command in words.split(|word| ["&&", "||", "|", ";"].contains(&word.as_str())) {
            self.command(command, place, at)?;
        }
        Ok(())
    }

    fn command(&self, words: &[String], place: Place, at: Where) -> Verdict {
        let is_setting = |word: &String| {
            word.split_once('=').is_some_and(|(name, _)| {
                name.chars().all(|c| c.is_ascii_uppercase() || c == '_' || c.is_ascii_digit())
            })
        };
        let skip = words.iter().take_while(|word| is_setting(word) || *word == "sudo").count();
        let words = &words[skip..];
        // A comment, or nothing but settings.
        let Some((program, arguments)) = words.split_first() else { return Ok(()) };
        match program.as_str() {
            "dmabuf-dio" | "target/release/dmabuf-dio" => self.dmabuf_dio(words, at),
            "dmabuf-dio-bench" | "target/release/dmabuf-dio-bench" => bench(arguments),
            "make" => self.make(arguments),
            "cargo" => cargo(arguments),
            "vm/run" => self.vm_run(arguments, place),
            "tests/matrix" => matrix(arguments),
            "cd" => Ok(()),
            "sh" if arguments.first().is_some_and(|word| word == "-c") => {
                self.line(arguments.get(1).ok_or("sh -c lacks its script")?, place, at)
            }
            _ => other(program, at),
        }
    }

    fn dmabuf_dio(&self, words: &[String], at: Where) -> Verdict {
        let folders = ["target/release", "target/debug"];
        if at == Where::Guest && !folders.iter().all(|name| self.guest_path.contains(name)) {
            return Err(format!("dmabuf-dio is not in a guest's {}", self.guest_path));
        }
        match dmabuf_dio_cli::command_line().try_get_matches_from(words) {
            Err(error) if error.use_stderr() => return Err(error.to_string()),
            _ => {}
        }
        match words.splitn(2, |word| word == "--").nth(1) {
            // The reader's program
            Some([program, ..]) if READERS.contains(&program.as_str()) => Ok(()),
            Some(command) => self.command(command, Place::Block, at),
            None => Ok(()),
        }
    }

    fn make(&self, arguments: &[String]) -> Verdict {
        for parts in arguments.iter().filter_map(|word| word.strip_prefix("ONLY=")) {
            nightly(parts)?;
        }
        for target in arguments.iter().filter(|word| !word.contains('=')) {
            if !self.targets.contains(target) && !OTHER_TARGETS.contains(&target.as_str()) {
                return Err(format!("the Makefile has no target {target}"));
            }
        }
        Ok(())
    }

    fn vm_run(&self, arguments: &[String], place: Place) -> Verdict {
        let mut whole = arguments.to_vec();
        // Text mentions some options only.
        if place == Place::Text {
            if !whole.iter().any(|word| word == "--kernel") {
                whole.splice(0..0, ["--kernel".into(), "7.3".into()]);
            }
            if !whole.iter().any(|word| word == "--") {
                whole.extend(["--".into(), "true".into()]);
            }
        }
        python(VM_RUN, &whole)?;
        match whole.splitn(2, |word| word == "--").nth(1) {
            Some(command) => self.command(command, place, Where::Guest),
            None => Ok(()), // --help
        }
    }
}

/// Whether a word is a placeholder such as `COMMAND` or `KERNEL`.
fn is_placeholder(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|c| c.is_ascii_uppercase() || c == '-' || c == '.')
}

/// Whether a file is in the repository, or built from one there.
fn exists(path: &str) -> bool {
    let source = if let Some(test) = path.strip_prefix("build/tests-guest/") {
        format!("tests/guest/{test}.c")
    } else if let Some(program) = path.strip_prefix("target/release/") {
        let package = if program == "dmabuf-dio" { "dmabuf-dio-cli" } else { program };
        format!("crates/{package}/src/main.rs")
    } else {
        path.to_owned()
    };
    repository().join(source).is_file()
}

fn other(program: &str, at: Where) -> Verdict {
    if is_placeholder(program) {
        return Ok(());
    }
    if program.contains('/') && !exists(program) {
        return Err(format!("there is no {program}"));
    }
    let is_listed = NOT_RUN.iter().any(|(listed, _)| *listed == program);
    let in_guest = at == Where::Guest && (program.contains('/') || OF_DEBIAN.contains(&program));
    if is_listed || in_guest {
        return Ok(());
    }
    Err(format!("{program} is not known here: see NOT_RUN in {}", file!()))
}

/// cargo is not run, since it runs this test. Packages and examples are looked up.
fn cargo(arguments: &[String]) -> Verdict {
    let crates = repository().join("crates");
    let package =
        arguments.iter().position(|word| word == "-p").and_then(|at| arguments.get(at + 1));
    let package = crates.join(package.map_or("dmabuf-dio", String::as_str));
    for pair in arguments.windows(2).take_while(|pair| pair[0] != "--") {
        let found = match pair[0].as_str() {
            "-p" => crates.join(&pair[1]).is_dir(),
            "--example" => package.join(format!("examples/{}.rs", pair[1])).is_file(),
            _ => true,
        };
        if !found {
            return Err(format!("cargo {} {}: there is none", pair[0], pair[1]));
        }
    }
    let known = ["build", "doc", "mutants", "run", "test"];
    match arguments.first() {
        Some(command) if known.contains(&command.as_str()) => Ok(()),
        command => Err(format!("cargo {command:?} is not known here")),
    }
}

/// The benchmarks take minutes and have their own tests. Options are looked up in the sources.
fn bench(arguments: &[String]) -> Verdict {
    let sources = repository().join("crates/dmabuf-dio-bench/src");
    let (subcommand, rest) = arguments.split_first().ok_or("a subcommand is missing")?;
    let read = |path: &str| fs::read_to_string(sources.join(path)).unwrap_or_default();
    let own = [format!("{subcommand}.rs"), format!("{subcommand}/mod.rs")].map(|path| read(&path));
    let (own, common) = (own.concat(), read("args.rs"));
    if own.is_empty() {
        return Err(format!("dmabuf-dio-bench has no {subcommand}"));
    }
    for word in rest {
        let Some(option) = word.strip_prefix("--") else { continue };
        let field = format!(" {}: ", option.replace('-', "_"));
        if !own.contains(&field) && !common.contains(&field) {
            return Err(format!("dmabuf-dio-bench {subcommand} has no --{option}"));
        }
    }
    Ok(())
}

/// The parts of `make nightly`.
fn nightly(parts: &str) -> Verdict {
    let mut command = Command::new("tests/nightly");
    let output = command.arg("--list").current_dir(repository()).output().expect("tests/nightly");
    let known = String::from_utf8_lossy(&output.stdout);
    let mut unknown =
        parts.split_whitespace().filter(|part| !known.split_whitespace().any(|name| name == *part));
    match unknown.next() {
        Some(part) => Err(format!("make nightly has no part {part}")),
        None => Ok(()),
    }
}

fn matrix(arguments: &[String]) -> Verdict {
    let arguments = arguments.iter().filter(|word| !is_placeholder(word));
    let mut command = Command::new("python3");
    command.args(["-B", "tests/matrix", "--list"]).args(arguments).current_dir(repository());
    let output = command.output().expect("python3");
    if output.status.success() && !output.stdout.trim_ascii().is_empty() {
        return Ok(());
    }
    Err(format!("tests/matrix has no job like that: {}", String::from_utf8_lossy(&output.stderr)))
}

/// A command that needs only the files that it reads.
pub(crate) struct Runnable {
    pub(crate) reads: Vec<PathBuf>,
    /// The file that becomes a copy.
    pub(crate) writes: Option<PathBuf>,
}

pub(crate) fn runnable(line: &str) -> Option<Runnable> {
    let words = shlex::split(line)?;
    if words.iter().any(|word| ["&&", "|", ";"].contains(&word.as_str())) {
        return None;
    }
    let matches = dmabuf_dio_cli::command_line().try_get_matches_from(&words).ok()?;
    let (name, matches) = matches.subcommand()?;
    if !["doctor", "load"].contains(&name) || words[0] != "dmabuf-dio" {
        return None;
    }
    let reads: Vec<PathBuf> = matches.get_one::<PathBuf>("file").cloned().into_iter().collect();
    // Nothing is kept here; tests/keep runs such commands.
    if reads.iter().any(|path| path.to_string_lossy().starts_with("keep:")) {
        return None;
    }
    let command = words.splitn(2, |word| word == "--").nth(1).unwrap_or_default();
    let writes = command.first().filter(|program| *program == "dmabuf-dio").map(|_| {
        let save = dmabuf_dio_cli::command_line().get_matches_from(command);
        let (_, save) = save.subcommand().expect("a subcommand");
        save.get_one::<PathBuf>("file").expect("a file").clone()
    });
    // A store is not at hand.
    let is_url = |path: &PathBuf| path.to_string_lossy().contains("://");
    (!reads.iter().chain(&writes).any(is_url)).then_some(Runnable { reads, writes })
}
