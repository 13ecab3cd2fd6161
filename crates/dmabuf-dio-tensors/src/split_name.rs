// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of the parts of a model in several files: `NAME-00001-of-00003.gguf`.

/// The name of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SplitName<'n> {
    prefix: &'n str,
    /// With the dot, and with the variant if there is one: `.fp16.safetensors`.
    suffix: &'n str,
    pub(crate) count: u32,
    /// Digits of number and count: some models have five and six.
    digits: [usize; 2],
    /// From 1.
    pub(crate) number: u32,
}

impl<'n> SplitName<'n> {
    /// A part of a split GGUF model. Both numbers have five digits, as llama.cpp writes and reads them.
    pub(crate) fn of_gguf(name: &'n str) -> Option<Self> {
        Self::of(name, ".gguf").filter(|split| split.digits == [5, 5])
    }

    /// A shard of a safetensors model, which may be of a variant: `model-00001-of-00002.fp16.safetensors`.
    pub(crate) fn of_safetensors(name: &'n str) -> Option<Self> {
        let plain = ".safetensors";
        Self::of(name, plain).or_else(|| {
            let (stem, _) = name.strip_suffix(plain)?.rsplit_once('.')?;
            Self::of(name, &name[stem.len()..])
        })
    }

    fn of(name: &'n str, suffix: &'n str) -> Option<Self> {
        let (rest, count, count_digits) = number(name.strip_suffix(suffix)?)?;
        let (prefix, number, digits) = number(rest.strip_suffix("-of")?)?;
        let digits = [digits, count_digits];
        (1..=count).contains(&number).then_some(Self { prefix, suffix, count, digits, number })
    }

    /// The name of part `number`, from 1.
    pub(crate) fn name(&self, number: u32) -> String {
        let Self { prefix, suffix, count, digits: [digits, count_digits], .. } = self;
        format!("{prefix}-{number:0digits$}-of-{count:0count_digits$}{suffix}")
    }
}

/// Splits `-00007` off the end: the rest, the number and its digits.
fn number(text: &str) -> Option<(&str, u32, usize)> {
    let rest = text.trim_end_matches(|c: char| c.is_ascii_digit());
    let digits = &text[rest.len()..];
    Some((rest.strip_suffix('-')?, digits.parse().ok()?, digits.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_names_give_sibling_names() {
        let split = SplitName::of_gguf("a-b-00002-of-00012.gguf").expect("a part");
        assert_eq!((split.number, split.count), (2, 12));
        assert_eq!(split.name(12), "a-b-00012-of-00012.gguf");
        let split =
            SplitName::of_safetensors("model-00002-of-000163.safetensors").expect("a shard");
        assert_eq!(split.name(163), "model-00163-of-000163.safetensors");
        let split =
            SplitName::of_safetensors("m-00001-of-00002.fp16.safetensors").expect("a shard");
        assert_eq!(split.name(2), "m-00002-of-00002.fp16.safetensors");
        for name in ["m-00001-of-00002.fp16", "m-00001-of-00002.a.b.safetensors", ".a.safetensors"]
        {
            assert_eq!(SplitName::of_safetensors(name), None, "{name}");
        }
        for name in [
            "a-00000-of-00001.gguf",
            "a-00002-of-00001.gguf",
            "a-0001-of-00001.gguf",
            "a-00001-of-+0001.gguf",
            "00001-of-00002.gguf",
            "a-00001-of-00002.bin",
            "a-00001-of-99999999999.gguf",
            "ß.gguf",
            ".gguf",
        ] {
            assert_eq!(SplitName::of_gguf(name), None, "{name}");
        }
    }
}
