// SPDX-License-Identifier: MIT OR Apache-2.0
//! The calls of an input, and their text: a name and values, one call a line. A value that is left
//! out is the default. Numbers are decimal or, after `0x`, hexadecimal.

use std::fmt;

use super::domain::Domain;

/// A kind of call.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    /// How often it is drawn.
    pub(crate) weight: u64,
    /// Bytes of its structure, 0: it has none.
    pub(crate) size: u64,
    fields: &'static [(&'static str, Domain)],
}

/// What all calls with a structure have: where it is, its size, what is behind its known part (the
/// last byte), and whether another thread makes the call.
const STRUCTURE: &[(&str, Domain)] = &[
    ("memory", Domain::Memory),
    ("size", Domain::Size),
    ("tail", Domain::Zero),
    ("beside", Domain::Switch),
];

impl Kind {
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&'static str, Domain)> {
        let more = if self.size > 0 { STRUCTURE } else { &[] };
        self.fields.iter().chain(more).copied()
    }

    fn default(&self, domain: Domain) -> u64 {
        match domain {
            Domain::Size => self.size,
            Domain::Direction => 3,
            _ => 0,
        }
    }
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $variant:ident $name:literal $weight:literal $size:literal { $($field:ident: $domain:ident),* })*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Name { $($(#[$doc])* $variant),* }

        pub(crate) const KINDS: &[Kind] = &[$(Kind {
            name: $name, weight: $weight, size: $size,
            fields: &[$((stringify!($field), Domain::$domain)),*],
        }),*];

        const NAMES: &[Name] = &[$(Name::$variant),*];
    };
}

kinds! {
    /// A new context, in place `to`.
    Open "open" 6 0 { to: Context }
    Attach "attach" 14 24 { ctx: Context, fd: Buffer, flags: Zero, length: Zero, segments: Zero, refusal: Zero, dir: Direction }
    Read "read" 20 72 { ctx: Context, fd: File, flags: Zero, at: Offset, offset: Offset, length: Length, chunk: Chunk, depth: Depth, align: Zero, done: Zero, direct: Zero, refusal: Zero, reserved: Zero, dir: Direction }
    Write "write" 14 72 { ctx: Context, fd: File, flags: Zero, at: Offset, offset: Offset, length: Length, chunk: Chunk, depth: Depth, align: Zero, done: Zero, direct: Zero, refusal: Zero, reserved: Zero, dir: Direction }
    /// The new dma-buf goes to place `to`.
    Load "load" 14 88 { ctx: Context, fd: File, fd_flags: OpenFlags, flags: Zero, depth: Depth, at: Offset, length: Length, gather: Length, chunk: Chunk, dmabuf_fd: Zero, reserved: Zero, to: Spare, dir: Direction }
    Info "info" 2 48 { ctx: Context, reserved: Zero, reserved2: Zero, dir: Direction }
    Cancel "cancel" 4 0 { ctx: Context }
    /// Any ioctl on anything.
    Ioctl "ioctl" 4 64 { fd: Any, number: Number, kind: Magic, dir: Direction }
    /// REGISTER
    Register "register" 12 24 { ring: Ring, ctx: Context, offset: Offset, length: Length, index: Index, flags: SlotFlags, command_reserved: Zero }
    /// JOIN; `list`: where the list of contexts is.
    Join "join" 6 24 { ring: Ring, ctx: Context, one: Context, two: Context, count: Count, index: Index, flags: SlotFlags, reserved: Zero, list: Memory, command_reserved: Zero }
    /// Any command of `io_uring` to anything.
    Command "command" 2 24 { ring: Ring, fd: Any, number: Number, kind: Magic, dir: Direction, command_reserved: Zero }
    ReadFixed "read-fixed" 8 0 { ring: Ring, index: Index, skip: Offset, length: Length, fd: File, at: Offset }
    WriteFixed "write-fixed" 6 0 { ring: Ring, index: Index, skip: Offset, length: Length, fd: File, at: Offset }
    /// `IORING_REGISTER_BUFFERS_UPDATE`: empties an index.
    Update "update" 3 0 { ring: Ring, index: Index }
    /// `IORING_REGISTER_CLONE_BUFFERS`, from the other ring.
    Clone "clone" 2 0 { ring: Ring }
    Dup "dup" 3 0 { fd: Any, to: Spare }
    Close "close" 4 0 { fd: Any }
    /// From here two processes make the calls.
    Fork "fork" 1 0 {}
    /// Waits for the calls of other threads.
    Wait "wait" 2 0 {}
    /// A signal after so many microseconds.
    Timer "timer" 4 0 { microseconds: Time }
    Truncate "truncate" 2 0 { fd: File, length: Length }
    /// `mode`: of `fallocate()`
    Allocate "allocate" 2 0 { fd: File, mode: Mode, at: Offset, length: Length }
    /// Maps, touches, advises, unmaps; `private`: without `MAP_SHARED`.
    Advise "advise" 3 0 { fd: Any, offset: Offset, advice: Advice, private: Switch }
    /// `DMA_BUF_IOCTL_SYNC`
    Sync "sync" 1 0 { fd: Buffer, flags: SlotFlags }
    /// A device that is not coherent (`kernel/sim/shadow_importer`) has the buffer from now on.
    Import "import" 3 0 { fd: Buffer }
    /// `/proc/self/fdinfo`
    Fdinfo "fdinfo" 2 0 { fd: Context }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) name: Name,
    pub(crate) values: Vec<u64>,
}

impl Call {
    /// A call of a kind with all defaults.
    pub(crate) fn new(name: Name) -> Self {
        let kind = &KINDS[name as usize];
        let values = kind.fields().map(|(_, domain)| kind.default(domain)).collect();
        Self { name, values }
    }

    pub(crate) fn of_number(number: usize) -> Self {
        Self::new(NAMES[number])
    }

    pub(crate) fn kind(&self) -> &'static Kind {
        &KINDS[self.name as usize]
    }

    fn place(&self, field: &str) -> Option<usize> {
        self.kind().fields().position(|(name, _)| name == field)
    }

    /// A value; 0 if the kind does not have it.
    pub(crate) fn get(&self, field: &str) -> u64 {
        self.place(field).map_or(0, |place| self.values[place])
    }

    pub(crate) fn set(&mut self, field: &str, value: u64) {
        if let Some(place) = self.place(field) {
            self.values[place] = value;
        }
    }

    pub(crate) fn with(mut self, values: &[(&str, u64)]) -> Self {
        for (field, value) in values {
            self.set(field, *value);
        }
        self
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind();
        write!(f, "{}", kind.name)?;
        for ((field, domain), value) in kind.fields().zip(&self.values) {
            if domain == Domain::Memory && *value == 0 {
                continue;
            }
            if let Some(name) = domain.word(*value) {
                write!(f, " {field}={name}")?;
            } else if *value > 1 << 20 {
                write!(f, " {field}={value:#x}")?;
            } else if *value != kind.default(domain) {
                write!(f, " {field}={value}")?;
            }
        }
        Ok(())
    }
}

pub(crate) fn text(calls: &[Call]) -> String {
    calls.iter().fold(String::new(), |text, call| text + &format!("{call}\n"))
}

/// Reads an input; lines that begin with `#` are comments.
pub(crate) fn parse(text: &str) -> Result<Vec<Call>, String> {
    let lines = text.lines().map(str::trim).enumerate();
    lines
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(number, line)| parse_line(line).map_err(|why| format!("line {}: {why}", number + 1)))
        .collect()
}

fn parse_line(line: &str) -> Result<Call, String> {
    let mut words = line.split_whitespace();
    let name = words.next().unwrap_or_default();
    let number = KINDS.iter().position(|kind| kind.name == name);
    let mut call = Call::of_number(number.ok_or_else(|| format!("no call is '{name}'"))?);
    for word in words {
        let (field, value) = word.split_once('=').unwrap_or((word, ""));
        let found = call.kind().fields().position(|(name, _)| name == field);
        let place = found.ok_or_else(|| format!("'{name}' does not take '{field}'"))?;
        let domain = call.kind().fields().nth(place).map_or(Domain::Zero, |(_, domain)| domain);
        let number = match value.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => value.parse().ok(),
        };
        call.values[place] = domain
            .value(value)
            .or(number)
            .ok_or_else(|| format!("'{word}' is neither a number nor a name"))?;
    }
    Ok(call)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_back() {
        let calls = [
            Call::new(Name::Fork),
            Call::new(Name::Read).with(&[("fd", 3), ("length", u64::MAX), ("size", 71)]),
            Call::new(Name::Ioctl).with(&[("dir", 1), ("number", 77)]),
        ];
        let text = text(&calls);
        assert_eq!(parse(&format!("# a comment\n\n{text}")).unwrap(), calls);
        assert!(text.contains(" size=71"), "{text}");
    }

    #[test]
    fn kept_inputs_are_read() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fuzz/kept");
        let kept: Vec<_> = std::fs::read_dir(folder).unwrap().flatten().collect();
        assert!(!kept.is_empty());
        for file in kept {
            let text = std::fs::read_to_string(file.path()).unwrap();
            parse(&text).unwrap_or_else(|why| panic!("{}: {why}", file.path().display()));
        }
    }

    #[test]
    fn wrong_lines_are_refused_by_number() {
        for (text, why) in [
            ("fork\nfrok", "line 2: no call is 'frok'"),
            ("fork x=1", "line 1: 'fork' does not take 'x'"),
            ("cancel ctx=nobody", "line 1: 'ctx=nobody' is neither a number nor a name"),
        ] {
            assert_eq!(parse(text).unwrap_err(), why);
        }
    }
}
