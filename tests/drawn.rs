// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tries properties on values that are drawn at random, but the same ones each time. With `--cfg fuzzed` a fuzzer's
//! bytes decide what is drawn: tests/fuzz/library.

#![allow(unused_imports, dead_code, reason = "not all crates draw all kinds of values")]

#[cfg(not(fuzzed))]
pub(crate) use at_random::holds;
#[cfg(fuzzed)]
pub(crate) use by_a_fuzzer::{OneOf, holds, with};
#[cfg(not(fuzzed))]
pub(crate) use proptest::prop_oneof as one_of;

use proptest::strategy::{Just, Strategy};

/// A value in so many tenths of the cases.
pub(crate) fn maybe<S>(tenths: u32, value: S) -> impl Strategy<Value = Option<S::Value>>
where
    S: Strategy<Value: Clone> + 'static,
{
    one_of![10 - tenths => Just(None), tenths => value.prop_map(Some)]
}

/// `prop_oneof!`, without what it keeps to simplify values later: for that it would take half of the fuzzer's bytes each
/// time.
#[cfg(fuzzed)]
macro_rules! one_of {
    ($($strategy:expr),+ $(,)?) => { $crate::drawn::one_of![$(1 => $strategy),+] };
    ($($weight:expr => $strategy:expr),+ $(,)?) => {
        $crate::drawn::OneOf(vec![$(($weight, proptest::strategy::Strategy::boxed($strategy))),+])
    };
}
#[cfg(fuzzed)]
pub(crate) use one_of;

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

    use proptest::strategy::{BoxedStrategy, NewTree, Strategy, ValueTree as _};
    use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

    /// Values of one of some kinds, with their weights.
    #[derive(Debug)]
    pub(crate) struct OneOf<T: std::fmt::Debug>(pub(crate) Vec<(u32, BoxedStrategy<T>)>);

    impl<T: std::fmt::Debug> Strategy for OneOf<T> {
        type Tree = <BoxedStrategy<T> as Strategy>::Tree;
        type Value = T;

        fn new_tree(&self, runner: &mut TestRunner) -> NewTree<Self> {
            let all: u32 = self.0.iter().map(|(weight, _)| weight).sum();
            let mut drawn = (0..all).new_tree(runner)?.current();
            for (weight, kind) in &self.0 {
                match drawn.checked_sub(*weight) {
                    Some(rest) => drawn = rest,
                    None => return kind.new_tree(runner),
                }
            }
            Err("there is no kind".into())
        }
    }

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
