//! The rules of the election. Time is an argument.

use crate::Election;
use config_model::{Span, Time};

/// The Lease as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// `None` if it was released.
    pub(crate) holder: Option<String>,
    /// The time for which it is valid after each renewal.
    pub(crate) lasts: Span,
    /// Differs after each write.
    pub(crate) version: String,
}

/// The next request about the Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The Lease does not exist: create it.
    Create,
    /// The Lease has no valid holder: take it.
    Take,
    /// We hold it: renew it.
    Renew,
    /// Another daemon holds it.
    Leave,
}

/// A participant of the election.
///
/// Clocks of different nodes are never compared. The holder counts from the moment before it sent its last
/// renewal, and steps down after `give_up`. The others count from the moment at which they read that renewal,
/// which is later, and wait for `lease`, which is longer.
#[derive(Debug)]
pub(crate) struct Candidate {
    identity: String,
    give_up: Span,
    /// The version last read, and the time of its first read.
    observed: Option<(String, Time)>,
    held_until: Option<Time>,
}

impl Candidate {
    pub(crate) fn new(election: &Election) -> Self {
        let give_up = u64::try_from(election.pace.give_up.as_millis()).unwrap_or(u64::MAX);
        Self {
            identity: election.identity.clone(),
            give_up: Span::millis(give_up),
            observed: None,
            held_until: None,
        }
    }

    pub(crate) fn leads(&self, now: Time) -> bool {
        self.held_until.is_some_and(|until| now < until)
    }

    /// Returns the next request, given the present Lease.
    pub(crate) fn look(&mut self, lease: Option<&Seen>, now: Time) -> Next {
        let Some(lease) = lease else {
            self.held_until = None;
            return Next::Create;
        };
        let since = match &self.observed {
            Some((version, since)) if *version == lease.version => *since,
            Some(_) | None => {
                self.observed = Some((lease.version.clone(), now));
                now
            }
        };
        match &lease.holder {
            None => Next::Take,
            Some(holder) if *holder == self.identity => Next::Renew,
            Some(_) => {
                self.held_until = None;
                if now.since(since) > lease.lasts { Next::Take } else { Next::Leave }
            }
        }
    }

    /// Our write, sent at this time, was accepted.
    pub(crate) fn holds_since(&mut self, sent: Time) {
        self.held_until = Some(sent + self.give_up);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LeasePace;
    use std::time::Duration;

    fn candidate(identity: &str) -> Candidate {
        let pace = LeasePace {
            lease: Duration::from_secs(30),
            give_up: Duration::from_secs(20),
            ..LeasePace::default()
        };
        Candidate::new(&Election { node_group: "default".into(), identity: identity.into(), pace })
    }

    fn lease(holder: &str, version: u64) -> Seen {
        let holder = Some(holder.to_owned()).filter(|holder| !holder.is_empty());
        Seen { holder, lasts: Span::seconds(30), version: version.to_string() }
    }

    #[test]
    fn the_first_candidate_creates_the_lease_and_leads_once_it_is_written() {
        let mut a = candidate("a");
        assert_eq!(a.look(None, Time(0)), Next::Create);
        assert!(!a.leads(Time(0)));
        a.holds_since(Time(0));
        assert!(a.leads(Time(19_999)) && !a.leads(Time(20_000)));
        assert_eq!(a.look(Some(&lease("a", 1)), Time(10_000)), Next::Renew);
    }

    #[test]
    fn a_lease_is_taken_only_if_it_is_not_renewed() {
        let mut b = candidate("b");
        for second in 0..10 {
            let now = Time(second * 10_000);
            assert_eq!(b.look(Some(&lease("a", second)), now), Next::Leave);
        }
        let last = 90_000;
        assert_eq!(b.look(Some(&lease("a", 9)), Time(last + 30_000)), Next::Leave);
        assert_eq!(b.look(Some(&lease("a", 9)), Time(last + 30_001)), Next::Take);
    }

    #[test]
    fn a_released_lease_is_taken_at_once() {
        assert_eq!(candidate("b").look(Some(&lease("", 4)), Time(0)), Next::Take);
    }

    #[test]
    fn a_leader_steps_down_if_the_lease_names_another() {
        let mut a = candidate("a");
        a.holds_since(Time(0));
        a.look(Some(&lease("b", 7)), Time(1_000));
        assert!(!a.leads(Time(1_000)));
        a.holds_since(Time(2_000));
        a.look(None, Time(3_000));
        assert!(!a.leads(Time(3_000)), "the lease was deleted");
    }

    /// Two candidates, one of which loses the API server at some time, with every delay between a send and a read.
    #[test]
    fn two_never_lead_at_once() {
        for delay in (0..10_000).step_by(500) {
            let (mut a, mut b) = (candidate("a"), candidate("b"));
            // The last renewal of `a` was sent at 0 and took effect after the delay; `b` reads it at once.
            a.holds_since(Time(0));
            assert_eq!(b.look(Some(&lease("a", 1)), Time(delay)), Next::Leave);
            let mut now = Time(delay);
            while b.look(Some(&lease("a", 1)), now) == Next::Leave {
                now = now + Span::millis(100);
            }
            assert!(!a.leads(now), "a still leads when b takes the lease at {now:?}");
        }
    }
}
