//! Bad weather: what an operator can make go wrong.

use crate::{Action, Bucket, Ec2Error, throttle::Buckets};
use config_model::{AttachmentId, EniId, InstanceId, Span, Time};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};

/// One thing that goes wrong until it is cleared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Fault {
    /// Every nth call of the action (of each action, if absent) gets `RequestLimitExceeded`.
    ThrottleEveryNth {
        /// All actions if absent.
        action: Option<Action>,
        /// 1 throttles every call, 2 every second.
        nth: u32,
    },
    /// Another bucket than the spec's.
    ThrottleBucket {
        /// All actions if absent, each with its own bucket.
        action: Option<Action>,
        /// The bucket, which starts full.
        bucket: Bucket,
    },
    /// The action fails before it does anything.
    Error {
        /// All actions if absent.
        action: Option<Action>,
        error: Ec2Error,
        /// Number of calls; until cleared if absent.
        times: Option<u32>,
    },
    /// The action is carried out, then its reply is lost.
    LoseReply {
        /// All actions if absent.
        action: Option<Action>,
        /// Number of calls; until cleared if absent.
        times: Option<u32>,
    },
    /// The action takes this long.
    Latency {
        /// All actions if absent.
        action: Option<Action>,
        latency: Span,
    },
    /// IMDS lags by this much.
    ImdsLag { lag: Span },
    /// Describe calls lag by this much.
    ReadLag { lag: Span },
    /// IMDS answers with this HTTP status (see [`crate::Cloud::imds_outage`]).
    ImdsStatus {
        /// All instances if absent.
        instance: Option<InstanceId>,
        /// Such as 500 or 503.
        status: u16,
    },
    /// `DeleteOnTermination` is accepted and not kept.
    ForgetDeleteOnTermination {
        /// Number of times; until cleared if absent.
        times: Option<u32>,
    },
    /// New attachments stay `attaching` until the fault is cleared.
    AttachNeverCompletes {
        /// All instances if absent.
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

/// The faults that are set, and what they have done so far.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    set: BTreeMap<FaultId, Active>,
    next: u32,
}

#[derive(Debug)]
struct Active {
    fault: Fault,
    calls: BTreeMap<Action, u32>,
    buckets: Buckets,
    held: Vec<(EniId, AttachmentId)>,
}

fn hits(only: Option<Action>, action: Action) -> bool {
    only.is_none_or(|only| only == action)
}

/// Uses a counted fault once; false if nothing is left of it.
fn spend(times: &mut Option<u32>) -> bool {
    match times {
        None => true,
        Some(0) => false,
        Some(left) => {
            *left -= 1;
            true
        }
    }
}

impl Faults {
    pub(crate) fn add(&mut self, fault: Fault) -> FaultId {
        self.next += 1;
        let id = FaultId(self.next);
        let active =
            Active { fault, calls: BTreeMap::new(), buckets: Buckets::default(), held: Vec::new() };
        self.set.insert(id, active);
        id
    }

    /// Removes a fault. Returns the attachments that waited for its end; `None` if it was not set.
    pub(crate) fn remove(&mut self, id: FaultId) -> Option<Vec<(EniId, AttachmentId)>> {
        self.set.remove(&id).map(|active| active.held)
    }

    /// The faults that are set; counted ones show what is left of them.
    pub(crate) fn all(&self) -> Vec<(FaultId, Fault)> {
        self.set.iter().map(|(id, active)| (*id, active.fault.clone())).collect()
    }

    /// Decision of a fault about throttling: `Some(true)` lets the call pass its own bucket.
    pub(crate) fn throttles(&mut self, now: Time, action: Action) -> Option<bool> {
        let mut verdict = None;
        for active in self.set.values_mut() {
            let passes = active.passes_throttle(now, action);
            verdict = passes.map_or(verdict, |passes| Some(verdict.unwrap_or(true) && passes));
        }
        verdict
    }

    pub(crate) fn error_for(&mut self, action: Action) -> Option<Ec2Error> {
        self.set.values_mut().find_map(|active| {
            if let Fault::Error { action: only, error, times } = &mut active.fault
                && hits(*only, action)
                && spend(times)
            {
                Some(error.clone())
            } else {
                None
            }
        })
    }

    pub(crate) fn loses_reply(&mut self, action: Action) -> bool {
        self.set.values_mut().any(|active| {
            if let Fault::LoseReply { action: only, times } = &mut active.fault
                && hits(*only, action)
            {
                spend(times)
            } else {
                false
            }
        })
    }

    /// True if a change of `DeleteOnTermination` has no effect.
    pub(crate) fn forgets_delete_on_termination(&mut self) -> bool {
        self.set.values_mut().any(|active| {
            if let Fault::ForgetDeleteOnTermination { times } = &mut active.fault {
                spend(times)
            } else {
                false
            }
        })
    }

    pub(crate) fn latency(&self, action: Action) -> Option<Span> {
        self.latest(|fault| {
            if let Fault::Latency { action: only, latency } = fault
                && hits(*only, action)
            {
                Some(*latency)
            } else {
                None
            }
        })
    }

    pub(crate) fn imds_lag(&self) -> Option<Span> {
        self.latest(|fault| if let Fault::ImdsLag { lag } = fault { Some(*lag) } else { None })
    }

    pub(crate) fn read_lag(&self) -> Option<Span> {
        self.latest(|fault| if let Fault::ReadLag { lag } = fault { Some(*lag) } else { None })
    }

    pub(crate) fn imds_status(&self, instance: &InstanceId) -> Option<u16> {
        self.latest(|fault| {
            if let Fault::ImdsStatus { instance: only, status } = fault
                && only.as_ref().is_none_or(|only| only == instance)
            {
                Some(*status)
            } else {
                None
            }
        })
    }

    /// True if a new attachment has to wait for a fault's end.
    pub(crate) fn holds_attach(
        &mut self,
        instance: &InstanceId,
        eni: &EniId,
        attachment: &AttachmentId,
    ) -> bool {
        let holder = self.set.values_mut().find(|active| {
            matches!(&active.fault, Fault::AttachNeverCompletes { instance: only }
                if only.as_ref().is_none_or(|only| only == instance))
        });
        holder.is_some_and(|active| {
            active.held.push((eni.clone(), attachment.clone()));
            true
        })
    }

    /// Value of the latest fault that has one.
    fn latest<T>(&self, say: impl Fn(&Fault) -> Option<T>) -> Option<T> {
        self.set.values().rev().find_map(|active| say(&active.fault))
    }
}

impl Active {
    fn passes_throttle(&mut self, now: Time, action: Action) -> Option<bool> {
        if let Fault::ThrottleEveryNth { action: only, nth } = &self.fault
            && hits(*only, action)
        {
            let calls = self.calls.entry(action).or_default();
            *calls += 1;
            // Without a refusal the spec's bucket still decides.
            return calls.is_multiple_of((*nth).max(1)).then_some(false);
        }
        if let Fault::ThrottleBucket { action: only, bucket } = &self.fault
            && hits(*only, action)
        {
            return Some(self.buckets.take(now, (action, false), *bucket));
        }
        None
    }
}
