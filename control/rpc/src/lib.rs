//! The stream between the controller's replicas and the nodes.
//!
//! A node opens one [`Follow`] stream to one replica: it says what it holds, is told the rest, and says
//! of each generation that it holds it. Messages are those of [`control_wire`]. The server (feature `server`)
//! drives the hub of `control-hub`; it sends parts as they were encoded for all nodes.

mod codec;
mod desk;
#[cfg(feature = "server")]
mod door;
mod follow;
#[cfg(feature = "server")]
mod hello;
#[cfg(feature = "server")]
mod serve;
#[cfg(feature = "server")]
mod strangers;
#[cfg(feature = "server")]
mod teller;
mod tls;

/// Made by the build script.
#[allow(
    missing_docs,
    clippy::all,
    clippy::pedantic,
    clippy::missing_docs_in_private_items,
    clippy::allow_attributes_without_reason,
    reason = "what is generated is not ours to lint"
)]
pub mod generated {
    include!(concat!(env!("OUT_DIR"), "/ferrule.policy.v1.Policies.rs"));
}

pub use codec::{FollowCodec, Reply};
pub use desk::Desk;
#[cfg(feature = "server")]
pub use door::{Secured, Shown, door, door_within};
pub use follow::{Follow, FollowError, Heard};
#[cfg(feature = "server")]
pub use serve::{Admit, Caller, Office, Serving};
#[cfg(feature = "server")]
pub use strangers::{Bounds, Leave, Place, Strangers, Visitor};
pub use tls::{Trust, TrustError};
