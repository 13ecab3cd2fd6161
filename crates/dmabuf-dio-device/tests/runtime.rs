// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which library is a vendor's driver, in a process of its own: the loader reads its paths when the process starts.

mod common;

use std::path::Path;
use std::process::Command;

use common::{StandIn, build, folder};
use dmabuf_dio_device::{Device, Vendor};

/// The folder of the library that the process has, in the process of the test.
const LOADED: &str = "DMABUF_DIO_TEST_LOADED";

#[test]
fn runtime_that_the_process_has_is_used() {
    let name = "runtime_that_the_process_has_is_used";
    if let Some(loaded) = std::env::var_os(LOADED) {
        return uses_what_is_loaded(Path::new(&loaded));
    }
    // As on a machine with ROCm and torch's package, which has the runtime under another name
    let (system, package) = (folder(), folder());
    build(&system.path().join("libamdhip64.so.6"));
    build(&package.path().join("libamdhip64-1a2b3c4d.so"));
    let mut test = Command::new(std::env::current_exe().expect("this test"));
    test.args(["--exact", name]).env("LD_LIBRARY_PATH", system.path());
    assert!(test.env(LOADED, package.path()).status().expect("a process").success());
}

fn uses_what_is_loaded(loaded: &Path) {
    let stand_in = StandIn::at(loaded.join("libamdhip64-1a2b3c4d.so"), folder());
    let memory = Device::open(Vendor::Hip, 0).expect("a device").alloc(4096).expect("memory");
    assert_eq!(stand_in.counters().allocations, 1);
    drop(memory);
    stand_in.assert_clean("an allocation");
}
