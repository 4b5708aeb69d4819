//! Rules of the election. Time is an argument.

use std::time::{Duration, Instant};

/// The Lease as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// Identity of the holder; `None` if the Lease was released.
    pub(super) holder: Option<String>,
    /// Duration after each renewal.
    pub(super) lasts: Duration,
    /// Resource version, different after each write.
    pub(super) version: String,
    /// The holder's address for reports.
    pub(super) reports_to: String,
}

/// The next action on the Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// No replica has held the Lease yet, or it was released or has expired.
    Take,
    /// This replica holds the Lease.
    Renew,
    /// Another replica holds the Lease.
    Leave,
}

/// A candidate for the Lease.
///
/// Clocks of different replicas are never compared. The holder counts from before it sent its last renewal and stops
/// leading after two thirds of the duration. The others wait for the whole duration from the time when they read it.
#[derive(Debug)]
pub(super) struct Candidate {
    identity: String,
    lasts: Duration,
    /// The last read Lease, and the time of its first read.
    seen: Option<(Seen, Instant)>,
    held_until: Option<Instant>,
}

impl Candidate {
    pub(super) fn new(identity: String, lasts: Duration) -> Self {
        Self { identity, lasts, seen: None, held_until: None }
    }

    /// Returns true if we lead.
    pub(super) fn leads(&self, now: Instant) -> bool {
        self.held_until.is_some_and(|until| now < until)
    }

    /// Returns the leader's address for reports; empty if there is none.
    pub(super) fn reports_to(&self, now: Instant) -> &str {
        match &self.seen {
            Some((seen, since)) if seen.holder.is_some() && now < *since + seen.lasts => {
                let is_own = seen.holder.as_ref() == Some(&self.identity);
                if is_own && !self.leads(now) { "" } else { &seen.reports_to }
            }
            Some(_) | None => "",
        }
    }

    /// Records that there is no Lease. No replica leads without one.
    pub(super) fn missed(&mut self) {
        (self.seen, self.held_until) = (None, None);
    }

    /// Records the current Lease and returns the next action.
    pub(super) fn observe(&mut self, lease: Seen, now: Instant) -> Next {
        let since = match &self.seen {
            Some((seen, since)) if seen.version == lease.version => *since,
            Some(_) | None => now,
        };
        let next = match &lease.holder {
            None => Next::Take,
            Some(holder) if *holder == self.identity => Next::Renew,
            Some(_) => {
                self.held_until = None;
                if now.duration_since(since) > lease.lasts { Next::Take } else { Next::Leave }
            }
        };
        self.seen = Some((lease, since));
        next
    }

    /// Records an accepted write of this replica that was sent at this time.
    pub(super) fn written(&mut self, lease: Seen, sent: Instant) {
        self.held_until = Some(sent + self.lasts * 2 / 3);
        self.seen = Some((lease, sent));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LASTS: Duration = Duration::from_secs(30);

    fn lease(holder: &str, version: u32) -> Seen {
        Seen {
            holder: Some(holder.to_owned()).filter(|holder| !holder.is_empty()),
            lasts: LASTS,
            version: version.to_string(),
            reports_to: format!("at {holder}"),
        }
    }

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn the_first_candidate_takes_the_empty_lease_and_leads_until_it_is_late() {
        let (mut a, start) = (Candidate::new("a".into(), LASTS), Instant::now());
        let empty = Seen { lasts: Duration::ZERO, reports_to: String::new(), ..lease("", 0) };
        assert_eq!((a.observe(empty, start), a.leads(start)), (Next::Take, false));
        a.written(lease("a", 1), start);
        assert!(a.leads(start + seconds(19)) && !a.leads(start + seconds(20)));
        assert_eq!(a.reports_to(start + seconds(19)), "at a");
        assert_eq!(a.reports_to(start + seconds(20)), "");
        assert_eq!(a.observe(lease("a", 1), start + seconds(25)), Next::Renew);
    }

    #[test]
    fn a_renewed_lease_stays_and_an_expired_one_is_taken() {
        let (mut b, start) = (Candidate::new("b".into(), LASTS), Instant::now());
        for at in 0..5 {
            let now = start + seconds(10) * at;
            assert_eq!(b.observe(lease("a", at), now), Next::Leave);
            assert_eq!(b.reports_to(now), "at a");
        }
        let last = start + seconds(40);
        assert_eq!(b.observe(lease("a", 4), last + LASTS), Next::Leave);
        assert_eq!(b.reports_to(last + LASTS), "", "the Lease has expired");
        assert_eq!(b.observe(lease("a", 4), last + seconds(31)), Next::Take);
    }

    #[test]
    fn a_released_lease_is_taken_at_once() {
        let (mut b, now) = (Candidate::new("b".into(), LASTS), Instant::now());
        assert_eq!(b.observe(lease("", 4), now), Next::Take);
        assert_eq!(b.reports_to(now), "");
    }

    #[test]
    fn a_holder_without_its_lease_stops_leading() {
        let (mut a, now) = (Candidate::new("a".into(), LASTS), Instant::now());
        a.written(lease("a", 1), now);
        a.missed();
        assert_eq!((a.leads(now), a.reports_to(now)), (false, ""));
    }

    #[test]
    fn a_replica_that_finds_another_holder_stops_leading() {
        let (mut a, now) = (Candidate::new("a".into(), LASTS), Instant::now());
        a.written(lease("a", 1), now);
        a.observe(lease("b", 2), now);
        assert!(!a.leads(now));
        assert_eq!(a.reports_to(now), "at b");
    }

    /// The holder is cut off after its last renewal, which the other reads at any later time.
    #[test]
    fn two_replicas_never_lead_together() {
        for delay in 0..20 {
            let (mut a, mut b) =
                (Candidate::new("a".into(), LASTS), Candidate::new("b".into(), LASTS));
            let sent = Instant::now();
            a.written(lease("a", 1), sent);
            let mut now = sent + seconds(delay);
            while b.observe(lease("a", 1), now) == Next::Leave {
                now += Duration::from_millis(100);
            }
            assert!(!a.leads(now), "after {delay} s");
        }
    }
}
