//! Names and numbers that every part of Ferrule shares.
//!
//! Pure data: no clock, no file, no socket. Start with [`registry`] for the numbers that other
//! software on the node can see, with [`PodKey`] for what identifies one interface of one pod.

mod causes;
mod enforcing;
mod eni;
mod kernel;
mod layout;
mod link;
mod migration;
mod net;
mod pod;
pub mod registry;
mod time;
mod tombstone;
pub mod utc;

pub use causes::causes;
pub use enforcing::EnforcingMode;
pub use eni::{
    AttachmentId, CardIndex, DeviceIndex, EniId, InstanceId, SecurityGroupId, SubnetId, TableId,
    VpcId,
};
pub use kernel::KernelVersion;
pub use layout::RuleLayout;
pub use link::{HostEnd, HostEndMode, HostLink};
pub use migration::{Migration, Owner};
pub use net::{Mac, Mark, ParseError};
pub use pod::{InvalidKey, PodKey, PodName, VethHash, VethName};
pub use time::{Span, Time};
pub use tombstone::Tombstone;
