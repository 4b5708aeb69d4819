//! The index against what it must equal.

mod model;
mod odd;
mod random;
