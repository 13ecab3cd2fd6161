// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transfers between one file and buffers, one at a time.

use std::sync::{Arc, Mutex, PoisonError};

use crate::backend::Backend;
use crate::buffer::Buffer;
use crate::choose::{choose, table};
use crate::control::{Control, Watch};
use crate::direction::Direction;
use crate::error::Result;
use crate::file::{File, check_range};
use crate::options::Options;
use crate::transfer::task::Task;

/// Moves data between an open file and buffers, one transfer at a time and without a report: the
/// fallback for a stream if no memory can be lent to a ring. The first available backend is used
/// for all transfers.
#[derive(Debug)]
pub struct OneByOne {
    file: Arc<File>,
    direction: Direction,
    options: Options,
    control: Control,
    chosen: Mutex<Option<Backend>>,
}

impl OneByOne {
    /// Creates it for `file` and `direction`.
    pub fn new(file: Arc<File>, direction: Direction) -> Self {
        // Requests are sequential, so the written part of the file never has a hole.
        let options = Options { queue_depth: Some(1), ..Options::default() };
        let (control, chosen) = (Control::default(), Mutex::default());
        Self { file, direction, options, control, chosen }
    }

    /// Moves the first `length` bytes of `buf` to or from byte `offset` in the file. Blocks until
    /// they are transferred, but not until they are durable.
    ///
    /// # Errors
    ///
    /// As for [`Loader::load_into`](crate::Loader::load_into) and
    /// [`Saver::save`](crate::Saver::save).
    pub fn transfer(&self, buf: &Buffer, length: u64, offset: u64) -> Result<()> {
        let buf = buf.shared()?;
        buf.check_range(0, length)?;
        check_range(offset, length)?;
        if length == 0 {
            return Ok(());
        }
        let watch = Watch::start(&self.control, length);
        let task = Task {
            file: &self.file,
            direction: self.direction,
            offset,
            length,
            options: &self.options,
            watch: &watch,
        };
        if self.direction == Direction::Save {
            self.file.check_size(task.end()).map_err(|errno| task.failed(offset, errno))?;
        }
        // Held while bytes are moved, so that the next transfer uses the backend chosen here.
        let mut chosen = self.chosen.lock().unwrap_or_else(PoisonError::into_inner);
        let order = Backend::for_existing(buf.kind());
        let candidates = chosen.as_ref().map_or(order, std::slice::from_ref);
        let (backend, _, _) =
            choose(None, candidates, |backend| table::transfer(backend, &task, buf, 0))?;
        *chosen = Some(backend);
        Ok(())
    }

    /// The backend in use; `None` before the first transfer.
    pub fn backend(&self) -> Option<Backend> {
        *self.chosen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::file::Spec;

    #[test]
    fn saved_bytes_load_back() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let open = |direction| {
            let spec = Spec::Path(file.path().to_owned());
            let file = File::open(&spec, direction, true).expect("open");
            OneByOne::new(Arc::new(file), direction)
        };
        let mut buf = Buffer::memfd(20_000).expect("a memfd");
        let content: Vec<u8> = (0..20_000_u32).map(|at| (at % 251) as u8).collect();
        buf.map_mut().expect("map").write_at(0, &content).expect("written");
        let saver = open(Direction::Save);
        assert_eq!(saver.backend(), None, "nothing has been transferred");
        saver.transfer(&buf, 0, 0).expect("nothing to do");
        assert_eq!(saver.backend(), None);
        saver.transfer(&buf, 12_288, 0).expect("saved");
        saver.transfer(&buf, 100, 12_288).expect("saved");
        let backend = saver.backend().expect("one of them");
        assert!(Backend::for_existing(buf.kind()).contains(&backend));
        let saved = std::fs::read(file.path()).expect("read");
        assert!(saved == [&content[..12_288], &content[..100]].concat());

        let loader = open(Direction::Load);
        let again = Buffer::memfd(20_000).expect("a memfd");
        loader.transfer(&again, 8292, 4096).expect("loaded");
        assert!(again.map().expect("map").to_vec().expect("bytes")[..8292] == saved[4096..]);
        let beyond = loader.transfer(&again, 1, u64::MAX).expect_err("no such byte");
        assert!(matches!(beyond, Error::RangeOverflow { .. }), "{beyond}");
        let beyond = loader.transfer(&again, again.len() + 1, 0).expect_err("no such byte");
        assert!(matches!(beyond, Error::RangeBeyondBuffer { .. }), "{beyond}");
    }
}
