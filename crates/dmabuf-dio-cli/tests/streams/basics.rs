// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dmabuf-dio capture` and `replay`, run as a user does, with the simulated devices of
//! `kernel/sim/iio_stream`, if they are loaded.

use std::fs;
use std::io::Read as _;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::common::iio::{
    FRAME, Setup, counted, dac, fails, frames, json, missing, number, numbers, read_json, signal,
    start, until_it_moves,
};
use crate::common::{eventually, ok, page_size};

#[test]
fn captured_samples_are_replayed() {
    let Some(setup) = Setup::get() else { return };
    let data = setup.path("samples.sigmf-data");
    let report = ok(format!("capture stream-adc --rate 1M --samples 100003 --to {data}"));
    let words =
        ["device", "file", "filled by", "emptied by", "moved", "time", "CPU", "lost", "described"];
    for word in words {
        assert!(report.lines().any(|line| line.starts_with(word)), "no {word} in\n{report}");
    }
    assert_eq!(frames(&data), 100_003);
    let meta = read_json(setup.path("samples.sigmf-meta"));
    assert_eq!(meta["global"]["core:datatype"], "ru16_le");
    assert_eq!(meta["global"]["core:sample_rate"], 1e6);

    let again = fails(2, format!("capture stream-adc --samples 1 --to {data}"));
    assert!(again.contains("--force"), "{again}");
    assert_eq!(frames(&data), 100_003, "as it was");

    // The description sets the rate.
    ok(format!("replay {data} --to stream-dac --rate 2M --quiet"));
    let summary = json(format!("replay {data} --to stream-dac"));
    assert_eq!((&summary["frames"], &summary["rate"]), (&100_003.into(), &1e6.into()));
    assert_eq!(dac(), (100_003, 0));
    // The file does not fit two channels, except with --force.
    let two = format!("replay {data} --to stream-dac --channels voltage0,voltage1");
    let other = fails(2, &two);
    assert!(other.contains("ru16_le x 4, the device needs ru16_le x 2"), "{other}");
    assert_eq!(json(format!("{two} --force"))["frames"], 200_006);
    let part = json(format!("replay {data} --to stream-dac --samples 1k --rate 0"));
    assert_eq!(part["frames"], 1000);

    let summary = json(format!("capture stream-adc --samples 10k --to {data} --force"));
    let keys: Vec<_> = summary.as_object().expect("an object").keys().map(String::as_str).collect();
    let wanted = "asked_frames bytes channels complete conversion cpu_seconds description device \
        error files frame_bytes frames gaps loss_known lost_frames other rate ring \
        ring_seconds schema seconds settings sink source trigger";
    assert_eq!(keys.join(" "), wanted);
    assert_eq!(frames(&data), 10_000);
}

#[test]
fn capture_takes_selected_channels() {
    let Some(setup) = Setup::get() else { return };
    let data = setup.path("two.bin");
    // An odd number of frames of 4 bytes from a device whose blocks are multiples of 8.
    let two = format!("--channels voltage0,in_voltage1 --samples 1001 --to {data}");
    let summary = json(format!("capture stream-adc {two}"));
    let channels = summary["channels"].as_array().expect("a list");
    let names: Vec<_> = channels.iter().filter_map(|channel| channel["name"].as_str()).collect();
    assert_eq!(names, ["in_voltage0", "in_voltage1"]);
    assert_eq!(channels[0]["format"]["kind"], "unsigned");
    let bytes = fs::read(&data).expect("the file");
    let wanted: Vec<u8> = (0..1001_u32).flat_map(u32::to_le_bytes).collect();
    assert_eq!(bytes, wanted);
    let meta = fs::read_to_string(setup.path("two.sigmf-meta")).expect("a description");
    assert!(meta.contains("\"core:dataset\": \"two.bin\""), "{meta}");
    let two = format!("replay {data} --to stream-dac --channels voltage0,voltage1");
    // The DAC's DMA moves multiples of 8 bytes: the last frame is output once more, and is wrong there.
    let odd = json(&two);
    assert_eq!((&odd["frames"], &odd["complete"]), (&1001.into(), &true.into()));
    assert!(odd["sink"].as_str().is_some_and(|how| how.contains("output 1 times more")), "{odd}");
    let counted = || dac();
    assert_eq!(counted(), (1002, 1));
    let even = json(format!("{two} --samples 1000"));
    assert_eq!((&even["frames"], counted()), (&1000.into(), (1000, 0)));
    assert!(!even["sink"].to_string().contains("more"), "{even}");
}

/// A recording of any length is output completely, including the last block.
#[test]
fn replay_outputs_the_last_partial_block() {
    let Some(setup) = Setup::get() else { return };
    let data = setup.path("x.sigmf-data");
    for (channels, count) in [
        ("voltage0,voltage1", 200_001_u64),
        ("voltage0", 3),
        ("voltage0", 100_001),
        ("voltage0,voltage1,voltage2", 10_001),
        ("voltage0,voltage1,voltage2,voltage3", 10_001),
    ] {
        let (samples, values) = (count.to_string(), channels.split(',').count() as u64);
        json(format!(
            "capture stream-adc --channels {channels} --samples {samples} --to {data} --force"
        ));
        let back = format!("replay {data} --to stream-dac --channels {channels}");
        let back = json(format!("{back} --block-size 48000 --max-loss 100%"));
        assert_eq!((&back["frames"], &back["complete"]), (&count.into(), &true.into()));
        let frame = 2 * values;
        let padded = (count..count + 8).find(|frames| frames * frame % 8 == 0);
        let moved = number("stream-dac", "moved_frames");
        assert_eq!(Some(moved), padded, "{channels}");
        // Numbers wrap at 16 bits, and the device counts only the added frames as wrong.
        let added = moved - count;
        assert_eq!(number("stream-dac", "wrong_frames"), added, "{channels}");
    }
}

#[test]
fn capture_streams_over_tcp() {
    let Some(_setup) = Setup::get() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("tcp://{}", listener.local_addr().expect("its number"));
    let receiver = thread::spawn(move || {
        let mut bytes = Vec::new();
        listener.accept().expect("a connection").0.read_to_end(&mut bytes).expect("all of it");
        bytes
    });
    let summary = json(format!("capture stream-adc --samples 1M --to {address}"));
    assert_eq!(summary["description"], Value::Null);
    let bytes = receiver.join().expect("the receiver");
    let wanted: Vec<u8> = (0..1_000_000_u64).flat_map(u64::to_le_bytes).collect();
    assert!(bytes == wanted, "{} bytes", bytes.len());
    let nobody = fails(1, format!("capture stream-adc --samples 1 --to {address}"));
    assert!(nobody.contains("cannot connect"), "{nobody}");
}

#[test]
fn ctrl_c_ends_a_capture_normally() {
    let Some(setup) = Setup::get() else { return };
    let data = setup.path("samples.bin");
    let child = start(format!("capture stream-adc --rate 100k --to {data} --json"));
    until_it_moves("stream-adc");
    thread::sleep(Duration::from_millis(700));
    signal(&child, "-INT");
    let output = child.wait_with_output().expect("its end");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let summary: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(summary["frames"], frames(&data));
    assert!(frames(&data) > 20_000, "{summary}");
    assert_eq!(summary["lost_frames"], 0);

    let child = start(format!("replay {data} --to stream-dac --cyclic --json"));
    until_it_moves("stream-dac");
    signal(&child, "-INT");
    assert!(child.wait_with_output().expect("its end").status.success());
}

/// A capture that is killed at any time leaves a prefix of its samples in the file.
#[test]
fn a_killed_capture_leaves_a_valid_prefix() {
    let Some(setup) = Setup::get() else { return };
    let data = setup.path("samples.sigmf-data");
    let mut seed = std::process::id();
    let mut most = 0;
    // Many small blocks keep many writes in flight.
    for (block, blocks) in [("16K", "8"), ("128K", "64"), ("1M", "32"), ("4M", "8")] {
        for _ in 0..2 {
            seed = seed.wrapping_mul(1_103_515_245).wrapping_add(12_345);
            let delay = Duration::from_millis(100 + u64::from(seed >> 16) % 300);
            let arguments = format!(
                "capture stream-adc --rate 0 --block-size {block} --blocks {blocks} --to {data} --force"
            );
            let description = setup.path("samples.sigmf-meta");
            let _ = fs::remove_file(&description);
            let mut child = start(&arguments);
            // On a busy machine the first write may take some time.
            eventually("no description", || Path::new(&description).exists());
            if most == 0 {
                let begun = || fs::metadata(&data).is_ok_and(|file| file.len() > 0);
                eventually("nothing is written", begun);
            }
            thread::sleep(delay);
            signal(&child, "-KILL");
            child.wait().expect("its end");
            let got = frames(&data);
            println!("blocks of {block}, killed after {delay:?}: {got} frames");
            most = most.max(got);
            let meta = fs::read_to_string(&description).expect("described");
            assert!(serde_json::from_str::<Value>(&meta).is_ok(), "{meta}");
        }
    }
    assert!(most > 0, "it never got to write");
}

/// The same while it runs: writes never complete out of order.
#[test]
fn running_capture_file_has_no_hole() {
    use std::os::unix::fs::FileExt as _;

    let Some(setup) = Setup::get() else { return };
    let data = setup.path("samples.bin");
    for (block, blocks) in [("16K", "64"), ("128K", "64")] {
        let mut child = start(format!(
            "capture stream-adc --rate 0 --samples 8M --block-size {block} --blocks {blocks} --to {data} --force"
        ));
        let (mut looks, mut tail) = (0, vec![0; 1 << 20]);
        while child.try_wait().expect("its state").is_none() {
            let Ok(file) = fs::File::open(&data) else { continue };
            let length = file.metadata().expect("its length").len();
            let start = length.saturating_sub(tail.len() as u64) / 8 * 8;
            // The file grows meanwhile.
            let got = file.read_at(&mut tail[..(length - start) as usize / 8 * 8], start);
            counted(start / 8, &tail[..got.expect("read")]);
            looks += 1;
        }
        println!("blocks of {block}: looked at {looks} times");
        assert!(looks > 5 && frames(&data) == 8_000_000, "{looks}");
    }
}

#[test]
fn slow_receiver_causes_reported_losses_or_failure() {
    let Some(_setup) = Setup::get() else { return };
    for policy in ["block", "fail"] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = format!("tcp://{}", listener.local_addr().expect("its number"));
        let receiver = thread::spawn(move || {
            let mut stream = listener.accept().expect("a connection").0;
            let (mut bytes, mut piece) = (Vec::new(), vec![0; 1 << 20]);
            while let Ok(got @ 1..) = stream.read(&mut piece) {
                bytes.extend_from_slice(&piece[..got]);
                if bytes.len() < 8 << 20 {
                    thread::sleep(Duration::from_millis(30));
                }
            }
            bytes
        });
        let arguments = format!(
            "capture stream-adc --rate 20M --seconds 1 --block-size 64K --blocks 4 --overrun {policy} --max-loss 100% --to {address}"
        );
        if policy == "fail" {
            let said = fails(1, &arguments);
            assert!(said.contains("cannot keep up") && said.contains("larger blocks"), "{said}");
            drop(receiver);
            continue;
        }
        let summary = json(&arguments);
        let bytes = receiver.join().expect("the receiver");
        assert_eq!(summary["bytes"], bytes.len());
        let lost = missing(&numbers(&bytes));
        assert!(lost > 0, "the receiver was not slow");
        assert!(
            summary["lost_frames"].as_u64().is_some_and(|told| told >= lost),
            "{lost}: {summary}"
        );
        assert!(!summary["gaps"].as_array().expect("a list").is_empty());
    }
}

#[test]
fn device_without_dmabufs_is_captured() {
    let Some(setup) = Setup::get() else { return };
    let data = setup.path("samples.bin");
    let summary = json(format!("capture stream-adc-fileio --rate 100k --samples 50k --to {data}"));
    assert!(
        summary["source"].as_str().is_some_and(|how| how.contains("does not support dma-bufs"))
    );
    assert_eq!(summary["loss_known"], true, "it counts");
    assert_eq!(frames(&data), 50_000);
    let child = start(format!(
        "capture stream-adc-fileio --rate 100k --block-size 1M --to {data} --force --json"
    ));
    // The capture truncates the file first, which may take some time on a slow machine.
    for _ in 0..200 {
        if fs::metadata(&data).is_ok_and(|facts| facts.len() != 50_000 * FRAME as u64) {
            break;
        }
        thread::sleep(Duration::from_millis(50));
    }
    thread::sleep(Duration::from_millis(800));
    signal(&child, "-INT");
    let output = child.wait_with_output().expect("its end");
    let summary: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    // With read(), samples in a partly filled block are kept.
    assert!(frames(&data) > 0 && summary["frames"] == frames(&data), "{summary}");
    fs::write(&data, [0; 80]).expect("written");
    let cyclic = fails(1, format!("replay {data} --to stream-dac-fileio --cyclic"));
    assert!(cyclic.contains("stream-dac-fileio: cannot attach a block"), "{cyclic}");
}

#[test]
fn bad_arguments_are_refused() {
    let Some(setup) = Setup::get() else { return };
    let data = setup.path("samples.bin");
    let to = format!("--to {data} --samples 1000");
    let capture = |more: &str| format!("capture stream-adc {more} {to}");
    let says = |code, arguments: &str, what: &str| {
        let said = fails(code, arguments);
        assert!(said.contains(what), "{said}");
    };
    says(1, &format!("capture nothing {to}"), "stream-adc, stream-dac");
    says(1, &format!("capture stream-dac {to}"), "the other direction");
    says(1, &capture("--buffer 3"), "buffer3");
    says(2, &capture("--channels voltage9"), "voltage0,voltage1");
    says(2, &capture("--channels voltage2,voltage0"), "--channels voltage0,voltage2");
    let whole = format!("--block-size {}", 4100_u64.next_multiple_of(page_size()));
    says(2, &capture("--block-size 4100"), &whole);
    says(2, &capture("--block-size 0"), "block cannot be 0");
    says(2, &capture("--block-size 2G"), "from 1 to 1 GiB");
    says(2, &capture("--blocks 0"), "blocks cannot be 0");
    says(2, &capture("--blocks 10000"), "from 1 to 4096");
    says(1, &capture("--blocks 4096 --block-size 1G"), "not enough memory");
    says(1, &capture("--rate 100G"), "sampling_frequency");
    says(1, "capture stream-adc --to /no/such/folder/x", "check the path");
    says(1, "capture stream-adc --to ffs:/no/such/ep1", "/no/such/ep1");
    assert!(!Path::new(&data).exists(), "nothing was made");

    fs::write(&data, [0; 12]).expect("written");
    says(1, &format!("replay {data} --to stream-dac"), "truncate -s 8 ");
    fs::write(&data, [0; 16]).expect("written");
    says(1, &format!("replay {data} --to stream-adc"), "the other direction");
    says(2, &format!("replay {data} --to stream-dac --cyclic --samples 1"), "cannot be used");
    fs::write(&data, [0; 20]).expect("written");
    says(1, &format!("replay {data} --to stream-dac --cyclic"), "truncate -s 16 ");
    says(1, &format!("replay {} --to stream-dac", setup.path("none")), "check the path");

    // Existing files stay, and existing descriptions.
    let (meta, new) = (setup.path("samples.sigmf-meta"), setup.path("samples.raw"));
    says(2, &format!("capture stream-adc --samples 1 --to {meta}"), "name of a description");
    says(2, &format!("replay {meta} --to stream-dac"), "is a description");
    fs::write(&meta, "theirs").expect("written");
    says(
        2,
        &format!("capture stream-adc --samples 1 --to {new}"),
        "samples.sigmf-meta already exists",
    );
    assert_eq!(fs::read_to_string(&meta).expect("read"), "theirs");
    assert!(!Path::new(&new).exists());
    for to in ["udp://host:1", "tcp:host:1", "tcp://host"] {
        says(2, &format!("capture stream-adc --to {to}"), "tcp://HOST:PORT");
    }

    let first = start("capture stream-adc --rate 1M --to none");
    until_it_moves("stream-adc");
    says(1, "capture stream-adc --to none", "in use by another program");
    signal(&first, "-INT");
    assert!(first.wait_with_output().expect("its end").status.success());

    // More blocks than the limit of open files.
    let many = "ulimit -n 64; exec \"$0\" capture stream-adc --to none --samples 1 --blocks 100 \
                --block-size 4K";
    let output = Command::new("sh").args(["-c", many, env!("CARGO_BIN_EXE_dmabuf-dio")]).output();
    let output = output.expect("sh");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("ulimit -n"), "{said}");
}
