// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dmabuf-dio devices`, `--set`, `--restore` and `--trigger`, with the simulated devices of
//! `kernel/sim`: `iio_stream`, `iio_phy` and `iio_sensor`.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::common::iio::{
    Setup, end_of, fails, json, number, read_json, report, set, signal, signal_now, start, sysfs,
    until_it_is_enabled, until_it_moves,
};
use crate::common::{eventually, ok, run};

const LO: &str = "out_altvoltage0_RX_LO_frequency";
const GAIN: &str = "in_voltage0_hardwaregain";

/// The value of an attribute.
fn value(device: &str, attribute: &str) -> String {
    let path = sysfs(device).expect("a device").join(attribute);
    fs::read_to_string(path).expect(attribute).trim().to_owned()
}

fn writes() -> u64 {
    number("stream-phy", "writes")
}

/// The settings that tests begin with.
fn reset() {
    for (attribute, value) in [
        (LO, "2400000000"),
        ("out_altvoltage1_TX_LO_frequency", "2450000000"),
        ("in_voltage0_gain_control_mode", "manual"),
        (GAIN, "30"),
        ("out_voltage0_hardwaregain", "-10"),
        ("in_voltage_rf_bandwidth", "18000000"),
        ("xo_correction", "0"),
    ] {
        set("stream-phy", attribute, value);
    }
    set("stream-adc", "sampling_frequency", "1000000");
}

/// A capture of 1000 frames with these options.
fn capture(more: &str) -> String {
    format!("capture stream-adc --to none --samples 1000 {more}")
}

#[track_caller]
fn of<'a>(list: &'a Value, name: &str) -> &'a Value {
    let mut all = list["devices"].as_array().expect("a list").iter();
    all.find(|one| one["name"] == name).unwrap_or_else(|| panic!("no {name} in {list}"))
}

#[test]
fn devices_are_listed() {
    let Some(_setup) = Setup::get() else { return };
    set("stream-adc", "sampling_frequency", "1000000");
    let list = json("devices");
    for (name, output, dma_bufs) in [
        ("stream-adc", false, "yes"),
        ("stream-dac", true, "yes"),
        ("stream-adc-fileio", false, "no"),
        ("stream-dac-fileio", true, "no"),
    ] {
        let buffer = &of(&list, name)["buffers"][0];
        assert_eq!(
            (&buffer["output"], &buffer["dma_bufs"]["state"]),
            (&output.into(), &dma_bufs.into())
        );
        assert_eq!((&buffer["open"], &buffer["enabled"]), (&false.into(), &false.into()), "{name}");
        let channels = buffer["channels"].as_array().expect("a list");
        assert_eq!(channels.len(), 4);
        let prefix = if output { "out" } else { "in" };
        assert_eq!(channels[3]["name"], format!("{prefix}_voltage3"));
        assert_eq!(
            (&channels[3]["index"], &channels[3]["format"]["bits"]),
            (&3.into(), &16.into())
        );
        assert!(of(&list, name)["users"].as_array().is_some_and(Vec::is_empty), "{list}");
    }
    assert_eq!(of(&list, "stream-adc")["buffers"][0]["rate"], 1e6);
    assert!(of(&list, "stream-phy")["buffers"].as_array().is_some_and(Vec::is_empty));
    let text = ok("devices");
    for line in ["stream-adc-fileio", "in; dma-bufs: yes", "0: in_voltage0, le:u16/16>>0"] {
        assert!(text.contains(line), "no {line} in\n{text}");
    }
    // The name of one device: its attributes.
    let phy = json("devices stream-phy");
    assert_eq!(phy["devices"].as_array().map(Vec::len), Some(1));
    let attributes = phy["attributes"].as_array().expect("a list");
    let gain = attributes.iter().find(|one| one["name"] == GAIN).expect("the gain");
    assert_eq!(gain["available"]["range"]["max"], 60.0);
    assert!(attributes.iter().any(|one| one["name"] == "calibrate" && one["value"].is_null()));
    assert!(ok("devices stream-phy").contains("of: manual fast_attack slow_attack"));
    assert!(fails(1, "devices no-such").contains("stream-adc"));
    let said = fails(2, "video stream-adc --to none");
    assert!(said.contains("dmabuf-dio capture stream-adc"), "{said}");
    // Rows of doctor.
    let doctor = ok("doctor");
    assert!(
        doctor
            .lines()
            .any(|line| line.contains("yes  ") && line.contains("stream-adc, buffer 0, in"))
    );
    assert!(
        doctor.lines().any(|line| line.contains("no   ") && line.contains("stream-adc-fileio"))
    );
    let rows = json("doctor");
    let names: Vec<_> =
        rows["iio"].as_array().expect("rows").iter().map(|row| &row["name"]).collect();
    assert!(names.contains(&&Value::from("stream-dac")), "{names:?}");
}

#[test]
fn processes_using_a_device_are_listed() {
    let Some(_setup) = Setup::get() else { return };
    let child = start("capture stream-adc --rate 100k --to none --json");
    let pid = u64::from(child.id());
    let mut list = Value::Null;
    eventually("the capture does not begin", || {
        list = json("devices");
        of(&list, "stream-adc")["buffers"][0]["enabled"] == true
    });
    let adc = of(&list, "stream-adc");
    assert_eq!(
        (&adc["users"][0]["pid"], &adc["users"][0]["holds"]),
        (&pid.into(), &"buffer".into())
    );
    assert_eq!(
        (&adc["buffers"][0]["open"], &adc["buffers"][0]["dma_bufs"]["state"]),
        (&true.into(), &"unknown".into())
    );
    assert!(of(&list, "stream-dac")["users"].as_array().is_some_and(Vec::is_empty));
    // The node of a device that is open: no capture can have it.
    let node = format!("/dev/{}", of(&list, "stream-dac")["id"].as_str().expect("an id"));
    let open = fs::File::open(node).expect("the device");
    let list = json("devices");
    let users = of(&list, "stream-dac")["users"].as_array().expect("a list").clone();
    let ours = u64::from(std::process::id());
    assert!(users.iter().any(|one| one["pid"] == ours && one["holds"] == "node"), "{users:?}");
    drop(open);
    signal(&child, "-INT");
    end_of(child);
    let list = json("devices");
    assert!(of(&list, "stream-adc")["users"].as_array().is_some_and(Vec::is_empty), "{list}");
}

#[test]
fn attributes_are_set_and_read_back() {
    let Some(_setup) = Setup::get() else { return };
    reset();
    let more = "--set stream-phy/RX_LO.frequency=868.9501M --set stream-phy/TX_LO.frequency=1G";
    let gains = "--set stream-phy/in_voltage0.hardwaregain=17.3 --set stream-phy/out_voltage0.hardwaregain=-20.25";
    let all = format!("{more} {gains} --set sampling_frequency=2M");
    let output = run(capture(&all));
    let (report, told) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{told}");
    for (attribute, expected) in [
        (LO, "868950000"),
        ("out_altvoltage1_TX_LO_frequency", "1000000000"),
        (GAIN, "17.000000 dB"),
        ("out_voltage0_hardwaregain", "-20.250000 dB"),
    ] {
        assert_eq!(value("stream-phy", attribute), expected);
    }
    assert_eq!(number("stream-adc", "sampling_frequency"), 2_000_000);
    assert!(report.contains("2000000 per second"), "{report}");
    // Only rounded values are reported.
    for text in [&report, &told] {
        assert!(text.contains("is 868950000 instead of 868950100"), "{text}");
        assert!(text.contains("is 17.000000 dB instead of 17.3"), "{text}");
    }
    assert!(
        report.contains("out_voltage0_hardwaregain of stream-phy is -20.250000 dB\n"),
        "{report}"
    );
    assert_eq!(told.matches("instead of").count(), 2, "{told}");
    let summary = json(capture("--set stream-phy/in_voltage0.hardwaregain=5.7"));
    let setting = &summary["settings"][0];
    assert_eq!((&setting["device"], &setting["attribute"]), (&"stream-phy".into(), &GAIN.into()));
    assert_eq!((&setting["asked"], &setting["before"]), (&"5.7".into(), &"17.000000 dB".into()));
    assert_eq!(setting["after"], "5.500000 dB");
}

#[test]
fn invalid_setting_writes_nothing() {
    let Some(setup) = Setup::get() else { return };
    reset();
    let data = setup.path("samples.bin");
    let before = writes();
    for (bad, says) in [
        ("stream-phy/in_voltage0.hardwaregain=61", "does not offer 61"),
        ("stream-phy/RX_LO.frequency=60M", "does not offer 60000000"),
        ("stream-phy/voltage0.gain_control_mode=auto", "manual fast_attack slow_attack"),
        (
            "stream-phy/voltage0.hardwaregain=1",
            "in_voltage0_hardwaregain or out_voltage0_hardwaregain",
        ),
        ("stream-phy/no_such=1", "no such attribute"),
        ("stream-phy/calibrate=1", "cannot be read"),
        ("stream-phy/writes=1", "only be read"),
        ("lost_frames=1", "only be read"),
        ("stream-phy/altvoltage1.frequency=1G", "given twice"),
    ] {
        let first = format!("--set stream-phy/TX_LO.frequency=1G --set {bad} --to {data}");
        let said = fails(2, format!("capture stream-adc --samples 10 {first}"));
        assert!(said.contains(says), "{bad}: {said}");
    }
    let said = fails(1, capture("--set stream-phy/TX_LO.frequency=1G --set x/y=1"));
    assert!(said.contains("no IIO device x"), "{said}");
    fails(2, capture("--set sampling_frequency"));
    assert_eq!(writes(), before, "so often was an attribute written");
    assert!(!Path::new(&data).exists());
}

#[test]
fn refused_setting_restores_all_settings() {
    let Some(setup) = Setup::get() else { return };
    reset();
    let data = setup.path("samples.bin");
    let lo = "--set stream-phy/RX_LO.frequency=1G --set stream-phy/in_voltage0.hardwaregain=3";
    let as_before = || {
        assert_eq!(value("stream-phy", LO), "2400000000");
        assert_eq!(value("stream-phy", GAIN), "30.000000 dB");
        assert_eq!(value("stream-phy", "in_voltage_rf_bandwidth"), "18000000");
        assert_eq!(value("stream-phy", "in_voltage0_gain_control_mode"), "manual");
        assert_eq!(number("stream-adc", "sampling_frequency"), 1_000_000);
    };
    // The device has changed it when it refuses it.
    let wide = "--set stream-phy/in_voltage0.rf_bandwidth=30M";
    let refuse =
        |more: &str| fails(1, format!("capture stream-adc --samples 10 --to {data} {lo} {more}"));
    let said = refuse(wide);
    assert!(said.contains("rf_bandwidth to 30000000") && said.contains("as before"), "{said}");
    as_before();
    // In this mode the gain is refused.
    let auto = "--set stream-phy/in_voltage0.gain_control_mode=slow_attack";
    let said = refuse(&format!("{auto} --set stream-phy/in_voltage1.hardwaregain=3"));
    assert!(said.contains("in_voltage1_hardwaregain"), "{said}");
    as_before();
    // The step after the settings fails.
    assert!(refuse("--rate 5G").contains("stream-adc"));
    as_before();
    refuse("--blocks 4096 --block-size 1G");
    as_before();
    fails(1, format!("capture stream-adc --samples 10 --to /no/such/folder/x {lo}"));
    as_before();
    assert!(!Path::new(&data).exists());
    // It works without the last one.
    ok(capture(lo));
    assert_eq!(value("stream-phy", LO), "1000000000");
}

#[test]
fn settings_are_restored_at_the_end() {
    let Some(setup) = Setup::get() else { return };
    reset();
    let data = setup.path("samples.bin");
    let folder = sysfs("stream-adc").expect("a device");
    for (number, on) in [("0", "1"), ("1", "0"), ("2", "1"), ("3", "0")] {
        fs::write(folder.join(format!("buffer0/in_voltage{number}_en")), on).expect("selected");
    }
    let gain = "--set stream-phy/in_voltage0.hardwaregain=3.5";
    let as_before = |what: &str| {
        assert_eq!(value("stream-phy", LO), "2400000000", "{what}");
        assert_eq!(value("stream-phy", GAIN), "30.000000 dB", "{what}");
        assert_eq!(number("stream-adc", "sampling_frequency"), 1_000_000, "{what}");
        let on = |number: u32| value("stream-adc", &format!("buffer0/in_voltage{number}_en"));
        assert_eq!([on(0), on(1), on(2), on(3)], ["1", "0", "1", "0"], "{what}");
    };
    // A busy machine may lose some.
    let to = format!("capture stream-adc --to {data} --max-loss 100%");
    let words = format!("{to} --restore --rate 2M --set stream-phy/RX_LO.frequency=868M {gain}");
    let summary = json(format!("{words} --samples 1000"));
    assert_eq!((&summary["rate"], &summary["frames"]), (&2e6.into(), &1000.into()));
    assert_eq!(summary["settings"][0]["after"], "868000000");
    as_before("after its end");
    // The description has the frequency of the local oscillator.
    let meta = read_json(setup.path("samples.sigmf-meta"));
    assert_eq!(meta["captures"][0]["core:frequency"], 868e6, "{meta}");

    for name in ["-INT", "-TERM", "-HUP"] {
        let child = start(format!("{words} --force --json"));
        until_it_moves("stream-adc");
        assert_eq!(
            (value("stream-phy", LO).as_str(), value("stream-phy", GAIN).as_str()),
            ("868000000", "3.500000 dB")
        );
        signal(&child, name);
        let (code, summary) = end_of(child);
        // The signal may come before a block is full, which is an error.
        assert!(code == 0 || (code == 1 && summary["frames"] == 0), "{summary}");
        as_before(name);
    }
    // At any moment.
    for wait in 0..12 {
        let child = start(format!("{words} --force --json"));
        thread::sleep(Duration::from_millis(wait * 17));
        signal_now(&child, "-INT");
        child.wait_with_output().expect("its end");
        as_before("interrupted");
    }
    // Without --restore they stay.
    let words = words.replace("--restore", "");
    ok(format!("{words} --samples 1000 --force"));
    assert_eq!(
        (value("stream-phy", LO), number("stream-adc", "sampling_frequency")),
        ("868000000".into(), 2_000_000)
    );
}

#[test]
fn replay_applies_and_restores_settings() {
    let Some(setup) = Setup::get() else { return };
    reset();
    let data = setup.path("samples.bin");
    crate::common::iio::numbered(&data, 100_000);
    for more in ["", "--cyclic --seconds 0.2"] {
        let words = format!("replay {data} --to stream-dac");
        let (code, summary) = report(format!(
            "{words} --set stream-phy/TX_LO.frequency=868M --restore --rate 1M {more}"
        ));
        assert_eq!((code, &summary["settings"][0]["after"]), (0, &"868000000".into()), "{summary}");
        assert_eq!(value("stream-phy", "out_altvoltage1_TX_LO_frequency"), "2450000000");
    }
}

/// A device that needs a trigger, and one of a timer for it.
fn timer() -> Option<&'static str> {
    let required = std::env::var("DMABUF_DIO_REQUIRE").unwrap_or_default().contains("trigger");
    let name = "timer";
    let folder = "/sys/kernel/config/iio/triggers/hrtimer";
    let _ = Command::new("modprobe").arg("iio-trig-hrtimer").status();
    let made = fs::create_dir(Path::new(folder).join(name)).is_ok()
        || Path::new(folder).join(name).is_dir();
    if sysfs("stream-sensor").is_some() && made {
        return Some(name);
    }
    assert!(!required, "there have to be a simulated sensor and a timer");
    println!("skipped: no simulated sensor, or no timer");
    None
}

#[test]
fn devices_of_one_name_need_an_id() {
    let Some(_setup) = Setup::get() else { return };
    if sysfs("stream-twin").is_none() {
        return println!("skipped: no simulated sensor");
    }
    for words in [
        "capture stream-twin --to none --samples 1",
        "devices stream-twin",
        "replay /dev/null --to stream-twin",
        &capture("--set stream-twin/x=1"),
    ] {
        let said = fails(2, words);
        assert!(said.contains("2 devices are called stream-twin"), "{words:?}: {said}");
        assert!(said.matches("iio:device").count() == 2, "{words:?}: {said}");
    }
    let list = json("devices");
    let all = list["devices"].as_array().expect("a list");
    let twin = all.iter().find(|one| one["name"] == "stream-twin").expect("a twin");
    let one = json(["devices", twin["id"].as_str().expect("an id")]);
    assert_eq!(one["devices"].as_array().map(Vec::len), Some(1));
}

#[test]
fn device_that_needs_a_trigger_gets_one() {
    let Some(setup) = Setup::get() else { return };
    let Some(timer) = timer() else { return };
    let (data, meta) = (setup.path("samples.bin"), setup.path("samples.sigmf-meta"));
    set("stream-sensor", "trigger/current_trigger", "\n");
    let words = format!("capture stream-sensor --to {data} --samples 200 --block-size 32");
    let said = fails(1, &words);
    assert!(said.contains("only with a trigger") && said.contains(timer), "{said}");
    assert!(!Path::new(&data).exists(), "{said}");
    let said = fails(2, format!("{words} --trigger tim"));
    assert!(said.contains("no trigger tim") && said.contains(timer), "{said}");
    let adc = format!("capture stream-adc --to none --samples 10 --trigger {timer}");
    assert!(fails(2, &adc).contains("does not use triggers"));

    // One that does not fire within the time: no success, and no file.
    let slow = format!("{timer}/sampling_frequency=0.01");
    let said = fails(
        1,
        format!("capture stream-sensor --to {data} --seconds 0.5 --trigger {timer} --set {slow}"),
    );
    assert!(said.contains("no frame was moved") && said.contains("trigger"), "{said}");
    assert!(!Path::new(&data).exists() && !Path::new(&meta).exists(), "{said}");

    let with = format!("--trigger {timer} --set {timer}/sampling_frequency=500");
    let (code, summary) = report(format!("{words} {with}"));
    assert_eq!(
        (code, &summary["frames"], &summary["trigger"]),
        (0, &200.into(), &timer.into()),
        "{summary}"
    );
    // It has no counter, so its losses are unknown.
    assert_eq!(summary["loss_known"], false, "{summary}");
    for (limit, wanted) in [("0", 1), ("50%", 1), ("100%", 0)] {
        let (code, summary) = report(format!("{words} {with} --force --max-loss {limit}"));
        assert_eq!((code, &summary["complete"]), (wanted, &true.into()), "{summary}");
    }
    let bytes = fs::read(&data).expect("the samples");
    assert_eq!(bytes.len(), 200 * 4);
    for (number, frame) in (0_u16..).zip(bytes.chunks_exact(4)) {
        let expected = [number.to_le_bytes(), (!number).to_le_bytes()].concat();
        assert_eq!(frame, expected, "frame {number}");
    }
    assert_eq!(value("stream-sensor", "trigger/current_trigger"), "", "as before");
    let list = json("devices");
    assert_eq!(of(&list, "stream-sensor")["takes_trigger"], true);
    assert!(
        list["triggers"].as_array().is_some_and(|all| all.iter().any(|one| one["name"] == timer))
    );

    // One that was set is used, and stays.
    set("stream-sensor", "trigger/current_trigger", timer);
    let child = start(format!("{words} --force --json"));
    assert_eq!(end_of(child).0, 0);
    assert_eq!(value("stream-sensor", "trigger/current_trigger"), timer);
    set("stream-sensor", "trigger/current_trigger", "\n");
    // After Ctrl-C, too.
    let child = start(format!(
        "capture stream-sensor --to {data} --force --json --block-size 32 --trigger {timer}"
    ));
    until_it_is_enabled("stream-sensor");
    assert_eq!(value("stream-sensor", "trigger/current_trigger"), timer);
    thread::sleep(Duration::from_millis(300));
    signal(&child, "-INT");
    assert_eq!(end_of(child).0, 0);
    assert_eq!(value("stream-sensor", "trigger/current_trigger"), "");
    fs::remove_dir(Path::new("/sys/kernel/config/iio/triggers/hrtimer").join(timer))
        .expect("removed");
}
