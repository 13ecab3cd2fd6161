// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command `dmabuf-dio`.

use std::process::ExitCode;

fn main() -> ExitCode {
    dmabuf_dio_cli::main()
}
