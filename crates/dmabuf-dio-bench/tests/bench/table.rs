// SPDX-License-Identifier: MIT OR Apache-2.0
//! `table`: 22 rows in both directions.

use super::{folder, has_figures, is_summary, json, list, required, text};

#[test]
fn table_moves_every_byte() {
    let folder = folder();
    let arguments =
        ["table", "--buffers", "3", "--size", "192K", "--runs", "2", "--direction", "both"];
    let table = json(&folder, &arguments);
    assert_eq!(table["schema"], 1);
    assert_eq!((&table["buffers"], &table["runs"]), (&3.into(), &2.into()));
    assert_eq!(table["buffer_size"], 192 << 10);
    for fact in ["kernel", "machine", "file_system", "caches_dropped_by"] {
        assert!(!text(&table[fact]).is_empty(), "{fact}");
    }
    let parts = list(&table["parts"]);
    assert_eq!([&parts[0]["direction"], &parts[1]["direction"]], ["read", "write"]);
    for part in parts {
        let rows = list(&part["rows"]);
        assert_eq!(rows.len(), 22);
        for (row, number) in rows.iter().zip(1..) {
            assert_eq!(row["number"], number);
            let copied = row["way"] == "copy_file_range";
            let must = match text(&row["buffer"]) {
                "memfd" => !copied && required("memfd"),
                "u+memfd" => !copied && required("udmabuf"),
                "udmabuf" => required(if copied { "copy_file_range" } else { "udmabuf" }),
                "dmabuf" => required(if copied { "copy_file_range" } else { "buffered" }),
                other => panic!("what is a {other}?"),
            };
            if has_figures(row, must) {
                for figure in ["create_ms", "close_ms", "io_ms", "io_cpu_ms"] {
                    is_summary(&row[figure], 2);
                }
                assert!(row["io_mb_per_s"].as_f64().expect("a number") > 0.0, "{row}");
                assert!(row["percent"].as_f64().expect("a number") > 0.0, "{row}");
            }
        }
        let buffered = &rows[2];
        assert_eq!(buffered["name"], "memfd buffer R/W");
        assert_eq!(buffered["status"], "verified", "works everywhere: {buffered}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("list").count(), 0, "nothing is left");
}
