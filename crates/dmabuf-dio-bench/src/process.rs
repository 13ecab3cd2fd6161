// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program that is measured.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use dmabuf_dio_terminal::exit::UNAVAILABLE;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::args::PROGRAM;
use crate::outcome::{Result, Status, Trouble, failed};

/// How often interruption is checked for.
const PATIENCE: Duration = Duration::from_millis(100);
const TICK: Duration = Duration::from_millis(1);

/// A running program. It and its children are killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    /// Lines that it prints.
    printed: Receiver<String>,
    errors: File,
    /// The name for messages.
    name: String,
    /// The status if it fails, unless its exit code means that something is unavailable.
    ends: Status,
}

impl Process {
    /// Its output is read by this, or goes to a file.
    pub(crate) fn start(
        name: &str,
        mut command: Command,
        output: Option<File>,
        ends: Status,
    ) -> Result<Self> {
        let start = || {
            let errors = File::from(memfd_create("dmabuf-dio-errors", MemfdFlags::CLOEXEC)?);
            command.stdin(Stdio::piped()).stderr(errors.try_clone()?);
            command.stdout(output.map_or_else(Stdio::piped, Stdio::from));
            // A group of its own, to end all of it at once.
            Ok((command.process_group(0).spawn()?, errors))
        };
        let (mut child, errors) = start().map_err(|error: std::io::Error| {
            Trouble::new(Status::Unavailable, format!("{name} cannot be run: {error}"))
        })?;
        let (sender, printed) = channel();
        if let Some(stdout) = child.stdout.take() {
            std::thread::spawn(move || {
                let lines = BufReader::new(stdout).split(b'\n').map_while(Result::ok);
                let lines = lines.map(|line| String::from_utf8_lossy(&line).into_owned());
                let _ = lines.map(|line| sender.send(line)).all(|sent| sent.is_ok());
            });
        }
        Ok(Self { child, printed, errors, name: name.into(), ends })
    }

    /// Writes an empty line to its standard input.
    pub(crate) fn nudge(&mut self) {
        // If it is gone, its output tells.
        if let Some(stdin) = &mut self.child.stdin {
            let _ = stdin.write_all(b"\n");
        }
    }

    /// The next line that it prints.
    pub(crate) fn line(&mut self) -> Result<String> {
        if let Some(line) = self.next()? {
            return Ok(line);
        }
        let status = self.wait(Duration::MAX)?;
        Err(self.ended(status))
    }

    /// Its remaining output. It must exit successfully.
    pub(crate) fn finish(mut self) -> Result<String> {
        let (printed, status) = self.end(Duration::MAX)?;
        if status.success() { Ok(printed) } else { Err(self.ended(status)) }
    }

    /// Waits for its end, whatever its exit code. Returns what else it printed.
    pub(crate) fn end(&mut self, patience: Duration) -> Result<(String, ExitStatus)> {
        let mut printed = String::new();
        while let Some(line) = self.next()? {
            printed += &(line + "\n");
        }
        Ok((printed, self.wait(patience)?))
    }

    /// Waits for an instant. Fails if it has ended.
    pub(crate) fn goes_on(&mut self) -> Result<()> {
        std::thread::sleep(5 * TICK);
        Trouble::interrupted()?;
        match self.child.try_wait().map_err(failed("waitpid"))? {
            None => Ok(()),
            Some(status) => Err(self.broken(&format!("ended early: {status}"))),
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.child.id() as i32) {
            let _ = kill_process(pid, signal);
        }
    }

    fn broken(&self, how: &str) -> Trouble {
        Trouble::broken(format!("{} {how}", self.name))
    }

    /// Waits for a line. There is none at the end.
    fn next(&self) -> Result<Option<String>> {
        loop {
            Trouble::interrupted()?;
            match self.printed.recv_timeout(PATIENCE) {
                Ok(line) => return Ok(Some(line)),
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn wait(&mut self, patience: Duration) -> Result<ExitStatus> {
        let begin = Instant::now();
        loop {
            Trouble::interrupted()?;
            if let Some(status) = self.child.try_wait().map_err(failed("waitpid"))? {
                return Ok(status);
            }
            if begin.elapsed() > patience {
                return Err(self.broken("does not end"));
            }
            std::thread::sleep(TICK);
        }
    }

    /// Why it exited early: the last line of its error output.
    fn ended(&mut self, status: ExitStatus) -> Trouble {
        let mut errors = String::new();
        let _ = self.errors.rewind().and_then(|()| self.errors.read_to_string(&mut errors));
        let last = errors.lines().rev().map(str::trim).find(|line| !line.is_empty());
        let reason = match last {
            Some(line) => line.strip_prefix(&format!("{PROGRAM}: ")).unwrap_or(line).to_owned(),
            None => format!("{} exited with {status} and gave no reason", self.name),
        };
        let unavailable = status.code() == Some(UNAVAILABLE.into());
        Trouble::new(if unavailable { Status::Unavailable } else { self.ends }, reason)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Once it has been waited for its number may be another's.
        let Ok(None) = self.child.try_wait() else { return };
        if let Some(group) = Pid::from_raw(self.child.id() as i32) {
            let _ = kill_process_group(group, Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Process {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Process::start("the test", command, None, Status::Failed).expect("sh")
    }

    #[test]
    fn lines_are_read_and_the_last_of_stderr_is_the_reason() {
        let mut process = sh(r"echo one; read x; printf 'two\377\n'; echo three");
        assert_eq!(process.line().expect("a line"), "one");
        process.nudge();
        assert_eq!(process.finish().expect("the rest"), "two\u{fffd}\nthree\n");
        for (script, status, reason) in [
            ("echo first >&2; echo last >&2; echo >&2; exit 1", Status::Failed, "last"),
            ("echo dmabuf-dio-bench: no >&2; exit 3", Status::Unavailable, "no"),
            ("exit 9", Status::Failed, "the test exited with exit status: 9 and gave no reason"),
        ] {
            assert_eq!(sh(script).line(), Err(Trouble::new(status, reason)));
        }
    }

    #[test]
    fn dropped_process_ends_its_children() {
        let mut process = sh("sleep 1000 & echo $!; wait");
        let pid = process.line().expect("a line");
        drop(process);
        // A zombie waits for a parent that may not care.
        let stat = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        while !stat().is_empty() && !stat().contains(") Z ") {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
