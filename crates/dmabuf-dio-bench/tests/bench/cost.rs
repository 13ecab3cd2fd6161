// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cost`: phases and selection.

use super::{bench, folder, has_figures, is_summary, json, list, ok, required, text};

#[test]
fn cost_compares_every_byte_and_has_all_phases() {
    let folder = folder();
    let arguments = ["cost", "--sizes", "4K,1M", "--runs", "2"];
    let cost = json(&folder, &arguments);
    assert_eq!((&cost["schema"], &cost["commit"]), (&1.into(), &"abc".into()));
    let icount = std::env::var_os("DMABUF_DIO_ICOUNT").is_some();
    assert_eq!(cost["unit"], if icount { "instructions" } else { "nanoseconds" });
    let sizes = list(&cost["sizes"]);
    assert_eq!([&sizes[0]["per"], &sizes[1]["per"]], ["transfer", "MiB"]);
    for way in sizes.iter().flat_map(|size| list(&size["ways"])) {
        let (from, name) = text(&way["name"]).split_once(": ").expect("two parts");
        let must = match (from, name) {
            ("malloc", _) | ("memfd", "read()") => true,
            ("memfd, faulted in", _) | ("library", "private memory") => required("memfd"),
            ("heap", _) => required("buffered"),
            ("udmabuf", _) => required("udmabuf"),
            ("module", name) if name.starts_with("slot") => required("slot"),
            ("module", _) => required("module"),
            ("series", name) if name.starts_with("copy_file_range") => required("copy_file_range"),
            ("series", _) => required("heap"),
            ("library", backend) => required(backend),
            _ => panic!("what is {way}?"),
        };
        if !has_figures(way, must) {
            continue;
        }
        is_summary(&way["total"], 2);
        is_summary(&way["close"], 2);
        let phases = ["allocation", "io", "load"].map(|phase| !way[phase].is_null());
        match (from, name) {
            ("library" | "udmabuf", _) | (_, "LOAD" | "heap flag") => {
                assert_eq!(phases, [false, false, true]);
            }
            ("heap", "allocate") => assert_eq!(phases, [true, false, false]),
            (_, name) if name.starts_with("attach") => assert_eq!(phases, [true, false, false]),
            _ => assert_eq!(phases, [true, true, false], "{way}"),
        }
        let value = |phase: &str, run: usize| way[phase]["values"][run].as_f64();
        for run in 0..2 {
            let sum: f64 =
                ["allocation", "io", "load", "close"].iter().filter_map(|p| value(p, run)).sum();
            let total = value("total", run).expect("a total");
            assert!((sum - total).abs() < 1.0 && total > 0.0, "{way}");
        }
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("list").count(), 0, "nothing is left");
}

#[test]
fn cost_runs_only_the_selected_ways() {
    let folder = folder();
    let small = ["cost", "--sizes", "64K", "--runs", "1"];
    let printed = ok(&folder, &[&small[..], &["--only", "malloc", "--only", "READ"]].concat());
    assert!(printed.lines().all(|line| line.chars().count() <= 100), "{printed}");
    assert!(printed.contains("malloc: read()") && printed.contains("module: READ"), "{printed}");
    assert!(!printed.contains("heap: allocate"), "{printed}");
    let output = bench(&folder, &["cost", "--only", "no such way"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}
