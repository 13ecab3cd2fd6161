// SPDX-License-Identifier: MIT OR Apache-2.0
//! The probe's results match those of a load.

use crate::common::{file_of, folder};
use dmabuf_dio::{Backend, Loader, probe};

#[test]
fn every_backend_is_available_or_explained() {
    let folder = folder();
    let (path, _) = file_of(&folder, 4096);
    let system = probe::system();
    assert_eq!(system.backends.iter().map(|one| one.backend).collect::<Vec<_>>(), Backend::ALL);
    for status in system.backends {
        let loaded = Loader::new(&path).backend(status.backend).load();
        assert_eq!(loaded.is_ok(), status.available, "{}: {loaded:?}", status.backend);
        assert_eq!(status.detail.is_some(), status.available);
        if let Some(refusal) = status.refusal {
            assert!(refusal.remedy.is_some(), "{refusal}");
        }
    }
    assert!(system.page_size.is_power_of_two());
    assert!(system.devices.iter().any(|device| device.path == "/dev/dma_heap/system"));
}

#[test]
fn probe_reports_facts_of_a_file() {
    let folder = folder();
    let (path, _) = file_of(&folder, 12_345);
    let facts = probe::file(&path).expect("facts");
    assert_eq!(facts.length, 12_345);
    assert!(facts.file_system.is_some());
    assert!(facts.o_direct, "tests need a file system with O_DIRECT: {facts:?}");
    assert_eq!(facts.cached.unwrap_or(0), 0);
    assert!(probe::file(folder.path()).is_err());
    assert!(probe::file(folder.path().join("nothing")).is_err());
}
