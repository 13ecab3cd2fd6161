// SPDX-License-Identifier: MIT OR Apache-2.0
//! The committed header matches cbindgen's output. With `DMABUF_DIO_UPDATE_HEADER` set it is written
//! instead.

use std::path::Path;

/// The files with the interface, in the order of the header.
const FILES: [&str; 17] = [
    "names", "options", "error", "load", "buffer", "faces", "map", "save", "gather", "sink",
    "report", "doctor", "lend", "device", "capture", "convert", "tensors",
];

#[test]
fn committed_header_matches_the_source() {
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(home.join("cbindgen.toml")).expect("its settings");
    // Only this crate: exports of others are not part of the interface.
    let mut builder = cbindgen::Builder::new().with_config(config);
    for name in FILES {
        builder = builder.with_src(home.join(format!("src/{name}.rs")));
    }
    let root = std::fs::read_to_string(home.join("src/lib.rs")).expect("the root");
    let public = root.lines().filter(|line| line.starts_with("pub mod "));
    assert_eq!(public.count(), FILES.len(), "every public module is in the header");
    let mut text = Vec::new();
    builder.generate().expect("a header").write(&mut text);
    let text = String::from_utf8(text).expect("text");
    let path = home.join("include/dmabuf_dio.h");
    if std::env::var_os("DMABUF_DIO_UPDATE_HEADER").is_some() {
        std::fs::write(&path, text).expect("write the header");
        return;
    }
    let committed = std::fs::read_to_string(&path).expect("the committed header");
    let differs = text.lines().zip(committed.lines()).find(|(new, old)| new != old);
    assert!(
        text == committed,
        "{} is not what the sources say ({differs:?}): run crates/dmabuf-dio-capi/update-header",
        path.display()
    );
}
