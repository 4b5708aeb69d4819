//! The model as its users see it: through the API, IMDS and the truth.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

mod cards;
mod controller;
mod describing;
mod errors;
mod faults;
mod ipv6;
mod laws;
mod lifecycle;
mod manual;
mod metadata;
mod rendering;
mod types;
mod world;
