// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lists what is kept.

use std::io::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dmabuf_dio_keep::{Kept, Store, folders};
use dmabuf_dio_terminal::exit::Failure;
use dmabuf_dio_terminal::size::show_size;

use super::failure::failure;
use super::report;
use crate::args::keep::KeepArgs;

/// Lists what is kept in the folder that was named, or in all that are searched.
pub(crate) fn run(args: &KeepArgs) -> Result<(), Failure> {
    let named = args.dir.clone();
    let places = named.clone().map_or_else(folders, |folder| vec![folder]);
    let mut kept = Vec::new();
    for place in &places {
        // Until something is kept, the usual folders do not exist.
        if named.is_none() && !place.exists() {
            continue;
        }
        kept.append(&mut Store::open(place).and_then(|store| store.list()).map_err(failure)?);
    }
    if args.json {
        return report::json(&kept);
    }
    if kept.is_empty() && !args.quiet {
        let places: Vec<_> = places.iter().map(|place| place.display().to_string()).collect();
        writeln!(std::io::stdout(), "nothing is kept in {}", places.join(", "))?;
    }
    for one in &kept {
        writeln!(std::io::stdout(), "{}", line(one))?;
    }
    Ok(())
}

fn line(kept: &Kept) -> String {
    let size = show_size(kept.length);
    format!("{}  {size}, {}, of {}", kept.path.display(), age(kept.since), kept.source)
}

/// How long ago a time was.
fn age(since: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let whole = match now.saturating_sub(since) {
        seconds @ 0..60 => seconds,
        seconds @ 60..3600 => seconds / 60 * 60,
        seconds @ 3600..86400 => seconds / 3600 * 3600,
        seconds => seconds / 86400 * 86400,
    };
    format!("since {}", humantime::format_duration(Duration::from_secs(whole)))
}
