//! Benchmarks: ratios taken within one run.
