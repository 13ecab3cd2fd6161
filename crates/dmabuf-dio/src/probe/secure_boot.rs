// SPDX-License-Identifier: MIT OR Apache-2.0
//! Secure Boot, under which the kernel loads signed modules only, and the key that DKMS signs with.

use std::fs;
use std::path::Path;

use super::SecureBoot;

/// Variables of the firmware and of shim, which checks the kernel. Their first four bytes are attributes.
const VARIABLES: &str = "sys/firmware/efi/efivars";
const ENABLED: &str = "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c";
const UNCHECKED: &str = "MokSBStateRT-605dab50-e046-4300-abb6-3dd810dd8b23";
const ENROLLED: &str = "MokListRT-605dab50-e046-4300-abb6-3dd810dd8b23";

/// Where DKMS keeps its certificate: by itself, and on Ubuntu.
const CERTIFICATES: [&str; 2] = ["var/lib/dkms/mok.pub", "var/lib/shim-signed/mok/MOK.der"];

/// `None` without Secure Boot. `root` is `/`.
pub(crate) fn secure_boot(root: &Path) -> Option<SecureBoot> {
    let variable = |name: &str| {
        let content = fs::read(root.join(VARIABLES).join(name)).ok()?;
        Some(content.get(4..)?.to_vec())
    };
    let is_set = |name| variable(name).is_some_and(|value| value == [1]);
    if !is_set(ENABLED) || is_set(UNCHECKED) {
        return None;
    }
    let found = CERTIFICATES.iter().find_map(|path| {
        let path = root.join(path);
        let certificate = fs::read(&path).ok().filter(|content| !content.is_empty())?;
        Some((path, certificate))
    });
    let Some((path, certificate)) = found else {
        return Some(SecureBoot { key: None, enrolled: false, remedy: None });
    };
    // Without the variable no key was ever enrolled.
    let list = variable(ENROLLED).unwrap_or_default();
    let enrolled = list.windows(certificate.len()).any(|part| part == certificate);
    let remedy = (!enrolled).then(|| import(&path));
    Some(SecureBoot { key: Some(path.display().to_string()), enrolled, remedy })
}

fn import(path: &Path) -> String {
    let path = path.display();
    format!("sudo mokutil --import {path}, reboot, and choose Enroll MOK in the blue menu")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, content: &[u8]) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
        fs::write(path, content).expect("written");
    }

    fn set(root: &Path, name: &str, value: &[u8]) {
        write(root, &format!("{VARIABLES}/{name}"), &[&[6, 0, 0, 0], value].concat());
    }

    #[test]
    fn key_is_looked_for_only_under_secure_boot() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        assert!(secure_boot(root).is_none(), "no UEFI");
        set(root, ENABLED, &[0]);
        write(root, CERTIFICATES[0], b"certificate");
        assert!(secure_boot(root).is_none(), "off");
        set(root, ENABLED, &[1]);
        assert!(secure_boot(root).is_some());
        set(root, UNCHECKED, &[1]);
        assert!(secure_boot(root).is_none(), "shim does not check");
    }

    #[test]
    fn enrolled_key_is_in_the_list() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        set(root, ENABLED, &[1]);
        let none = secure_boot(root).expect("on");
        assert_eq!(
            (none.key, none.enrolled, none.remedy),
            (None, false, None),
            "no module was built"
        );

        write(root, CERTIFICATES[1], b"certificate");
        let never = secure_boot(root).expect("on");
        assert!(!never.enrolled && never.key.is_some());
        let remedy = never.remedy.expect("what to do");
        assert!(
            remedy.contains("mokutil --import /") && remedy.contains(CERTIFICATES[1]),
            "{remedy}"
        );

        set(root, ENROLLED, b"list header, another certificat");
        assert!(!secure_boot(root).expect("on").enrolled);
        set(root, ENROLLED, b"list header, another, certificate, more");
        let enrolled = secure_boot(root).expect("on");
        assert!(enrolled.enrolled && enrolled.remedy.is_none());

        // DKMS makes its file before it has a key.
        write(root, CERTIFICATES[1], b"");
        assert!(secure_boot(root).expect("on").key.is_none());
    }
}
