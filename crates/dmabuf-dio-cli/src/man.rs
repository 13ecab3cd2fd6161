// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dmabuf-dio man`.

use clap::CommandFactory;
use dmabuf_dio_terminal::exit::{FAILED, Failure};

use crate::args::{Cli, ManArgs};

pub(crate) fn run(args: &ManArgs) -> Result<(), Failure> {
    clap_mangen::generate_to(Cli::command(), &args.folder).map_err(|error| {
        let folder = args.folder.display();
        Failure::new(
            FAILED,
            format!("{folder}: cannot write the manual pages: {error}"),
            "name an existing, writable folder",
        )
    })
}
