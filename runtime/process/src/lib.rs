//! The process runtime that `ferrule-ipamd`, `ferrule-agent` and `ferrule-controller` share.
//!
//! [`listen`] serves HTTP on an address or a unix socket, [`log`] writes log lines, and [`meter`] registers the
//! metrics of the catalog in `config-metrics`. This crate reads no settings and decides nothing.

pub mod listen;
pub mod log;
pub mod meter;
