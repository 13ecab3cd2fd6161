// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lists the tensors of a model, loads all or some of them, or writes each to a file.
//!
//! Usage: `cargo run --example tensors -- MODEL [load [NAME...] | extract FOLDER]`

use std::process::ExitCode;

use dmabuf_dio_tensors::{Error, Model};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match args[..] {
        [path] => list(path),
        [path, "load", ref names @ ..] => load(path, names),
        [path, "extract", folder] => extract(path, folder),
        _ => {
            eprintln!("usage: tensors MODEL [load [NAME...] | extract FOLDER]");
            return 2.into();
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            if let Some(error) = error.downcast_ref::<Error>() {
                eprintln!("{}", error.hint());
            }
            ExitCode::FAILURE
        }
    }
}

type Result = std::result::Result<(), Box<dyn std::error::Error>>;

fn list(path: &str) -> Result {
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

fn load(path: &str, names: &[&str]) -> Result {
    let model = Model::open(path)?;
    // Dma-bufs, or shared memory where there are none
    let loader = model.loader();
    let loader = if names.is_empty() { loader } else { loader.only(names.iter().copied()) };
    let loaded = loader.load()?;
    let bytes = loaded.bytes();
    let rate = bytes as f64 / loaded.seconds / 1e9;
    println!("{bytes} bytes in {:.3} s, {rate:.2} GB/s", loaded.seconds);
    for (number, buffer) in loaded.buffers.iter().enumerate() {
        let file = model.files()[loaded.files[number]].path().display();
        if let Some(report) = buffer.report() {
            println!("buffer {number}: {file}: {report}");
        }
    }
    for view in &loaded.views {
        println!("{}: {} bytes at {} of {:?}", view.name, view.len, view.offset, view.buffer);
    }
    Ok(())
}

/// Writes the bytes of each tensor to a file that is called by its position in the list, from 0.
fn extract(path: &str, folder: &str) -> Result {
    std::fs::create_dir_all(folder)?;
    let loaded = Model::open(path)?.loader().load()?;
    for (number, view) in loaded.views.iter().enumerate() {
        std::fs::write(format!("{folder}/{number}"), loaded.to_vec(&view.name)?)?;
    }
    Ok(())
}
