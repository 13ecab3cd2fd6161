// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds devices by name.

use std::path::{Path, PathBuf};

use dmabuf_dio_stream::{Device, VideoDevice, VideoFacts};
use dmabuf_dio_terminal::exit::{FAILED, Failure, USAGE};

/// The IIO device of this name, if there is one. Fails if there are several.
pub(crate) fn one_iio(name: &str) -> Result<Option<Device>, Failure> {
    let choice = |device: &Device| match device.read("label") {
        Ok(label) if label != name => format!("{} ({label})", device.id()),
        _ => device.id().to_owned(),
    };
    only(name, Device::matching(name), choice)
}

/// The node of the video device of this name, if there is one. Fails if there are several.
pub(crate) fn one_video(name: &str) -> Result<Option<PathBuf>, Failure> {
    only(name, VideoDevice::matching(name), |node| node.display().to_string())
}

/// The IIO device of this name.
pub(crate) fn iio(name: &str) -> Result<Device, Failure> {
    match one_iio(name)? {
        Some(device) => Ok(device),
        None if VideoDevice::matching(name).is_empty() => Err(unknown(name, "IIO device")),
        None => {
            let hint = format!("capture its frames: dmabuf-dio video {name}");
            Err(Failure::new(USAGE, format!("{name} is a video device"), hint))
        }
    }
}

/// The node of the video device of this name.
pub(crate) fn video(name: &str) -> Result<PathBuf, Failure> {
    match one_video(name)? {
        Some(node) => Ok(node),
        None if Device::find(name).is_none() => Err(unknown(name, "video device")),
        None => {
            let hint = format!("capture its samples: dmabuf-dio capture {name}");
            Err(Failure::new(USAGE, format!("{name} is an IIO device"), hint))
        }
    }
}

fn only<T>(name: &str, mut all: Vec<T>, show: impl Fn(&T) -> String) -> Result<Option<T>, Failure> {
    if all.len() < 2 {
        return Ok(all.pop());
    }
    let choices: Vec<_> = all.iter().map(show).collect();
    let what = format!("{} devices are called {name}", all.len());
    Err(Failure::new(USAGE, what, format!("choose one of them: {}", choices.join(", "))))
}

/// The failure if there is no device of this name. `kind` is the kind of device.
pub(crate) fn unknown(name: &str, kind: &str) -> Failure {
    let what = if !is_node(name) {
        format!("there is no {kind} {name}")
    } else if Path::new(name).exists() {
        format!("{name} is neither a video device nor an IIO device")
    } else {
        format!("there is no device {name}")
    };
    let mut names = Vec::new();
    if kind != "video device" {
        names.extend(Device::all().iter().map(|device| device.name().to_owned()));
    }
    if kind != "IIO device" || is_node(name) {
        names.extend(VideoFacts::all().iter().map(|facts| facts.node.display().to_string()));
    }
    let hint = if names.is_empty() {
        "there are none: check that the driver is loaded (ls /sys/bus/iio/devices /dev/video*)"
            .to_owned()
    } else {
        format!("there are: {}", names.join(", "))
    };
    Failure::new(FAILED, what, hint)
}

/// Whether a name is a node in `/dev`, not an IIO device: `/dev/video0`, `video0`.
fn is_node(name: &str) -> bool {
    let number = name.strip_prefix("video");
    name.contains('/')
        || number.is_some_and(|number| {
            !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_camera_is_not_called_an_iio_device() {
        for (name, what) in [
            ("/dev/video7777", "there is no device /dev/video7777"),
            ("video7777", "there is no device video7777"),
            ("/dev/null", "/dev/null is neither a video device nor an IIO device"),
            ("no-such-adc", "there is no IIO device no-such-adc"),
            ("video", "there is no IIO device video"),
        ] {
            assert_eq!(iio(name).expect_err("there is none").what(), what);
        }
    }

    #[test]
    fn missing_iio_device_is_not_called_a_camera() {
        let failure = video("no-such-camera").expect_err("there is none");
        assert_eq!(failure.what(), "there is no video device no-such-camera");
    }
}
