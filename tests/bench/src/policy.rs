//! From pages of lists to all groups and spans, on the data sets of Antrea's controller benchmark
//! (`pkg/controller/networkpolicy/networkpolicy_controller_perf_test.go`).
//!
//! A [`Size`] writes its objects as API servers send them ([`pages`]), 500 items a page. The targets are for
//! objects that say as much as those of that benchmark ([`ObjectForm::Lean`], some 500 bytes a pod); what they would
//! be on a cluster ([`ObjectForm::Full`], 6 kB a pod) is measured beside it. [`load`] takes page after page from a
//! file into one buffer; what is timed is reading the page and indexing what it holds, not how the page came. Every measurement runs in a process of its own,
//! so its peak of resident memory is its own, one page included.

mod events;
mod load;
mod pages;
mod reference;
mod size;
mod template;

pub use events::{Timed, events};
pub use load::{Loaded, What, load};
pub use pages::{Kinds, pages};
pub use size::{ObjectForm, Scale, Size};
