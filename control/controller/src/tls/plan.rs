//! Schedule of authorities and certificates. Times are in seconds since 1970.

use serde::{Deserialize, Serialize};

/// Content of the replicas' Secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Kept {
    /// The authority that signs.
    pub(super) signing: Authority,
    /// The next authority, which nodes trust already.
    pub(super) next: Option<Authority>,
    /// Former authorities, whose certificates are still trusted.
    pub(super) retired: Vec<Retired>,
    /// The serving certificate.
    pub(super) serving: Pair,
    /// DNS names of the serving certificate, separated by commas.
    pub(super) server_name: String,
}

/// A certificate with its key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Pair {
    pub(super) certificate: String,
    pub(super) key: String,
    pub(super) made: u64,
    pub(super) ends: u64,
}

impl std::fmt::Debug for Pair {
    /// Leaves the key out.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { made, ends, .. } = self;
        f.debug_struct("Pair").field("made", made).field("ends", ends).finish_non_exhaustive()
    }
}

/// A certificate authority.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Authority {
    pub(super) name: String,
    pub(super) pair: Pair,
}

/// A former authority, without its key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Retired {
    pub(super) certificate: String,
    pub(super) ends: u64,
}

/// Lifetimes in seconds.
#[derive(Clone, Debug)]
pub(super) struct Lives {
    pub(super) certificate: u64,
    pub(super) authority: u64,
}

/// Tolerated difference of clocks, in seconds. Certificates are valid this long before they are made.
pub(super) const EARLIER: u64 = 600;

/// A change of the Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Create an authority and a certificate, as there is none or all have expired.
    Begin,
    /// Create the next authority. It is published before it signs.
    Announce,
    /// Make the next authority the signing one, and issue a certificate.
    Promote,
    /// Issue a certificate of the same authority.
    Renew,
    /// Drop an expired former authority.
    Forget,
    /// No change is due.
    Rest,
}

/// Returns the next step.
pub(super) fn step(kept: Option<&Kept>, server_name: &str, lives: &Lives, now: u64) -> Step {
    let Some(kept) = kept else { return Step::Begin };
    let signing = &kept.signing.pair;
    if is_not_yet_valid(signing, now) {
        return Step::Begin;
    }
    let has_ended = signing.ends <= now;
    let next = kept.next.as_ref();
    if next.is_some_and(|next| is_not_yet_valid(&next.pair, now)) {
        return Step::Announce;
    }
    match next {
        // Nodes have the next authority for a twelfth of its life before it signs, unless the current one has expired.
        Some(next)
            if has_ended || (is_past(signing, 2, 3, now) && is_past(&next.pair, 1, 12, now)) =>
        {
            return Step::Promote;
        }
        None if has_ended => return Step::Begin,
        None if is_past(signing, 1, 2, now) => return Step::Announce,
        Some(_) | None => {}
    }
    let ends_soon = is_past(&kept.serving, 2, 3, now) && !is_as_long(kept, lives, now);
    if kept.server_name != server_name || ends_soon || is_not_yet_valid(&kept.serving, now) {
        return Step::Renew;
    }
    if kept.retired.iter().any(|retired| retired.ends <= now) { Step::Forget } else { Step::Rest }
}

/// True for a certificate that a replica with a wrong clock has made. Nodes refuse it.
fn is_not_yet_valid(pair: &Pair, now: u64) -> bool {
    pair.made > now + EARLIER
}

/// True if a new certificate would not last longer: it cannot outlive its authority.
fn is_as_long(kept: &Kept, lives: &Lives, now: u64) -> bool {
    kept.serving.ends >= (now + lives.certificate).min(kept.signing.pair.ends)
}

fn is_past(pair: &Pair, part: u64, of: u64, now: u64) -> bool {
    let life = pair.ends.saturating_sub(pair.made);
    now >= pair.made + life * part / of
}

impl Kept {
    /// Returns the certificates of all authorities that nodes trust, as PEM.
    pub(super) fn bundle(&self) -> String {
        let next = self.next.iter().map(|next| next.pair.certificate.as_str());
        let retired = self.retired.iter().map(|retired| retired.certificate.as_str());
        [self.signing.pair.certificate.as_str()].into_iter().chain(next).chain(retired).collect()
    }
}
