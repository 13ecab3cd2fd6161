// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptions of captures that are killed, and of captures that get into each other's way.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use serde_json::Value;

use crate::common::eventually;
use crate::common::iio::{
    Setup, end_of, fails, json, numbers, set, signal, signal_now, start, told, until_it_moves,
};

const UNFINISHED: &str = "dmabuf_dio:unfinished";

fn described(path: impl AsRef<Path>) -> Option<Value> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// Frames that are known to be missing before others, by their place in the file.
fn gaps(value: &Value) -> Vec<(u64, u64)> {
    let gap = |note: &Value| {
        let text = note["core:comment"].as_str()?;
        let missing = text
            .strip_suffix(" samples are missing before this sample")
            .or_else(|| text.strip_suffix(" samples are missing within"))?;
        Some((note["core:sample_start"].as_u64()?, missing.parse().ok()?))
    };
    value["annotations"].as_array().into_iter().flatten().filter_map(gap).collect()
}

#[test]
fn killed_capture_keeps_its_description() {
    let Some(setup) = Setup::get() else { return };
    let (data, meta) = (setup.path("samples.sigmf-data"), setup.path("samples.sigmf-meta"));
    let words = format!("capture stream-adc --rate 200k --block-size 64K --to {data}");
    let mut child = start(&words);
    until_it_moves("stream-adc");
    // The count of moved frames may still be from the capture before.
    eventually("no samples", || fs::metadata(&data).is_ok_and(|facts| facts.len() > 0));
    set("stream-adc", "inject_loss", "1000");
    eventually("the gap is not described", || {
        described(&meta).is_some_and(|value| !gaps(&value).is_empty())
    });
    // Behind the gap, too.
    let long = fs::metadata(&data).expect("there").len() + (256 << 10);
    eventually("the file does not grow", || fs::metadata(&data).is_ok_and(|now| now.len() > long));
    signal_now(&child, "-KILL");
    child.wait().expect("its end");
    let killed = described(&meta).expect("a description");
    let known = killed["global"][UNFINISHED].as_u64().expect("it is marked");
    let known_gaps = gaps(&killed);
    assert_eq!(known_gaps.iter().map(|gap| gap.1).sum::<u64>(), 1000, "{killed}");
    // An interrupted write leaves part of a frame.
    let file = fs::File::options().append(true).open(&data).expect("open");
    std::io::Write::write_all(&mut &file, b"cut").expect("written");
    drop(file);

    let said = told(format!("replay {data} --to stream-dac --rate 0"));
    assert!(said.contains("did not end") && said.contains("completed"), "{said}");
    let facts = fs::metadata(&data).expect("there");
    assert!(facts.blocks() * 512 < facts.len() + (1 << 20), "space is still allocated");
    let value = described(&meta).expect("a description");
    assert!(value["global"][UNFINISHED].is_null(), "{value}");
    assert_eq!(gaps(&value), known_gaps);
    let (numbers, (at, missing)) = (numbers(&fs::read(&data).expect("a file")), known_gaps[0]);
    let jump = numbers.windows(2).position(|pair| pair[1] != pair[0] + 1).expect("a gap");
    assert_eq!(numbers[jump + 1], numbers[jump] + 1 + missing);
    let within = value["annotations"][0]["core:sample_count"].as_u64().expect("a number");
    assert!((at..=at + within).contains(&(jump as u64 + 1)), "{jump} in {value}");
    let last = value["annotations"].as_array().and_then(|all| all.last()).expect("one");
    let end = numbers.len() as u64;
    // The description may have covered all of the file.
    if known < end {
        assert_eq!(last["core:label"], "unfinished", "{value}");
        assert_eq!(
            (&last["core:sample_start"], &last["core:sample_count"]),
            (&known.into(), &(end - known).into())
        );
    }
    // The completed recording is like any other.
    assert!(!told(format!("replay {data} --to stream-dac --rate 0")).contains("did not end"));
}

#[test]
fn file_being_captured_is_refused_to_others() {
    let Some(setup) = Setup::get() else { return };
    let (data, meta) = (setup.path("samples.bin"), setup.path("samples.sigmf-meta"));
    let child = start(format!("capture stream-adc --rate 200k --to {data} --json"));
    until_it_moves("stream-adc");
    eventually("no samples", || fs::metadata(&data).is_ok_and(|facts| facts.len() > 0));
    // A recording that is still being written is not completed.
    let said = told(format!("replay {data} --to stream-dac --rate 0 --samples 100"));
    assert!(said.contains("still being written"), "{said}");
    assert!(described(&meta).is_some_and(|value| value["global"][UNFINISHED].is_u64()));
    let other = "capture stream-adc-fileio --samples 100 --force --to";
    let said = fails(1, format!("{other} {data}"));
    assert!(said.contains("written by another capture"), "{said}");
    // Another file would have the same description.
    let same_stem = setup.path("samples.raw");
    let says_other = |said: &str| said.contains("samples.sigmf-meta describes another file");
    let said = fails(2, format!("{other} {same_stem}"));
    assert!(says_other(&said) && !Path::new(&same_stem).exists(), "{said}");
    signal(&child, "-INT");
    assert_eq!(end_of(child).0, 0);
    let said = fails(2, format!("{other} {same_stem}"));
    assert!(says_other(&said), "{said}");
    assert_eq!(described(&meta).expect("there")["global"]["core:dataset"], "samples.bin");
    // Its own is replaced.
    json(format!("{other} {data}"));
}

#[test]
fn completed_rotated_files_are_described() {
    let Some(setup) = Setup::get() else { return };
    let data = setup.path("x.sigmf-data");
    let path = |number: u32, kind: &str| setup.path(&format!("x-{number:06}.sigmf-{kind}"));
    let words = format!("capture stream-adc --rate 200k --rotate 320K --to {data}");
    let mut child = start(&words);
    eventually("not three files", || Path::new(&path(2, "meta")).exists());
    set("stream-adc", "inject_loss", "77");
    eventually("not eight files", || Path::new(&path(7, "meta")).exists());
    let is_finished = |value: &Value| value["global"][UNFINISHED].is_null();
    eventually("the gap is not described in a complete file", || {
        let known = (0..).map_while(|number| described(path(number, "meta")));
        let known: Vec<_> = known.take_while(is_finished).collect();
        known.len() > 6 && known.iter().any(|value| !gaps(value).is_empty())
    });
    signal_now(&child, "-KILL");
    child.wait().expect("its end");
    let all: Vec<_> = (0..).map_while(|number| described(path(number, "meta"))).collect();
    let finished = all.iter().take_while(|value| is_finished(value)).count();
    assert!(finished > 6 && finished < all.len(), "{finished} of {}", all.len());
    assert!(all[finished..].iter().all(|value| !is_finished(value)), "{all:?}");
    // Each says how many frames there were before it, with those that are missing.
    let mut before = 0;
    let mut missing = 0;
    for (number, value) in (0..).zip(&all[..finished]) {
        let index = value["captures"][0]["core:global_index"].as_u64().expect("an index");
        assert!(index >= before + missing, "{value}");
        missing = index - before;
        before += numbers(&fs::read(path(number, "data")).expect("a file")).len() as u64;
    }
    assert!(missing == 0 || missing == 77, "{missing}");
    assert!(all[..finished].iter().flat_map(gaps).all(|gap| gap.1 == 77), "{all:?}");
}

#[test]
fn unwritable_report_fails_before_the_capture() {
    let Some(setup) = Setup::get() else { return };
    let data = setup.path("samples.bin");
    let folder = setup.path("");
    for report in ["/no/such/folder/report", &folder] {
        let words = format!("capture stream-adc --samples 10 --to {data} --report {report}");
        let said = fails(1, &words);
        assert!(said.contains("cannot write the report"), "{said}");
        assert!(!Path::new(&data).exists(), "it has captured");
    }
    let report = setup.path("report.json");
    let bad = format!("capture no-such-device --to {data} --report {report}");
    fails(1, &bad);
    assert!(!Path::new(&report).exists(), "an empty report");
}
