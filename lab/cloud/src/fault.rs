//! Bad weather: what an operator can make go wrong.

use crate::{Action, Bucket, Ec2Error};
use config_model::{InstanceId, Span};
use serde::{Deserialize, Serialize};
use std::fmt;

/// One thing that goes wrong until it is cleared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Fault {
    /// Every nth call of the action (of each action, if absent) gets `RequestLimitExceeded`.
    ThrottleEveryNth {
        /// Which action; all if absent.
        action: Option<Action>,
        /// 1 throttles every call, 2 every second.
        nth: u32,
    },
    /// Another bucket than the spec's.
    ThrottleBucket {
        /// Which action; all if absent, each with its own bucket.
        action: Option<Action>,
        /// The bucket, which starts full.
        bucket: Bucket,
    },
    /// The action fails before it does anything.
    Error {
        /// Which action; all if absent.
        action: Option<Action>,
        /// What it answers.
        error: Ec2Error,
        /// How often; until cleared if absent.
        times: Option<u32>,
    },
    /// The action is carried out, then its reply is lost.
    LoseReply {
        /// Which action; all if absent.
        action: Option<Action>,
        /// How often; until cleared if absent.
        times: Option<u32>,
    },
    /// The action takes this long.
    Latency {
        /// Which action; all if absent.
        action: Option<Action>,
        /// How long.
        latency: Span,
    },
    /// IMDS lags by this much.
    ImdsLag {
        /// How much.
        lag: Span,
    },
    /// Describe calls lag by this much.
    ReadLag {
        /// How much.
        lag: Span,
    },
    /// IMDS answers with this HTTP status (see [`crate::Cloud::imds_outage`]).
    ImdsStatus {
        /// Which instance; all if absent.
        instance: Option<InstanceId>,
        /// Such as 500 or 503.
        status: u16,
    },
    /// Attachments that begin now stay `attaching` until the fault is cleared.
    AttachNeverCompletes {
        /// Which instance; all if absent.
        instance: Option<InstanceId>,
    },
}

/// The handle of a fault that was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FaultId(pub u32);

impl fmt::Display for FaultId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fault-{}", self.0)
    }
}
