// SPDX-License-Identifier: MIT OR Apache-2.0
//! GPUs and NPUs, and whether the kernel module borrows buffers of their drivers.

use std::os::fd::AsFd as _;

use dmabuf_dio_sys::drm;

use super::DrmDevice;

/// Names of drivers in `kernel/module/gem.c`.
const KNOWN: [&str; 18] = [
    "amdxdna_accel_driver",
    "ast",
    "bochs-drm",
    "cirrus",
    "cirrus-qemu",
    "gud",
    "hyperv_drm",
    "intel_vpu",
    "mgag200",
    "panfrost",
    "panthor",
    "powervr",
    "rocket",
    "simpledrm",
    "udl",
    "vgem",
    "virtio_gpu",
    "vkms",
];

/// The devices with a node that belongs to no display, and that can be opened.
pub(crate) fn devices() -> Vec<DrmDevice> {
    let nodes = [(drm::ACCELERATORS, "accel"), (drm::GPUS, "renderD")];
    let mut paths: Vec<_> =
        nodes.iter().flat_map(|(folder, prefix)| nodes_in(folder, prefix)).collect();
    paths.sort();
    paths.into_iter().filter_map(device).collect()
}

fn nodes_in(folder: &str, prefix: &str) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.starts_with(prefix)).map(|name| format!("{folder}/{name}")).collect()
}

fn device(path: String) -> Option<DrmDevice> {
    let driver = drm::driver(drm::open(&path).ok()?.as_fd()).ok()?;
    let is_known = KNOWN.contains(&driver.as_str());
    Some(DrmDevice { path, driver, is_known })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_drivers_are_those_of_the_module() {
        let source = include_str!("../../../../kernel/module/gem.c");
        let mut names: Vec<_> = source
            .split(".name = \"")
            .skip(1)
            .filter_map(|after| after.split_once('"').map(|(name, _)| name))
            .collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names, KNOWN);
    }

    #[test]
    fn nodes_of_displays_and_other_files_are_left_out() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().to_str().expect("UTF-8");
        for name in ["card0", "renderD128", "renderD129", "by-path"] {
            std::fs::write(folder.path().join(name), "").expect("a file");
        }
        let mut found = nodes_in(path, "renderD");
        found.sort();
        assert_eq!(found, [format!("{path}/renderD128"), format!("{path}/renderD129")]);
        assert!(device(found.remove(0)).is_none(), "a file has no driver");
        assert!(nodes_in("/nowhere", "accel").is_empty());
    }
}
