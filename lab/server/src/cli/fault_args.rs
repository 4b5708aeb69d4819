//! Arguments of the verbs for faults.

use super::duration::{duration, millis};
use crate::control::FaultSpec;
use clap::Subcommand;
use std::time::Duration;

/// Operations on faults.
#[derive(Debug, Subcommand)]
pub enum FaultVerb {
    /// Add a fault.
    Set {
        #[command(subcommand)]
        fault: FaultArgs,
    },
    /// Clear one fault or all.
    Clear {
        /// Id or kind of the fault, as `fault list` shows it; default: all.
        which: Option<String>,
    },
    /// List the faults in effect.
    List,
}

/// A fault of the cloud.
#[derive(Clone, Debug, Subcommand)]
pub enum FaultArgs {
    /// EC2 returns RequestLimitExceeded.
    Throttle {
        /// EC2 action; default: all.
        #[arg(long)]
        action: Option<String>,
        /// Period in calls: 2 means every second one.
        #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
        every: u32,
    },
    /// EC2 returns this error.
    Error {
        /// Error code of EC2, such as InsufficientFreeAddressesInSubnet.
        code: String,
        /// EC2 action; default: all.
        #[arg(long)]
        action: Option<String>,
        /// Number of calls; default: until the fault is cleared.
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
        times: Option<u32>,
    },
    /// EC2 carries out the call, but the answer is lost.
    LoseReplies {
        /// EC2 action; default: all.
        #[arg(long)]
        action: Option<String>,
        /// Period in calls: 2 means every second one.
        #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
        every: u32,
    },
    /// EC2 answers late.
    Latency {
        /// Delay, such as 800ms.
        #[arg(value_parser = duration)]
        delay: Duration,
        /// EC2 action; default: all.
        #[arg(long)]
        action: Option<String>,
    },
    /// Instance metadata lags behind the state of EC2.
    ImdsLag {
        /// Lag, such as 30s.
        #[arg(value_parser = duration)]
        lag: Duration,
    },
    /// Instance metadata returns an HTTP error.
    ImdsStatus {
        /// HTTP status, such as 503.
        #[arg(value_parser = clap::value_parser!(u16).range(400..600))]
        status: u16,
    },
    /// Describe calls lag behind the state of EC2.
    ReadLag {
        /// Lag, such as 5s.
        #[arg(value_parser = duration)]
        lag: Duration,
    },
    /// EC2 accepts `DeleteOnTermination` and does not store it.
    ForgetTermination {
        /// Number of calls; default: until the fault is cleared.
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
        times: Option<u32>,
    },
    /// New attachments stay `attaching`.
    AttachNever,
    /// Another party detaches an ENI, now.
    Detach {
        /// ENI id, such as eni-1.
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
