//! Whose stream is ended next, when all are to end.

/// Goes round the nodes by their names.
#[derive(Debug, Default)]
pub(crate) struct Dismissals {
    /// Whose turn was last.
    last: Option<String>,
}

impl Dismissals {
    /// As many of those that still follow, behind those whose turn it was: one that cannot hear it yet stays, and
    /// keeps no other. After the last the first have their turn again, should they still be there.
    pub(crate) fn next(&mut self, mut followers: Vec<String>, at_once: usize) -> Vec<String> {
        followers.sort();
        let is_behind = |node: &String| self.last.as_ref().is_none_or(|last| node > last);
        if !followers.last().is_some_and(is_behind) {
            self.last = None;
        }
        followers.retain(|node| self.last.as_ref().is_none_or(|last| node > last));
        followers.truncate(at_once);
        self.last = followers.last().cloned();
        followers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn nodes_that_do_not_hear_it_keep_no_other() {
        let nodes: Vec<String> = (0..20).map(|number| format!("n{number:02}")).collect();
        // The first of all are blocked: they stay, as many as are dismissed at once.
        let (blocked, mut others): (Vec<_>, BTreeSet<_>) =
            (nodes[..4].to_vec(), nodes[4..].iter().cloned().collect());
        let (mut dismissals, mut told) = (Dismissals::default(), Vec::new());
        for _ in 0..nodes.len() / 4 {
            let followers: Vec<String> = others.iter().chain(&blocked).cloned().collect();
            let next = dismissals.next(followers, 4);
            assert!(next.len() <= 4, "{next:?}");
            others.retain(|node| !next.contains(node));
            told.extend(next);
        }
        assert!(others.is_empty(), "{others:?}");
        assert_eq!(told, nodes, "each had its turn once");
    }

    #[test]
    fn all_have_their_turn_again_after_the_last() {
        let nodes = ["a", "b", "c"].map(str::to_owned);
        let mut dismissals = Dismissals::default();
        let mut next = || dismissals.next(nodes.to_vec(), 2);
        assert_eq!([next(), next(), next()].concat(), ["a", "b", "c", "a", "b"]);
        assert!(dismissals.next(Vec::new(), 2).is_empty());
    }
}
