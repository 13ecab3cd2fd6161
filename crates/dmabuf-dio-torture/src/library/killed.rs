// SPDX-License-Identifier: MIT OR Apache-2.0
//! A capture of the command that is killed: its samples and its description are whole at any time.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use dmabuf_dio_stream::Device;
use serde_json::Value;

use crate::world::{Outcome, World};

const BLOCK: u64 = 16 << 10;

fn failed<E: std::fmt::Display>(what: &str) -> impl Fn(E) -> String + '_ {
    move |error| format!("{what}: {error}")
}

/// How many frames the description has, if it is there.
fn described(path: &Path) -> Result<Option<u64>, String> {
    let text = match std::fs::read(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        text => text.map_err(failed("the description"))?,
    };
    let value: Value = serde_json::from_slice(&text)
        .map_err(|error| format!("the description, of {} bytes: {error}", text.len()))?;
    let known = value["global"]["dmabuf_dio:unfinished"].as_u64();
    known.map(Some).ok_or_else(|| format!("the description of a capture that runs: {value}"))
}

/// Starts a capture, looks at its description again and again, and kills it. `None` in place of an outcome
/// without the command, or without the device.
pub(crate) fn capture(world: &mut World<'_>, microseconds: u64) -> Outcome {
    let Some(program) = world.machine.command.clone() else { return Ok(()) };
    if Device::find("stream-adc").is_none() {
        return Ok(());
    }
    let folder = world.machine.folder.join("torture-killed");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir(&folder).map_err(failed("a folder"))?;
    let (data, meta) = (folder.join("x.sigmf-data"), folder.join("x.sigmf-meta"));
    let mut child = Command::new(program)
        .args(["capture", "stream-adc", "--rate", "200k", "--quiet"])
        .args(["--block-size", &BLOCK.to_string(), "--to"])
        .arg(&data)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(failed("dmabuf-dio"))?;
    let result = watch(&mut child, &meta, microseconds);
    let _ = child.kill();
    let _ = child.wait();
    let known = result.and_then(|()| described(&meta));
    let bytes = std::fs::read(&data).unwrap_or_default();
    let _ = std::fs::remove_dir_all(&folder);
    let known = known?;
    let frames = bytes.len() as u64 / 8;
    if known.is_some_and(|known| known > frames) {
        return Err(format!("{known:?} frames are described, the file has {frames}"));
    }
    let mut last = None;
    for frame in bytes.chunks_exact(8) {
        let number = frame.try_into().map(u64::from_le_bytes).unwrap_or_default();
        if last.is_some_and(|last| number <= last) {
            return Err(format!("frame {number} follows {last:?} in a capture that was killed"));
        }
        last = Some(number);
    }
    world.machine.did("capture that is killed");
    Ok(())
}

/// From its first description on, for so long.
fn watch(child: &mut std::process::Child, meta: &Path, microseconds: u64) -> Outcome {
    let begun = Instant::now();
    let mut first = None;
    loop {
        if described(meta)?.is_some() {
            first.get_or_insert_with(Instant::now);
        }
        if first.is_some_and(|first| first.elapsed() >= Duration::from_micros(microseconds)) {
            return Ok(());
        }
        if let Some(status) = child.try_wait().map_err(failed("dmabuf-dio"))? {
            return Err(format!("the capture has ended: {status}"));
        }
        if begun.elapsed() > Duration::from_secs(60) {
            return Err("the capture has no description after a minute".into());
        }
        std::thread::sleep(Duration::from_micros(300));
    }
}
