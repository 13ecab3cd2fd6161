// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gathers rows of a file into a buffer, in one call, and shows how each begins.
//!
//! Usage: `cargo run --example gather -- FILE ROW-LENGTH ROW...`

use dmabuf_dio::gather::{Gatherer, Piece};
use dmabuf_dio::{Buffer, Error};

fn main() -> std::process::ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let numbers = arguments.iter().skip(2).map(|text| text.parse());
    let (Some(file), Ok(numbers)) = (arguments.get(1), numbers.collect::<Result<Vec<u64>, _>>())
    else {
        eprintln!("usage: gather FILE ROW-LENGTH ROW...");
        return 2.into();
    };
    let [len, rows @ ..] = &numbers[..] else {
        eprintln!("usage: gather FILE ROW-LENGTH ROW...");
        return 2.into();
    };
    match gather(file, *len, rows) {
        Ok(()) => 0.into(),
        Err(error) => {
            eprintln!("{error}\n{}", error.hint());
            1.into()
        }
    }
}

fn gather(file: &str, len: u64, rows: &[u64]) -> Result<(), Error> {
    let pieces: Vec<_> = (0..)
        .zip(rows)
        .map(|(place, row)| Piece { offset: row * len, buf_offset: place * len, len })
        .collect();
    // After the places there is room for the blocks around unaligned rows.
    let places = (rows.len() as u64 * len).next_multiple_of(4096);
    let gatherer = Gatherer::new(file).polled(true);
    let spare = places..places + gatherer.room(&pieces)?;
    // A dma-buf, for a device that wants the rows; a memfd if there are none.
    let buf = Buffer::alloc(spare.end.max(1))?;
    let mut gathering = gatherer.spare(spare).open(&buf)?;
    let gathered = gathering.read(&pieces)?;
    let view = buf.map()?;
    for (row, piece) in rows.iter().zip(gathered.pieces()) {
        match piece {
            Ok(found) => {
                let mut first = vec![0; found.len.min(8) as usize];
                view.read_at(found.start, &mut first)?;
                println!("row {row}, at {}: {first:02x?}", found.start);
            }
            Err(error) => println!("row {row}: {error}"),
        }
    }
    let report = gathered.report();
    let polled = if report.polled { ", polled" } else { "" };
    println!("{} rows, {} requests{polled}: {}", report.pieces, report.requests, report.transfer);
    for note in &report.transfer.notes {
        println!("{note}");
    }
    Ok(())
}
