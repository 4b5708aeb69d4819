//! The part of the command line that speaks of faults.

use super::duration::{duration, millis};
use crate::control::FaultSpec;
use clap::Subcommand;
use std::time::Duration;

/// What to do with faults.
#[derive(Debug, Subcommand)]
pub enum FaultVerb {
    /// Set one.
    Set {
        /// Which.
        #[command(subcommand)]
        fault: FaultArgs,
    },
    /// Clear one, or all.
    Clear {
        /// Its id or kind, as `fault list` shows them.
        which: Option<String>,
    },
    /// Those that are set.
    List,
}

/// A fault of the cloud.
#[derive(Clone, Debug, Subcommand)]
pub enum FaultArgs {
    /// EC2 answers RequestLimitExceeded.
    Throttle {
        /// The action; default: all.
        #[arg(long)]
        action: Option<String>,
        /// Every how many calls.
        #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
        every: u32,
    },
    /// EC2 answers with this error.
    Error {
        /// EC2's code, such as InsufficientFreeAddressesInSubnet.
        code: String,
        /// The action; default: all.
        #[arg(long)]
        action: Option<String>,
        /// How often; default: until it is cleared.
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
        times: Option<u32>,
    },
    /// EC2 acts, but the answer is lost.
    LoseReplies {
        /// The action; default: all.
        #[arg(long)]
        action: Option<String>,
        /// Every how many calls.
        #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
        every: u32,
    },
    /// EC2 answers late.
    Latency {
        /// How late, such as 800ms.
        #[arg(value_parser = duration)]
        delay: Duration,
        /// The action; default: all.
        #[arg(long)]
        action: Option<String>,
    },
    /// Instance metadata lags behind the truth.
    ImdsLag {
        /// How far, such as 30s.
        #[arg(value_parser = duration)]
        lag: Duration,
    },
    /// Instance metadata answers with an HTTP status, such as 503.
    ImdsStatus {
        /// The status.
        #[arg(value_parser = clap::value_parser!(u16).range(400..600))]
        status: u16,
    },
    /// Describe calls lag behind the truth.
    ReadLag {
        /// How far, such as 5s.
        #[arg(value_parser = duration)]
        lag: Duration,
    },
    /// EC2 accepts `DeleteOnTermination` and does not keep it.
    ForgetTermination {
        /// How often; default: until it is cleared.
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
        times: Option<u32>,
    },
    /// Attachments that begin from now on stay `attaching`.
    AttachNever,
    /// An ENI is detached by somebody else, at once.
    Detach {
        /// The ENI.
        eni: String,
    },
}

impl From<FaultArgs> for FaultSpec {
    fn from(args: FaultArgs) -> Self {
        match args {
            FaultArgs::Throttle { action, every } => Self::Throttle { action, every },
            FaultArgs::Error { code, action, times } => Self::Error { code, action, times },
            FaultArgs::LoseReplies { action, every } => Self::LoseReplies { action, every },
            FaultArgs::Latency { delay, action } => {
                Self::Latency { delay_ms: millis(delay), action }
            }
            FaultArgs::ImdsLag { lag } => Self::ImdsLag { lag_ms: millis(lag) },
            FaultArgs::ImdsStatus { status } => Self::ImdsStatus { status },
            FaultArgs::ReadLag { lag } => Self::ReadLag { lag_ms: millis(lag) },
            FaultArgs::ForgetTermination { times } => Self::ForgetTermination { times },
            FaultArgs::AttachNever => Self::AttachNever,
            FaultArgs::Detach { eni } => Self::Detach { eni },
        }
    }
}
