// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tries properties on values that are drawn at random, but the same ones each time.

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
