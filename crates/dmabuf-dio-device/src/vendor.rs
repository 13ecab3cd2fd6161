// SPDX-License-Identifier: MIT OR Apache-2.0
//! The vendors of devices.

use std::fmt;

/// Whose driver a device has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Vendor {
    /// NVIDIA's CUDA.
    Cuda,
    /// AMD's HIP.
    Hip,
}

impl Vendor {
    /// The number of the attribute that a device uses the host's memory: `CU_DEVICE_ATTRIBUTE_INTEGRATED`,
    /// `hipDeviceAttributeIntegrated`.
    pub(crate) fn integrated(self) -> i32 {
        match self {
            Self::Cuda => 18,
            Self::Hip => 16,
        }
    }
}

impl fmt::Display for Vendor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cuda => "CUDA",
            Self::Hip => "HIP",
        })
    }
}
