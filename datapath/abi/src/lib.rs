//! The state of the eBPF maps: keys and values, the contents that a compilation needs, and the plan of changes.
//!
//! `datapath/bpf/tables.h` has the same layouts in C. The loader of the maps refuses a key or value of another size, and
//! the tests in `tests/netns` compare the programs' verdicts with [`Tables::judge`](datapath_plan::Tables::judge).
//! Numbers have the byte order of the machine; addresses have that of the network.
//!
//! [`Target::of`] encodes compiled tables. [`plan`] compares a target with the contents of the maps ([`Held`]) and
//! returns the [`Write`]s that lead from one to the other. At every moment between two writes each packet gets the answer
//! of the earlier state or of the target.

mod bytes;
mod event;
mod held;
mod intervals;
mod limits;
mod lookup;
mod numbers;
mod places;
mod plan;
mod scope;
mod settings;
mod settle;
mod slots;
mod target;

#[cfg(test)]
mod tests;

pub use bytes::{
    AddressKey, Endpoint, EndpointValue, Ends, Flow, FlowKey, FlowValue, LARGE, LargeTable,
    PrefixKey, Row, RowValue, SMALL, SetKey, SmallTable, address, address_key, behind_nat, halves,
    halves_of, prefix_key, set_key, set_of, words_of,
};
pub use event::{Cause, Event, Use, UseValue, Verdict};
pub use held::{Held, Write};
pub use intervals::TooLong;
pub use limits::{Full, Limits};
pub use lookup::{Question, Steps};
pub use numbers::Numbers;
pub use places::{OWN_PLACES, PLACES, Place, PlaceValue, place_of_own};
pub use plan::{Own, Plan, Pod, cleanup, is_new, plan, plan_started, sizes};
pub use scope::Scope;
pub use settings::{Settings, SettingsValue, Share, ShareValue};
pub use slots::{
    SlotValue, SlotWrite, Slots, has_no_slot, is_gone, row_of, slot_entries, slot_rows,
};
pub use target::Target;
