// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tries properties on values that are drawn at random, but the same ones each time. With `--cfg fuzzed` a fuzzer's
//! bytes decide what is drawn: tests/fuzz/library.

#[cfg(not(fuzzed))]
pub(crate) use at_random::holds;
#[cfg(fuzzed)]
pub(crate) use by_a_fuzzer::{holds, with};

#[cfg(not(fuzzed))]
mod at_random {
    use proptest::strategy::Strategy;
    use proptest::test_runner::{Config, RngSeed, TestRunner};

    /// Tries `property` on drawn values: 256 of them, or as many as `PROPTEST_CASES` says, from one seed, or from
    /// `PROPTEST_RNG_SEED`. Panics with the simplest value that is found for which the property panics.
    pub(crate) fn holds<S: Strategy>(values: &S, property: impl Fn(S::Value)) {
        let mut config = Config { failure_persistence: None, ..Config::default() };
        if config.rng_seed == RngSeed::Random {
            config.rng_seed = RngSeed::Fixed(1);
        }
        let tried = TestRunner::new(config).run(values, |value| {
            property(value);
            Ok(())
        });
        if let Err(failure) = tried {
            panic!("{failure}");
        }
    }
}

#[cfg(fuzzed)]
mod by_a_fuzzer {
    use std::cell::RefCell;

    use proptest::strategy::{Strategy, ValueTree as _};
    use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

    thread_local! {
        static BYTES: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }

    /// What is drawn behind the fuzzer's bytes: small numbers. With zeroes a number of a range would be drawn for ever.
    const TAIL: [u8; 8] = [1, 0, 0, 0, 0, 0, 0, 1];
    /// More than a property draws.
    const TAILS: usize = 8192;

    /// Runs properties, whose [`holds`] draw from these bytes.
    pub(crate) fn with(bytes: &[u8], properties: impl FnOnce()) {
        let whole = &bytes[..bytes.len() / 8 * 8];
        BYTES.replace([whole, &TAIL.repeat(TAILS)].concat());
        properties();
    }

    /// Tries `property` on one value.
    pub(crate) fn holds<S: Strategy>(values: &S, property: impl Fn(S::Value)) {
        let bytes = BYTES.with_borrow(Clone::clone);
        let rng = TestRng::from_seed(RngAlgorithm::PassThrough, &bytes);
        let config = Config { failure_persistence: None, ..Config::default() };
        // Bytes that draw nothing are no value.
        if let Ok(value) = values.new_tree(&mut TestRunner::new_with_rng(config, rng)) {
            property(value.current());
        }
    }
}
