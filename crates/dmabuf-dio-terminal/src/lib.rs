// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shared code of the command and the benchmarks: sizes on the command line, failures, signals and
//! progress bars. The interface is not stable. To load files, use the library `dmabuf-dio`.

pub mod exit;
pub mod progress;
pub mod signals;
pub mod size;
