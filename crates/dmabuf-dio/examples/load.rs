// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads a file into a buffer with the best available backend, and prints which one that was.
//!
//! Usage: `cargo run --example load -- FILE`

use std::os::fd::AsRawFd;

use dmabuf_dio::{Error, Loader};

fn main() -> std::process::ExitCode {
    let Some(path) = std::env::args_os().nth(1) else {
        eprintln!("usage: load FILE");
        return 2.into();
    };
    match load(path.into()) {
        Ok(()) => 0.into(),
        Err(error) => {
            eprintln!("{error}\n{}", error.hint());
            1.into()
        }
    }
}

fn load(path: std::path::PathBuf) -> Result<(), Error> {
    // A dma-buf, or shared memory where there are none
    let loaded = Loader::new(path).load()?;
    println!("{} (fd {})", loaded.kind(), loaded.fd()?.as_raw_fd());
    if let Some(report) = loaded.report() {
        println!("{report}");
        for refusal in &report.refusals {
            println!("not {refusal}");
        }
    }
    let mut first = vec![0; loaded.data_len().min(16) as usize];
    loaded.map()?.read_at(loaded.data_offset(), &mut first)?;
    println!("it begins with {first:02x?}");
    Ok(())
}
