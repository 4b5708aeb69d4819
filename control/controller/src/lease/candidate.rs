//! Who may write the Lease when. Time is an argument.

use std::time::{Duration, Instant};

/// The Lease as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// Who holds it; `None` when it was given back.
    pub(super) holder: Option<String>,
    /// How long it lasts after each renewal.
    pub(super) lasts: Duration,
    /// Different after each write.
    pub(super) version: String,
    /// Where its holder takes reports.
    pub(super) reports_to: String,
}

/// What to do with the Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// There is none: make it.
    Create,
    /// It is nobody's any more: take it.
    Take,
    /// It is ours: renew it.
    Renew,
    /// It is somebody else's.
    Leave,
}

/// One who would hold it.
///
/// Clocks of different replicas are never compared: the holder counts from before it sent its last renewal
/// and stands down after two thirds of what the others, who count from when they saw it, wait for.
#[derive(Debug)]
pub(super) struct Candidate {
    identity: String,
    lasts: Duration,
    /// What was seen last, and since when it has been so.
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

    /// Where whoever leads takes reports, as far as is known.
    pub(super) fn reports_to(&self, now: Instant) -> &str {
        match &self.seen {
            Some((seen, since)) if seen.holder.is_some() && now < *since + seen.lasts => {
                let is_own = seen.holder.as_ref() == Some(&self.identity);
                if is_own && !self.leads(now) { "" } else { &seen.reports_to }
            }
            Some(_) | None => "",
        }
    }

    /// The Lease as it is now.
    pub(super) fn look(&mut self, lease: Option<Seen>, now: Instant) -> Next {
        let Some(lease) = lease else {
            (self.seen, self.held_until) = (None, None);
            return Next::Create;
        };
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

    /// A write of ours, sent at this time, was accepted.
    pub(super) fn holds(&mut self, lease: Seen, sent: Instant) {
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
    fn the_first_one_makes_it_and_leads_once_it_is_written_until_it_is_late() {
        let (mut a, begun) = (Candidate::new("a".into(), LASTS), Instant::now());
        assert_eq!((a.look(None, begun), a.leads(begun)), (Next::Create, false));
        a.holds(lease("a", 1), begun);
        assert!(a.leads(begun + seconds(19)) && !a.leads(begun + seconds(20)));
        assert_eq!(a.reports_to(begun + seconds(19)), "at a");
        assert_eq!(a.reports_to(begun + seconds(20)), "");
        assert_eq!(a.look(Some(lease("a", 1)), begun + seconds(25)), Next::Renew);
    }

    #[test]
    fn one_that_is_renewed_is_left_alone_and_one_that_is_not_is_taken() {
        let (mut b, begun) = (Candidate::new("b".into(), LASTS), Instant::now());
        for at in 0..5 {
            let now = begun + seconds(10) * at;
            assert_eq!(b.look(Some(lease("a", at)), now), Next::Leave);
            assert_eq!(b.reports_to(now), "at a");
        }
        let last = begun + seconds(40);
        assert_eq!(b.look(Some(lease("a", 4)), last + LASTS), Next::Leave);
        assert_eq!(b.reports_to(last + LASTS), "", "nobody has renewed it");
        assert_eq!(b.look(Some(lease("a", 4)), last + seconds(31)), Next::Take);
    }

    #[test]
    fn one_that_was_given_back_is_taken_at_once() {
        let (mut b, now) = (Candidate::new("b".into(), LASTS), Instant::now());
        assert_eq!(b.look(Some(lease("", 4)), now), Next::Take);
        assert_eq!(b.reports_to(now), "");
    }

    #[test]
    fn who_finds_anothers_name_in_it_leads_no_more() {
        let (mut a, now) = (Candidate::new("a".into(), LASTS), Instant::now());
        a.holds(lease("a", 1), now);
        a.look(Some(lease("b", 2)), now);
        assert!(!a.leads(now));
        assert_eq!(a.reports_to(now), "at b");
    }

    /// One is cut off after its last renewal, which took any time to be seen.
    #[test]
    fn two_never_lead_at_once() {
        for delay in 0..20 {
            let (mut a, mut b) =
                (Candidate::new("a".into(), LASTS), Candidate::new("b".into(), LASTS));
            let sent = Instant::now();
            a.holds(lease("a", 1), sent);
            let mut now = sent + seconds(delay);
            while b.look(Some(lease("a", 1)), now) == Next::Leave {
                now += Duration::from_millis(100);
            }
            assert!(!a.leads(now), "after {delay} s");
        }
    }
}
