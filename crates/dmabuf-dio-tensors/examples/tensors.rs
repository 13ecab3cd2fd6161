// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lists the tensors of a model, or loads all or some of them.
//!
//! Usage: `cargo run --example tensors -- MODEL [load [NAME...]]`

use std::process::ExitCode;

use dmabuf_dio_tensors::{Error, Model};

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let (path, command) = (args.next(), args.next());
    let result = match (path, command.as_deref()) {
        (Some(path), None) => list(&path),
        (Some(path), Some("load")) => load(&path, args.collect()),
        _ => {
            eprintln!("usage: tensors MODEL [load [NAME...]]");
            return 2.into();
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}\n{}", error.hint());
            ExitCode::FAILURE
        }
    }
}

fn list(path: &str) -> Result<(), Error> {
    let model = Model::open(path)?;
    println!("{}, {} files", model.format(), model.files().len());
    for (key, value) in model.metadata().iter() {
        // Vocabularies are long.
        let text: String = format!("{value:?}").chars().take(60).collect();
        println!("{key} = {text}");
    }
    for tensor in model.tensors() {
        let file = model.files()[tensor.file].path().display();
        println!("{} {} {:?} {:?} {file}", tensor.name, tensor.dtype, tensor.shape, tensor.range);
    }
    Ok(())
}

fn load(path: &str, names: Vec<String>) -> Result<(), Error> {
    let model = Model::open(path)?;
    // Dma-bufs, or shared memory where there are none
    let loader = model.loader().any_kind();
    let loader = if names.is_empty() { loader } else { loader.only(names) };
    let loaded = loader.load()?;
    let bytes = loaded.bytes();
    let rate = bytes as f64 / loaded.seconds / 1e9;
    println!("{bytes} bytes in {:.3} s, {rate:.2} GB/s", loaded.seconds);
    for (number, buffer) in loaded.buffers.iter().enumerate() {
        let file = model.files()[buffer.file].path().display();
        println!("buffer {number}: {file}: {}", buffer.report);
    }
    for view in &loaded.views {
        println!(
            "{}: {} bytes at {} of buffer {:?}",
            view.name, view.len, view.offset, view.buffer
        );
    }
    Ok(())
}
