//! Objects as API servers write them, and odd ones.

mod service;
mod slice;
