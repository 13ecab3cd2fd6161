// SPDX-License-Identifier: MIT OR Apache-2.0
//! `load`: the schemes, and the setting that they need.

use super::{folder, has_figures, is_summary, json, list, required, text};

const READ_GATHER: &str = "/sys/module/dma_heap/parameters/read_gather";

#[test]
fn load_moves_every_byte_and_restores_settings() {
    let folder = folder();
    let gather = || std::fs::read_to_string(READ_GATHER).ok();
    let before = gather();
    let arguments = ["load", "--sizes", "64K,600K", "--runs", "2", "--gather", "200K"];
    let comparison = json(&folder, &arguments);
    assert_eq!(gather(), before);
    let sizes = list(&comparison["sizes"]);
    assert_eq!([&sizes[0]["bytes"], &sizes[1]["bytes"]], [64 << 10, 600 << 10]);
    for size in sizes {
        let rows = list(&size["rows"]);
        assert_eq!(rows.len(), 15);
        for row in rows {
            let words: Vec<&str> = text(&row["name"]).split([' ', ',']).collect();
            let must = match words[..] {
                ["normal"] => required("buffered"),
                ["udmabuf" | "sendfile", ..] => required("udmabuf"),
                ["LOAD", by, ..] => required(by),
                _ => panic!("what is {words:?}?"),
            };
            if !has_figures(row, must) {
                continue;
            }
            is_summary(&row["total_ms"], 2);
            let with_gather = words.contains(&"gather");
            let overlapped = with_gather || words.contains(&"parallel");
            assert_eq!(row["derived"], words[0] == "LOAD");
            assert_eq!(row["hidden_ms"].is_null(), !with_gather, "{row}");
            assert_eq!(row["allocation_ms"].is_null(), overlapped, "{row}");
            let values = |name: &str| -> Vec<f64> {
                let values = list(&row[name]["values"]).iter();
                values.map(|value| value.as_f64().expect("a number")).collect()
            };
            if !overlapped {
                let parts = values("allocation_ms").into_iter().zip(values("io_ms"));
                for ((allocation, io), total) in parts.zip(values("total_ms")) {
                    assert!((allocation + io - total).abs() < 1e-6, "{row}");
                }
            }
        }
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("list").count(), 0, "nothing is left");
}
