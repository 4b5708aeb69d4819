//! The time from pages of lists to all groups and spans, on the data sets of Antrea's controller benchmark
//! (`pkg/controller/networkpolicy/networkpolicy_controller_perf_test.go`).
//!
//! A [`Size`] writes its objects as API servers send them ([`pages`]), 500 items per page. The targets hold
//! for objects as small as those of that benchmark ([`ObjectForm::Lean`], some 500 bytes per pod). Objects as
//! large as on a cluster ([`ObjectForm::Full`], 6 kB per pod) are measured next to them. [`load`] reads page
//! after page from a file into one buffer. The measured time is that of parsing and indexing the page, not of
//! its transfer. Every measurement has its own process, so that the peak of resident memory belongs to it
//! alone, including one page.

mod events;
mod load;
mod pages;
mod reference;
mod size;
mod template;

pub use events::{EventTimes, events};
pub use load::{LoadMode, Loaded, load};
pub use pages::{Kinds, pages};
pub use size::{ObjectForm, Scale, Size};
