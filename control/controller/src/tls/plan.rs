//! What is to be made when. Times are in seconds since 1970.

use serde::{Deserialize, Serialize};

/// What the replicas keep, all of it in one place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Kept {
    /// It signs.
    pub(super) signing: Authority,
    /// It will sign; nodes trust it already.
    pub(super) next: Option<Authority>,
    /// They signed; what they signed is still trusted.
    pub(super) retired: Vec<Retired>,
    /// It is shown.
    pub(super) serving: Pair,
    /// What it is for.
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
    /// Without the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { made, ends, .. } = self;
        f.debug_struct("Pair").field("made", made).field("ends", ends).finish_non_exhaustive()
    }
}

/// One who signs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Authority {
    pub(super) name: String,
    pub(super) pair: Pair,
}

/// One who signed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Retired {
    pub(super) certificate: String,
    pub(super) ends: u64,
}

/// How long what is made lasts.
#[derive(Clone, Debug)]
pub(super) struct Lives {
    pub(super) certificate: u64,
    pub(super) authority: u64,
}

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// There is nothing, or nothing that holds: an authority, and a certificate of it.
    Begin,
    /// Another authority, which nodes hear of before it signs.
    Announce,
    /// It signs now, and a certificate of it is shown.
    Promote,
    /// A certificate of the same authority.
    Renew,
    /// One who signed is forgotten.
    Forget,
    /// All is well.
    Rest,
}

/// The next step.
pub(super) fn step(kept: Option<&Kept>, server_name: &str, lives: &Lives, now: u64) -> Step {
    let Some(kept) = kept else { return Step::Begin };
    let signing = &kept.signing.pair;
    let has_ended = signing.ends <= now;
    match &kept.next {
        // Nodes have it for a twelfth of its life before it signs, unless there is no other.
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
    if kept.server_name != server_name || ends_soon {
        return Step::Renew;
    }
    if kept.retired.iter().any(|retired| retired.ends <= now) { Step::Forget } else { Step::Rest }
}

/// A certificate cannot outlive its authority: made anew it would last no longer.
fn is_as_long(kept: &Kept, lives: &Lives, now: u64) -> bool {
    kept.serving.ends >= (now + lives.certificate).min(kept.signing.pair.ends)
}

fn is_past(pair: &Pair, part: u64, of: u64, now: u64) -> bool {
    let life = pair.ends.saturating_sub(pair.made);
    now >= pair.made + life * part / of
}

impl Kept {
    /// Whom nodes trust.
    pub(super) fn bundle(&self) -> String {
        let next = self.next.iter().map(|next| next.pair.certificate.as_str());
        let retired = self.retired.iter().map(|retired| retired.certificate.as_str());
        [self.signing.pair.certificate.as_str()].into_iter().chain(next).chain(retired).collect()
    }
}
