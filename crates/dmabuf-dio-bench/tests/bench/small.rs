// SPDX-License-Identifier: MIT OR Apache-2.0
//! `small`: files and block devices.

use super::{folder, has_figures, is_summary, json, list, required, text};

#[test]
fn small_reads_are_compared() {
    let folder = folder();
    let common = ["small", "--size", "1M", "--depths", "1,8", "--reads", "200", "--runs", "2"];
    let small = json(&folder, &common);
    assert_eq!((&small["schema"], &small["bench"]), (&1.into(), &"small".into()));
    assert_eq!((&small["reads"], &small["size"]), (&200.into(), &(1 << 20).into()));
    let lines = list(&small["lines"]);
    assert_eq!(lines.len(), 14);
    for line in lines {
        let (way, memory, by) = (text(&line["way"]), text(&line["memory"]), text(&line["by"]));
        let points = list(&line["points"]);
        assert_eq!([&points[0]["depth"], &points[1]["depth"]], [1, 8]);
        for point in points {
            let polled = way.ends_with("polled");
            let must = by == "us" && !polled && (memory != "lent" || required("slot"));
            if has_figures(point, must) {
                is_summary(&point["iops"], 2);
                is_summary(&point["per_read"], 2);
            }
        }
    }

    let some = json(&folder, &[&common[..], &["--only", "libaio", "--no-fio"]].concat());
    assert_eq!(list(&some["lines"]).len(), 1);

    let grown = json(&folder, &[&common[..], &["--append-every", "10"]].concat());
    assert_eq!((&grown["append_every"], list(&grown["lines"]).len()), (&10.into(), 7));
    let libaio = &list(&grown["lines"])[0]["points"];
    has_figures(&list(libaio)[0], true);
    assert_eq!(std::fs::read_dir(folder.path()).expect("list").count(), 0, "nothing is left");
}

#[test]
fn small_reads_of_a_block_device_are_compared() {
    let Ok(device) = std::env::var("DMABUF_DIO_RAW_DISK") else { return };
    let folder = folder();
    let bytes: Vec<u8> =
        (0..1 << 20).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    std::fs::write(&device, &bytes).expect("fill the disk");
    let arguments = [
        "small",
        "--on",
        &device,
        "--size",
        "1M",
        "--depths",
        "16",
        "--reads",
        "300",
        "--runs",
        "1",
        "--no-fio",
        "--only",
        "raw, io_uring, ",
    ];
    let small = json(&folder, &arguments);
    for line in list(&small["lines"]) {
        assert_eq!(line["target"], "raw");
        has_figures(&line["points"][0], line["memory"] != "lent" || required("slot"));
    }
    assert!(std::fs::read(&device).expect("read")[..1 << 20] == bytes, "nothing is written");
}
