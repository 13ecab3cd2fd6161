// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dmabuf-dio video`, with a device of the kernel's vivid. Its picture moves with the number of the
//! frame; v4l2-ctl, an independent program, captures the picture of each number.

mod common;

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use common::iio::{end_of, fails, read_json, report, signal, start};
use common::{Words, eventually, folder, ok, program};
use serde_json::Value;

/// After so many frames the picture is the same again: it moves by an 80th of its width.
const PERIOD: u64 = 80;
const UNBIND: &str = "/sys/bus/platform/drivers/vivid/unbind";
const BIND: &str = "/sys/bus/platform/drivers/vivid/bind";

/// Exclusive use of two devices of vivid: one with virtually contiguous memory, one that is
/// multi-planar and needs physically contiguous memory.
struct Setup {
    folder: tempfile::TempDir,
    single: String,
    multi: String,
    _lock: MutexGuard<'static, ()>,
}

fn run_tool(program: &str, arguments: impl Words) -> String {
    let output = Command::new(program).args(arguments.words()).output().expect(program);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{program} {arguments:?}: {text}{errors}");
    text + &errors
}

impl Setup {
    fn get() -> Option<Self> {
        static LOCK: Mutex<()> = Mutex::new(());
        let lock = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        // The test is not for machines with real cameras.
        let kernel = std::env::var("DMABUF_DIO_KERNEL").unwrap_or_default();
        // It is not for Linux 6.12, where captures of v4l2-ctl show a number differently.
        let guest = !kernel.is_empty() && kernel != "6.12";
        let parameters = ["n_devs=2", "node_types=0x1,0x1", "num_inputs=1,1", "input_types=0,0"];
        let kinds = ["multiplanar=1,2", "allocators=0,1"];
        let loaded = Path::new("/sys/module/vivid").exists();
        let load = || {
            let mut command = Command::new("modprobe");
            command.args(["-q", "vivid"]).args(parameters).args(kinds);
            command.stderr(Stdio::null()).status().is_ok_and(|status| status.success())
        };
        if !guest || !(loaded || load()) {
            let required = std::env::var("DMABUF_DIO_REQUIRE").unwrap_or_default();
            assert!(!required.contains("video"), "there has to be vivid");
            println!("skipped: no vivid");
            return None;
        }
        let devices = devices();
        let node = |multi: bool| {
            let is = |one: &&Value| one["multi_planar"] == multi && one["driver"] == "vivid";
            let one = devices.iter().find(is).expect("a device of each kind");
            one["node"].as_str().expect("a path").to_owned()
        };
        let setup = Self { folder: folder(), single: node(false), multi: node(true), _lock: lock };
        for node in [&setup.single, &setup.multi] {
            let still = "percentage_of_dropped_buffers=0,wrap_sequence_number=0";
            control(node, &format!("osd_text_mode=2,horizontal_movement=6,{still}"));
        }
        Some(setup)
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).into_os_string().into_string().expect("text")
    }
}

/// All video devices.
fn devices() -> Vec<Value> {
    let all: Value = serde_json::from_str(&ok("devices --json")).expect("JSON");
    all["video"].as_array().expect("a list").clone()
}

fn control(node: &str, controls: &str) {
    run_tool("v4l2-ctl", ["-d", node, "-c", controls]);
}

/// A frame size and format, as options.
#[derive(Clone, Copy)]
struct Kind {
    size: &'static str,
    format: &'static str,
}

/// Frames of whole disk blocks, and others.
const YUYV: Kind = Kind { size: "640x360", format: "YUYV" };
const NV12: Kind = Kind { size: "320x180", format: "NV12" };

impl Kind {
    /// How the frames look, one after the other, captured by v4l2-ctl.
    fn pictures(self, setup: &Setup) -> Pictures {
        static KNOWN: Mutex<Vec<(&str, Pictures)>> = Mutex::new(Vec::new());
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, pictures)) = known.iter().find(|(format, _)| *format == self.format) {
            return pictures.clone();
        }
        let pictures = self.capture_pictures(setup);
        known.push((self.format, pictures.clone()));
        pictures
    }

    fn capture_pictures(self, setup: &Setup) -> Pictures {
        let (file, node) = (setup.path("reference"), &*setup.single);
        let (width, height) = self.size.split_once('x').expect("a size");
        let format = format!("width={width},height={height},pixelformat={}", self.format);
        run_tool("v4l2-ctl", ["-d", node, &format!("--set-fmt-video={format}"), "-p", "60"]);
        let mut pictures: HashMap<u64, Vec<u8>> = HashMap::new();
        for _ in 0..20 {
            let stream = "--stream-mmap=8 --stream-count=80 --verbose";
            let said = run_tool("v4l2-ctl", format!("-d {node} --stream-to={file} {stream}"));
            let numbers = said.lines().filter_map(|line| {
                let number = line.split_once(" seq:")?.1.split_whitespace().next()?;
                line.contains("dqbuf").then(|| number.parse::<u64>().expect("a number"))
            });
            let numbers: Vec<_> = numbers.collect();
            let bytes = fs::read(&file).expect("frames");
            let length = bytes.len() / 80;
            assert_eq!((numbers.len() >= 80, bytes.len() % 80), (true, 0), "{said}");
            let frames: Vec<_> = numbers.into_iter().zip(bytes.chunks_exact(length)).collect();
            // vivid may give a number twice; the picture moves even so.
            let mut before = None;
            let mut twice = 0;
            let frames: Vec<_> = frames
                .into_iter()
                .map(|(number, frame)| {
                    twice += u64::from(before.replace(number) == Some(number));
                    (number + twice, frame)
                })
                .collect();
            // The first picture may differ from the previous capture.
            let place = |frame: &[u8]| {
                pictures.iter().find(|(_, known)| *known == frame).map(|(place, _)| *place)
            };
            let shift = frames
                .iter()
                .find_map(|(number, frame)| Some(PERIOD + place(frame)? - number % PERIOD));
            let shift = shift.unwrap_or(0);
            for (number, frame) in frames {
                let before = pictures.insert((number + shift) % PERIOD, frame.to_vec());
                assert!(before.is_none_or(|before| before == frame), "{number} looks different");
            }
            if pictures.len() == PERIOD as usize {
                let all: HashSet<_> = pictures.values().collect();
                assert_eq!(all.len(), PERIOD as usize, "each looks different");
                let all = (0..PERIOD).map(|place| pictures.remove(&place).expect("all of them"));
                return Pictures(all.collect::<Vec<_>>().into());
            }
        }
        panic!("v4l2-ctl never captured all");
    }

    fn options(self, node: &str) -> String {
        let Self { size, format } = self;
        format!("video {node} --size {size} --pixel-format {format} --fps 60")
    }
}

/// The pictures of [`PERIOD`] frames.
#[derive(Clone)]
struct Pictures(Arc<[Vec<u8>]>);

impl Pictures {
    /// Bytes of one.
    fn len(&self) -> usize {
        self.0[0].len()
    }

    /// Fails unless these are frames with these numbers. The first number and the distance from it
    /// determine each picture.
    #[track_caller]
    fn check<'a>(&self, frames: impl Iterator<Item = (u64, &'a [u8])>) {
        let (mut start, mut before, mut twice, mut unseen) = (None, None, 0, 0);
        for (number, frame) in frames {
            // vivid may give a number twice; the picture moves even so. It may drop one of the two.
            twice += u64::from(before.replace(number) == Some(number));
            let place = || self.0.iter().position(|one| one.starts_with(frame));
            let (first, at) =
                *start.get_or_insert_with(|| (number, place().expect("a picture") as u64));
            let is = |twice| {
                self.0[((at + number - first + twice) % PERIOD) as usize].starts_with(frame)
            };
            if unseen == 0 && !is(twice) && is(twice + 1) {
                (twice, unseen) = (twice + 1, 1);
            }
            assert!(is(twice), "number {number}, of {first} on, is another");
        }
    }
}

/// Checks every byte of a file with its description, which has to tell for every number whether the
/// frame is there. Returns it.
#[track_caller]
fn check(data: &str, pictures: &Pictures) -> Value {
    let told = read_json(format!("{data}.json"));
    let bytes = fs::read(data).expect("frames");
    let listed = told["listed"].as_array().expect("a list");
    assert_eq!(told["frames"], listed.len());
    let number = |value: &Value| value.as_u64().expect("a number");
    let first = number(&listed[0][0]);
    let (mut next, mut missing, mut end) = (first, Vec::new(), 0);
    let mut frames = Vec::new();
    for (place, frame) in listed.iter().enumerate() {
        let (sequence, offset, length) = (number(&frame[0]), number(&frame[2]), number(&frame[3]));
        assert_eq!(offset, end, "behind the one before");
        end += length;
        let range = offset as usize..end as usize;
        assert_eq!(length, pictures.len() as u64);
        frames.push((sequence, bytes.get(range).expect("all of it")));
        if sequence > next {
            missing.push((place as u64, sequence - next));
        }
        next = sequence + 1;
    }
    pictures.check(frames.into_iter());
    assert_eq!(bytes.len() as u64, end, "nothing behind the last frame");
    let told_missing: Vec<_> = told["missing"].as_array().expect("a list").iter().collect();
    let told_missing: Vec<_> = told_missing
        .iter()
        .map(|gap| (number(&gap["before_frame"]), number(&gap["frames"])))
        .collect();
    assert_eq!(told_missing, missing);
    assert_eq!(told["lost_frames"], missing.iter().map(|(_, frames)| frames).sum::<u64>());
    told
}

/// The numbers of the frames that a report tells of.
fn numbers(report: &Value, first: u64) -> impl Iterator<Item = u64> {
    let gaps = report["missing"].as_array().expect("a list").clone();
    let mut number = first;
    (0..).map(move |place: u64| {
        let gap = gaps.iter().find(|gap| gap["before_frame"] == place);
        number += gap.map_or(0, |gap| gap["frames"].as_u64().expect("a number"));
        number += 1;
        number - 1
    })
}

/// Waits until a file has so many bytes.
#[track_caller]
fn wait_for(data: &str, bytes: usize) {
    let grown = || fs::metadata(data).is_ok_and(|facts| facts.len() >= bytes as u64);
    eventually("the file does not grow", grown);
}

#[test]
fn every_byte_of_every_frame_is_captured() {
    let Some(setup) = Setup::get() else { return };
    let slots = std::env::var("DMABUF_DIO_REQUIRE").unwrap_or_default().contains("slot");
    // Debian's kernels for arm64 have no heap.
    let system = if Path::new("/dev/dma_heap/system").exists() { "system" } else { "driver" };
    for (node, kind, memory) in [
        (&setup.single, YUYV, system),
        (&setup.single, NV12, system),
        (&setup.multi, NV12, "driver"),
    ] {
        let pictures = kind.pictures(&setup);
        let data = setup.path("frames.raw");
        let more = format!("--to {data} --frames 60 --force --max-loss 100%");
        let (code, summary) = report(format!("{} {more}", kind.options(node)));
        let told = check(&data, &pictures);
        assert_eq!((code, &summary["frames"]), (0, &60.into()), "{summary}");
        assert_eq!((&summary["missing"], &told["complete"]), (&told["missing"], &true.into()));
        assert_eq!(summary["clock"], "monotonic");
        let rate = summary["measured_rate"].as_f64().expect("known");
        assert!((50.0..70.0).contains(&rate), "{rate} per second");
        let heap =
            if memory == "driver" { "driver".into() } else { serde_json::json!({"heap": memory}) };
        assert_eq!(summary["memory"], heap, "{summary}");
        let sink = summary["sink"].as_str().expect("text");
        let direct = sink.contains("O_DIRECT") && !sink.contains("page cache");
        let whole = told["format"]["frame_bytes"].as_u64().expect("a number") % 512 == 0;
        assert!(!slots || memory == "driver" || !whole || direct, "{sink}");
        println!("{} {} {memory}: {sink}", kind.format, kind.size);
    }
}

#[test]
fn dropped_frames_are_reported() {
    let Some(setup) = Setup::get() else { return };
    let pictures = NV12.pictures(&setup);
    control(&setup.single, "percentage_of_dropped_buffers=30");
    let data = setup.path("frames.raw");
    let options = NV12.options(&setup.single);
    let to = format!("--to {data} --frames 40 --force");
    let (code, summary) = report(format!("{options} {to} --max-loss 100%"));
    let told = check(&data, &pictures);
    assert_eq!((code, &told["frames"]), (0, &40.into()), "{summary}");
    assert!(summary["lost_frames"].as_u64() > Some(0), "{summary}");
    assert_eq!((&summary["missing"], &summary["loss_known"]), (&told["missing"], &true.into()));
    // By default each is one too many.
    let (code, summary) = report(format!("{options} {to}"));
    let error = summary["error"].as_str().expect("told");
    assert!(code == 1 && error.contains("--max-loss") && summary["complete"] == true, "{error}");
    check(&data, &pictures);
    let (code, summary) = report(format!("{options} {to} --overrun fail"));
    let error = summary["error"].as_str().expect("told");
    assert!(code == 1 && error.contains("EOVERFLOW"), "{error}");
    if summary["frames"].as_u64() > Some(0) {
        assert_eq!(check(&data, &pictures)["missing"], serde_json::json!([]));
    }
}

#[test]
fn damaged_frames_are_left_out_and_reported() {
    let Some(setup) = Setup::get() else { return };
    let pictures = NV12.pictures(&setup);
    let data = setup.path("frames.raw");
    let options = NV12.options(&setup.single);
    let child = start(format!("{options} --to {data} --max-loss 100% --json"));
    let ten_more = || {
        let length = fs::metadata(&data).map_or(0, |facts| facts.len());
        wait_for(&data, length as usize + 10 * pictures.len());
    };
    for _ in 0..2 {
        ten_more();
        control(&setup.single, "inject_v4l2_buf_flag_error=1");
    }
    ten_more();
    signal(&child, "-INT");
    let (code, summary) = end_of(child);
    let told = check(&data, &pictures);
    assert_eq!((code, &summary["damaged_frames"]), (0, &2.into()), "{summary}");
    assert!(told["lost_frames"].as_u64() >= Some(2), "{summary}");
}

#[test]
fn wrapped_sequence_numbers_are_no_loss() {
    let Some(setup) = Setup::get() else { return };
    let pictures = NV12.pictures(&setup);
    control(&setup.single, "wrap_sequence_number=1");
    let data = setup.path("frames.raw");
    let more = format!("--to {data} --frames 140 --max-loss 100%");
    let (code, summary) = report(format!("{} {more}", NV12.options(&setup.single)));
    control(&setup.single, "wrap_sequence_number=0");
    assert_eq!(code, 0, "{summary}");
    assert!(summary["lost_frames"].as_u64() < Some(100), "{summary}");
    assert!(summary["last"]["sequence"].as_u64() > Some(1 << 32), "{summary}");
    check(&data, &pictures);
}

#[test]
fn seconds_count_frame_timestamps() {
    let Some(setup) = Setup::get() else { return };
    let data = setup.path("frames.raw");
    let more = format!("--to {data} --seconds 1 --max-loss 100%");
    let (code, summary) = report(format!("{} {more}", NV12.options(&setup.single)));
    let number = |value: &Value| value.as_u64().expect("a number");
    assert_eq!(code, 0, "{summary}");
    // vivid gives some numbers twice. On a slow machine, it skips the last numbers of a second.
    let between = |name: &str| number(&summary["last"][name]) - number(&summary["first"][name]);
    assert!((30..=60).contains(&between("sequence")), "{summary}");
    assert!((500_000..1_000_000).contains(&between("microseconds")), "{summary}");
    assert_eq!(fs::metadata(&data).expect("a file").len(), number(&summary["bytes"]));
}

#[test]
fn video_is_captured_into_a_pipe() {
    let Some(setup) = Setup::get() else { return };
    let pictures = NV12.pictures(&setup);
    let told = setup.path("report.json");
    let options = NV12.options(&setup.single);
    let output = program()
        .args(
            format!("{options} --to - --frames 30 --report {told} --quiet --max-loss 100%").words(),
        )
        .output()
        .expect("its end");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told = read_json(told);
    let first = told["first"]["sequence"].as_u64().expect("a number");
    assert_eq!(output.stdout.len(), 30 * pictures.len());
    pictures.check(numbers(&told, first).zip(output.stdout.chunks_exact(pictures.len())));
}

#[test]
fn ctrl_c_kill_and_a_full_disk_leave_whole_frames() {
    let Some(setup) = Setup::get() else { return };
    let pictures = NV12.pictures(&setup);
    let options = NV12.options(&setup.single);
    let data = setup.path("frames.raw");
    let json = format!("--to {data} --json --force --max-loss 100%");
    for (more, good) in [("", 0), ("--frames 10000", 1)] {
        let _ = fs::remove_file(&data);
        let child = start(format!("{options} {json} {more}"));
        wait_for(&data, 15 * pictures.len());
        signal(&child, "-INT");
        let (code, summary) = end_of(child);
        assert_eq!((code, &summary["complete"]), (good, &(good == 0).into()), "{summary}");
        assert!(check(&data, &pictures)["frames"].as_u64() > Some(10), "{summary}");
    }
    let _ = fs::remove_file(&data);
    let mut child = start(format!("{options} {json}"));
    wait_for(&data, 15 * pictures.len());
    let described = || -> Option<Value> {
        serde_json::from_slice(&fs::read(format!("{data}.json")).ok()?).ok()
    };
    eventually("nothing is described", || {
        described().is_some_and(|told| told["frames"].as_u64() > Some(10))
    });
    child.kill().expect("killed");
    child.wait().expect("its end");
    let bytes = fs::read(&data).expect("a prefix");
    for part in bytes.chunks(pictures.len()) {
        assert!(pictures.0.iter().any(|one| one.starts_with(part)), "{} bytes", part.len());
    }
    // The frames that are described are there; behind them there may be more.
    let told = described().expect("a description");
    assert_eq!(told["complete"], false);
    let known = told["bytes"].as_u64().expect("a number");
    fs::File::options().write(true).open(&data).and_then(|file| file.set_len(known)).expect("cut");
    check(&data, &pictures);
    // A disk of 3 MB, which 86,400 bytes 37 times fill.
    let disk = setup.path("disk");
    fs::create_dir(&disk).expect("a folder");
    run_tool("mount", ["-t", "tmpfs", "-o", "size=3M", "none", &disk]);
    let data = format!("{disk}/frames.raw");
    let said = fails(1, format!("{options} --to {data} --frames 1000"));
    assert!(said.contains("make room") && !Path::new(&data).exists(), "{said}");
    let (code, summary) = report(format!("{options} --to {data}"));
    let error = summary["error"].as_str().unwrap_or_default().to_owned();
    let frames = summary["frames"].as_u64().expect("a number");
    let length = fs::metadata(&data).expect("a file").len();
    let bytes = fs::read(&data).expect("a prefix");
    run_tool("umount", &disk);
    assert!(code == 1 && error.contains("ENOSPC"), "{summary}");
    assert_eq!((length > 1 << 20, length), (true, frames * pictures.len() as u64), "{summary}");
    let first = summary["first"]["sequence"].as_u64().expect("a number");
    pictures.check(numbers(&summary, first).zip(bytes.chunks(pictures.len())));
}

#[test]
fn removed_device_ends_the_capture() {
    let Some(setup) = Setup::get() else { return };
    let pictures = NV12.pictures(&setup);
    let data = setup.path("frames.raw");
    let json = format!("--to {data} --json --force");
    let child = start(format!("{} {json}", NV12.options(&setup.single)));
    wait_for(&data, 15 * pictures.len());
    fs::write(UNBIND, "vivid.0").expect("unbound");
    let (code, summary) = end_of(child);
    fs::write(BIND, "vivid.0").expect("bound");
    let error = summary["error"].as_str().expect("told");
    assert!(code == 1 && error.contains("ENODEV"), "{summary}");
    assert!(check(&data, &pictures)["frames"].as_u64() > Some(10), "{summary}");
}

#[test]
fn unsupported_arguments_are_refused() {
    let Some(setup) = Setup::get() else { return };
    let data = setup.path("frames.raw");
    let node = &*setup.single;
    let before = run_tool("v4l2-ctl", ["-d", node, "--get-fmt-video", "--get-parm"]);
    for (code, device, more, words) in [
        (1, node, "--size 123x45", &["123x45", "320x180", "1920x1080"][..]),
        (1, node, "--pixel-format XXXX", &["XXXX", "YUYV", "NV12"]),
        (1, &setup.multi, "--pixel-format NM12", &["2 buffers", "--pixel-format"]),
        (1, "/dev/video99", "", &["no device /dev/video99"]),
        (2, node, "--size wide", &["1920x1080"]),
    ] {
        let said = fails(code, format!("video {device} --to {data} {more}"));
        assert!(words.iter().all(|word| said.contains(word)), "{more:?}: {said}");
        assert!(!Path::new(&data).exists(), "{more:?}");
    }
    let after = run_tool("v4l2-ctl", ["-d", node, "--get-fmt-video", "--get-parm"]);
    assert_eq!(after, before);
    let said = fails(2, format!("capture {node} --to {data}"));
    assert!(said.contains("is a video device") && said.contains("dmabuf-dio video"), "{said}");
    // In use by another.
    let mut other = program();
    let stream = format!("video {node} --to none --quiet --max-loss 100%");
    let other = other.args(stream.words()).stdout(Stdio::null());
    let mut other = other.spawn().expect("started");
    thread::sleep(Duration::from_millis(700));
    let said = fails(1, format!("video {node} --to {data}"));
    let busy = devices().into_iter().find(|one| one["node"] == node).expect("listed");
    signal(&other, "-INT");
    assert!(other.wait().expect("its end").success());
    assert!(said.contains("EBUSY") && said.contains("another program"), "{said}");
    assert_eq!(busy["dma_bufs"], serde_json::json!({"state": "unknown", "errno": "EBUSY"}));
}

#[test]
fn devices_are_listed() {
    let Some(setup) = Setup::get() else { return };
    for one in devices().iter().filter(|one| one["driver"] == "vivid") {
        assert_eq!(one["dma_bufs"]["state"], "yes", "{one}");
        let formats = one["formats"].as_array().expect("a list");
        let nv12 = formats.iter().find(|one| one["pixel_format"] == "NV12").expect("listed");
        assert!(nv12["sizes"].as_array().is_some_and(|sizes| sizes.len() > 5), "{nv12}");
    }
    let human = ok(["devices", &setup.single]);
    assert!(human.contains("dma-bufs    yes") && human.contains("1920x1080"), "{human}");
    let doctor = ok("doctor");
    assert!(doctor.contains(&format!("yes  {} vivid: dma-bufs: yes", setup.single)), "{doctor}");
}

/// A device that neither imports dma-bufs nor exports its buffers: `kernel/sim/v4l2_plain`.
#[test]
fn device_without_dmabufs_is_copied_by_the_cpu() {
    let Some(setup) = Setup::get() else { return };
    let data = setup.path("frames.raw");
    let all = devices();
    let Some(plain) = all.iter().find(|one| one["name"] == "plain-camera") else {
        let required = std::env::var("DMABUF_DIO_REQUIRE").unwrap_or_default();
        assert!(!required.contains("video"), "there has to be a simulated device");
        return println!("skipped: no simulated device");
    };
    assert_eq!(plain["dma_bufs"]["state"], "no", "{plain}");
    for more in ["", "--blocks 4 --force"] {
        let (code, summary) =
            report(format!("video plain-camera --to {data} --frames 40 --max-loss 100% {more}"));
        assert_eq!(
            (code, &summary["memory"], &summary["frames"]),
            (0, &"mapped".into(), &40.into())
        );
        let source = summary["source"].as_str().expect("a text");
        assert!(source.contains("copied by the CPU") && source.contains("export"), "{source}");
        let told = read_json(format!("{data}.json"));
        let bytes = fs::read(&data).expect("frames");
        assert_eq!(bytes.len() as u64, 40 * 160 * 90 * 2);
        let listed = told["listed"].as_array().expect("a list");
        for (frame, one) in bytes.chunks_exact(160 * 90 * 2).zip(listed) {
            let number = u32::try_from(one[0].as_u64().expect("a number")).expect("small");
            assert!(frame.chunks_exact(4).all(|word| word == number.to_le_bytes()), "{one}");
        }
    }
}
