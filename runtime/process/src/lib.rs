//! The process runtime that `ferrule-ipamd`, `ferrule-agent` and `ferrule-controller` share.
//!
//! [`listen`] serves HTTP on an address or a unix socket, with limits on connections. [`published`] makes a page once for
//! many readers. [`log`] writes log lines, and [`meter`] registers the metrics of the catalog in `config-metrics`.
//! [`files`] raises the limit of open files. [`memory`] limits what the allocator keeps. This crate reads no settings and
//! decides nothing.

pub mod files;
pub mod listen;
pub mod log;
pub mod memory;
pub mod meter;
pub mod published;
