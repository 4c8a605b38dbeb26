//! The part of a large space that a test covers: a sample in `cargo test`, all of it if `TESTS_EXHAUSTIVE` is set.

use proptest::test_runner::{Config, RngSeed};

/// Returns `true` if `TESTS_EXHAUSTIVE` is set, as it is in `.ci/run`.
pub fn is_exhaustive() -> bool {
    std::env::var_os("TESTS_EXHAUSTIVE").is_some()
}

/// Returns the first size, or the second one where the tests are exhaustive.
pub fn size(usual: usize, exhaustive: usize) -> usize {
    if is_exhaustive() { exhaustive } else { usual }
}

/// Configures a property test: as many cases as said, always the same ones unless the tests are exhaustive.
pub fn cases(usual: u32, exhaustive: u32) -> Config {
    let (cases, rng_seed) =
        if is_exhaustive() { (exhaustive, RngSeed::Random) } else { (usual, RngSeed::Fixed(7)) };
    Config { cases, rng_seed, failure_persistence: None, ..Config::default() }
}
