//! The address book and the warm-pool planner, without clocks or sockets.
//!
//! [`Core`] takes facts ([`Event`]) with their time and returns actions ([`Effect`]). It never reads a clock, draws a
//! random number or makes a call; the daemon and the simulation run the same code. Start reading at
//! [`Core::on_event`].

mod book;
mod branch_checks;
mod branch_eni;
mod branches;
mod budget;
mod call;
mod calls;
mod checkpoint;
mod classify;
mod cluster;
mod config;
mod core;
mod ctx;
mod effect;
mod event;
mod explain;
mod groups;
mod growth;
mod leaks;
mod limits;
mod node_cidrs;
mod notice;
mod placement;
mod places;
mod pool;
mod remedy;
mod removals;
mod requests;
mod restore;
mod schedule;
mod shrink;
mod snapshot;
mod source;
mod subnet_samples;
mod subnets;
mod trunk;
mod upkeep;
mod view;
mod waiting;
mod warm;
mod witness;
mod zone;

pub use crate::core::Core;
pub use branch_eni::BranchEni;
pub use call::{
    Action, AttachmentState, CloudAnswer, CloudCall, CloudFault, EniKind, Leftover, OpId, Remedy,
    SeenAttachment, SeenEni, SeenSubnet, Want,
};
pub use checkpoint::{Checkpoint, RECORD_FORMAT, Record, frame};
pub use cluster::{ClusterFact, EniConfig};
pub use config::{CallLimits, CardLimits, Family, Limits, NodeFacts, PoolConfig, Start};
pub use effect::{Answer, Effect, HeldAddress, PodAddress, Refusal, RefusalReason};
pub use event::{Cards, Event, ReleaseCause, Ticket, Witness};
pub use explain::is_denial;
pub use notice::{Notice, Obstacle, Severity, Topic, Waiting};
pub use remedy::{Ec2ErrorResponse, THROTTLING_CODES};
pub use snapshot::{
    BudgetView, CoolingView, Counts, EniView, NodeCidrView, PodView, Snapshot, SubnetView,
    TrunkMissing, WaiterView,
};
pub use source::BlockSource;
pub use subnet_samples::SubnetSample;
