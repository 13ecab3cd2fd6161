// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dmabuf-dio completions` and `dmabuf-dio man`.

use clap::CommandFactory as _;
use dmabuf_dio_terminal::exit::{FAILED, Failure};

use crate::args::{Cli, CompletionsArgs, ManArgs};

pub(crate) fn completions(args: &CompletionsArgs) {
    clap_complete::generate(args.shell, &mut Cli::command(), "dmabuf-dio", &mut std::io::stdout());
}

pub(crate) fn man(args: &ManArgs) -> Result<(), Failure> {
    clap_mangen::generate_to(Cli::command(), &args.folder).map_err(|error| {
        let folder = args.folder.display();
        let what = format!("{folder}: cannot write the manual pages: {error}");
        Failure::new(FAILED, what, "name an existing, writable folder")
    })
}
