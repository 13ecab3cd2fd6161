// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time per value of some conversions, in memory: `cargo run --release -p dmabuf-dio-stream --example convert_speed`.
//! With a name, only conversions from or to it: `... convert_speed le:f32/32>>0`.

use std::hint::black_box;
use std::time::Instant;

use dmabuf_dio_stream::Format;
use dmabuf_dio_stream::convert::{Converter, Layout};

const VALUES: usize = 1 << 20;
const RUNS: u32 = 16;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let wanted = std::env::args().nth(1);
    for (from, to) in [
        ("le:s16/16>>0", "le:f32/32>>0"),
        ("be:s12/16>>4", "le:f32/32>>0"),
        ("le:f32/32>>0", "le:s16/16>>0"),
        ("le:f32/32>>0", "be:s12/16>>4"),
        ("le:s12/16>>0", "le:s16/16>>0"),
        ("le:s16/16>>0", "le:s8/8>>0"),
        ("be:s16/16>>0", "le:s16/16>>0"),
        ("le:f32/32>>0", "le:s24/32>>8"),
    ] {
        if wanted.as_deref().is_some_and(|wanted| wanted != from && wanted != to) {
            continue;
        }
        let layout = |format: &str| Ok::<_, String>(Layout::uniform(format.parse::<Format>()?, 1));
        let (before, after) = (layout(from)?, layout(to)?);
        let input = vec![7; VALUES * before.frame() as usize];
        let mut output = vec![0; VALUES * after.frame() as usize];
        let mut converter = Converter::new(before, after)?;
        let begin = Instant::now();
        for _ in 0..RUNS {
            converter.convert(black_box(&input), black_box(&mut output));
        }
        let seconds = begin.elapsed().as_secs_f64() / f64::from(RUNS) / VALUES as f64;
        println!("{from} to {to}: {:.2} ns per value", seconds * 1e9);
    }
    Ok(())
}
