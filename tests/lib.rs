//! What crosses the crates is tested here; there is nothing to use.
