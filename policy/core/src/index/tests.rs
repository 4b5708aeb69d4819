//! The index against what it must equal.

mod addresses;
mod model;
mod odd;
mod random;
